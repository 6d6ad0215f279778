//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// destinationLine is a destination in the store, as a line of a spec.
func (s *store) destinationLine(bucket, prefix string) string {
	return fmt.Sprintf("{url: 's3://%s/%s', endpoint: '%s', pathStyle: true, credentialsSecretRef: {name: keys}}", bucket, prefix, s.endpointURL())
}

// backedUpTo is a spec whose schedule is never due.
func backedUpTo(destination string, more ...string) string {
	return "backup: {" + strings.Join(append([]string{"schedule: '0 0 1 1 *'", "destination: " + destination}, more...), ", ") + "}"
}

// storeRefuses: what is wrong with a destination is said before there is a
// backup, and withdrawn once it is fixed. The cluster serves all the time.
func storeRefuses(t *testing.T, k *kind) {
	s := newStore(t, "", "2Gi")
	c := newSubject(t, k, 1, backedUpTo(s.destinationLine(bucket, "refused")))
	c.waitCondition(backupTimeout, v1alpha1.ConditionBackedUp, metav1.ConditionFalse, v1alpha1.ReasonSecretMissing, "spec.backup.destination.credentialsSecretRef", "keys")
	shell := newDocsShell(t, c.namespace)
	must(t, os.WriteFile(filepath.Join(shell.folder, "ca.pem"), s.access[trustedCA], 0o600), "write the store's authority")
	shell.runStep(t, "StoreRefuses", "credentials", "store-keys", "keys",
		accessKeyID+"=...", accessKeyID+"="+string(s.access[accessKeyID]), accessKey+"=...", accessKey+"=guessed --from-file="+trustedCA+"=ca.pem")
	unusable := func(words ...string) {
		t.Helper()
		c.waitCondition(backupTimeout, v1alpha1.ConditionBackedUp, metav1.ConditionFalse, v1alpha1.ReasonStoreUnusable, words...)
		c.waitReady()
	}
	unusable("spec.backup.destination.credentialsSecretRef", "check the keys of the Secret")

	keys := &corev1.Secret{}
	c.readObject(keys, "keys")
	keys.Data = s.access
	must(t, env.client.Update(t.Context(), keys), "fix the credentials")
	c.waitUsable()
	if out := shell.runStep(t, "StoreRefuses", "check", "pg orders", k.resource()+" orders"); !strings.Contains(out, `"time":`) || strings.Contains(out, `"error"`) {
		t.Errorf("the check of the store is %s", out)
	}
	c.changeSpec(backedUpTo(s.destinationLine("missing", "refused")))
	unusable("spec.backup.destination.url", "create it, or correct its name")
	c.changeSpec(backedUpTo(s.destinationLine(bucket, "refused")))
	c.waitUsable()
	for _, left := range s.listKeys("") {
		if !strings.Contains(left, "/"+orders+"-first-") { // a backup's own
			t.Errorf("what was tried left %q", left)
		}
	}
	c.waitBackup(c.createBackup("fixed", v1alpha1.DeletionRetain))
}

// waitUsable waits until the destination was found to be usable, and the first
// backup was made there.
func (c *subject) waitUsable() {
	c.t.Helper()
	c.waitFor(backupTimeout, "the store can be used", func(c v1alpha1.Cluster) error {
		if check := c.CommonStatus().StoreCheck; check == nil || check.Error != "" {
			return fmt.Errorf("%+v", check)
		}
		return nil
	})
	c.waitCondition(backupTimeout, v1alpha1.ConditionBackedUp, metav1.ConditionTrue, v1alpha1.ReasonBackedUp, "-first-")
}

// storeDamaged: nothing is restored from what is not as it was written, and the
// next backup is a good one.
func storeDamaged(t *testing.T, k *kind) {
	needKind(t, k)
	s := newStore(t, "", "2Gi")
	namespace := newNamespace(t, "")
	s.giveKeys(namespace)
	c := createSubject(t, k, namespace, orders, 1, backedUpTo(s.destinationLine(bucket, "damaged")))
	c.waitReady()
	k.keepValue(c, "7")
	damage := map[string]func(b *v1alpha1.Backup){
		"corrupted": func(b *v1alpha1.Backup) {
			parts := s.listKeys("damaged/" + b.Status.Location.Prefix)
			s.corruptObject(parts[slices.IndexFunc(parts, func(key string) bool { return strings.Contains(key, "/data/") })])
		},
		"truncated": func(b *v1alpha1.Backup) { s.truncateObject("damaged/" + b.Status.Result.Manifest) },
	}
	words := map[string]string{"corrupted": "what the store holds is not what was written", "truncated": "manifest.json"}
	for _, name := range slices.Sorted(maps.Keys(damage)) {
		b := c.createBackup(name, v1alpha1.DeletionRetain)
		c.waitBackup(b)
		damage[name](b)
		refused := createSubject(t, k, namespace, "from-"+name, 1, "restore: {backup: "+name+"}")
		refused.waitCondition(restoreTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRestoreFailed, "nothing was restored", words[name])
		for _, pod := range refused.listPods() {
			t.Errorf("member %s was started on what is %s", pod.Name, name)
		}
		claim := &corev1.PersistentVolumeClaim{}
		refused.readObject(claim, refused.volumeName(0))
		if id := claim.Annotations[v1alpha1.AnnotationSystemIdentifier]; id != "" {
			t.Errorf("the volume says that it holds the database system %s", id)
		}
	}
	whole := c.createBackup("whole", v1alpha1.DeletionRetain)
	c.waitBackup(whole)
	again := createSubject(t, k, namespace, "again", 1, "restore: {backup: whole}")
	again.waitFor(restoreTimeout, "the cluster is restored and ready", rolledOut)
	if got := k.checkServes(t, again); got != "7" {
		t.Errorf("an application reads %q", got)
	}
}

// storeShared: two clusters of the same name share a prefix. What one stores the
// other leaves as it is, and each gets back its own.
func storeShared(t *testing.T, k *kind) {
	needKind(t, k)
	s := newStore(t, "", "2Gi")
	var clusters []*subject
	var had map[string][]byte
	for n := range 2 {
		namespace := newNamespace(t, fmt.Sprintf("shared%d-", n))
		s.giveKeys(namespace)
		c := createSubject(t, k, namespace, orders, 1, backedUpTo(s.destinationLine(bucket, "shared")))
		c.waitReady()
		c.madeBackup("-first-")
		k.keepValue(c, fmt.Sprint(10+n))
		c.waitBackup(c.createBackup("same", v1alpha1.DeletionRetain))
		for key, content := range had {
			if !bytes.Equal(s.getObject(key), content) {
				t.Errorf("%s is another one's now", key)
			}
		}
		if n == 0 {
			had = map[string][]byte{}
			for _, key := range s.listKeys("shared/") {
				had[key] = s.getObject(key)
			}
		}
		clusters = append(clusters, c)
	}
	if all := s.listKeys("shared/"); len(had) < 2 || len(all) < 2*len(had) {
		t.Errorf("of %d objects %d are the first one's", len(all), len(had))
	}
	for n, c := range clusters {
		again := createSubject(t, k, c.namespace, "again", 1, "restore: {backup: same}")
		again.waitFor(restoreTimeout, "the cluster is restored and ready", rolledOut)
		if got := k.checkServes(t, again); got != fmt.Sprint(10+n) {
			t.Errorf("cluster %d got back %q", n, got)
		}
	}
}

// destinationRemoved: when the spec loses the destination, nothing moves. The
// database serves, and backups go on where they went once it is declared again.
func destinationRemoved(t *testing.T, k *kind) {
	s := newStore(t, "", "2Gi")
	c := newSubject(t, k, 1, backedUpTo(s.destinationLine(bucket, "removed")))
	s.giveKeys(c.namespace)
	c.waitReady()
	c.madeBackup("-first-")
	c.changeSpec("backup: null")
	c.waitStalled(v1alpha1.ReasonDestinationRemoved, "spec.backup.destination", bucket+"/removed", "spec.backup.volume")
	c.waitCondition(readyTimeout, v1alpha1.ConditionBackedUp, metav1.ConditionFalse, v1alpha1.ReasonDestinationRemoved)
	c.waitCondition(readyTimeout, v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonAvailable)
	stored := s.listKeys("removed/")
	b := c.createBackup("held", v1alpha1.DeletionRetain)
	eventually(t, readyTimeout, "a backup by hand is held", func(ctx context.Context) error {
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if stalled := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionStalled); stalled == nil || stalled.Reason != v1alpha1.ReasonDestinationRemoved {
			return fmt.Errorf("%+v", b.Status)
		}
		return nil
	})
	must(t, checkGone(env.client.Get(t.Context(), c.nameOf(v1alpha1.SuffixBackups), &corev1.PersistentVolumeClaim{})), "no volume for backups appears")
	if now := s.listKeys("removed/"); !slices.Equal(now, stored) {
		t.Errorf("the store has %q, before %q", now, stored)
	}
	c.changeSpec(backedUpTo(s.destinationLine(bucket, "removed")))
	c.waitReady()
	c.waitBackup(b)
	if at := b.Status.Location; at.ClaimName != "" {
		t.Errorf("the backup is at %+v", at)
	}
}

// storeInterrupted: a backup in whose middle its pod is killed, or its store
// goes away, is complete all the same.
func storeInterrupted(t *testing.T) {
	s := newStore(t, "", "2Gi")
	c := newSubject(t, postgres, 1, backedUpTo(s.destinationLine(bucket, "interrupted")))
	s.giveKeys(c.namespace)
	c.waitReady()
	c.madeBackup("-first-")
	// PostgreSQL's empty database is about 40Mi: progress is reported a few times
	// before all of it is copied.
	c.changeSpec(backedUpTo(s.destinationLine(bucket, "interrupted"), "bandwidth: 2Mi"))
	c.waitReady()

	killed := c.createBackup("killed", v1alpha1.DeletionRetain)
	first := c.waitMiddle(killed)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: first}}
	must(t, env.client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)), "kill the pod")
	c.waitBackup(killed)
	if strings.Contains(killed.Status.Result.Manifest, "/"+first+"/") {
		t.Errorf("%s is of the pod that was killed", killed.Status.Result.Manifest)
	}

	away := c.createBackup("away", v1alpha1.DeletionRetain)
	c.waitMiddle(away)
	s.stopStore()
	c.waitReady() // the database goes on
	eventually(t, backupTimeout, "the backup says what it waits for", func(ctx context.Context) error {
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(away), away); err != nil {
			return err
		}
		busy := meta.FindStatusCondition(away.Status.Conditions, v1alpha1.ConditionReconciling)
		if busy == nil {
			return fmt.Errorf("phase %s, run %+v", away.Status.Phase, away.Status.Run)
		}
		return holdsAll(busy.Message, "trying again", "it is tried until")
	})
	s.startStore()
	c.waitBackup(away)
	if left := s.listKeys("interrupted/" + away.Status.Location.Prefix); !slices.Contains(left, "interrupted/"+away.Status.Result.Manifest) {
		t.Errorf("the store has %q", left)
	}
}

// waitMiddle waits until a backup is being copied, and some of it was, and is
// the pod that does it.
func (c *subject) waitMiddle(b *v1alpha1.Backup) (pod string) {
	c.t.Helper()
	eventually(c.t, backupTimeout, "the backup is in its middle", func(ctx context.Context) error {
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		run := b.Status.Run
		if b.IsFinished() {
			return errors.New("it is over already")
		}
		if run == nil || run.Step != v1alpha1.BackupStepCopying || run.Progress == "" || run.Progress == "0" || run.Progress == "0%" {
			return fmt.Errorf("phase %s, run %+v", b.Status.Phase, run)
		}
		pod = run.Pod
		return nil
	})
	return pod
}

// backupVolumeFull: a volume that is too small says which field to raise, and
// the next backup after that is a good one.
func backupVolumeFull(t *testing.T) {
	c := newSubject(t, postgres, 1, "backup: {schedule: '0 0 1 1 *', volume: {size: 64Mi, storageClass: sized}}")
	c.waitReady()
	c.madeBackup("-first-")
	// It cannot be compressed.
	_, err := runLocalQuery(t.Context(), c.namespace, c.podName(leading), "app", `create table filler as
		select n, (select string_agg(sha512((random()::text || n || i)::bytea), '') from generate_series(1, 1024) i) as noise from generate_series(1, 1400) n`)
	must(t, err, "fill the database")
	full := c.createBackup("full", v1alpha1.DeletionRetain)
	eventually(t, backupTimeout, "the backup has failed", func(ctx context.Context) error {
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(full), full); err != nil {
			return err
		}
		if stalled := meta.FindStatusCondition(full.Status.Conditions, v1alpha1.ConditionStalled); stalled == nil || stalled.Reason != v1alpha1.ReasonBackupFailed {
			return fmt.Errorf("phase %s, run %+v", full.Status.Phase, full.Status.Run)
		}
		return holdsAll(full.Status.Error, c.name+v1alpha1.SuffixBackups, "spec.backup.volume.size")
	})
	c.waitReady()
	c.changeSpec("backup: {volume: {size: 512Mi}}")
	eventually(t, readyTimeout, "the volume grows", func(ctx context.Context) error {
		claim := &corev1.PersistentVolumeClaim{}
		if err := env.client.Get(ctx, c.nameOf(v1alpha1.SuffixBackups), claim); err != nil {
			return err
		}
		if has := claim.Status.Capacity[corev1.ResourceStorage]; has.Value() < 512<<20 {
			return fmt.Errorf("it has %s", has.String())
		}
		return nil
	})
	c.waitBackup(c.createBackup("whole", v1alpha1.DeletionRetain))
}
