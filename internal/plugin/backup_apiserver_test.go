//go:build apiserver

package plugin

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// playBackup is an operator that finds a Backup as soon as it is made, and the
// pod that makes it, until the context ends.
func (w *world) playBackup(ctx context.Context, name string, states ...v1alpha1.BackupStatus) {
	for ctx.Err() == nil && len(states) > 0 {
		b := &v1alpha1.Backup{}
		if w.person.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, b) != nil {
			continue
		}
		b.Status = states[0]
		if w.person.Status().Update(ctx, b) == nil {
			states = states[1:]
		}
	}
}

// backupIn is the status of a backup in a phase; with a condition that is true.
func backupIn(phase, conditionType, reason, message string) v1alpha1.BackupStatus {
	condition := newCondition(conditionType, metav1.ConditionTrue, reason, message)
	condition.LastTransitionTime = metav1.Now()
	st := v1alpha1.BackupStatus{Phase: phase, Conditions: []metav1.Condition{condition}}
	if conditionType == v1alpha1.ConditionReady || reason == v1alpha1.ReasonBackupFailed {
		now := metav1.Now()
		st.CompletionTime = &now
	}
	return st
}

func goodBackup() v1alpha1.BackupStatus {
	st := backupIn("Completed", v1alpha1.ConditionReady, v1alpha1.ReasonBackupCompleted, "good")
	st.Result = &v1alpha1.BackupResult{
		Size: resource.MustParse("12Mi"), DataSize: resource.MustParse("40Mi"), Source: "orders-1", Version: "17.5",
		EndPosition: "1:0/3000060", Manifest: "m", Checksum: "sha256:0",
	}
	return st
}

func TestBackup(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, c v1alpha1.Cluster) {
		w.stop()
		c.SetName("a123456789b123456789c123456789d123456789") // the longest that there is
		w.createCluster(c)
		w.mustFail(1, "set its spec.backup.enabled to true", "backup", c.GetName())
		w.patchObject(c, c.GetName(), `{"spec":{"backup":{"enabled":true}}}`)

		out, _ := w.mustRun("backup", nameOf(c))
		var all v1alpha1.BackupList
		w.mustSucceed(w.person.List(t.Context(), &all, client.InNamespace(w.Namespace)))
		if len(all.Items) != 1 {
			t.Fatalf("there are %d backups", len(all.Items))
		}
		b := all.Items[0]
		want := v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: kindOf(c).gvk.Kind, Name: c.GetName()}, DeletionPolicy: v1alpha1.DeletionRetain}
		if diff := cmp.Diff(want, b.Spec); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		mustContain(t, out, "bk/"+b.Name+" of "+nameOf(c)+" is to be made")
		w.mustFail(1, "give it another --name", "backup", nameOf(c), "--name", b.Name)
		w.mustFail(1, "lower-case", "backup", nameOf(c), "--name", "9lives")
		w.mustFail(1, "no operator has looked at it yet, after 1s: it goes on", "backup", nameOf(c), "--name", "alone", "--wait", "--timeout", "1s")

		go w.playBackup(t.Context(), "good", backupIn("Copying", v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying, "copied"), goodBackup())
		out, _ = w.mustRun("backup", nameOf(c), "--name", "good", "--wait")
		mustContain(t, out, "bk/good is complete and verified: 12Mi of orders-1, version 17.5")

		go w.playBackup(t.Context(), "waits", backupIn("Pending", v1alpha1.ConditionStalled, v1alpha1.ReasonSecretMissing, "there is no Secret keys"))
		w.mustFail(1, "bk/waits: stalled, SecretMissing: there is no Secret keys", "backup", nameOf(c), "--name", "waits", "--wait")
		go w.playBackup(t.Context(), "bad", backupIn("Failed", v1alpha1.ConditionStalled, v1alpha1.ReasonBackupFailed, "the bucket is missing"))
		w.mustFail(1, "bk/bad: BackupFailed: the bucket is missing", "backup", nameOf(c), "--name", "bad", "--wait")

		go func() {
			gone := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "gone"}}
			for w.person.Delete(t.Context(), gone) != nil && t.Context().Err() == nil {
			}
		}()
		w.mustFail(1, "another client has deleted it", "backup", nameOf(c), "--name", "gone", "--wait")
	})
}

// TestPagePrintsBackups runs what the page shows of backups.
func TestPagePrintsBackups(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.createOrders(func(c *v1alpha1.PostgresCluster) { c.Spec.Backup = &v1alpha1.ClusterBackup{} })
	commands := shownCommands(t, "../../docs/reference/kubectl-holdfast.md", "backup")
	if len(commands) != 2 {
		t.Fatalf("the page shows %v", commands)
	}
	states := []v1alpha1.BackupStatus{
		goodBackup(),
		backupIn("Pending", v1alpha1.ConditionStalled, v1alpha1.ReasonSecretMissing, "PostgresCluster orders, spec.backup.destination.credentialsSecretRef: there is no Secret \"store-keys\" in this namespace: create it with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name another"),
	}
	for i, command := range commands {
		args := strings.Fields(strings.ReplaceAll(strings.Join(command.args, " "), "-n shop", ""))
		for n, arg := range args {
			if arg == "--name" {
				go w.playBackup(t.Context(), args[n+1], states[i])
			}
		}
		got, _, err := w.runPlugin(args...)
		if err != nil {
			got += "holdfast: " + err.Error() + "\n"
		}
		if diff := cmp.Diff(command.output, got); diff != "" {
			t.Errorf("kubectl holdfast %s (-page +printed):\n%s", strings.Join(command.args, " "), diff)
		}
	}
}
