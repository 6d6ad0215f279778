//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// restoreTimeout is for a small backup to be restored, and the members to join.
const restoreTimeout = backupTimeout + readyTimeout

// is never due in a test.
const never = "backup: {schedule: '0 0 1 1 *'}"

// testRestores: a cluster that is lost begins again under another name, with all
// that was acknowledged before its backup was begun.
func testRestores(t *testing.T, k *kind) {
	c := newSubject(t, k, k.several, never)
	c.waitReady()
	k.keepValue(c, "7")
	had, b := c.copiedUnderWrites("before-the-loss")
	c.deleteCluster(append(c.retainedNames(k.several), "PersistentVolumeClaim/"+c.name+v1alpha1.SuffixBackups)...)

	again := createSubject(t, k, c.namespace, "again", k.several, "restore: {backup: "+b.Name+"}")
	again.wantRestored(had, b)
	newDocsShell(t, c.namespace).runStep(t, "Restores", "wait", "pg/orders-copy", k.resource()+"/again", "pg orders-copy", k.resource()+" again")
	again.checkCompacted(b)
	k.awaitUnited(again, int(k.several))

	// Git declares it as before after it was lost once more: what its volumes
	// hold is newer than the backup, and stays.
	k.keepValue(again, "8")
	again.deleteCluster(again.retainedNames(k.several)...)
	again.createCluster(k.several, "restore: {backup: "+b.Name+"}")
	again.waitStalled(v1alpha1.ReasonRestoreRefused, again.volumeName(0), "remove spec.restore")
	again.changeSpec("restore: null")
	again.waitReady()
	if got := k.checkServes(t, again); got != "8" {
		t.Errorf("an application reads %q", got)
	}
}

// restoresFromStore: of a namespace that is gone with all that was in it, the
// objects in a store bring the cluster back.
func restoresFromStore(t *testing.T, k *kind) {
	needKind(t, k)
	s := newStore(t, "", "2Gi")
	at := fmt.Sprintf("url: 's3://%s/%s', endpoint: '%s', pathStyle: true, credentialsSecretRef: {name: keys}", bucket, k.engine, s.endpointURL())
	lost := newNamespace(t, "lost-")
	s.giveKeys(lost)
	c := createSubject(t, k, lost, orders, 1, "backup: {schedule: '0 0 1 1 *', destination: {"+at+"}}")
	c.waitReady()
	c.madeBackup("-first-") // the next one is the newest
	k.keepValue(c, "7")
	had, b := c.copiedUnderWrites("before-the-loss")
	must(t, env.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lost}}), "delete the namespace")
	eventually(t, goneTimeout, "the namespace is gone", func(ctx context.Context) error {
		return checkGone(env.client.Get(ctx, client.ObjectKey{Name: lost}, &corev1.Namespace{}))
	})

	namespace := newNamespace(t, "")
	s.giveKeys(namespace)
	again := createSubject(t, k, namespace, orders, k.several, "restore: {source: {"+at+", namespace: "+lost+"}}")
	again.wantRestored(had, b)
	again.checkCompacted(b)
}

// restoresFail: what keeps a restore from beginning, or from coming to an end,
// is reported with what to fix, and no member starts on what is not there.
func restoresFail(t *testing.T, k *kind) {
	missing := newSubject(t, k, 1, "restore: {backup: nothing}")
	missing.waitStalled(v1alpha1.ReasonBackupMissing, "spec.restore.backup", "nothing")

	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: missing.namespace, Name: "keys"}, StringData: map[string]string{accessKeyID: "id"}}
	must(t, env.client.Create(t.Context(), keys), "create half a key")
	refused := createSubject(t, k, missing.namespace, "refused", 1,
		"restore: {source: {url: 's3://nowhere', endpoint: 'https://store.invalid', credentialsSecretRef: {name: keys}}}")
	refused.waitCondition(backupTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonRestoreFailed, accessKey)
	var tries corev1.PodList
	must(t, env.client.List(t.Context(), &tries, client.InNamespace(refused.namespace), client.HasLabels{v1alpha1.LabelRestore}), "list the tries")
	if members := len(refused.listPods()); len(tries.Items) != 1 || members > 0 {
		t.Fatalf("%d pods tried what only a person can fix, and %d are members", len(tries.Items), members)
	}
	first := tries.Items[0].UID
	newDocsShell(t, refused.namespace).runStep(t, "RestoresFail", "retry", "pg orders-copy", k.resource()+" refused")
	eventually(t, backupTimeout, "another pod tries", func(ctx context.Context) error {
		if err := env.client.List(ctx, &tries, client.InNamespace(refused.namespace), client.HasLabels{v1alpha1.LabelRestore}); err != nil {
			return err
		}
		if !slices.ContainsFunc(tries.Items, func(p corev1.Pod) bool { return p.UID != first }) {
			return fmt.Errorf("%d pods have tried", len(tries.Items))
		}
		return nil
	})
}

// giveKeys of the store to a namespace.
func (s *store) giveKeys(namespace string) {
	s.t.Helper()
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keys"}, Data: s.access}
	must(s.t, env.client.Create(s.t.Context(), keys), "create the keys")
}

// copiedUnderWrites is a backup by hand while an application writes, and what
// was acknowledged before it was asked for.
func (c *subject) copiedUnderWrites(name string) (had map[int]bool, b *v1alpha1.Backup) {
	c.t.Helper()
	w := c.startWriter()
	w.report.mu.Lock()
	had = maps.Clone(w.report.acked)
	w.report.mu.Unlock()
	b = c.createBackup(name, v1alpha1.DeletionRetain)
	c.waitBackup(b)
	w.goesOn()
	w.stopWriting()
	return had, b
}

// wantRestored wants a cluster to begin with a backup: with what was kept, all
// that had been acknowledged, and applications that are served.
func (c *subject) wantRestored(had map[int]bool, b *v1alpha1.Backup) {
	c.t.Helper()
	obj := c.waitFor(restoreTimeout, "the cluster is restored and ready", rolledOut)
	st := obj.CommonStatus()
	if r := st.Restore; !r.Done() || r.Result == nil || r.Result.Manifest != b.Status.Result.Manifest ||
		r.Result.EndPosition != b.Status.Result.EndPosition || r.Result.SystemIdentifier != st.SystemIdentifier {
		c.t.Errorf("%+v of %+v, the system is %s", st.Restore, b.Status.Result, st.SystemIdentifier)
	}
	if phases := c.phasesSince(0); !slices.Contains(phases, "Restoring") || slices.Contains(phases, "Failed") {
		c.t.Errorf("it went through %v", phases)
	}
	lost := maps.Clone(had)
	for _, n := range c.kind.writtenNumbers(c, 0) {
		delete(lost, n)
	}
	if len(had) == 0 || len(lost) > 0 {
		c.t.Errorf("%d of %d writes that were acknowledged before the backup are lost: %v", len(lost), len(had), slices.Sorted(maps.Keys(lost)))
	}
	if got := c.kind.checkServes(c.t, c); got != "7" {
		c.t.Errorf("an application reads %q", got)
	}
	c.kind.keepValue(c, "9")
	if got := c.kind.keptValue(c); got != "9" {
		c.t.Errorf("what was written after the restore is %q", got)
	}
	eventually(c.t, goneTimeout, "what the restore needed is gone", func(ctx context.Context) error {
		at := client.ObjectKey{Namespace: c.namespace, Name: c.name + v1alpha1.SuffixRestore}
		return errors.Join(checkGone(env.client.Get(ctx, at, &batchv1.Job{})), checkGone(env.client.Get(ctx, at, &corev1.ConfigMap{})))
	})
}

// checkCompacted: who watches an etcd that was restored from a revision of before is
// answered that it is gone, and is not left with what has never been.
func (c *subject) checkCompacted(b *v1alpha1.Backup) {
	c.t.Helper()
	if c.kind != etcd {
		return
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	out, err := inMember(ctx, c.namespace, c.podName(0), "watch", "--prefix", "--rev="+b.Status.Result.EndPosition, "written/")
	if err == nil {
		c.t.Fatalf("a watch from revision %s goes on: %s", b.Status.Result.EndPosition, out)
	}
	must(c.t, holdsAll(err.Error()+out, "compacted"), "watch from a revision of before")
}
