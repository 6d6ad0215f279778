//go:build apiserver

package controller_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// An archive that is turned on begins with a backup, made once however often the
// operator dies, and status says from when on all can be restored.
func TestArchiveBeginsWithABackup(t *testing.T) {
	t.Parallel()
	archiving := *postgresKind
	archiving.says = func(s *simulation, pod *corev1.Pod, m *agentapi.Status) {
		postgresKind.says(s, pod, m)
		if m.Role == v1alpha1.RolePrimary {
			m.Archive = &agentapi.ArchiveStatus{Last: "000000010000000000000001"}
		}
	}
	w := newWorld(t, &archiving)
	c := w.backedUp()
	o := w.operate(0)
	w.awaitReady(c)
	o.stop()
	edit(w, c, func(c v1alpha1.Cluster) {
		c.Common().Backup.Continuous, c.Common().Backup.Destination = true, &v1alpha1.BackupDestination{URL: "s3://acme/pg"}
	})
	w.diesOften(w.firstBackups)
	o = w.operate(0)
	await(w, c, "all can be restored from a moment on", func(c v1alpha1.Cluster) bool {
		a := c.CommonStatus().Archive
		return ready(c) && a != nil && a.State == v1alpha1.ArchiveArchiving && a.RestorableFrom != nil
	})
	w.awaitSteady(o)
	made := w.firstBackups()
	if len(made) != 1 || !made[0].HasSucceeded() || made[0].Labels[v1alpha1.LabelSchedule] == "" || !c.CommonStatus().Archive.RestorableFrom.Equal(made[0].Status.CompletionTime) {
		t.Errorf("%+v, and the archive is %+v", made, c.CommonStatus().Archive)
	}
}

// diesOften has the operator die after each of its next writes, and wants one
// backup of a kind at most all the time.
func (w *world) diesOften(made func() []v1alpha1.Backup) {
	w.t.Helper()
	for n := range 8 {
		o := w.operate(1)
		select {
		case <-o.crashed:
		case <-time.After(3 * time.Second): // nothing is left to be written
		}
		o.stop()
		if made := made(); len(made) > 1 {
			w.t.Fatalf("after %d deaths there are %d backups", n+1, len(made))
		}
	}
}

// firstBackups are those that an archive began with.
func (w *world) firstBackups() []v1alpha1.Backup {
	w.t.Helper()
	var all v1alpha1.BackupList
	if err := w.person.List(w.t.Context(), &all, client.InNamespace(w.Namespace)); err != nil {
		w.t.Fatal(err)
	}
	var found []v1alpha1.Backup
	for i := range all.Items {
		if strings.HasPrefix(all.Items[i].Name, "orders-first-") {
			found = append(found, all.Items[i])
		}
	}
	return found
}
