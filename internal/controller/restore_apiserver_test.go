//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// monday is a backup that is complete, of a cluster that is gone. With an error
// it has failed.
func (w *world) monday(fault string) *v1alpha1.Backup {
	w.t.Helper()
	b := w.backup("monday", v1alpha1.DeletionRetain)
	w.create(b)
	before, now := b.DeepCopy(), metav1.Now()
	b.Status = v1alpha1.BackupStatus{
		Phase: "Completed", StartTime: &now, CompletionTime: &now, ClusterUID: "o-uid", Error: fault,
		Location: &v1alpha1.BackupLocation{URL: "s3://acme", CredentialsSecret: "keys", Prefix: "shop/orders/o-uid/monday-1/"},
		Result: &v1alpha1.BackupResult{Size: resource.MustParse("12Mi"), DataSize: resource.MustParse("40Mi"), Version: w.kind.version,
			EndPosition: "42", Manifest: "shop/orders/o-uid/monday-1/pod/manifest.json", Checksum: "sha256:0"},
	}
	if fault != "" {
		b.Status.Result = nil
	}
	condition.ResolveBackup(b, condition.Fact{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackupCompleted})
	if err := w.person.Status().Patch(w.t.Context(), b, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) keys() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "keys"}}
}

// restoring is a cluster that begins with a backup, in a namespace that lets
// only restricted pods in.
func (w *world) restoring(name string, replicas int32) v1alpha1.Cluster {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	edit(w, ns, func(ns *corev1.Namespace) { ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted" })
	c := w.cluster(name, replicas)
	c.Common().Restore = &v1alpha1.ClusterRestore{Backup: "monday"}
	return c
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
}

// awaitHeld waits until a cluster whose members wait says what only a person can
// fix.
func (w *world) awaitHeld(c v1alpha1.Cluster, reason, says string) {
	w.t.Helper()
	await(w, c, "Stalled for "+reason+": "+says, func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == reason && strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionStalled), says)
	})
}

// awaitCleared waits until nothing is left of what a restore needed.
func (w *world) awaitCleared(c v1alpha1.Cluster) {
	w.t.Helper()
	apitest.Eventually(w.t, "what the restore needed is gone", func(ctx context.Context) (bool, string) {
		var jobs batchv1.JobList
		if err := w.person.List(ctx, &jobs, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelCluster: c.GetName()}); err != nil {
			return false, err.Error()
		}
		found, left := w.objects(c), []string{}
		for _, kind := range []string{"ConfigMap", "Role", "RoleBinding"} {
			for _, name := range found[kind] {
				if strings.Contains(name, "-restore") {
					left = append(left, kind+"/"+name)
				}
			}
		}
		return len(jobs.Items)+len(left) == 0, fmt.Sprint(len(jobs.Items), left)
	})
}

// A cluster begins with a backup, and grows to what is declared.
func TestRestore(t *testing.T) { eachCopiedKind(t, restoreFromBackup) }

func restoreFromBackup(t *testing.T, w *world) {
	w.simulation.restores.set(func(r *restores) { r.held = true })
	c := w.restoring("orders", w.kind.several)
	w.create(c) // before its backup, as Git tools may apply it
	o := w.operate(0)
	w.awaitHeld(c, v1alpha1.ReasonBackupMissing, "monday")
	b := w.monday("")
	w.awaitHeld(c, v1alpha1.ReasonSecretMissing, "keys")
	w.create(w.keys())
	await(w, c, "restoring", func(c v1alpha1.Cluster) bool {
		return c.CommonStatus().Phase == "Restoring" && w.simulation.restores.began() == 1
	})
	if found := w.objects(c); len(found["StatefulSet"])+len(found["Service"]) > 0 || !slices.Equal(found["PersistentVolumeClaim"], []string{"data-orders-0"}) {
		t.Errorf("%v before anything is restored", found)
	}
	for _, task := range w.simulation.restores.tasks {
		if task.Manifest != b.Status.Result.Manifest || task.Checksum != "sha256:0" || task.Store.URL != "s3://acme" || task.Member != "orders-0" || task.UID != string(c.GetUID()) || task.VolumeSize != 1<<30 {
			t.Errorf("%+v", task)
		}
	}
	if err := w.person.Delete(t.Context(), b); err != nil { // what it says is recorded
		t.Fatal(err)
	}
	w.simulation.restores.set(func(r *restores) { r.held = false })
	w.awaitReady(c)
	w.awaitSteady(o)
	w.get(c)
	st := c.CommonStatus()
	if r := st.Restore; !r.Done() || r.Result == nil || r.Result.EndPosition != "42" || r.Manifest != b.Status.Result.Manifest || st.SystemIdentifier != system || r.Error != "" {
		t.Errorf("%+v of %s", r, st.SystemIdentifier)
	}
	w.awaitCleared(c)
	w.wantWhole(c, w.kind.several)
	founder := w.claim("data-orders-0")
	w.get(founder)
	if founder.Annotations[v1alpha1.AnnotationSystemIdentifier] != system || len(founder.OwnerReferences) != 0 {
		t.Errorf("%v %v", founder.Annotations, founder.OwnerReferences)
	}
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Restore, c.Common().DeletionPolicy = nil, v1alpha1.DeletionDelete })
	w.awaitReady(c)
	apitest.Eventually(t, "its volume follows the policy", func(context.Context) (bool, string) {
		w.get(founder)
		return len(founder.OwnerReferences) == 1, fmt.Sprint(founder.OwnerReferences)
	})
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().DeletionPolicy = v1alpha1.DeletionRetain })
	apitest.Eventually(t, "and back", func(context.Context) (bool, string) {
		w.get(founder)
		return len(founder.OwnerReferences) == 0, fmt.Sprint(founder.OwnerReferences)
	})
	if n := w.simulation.restores.began(); n != 1 {
		t.Errorf("%d programs restored", n)
	}
}

// A backup that is deleted while it is restored keeps its data until then.
func TestRestoreKeepsItsBackup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	w.simulation.restores.set(func(r *restores) { r.held = true })
	b := w.monday("")
	edit(w, b, func(b *v1alpha1.Backup) { b.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	w.create(w.keys())
	c := w.restoring("orders", 1)
	w.create(c)
	w.operate(0)
	await(w, c, "restoring", func(v1alpha1.Cluster) bool { return w.simulation.restores.began() == 1 })
	w.awaitBackup(b, "held", func(b *v1alpha1.Backup) bool { return slices.Contains(b.Finalizers, v1alpha1.BackupFinalizer) })
	if err := w.person.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.awaitBackup(b, "its reader is named", func(b *v1alpha1.Backup) bool {
		return strings.Contains(conditions.GetMessage(b, v1alpha1.ConditionReconciling), "orders is being restored from it")
	})
	if n := w.simulation.jobs.verbs()["remove"]; n != 0 {
		t.Errorf("%d removals", n)
	}
	w.simulation.restores.set(func(r *restores) { r.held = false })
	w.awaitReady(c)
	w.awaitGone(b)
}

// What only a person can fix is said in the pod's own words; with another spec
// it is tried again.
func TestRestoreThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	w.simulation.restores.set(func(r *restores) { r.fault = "spec.version: the backup is of a newer one" })
	w.monday("")
	w.create(w.keys())
	c := w.restoring("orders", 1)
	w.create(c)
	w.operate(0)
	w.awaitHeld(c, v1alpha1.ReasonRestoreFailed, "spec.version: the backup is of a newer one")
	if st := c.CommonStatus(); st.Phase != "Failed" || st.Restore.Error == "" || w.simulation.restores.began() != 1 || kstatus(c) != "Failed" {
		t.Errorf("%+v after %d pods", st.Restore, w.simulation.restores.began())
	}
	w.get(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-restore"}}) // for its log
	w.simulation.restores.set(func(r *restores) { r.fault = "" })
	edit(w, c, func(c v1alpha1.Cluster) {
		c.Common().Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	})
	w.awaitReady(c)
	w.awaitCleared(c)
	if n := w.simulation.restores.began(); n != 2 {
		t.Errorf("%d programs restored", n)
	}
}

// Where nothing was restored, another backup may be named. While a restore is
// under way it may not, and once it is done nothing follows from it.
func TestRestoreOfAnotherBackup(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.simulation.restores.set(func(r *restores) { r.held = true })
	w.monday("")
	w.create(w.keys())
	c := w.restoring("orders", 1)
	w.create(c)
	w.operate(0)
	name := func(backup string) error {
		w.get(c)
		before := c.DeepCopyObject().(client.Object)
		c.Common().Restore = &v1alpha1.ClusterRestore{Backup: backup}
		return w.person.Patch(t.Context(), c, client.MergeFrom(before))
	}
	await(w, c, "restoring", func(v1alpha1.Cluster) bool { return w.simulation.restores.began() == 1 })
	if err := name("tuesday"); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "under way") {
		t.Errorf("another backup while it is under way: %v", err)
	}
	w.simulation.restores.set(func(r *restores) { r.held, r.fault = false, "a part is not what was written" })
	w.awaitHeld(c, v1alpha1.ReasonRestoreFailed, "a part is not")
	w.simulation.restores.set(func(r *restores) { r.fault = "" })
	if err := name("tuesday"); err != nil {
		t.Fatal(err)
	}
	w.awaitHeld(c, v1alpha1.ReasonBackupMissing, "tuesday")
	if err := name("monday"); err != nil {
		t.Fatal(err)
	}
	w.awaitReady(c)
	w.awaitCleared(c)
	if n := w.simulation.restores.began(); n != 2 {
		t.Errorf("%d programs restored", n)
	}
	if err := name("tuesday"); err != nil {
		t.Fatal(err)
	}
	await(w, c, "served, and reported", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonRestoreRefused && conditions.IsTrue(c, v1alpha1.ConditionAvailable)
	})
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Restore = nil })
	w.awaitReady(c)
	if err := name("monday"); err != nil { // as git revert brings it back
		t.Fatal(err)
	}
	w.awaitReady(c)
}

// awaitFreed waits until a volume that was deleted is gone: nothing plays the
// controller that holds it while pods use it.
func (w *world) awaitFreed(claim *corev1.PersistentVolumeClaim) {
	w.t.Helper()
	apitest.Eventually(w.t, "the volume goes", func(ctx context.Context) (bool, string) {
		live := w.claim(claim.Name)
		err := w.person.Get(ctx, client.ObjectKeyFromObject(live), live)
		if apierrors.IsNotFound(err) || err == nil && live.UID != claim.UID {
			return true, ""
		}
		if err == nil && live.DeletionTimestamp != nil {
			live.Finalizers = nil
			err = w.person.Update(ctx, live)
		}
		return false, fmt.Sprint(err)
	})
}

// A volume of the restore's own may be deleted, such as one that is too small
// and cannot grow: it is made again.
func TestRestoreOntoAnotherVolume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.simulation.restores.set(func(r *restores) { r.fault = "spec.storage.size: too small" })
	w.monday("")
	w.create(w.keys())
	c := w.restoring("orders", 1)
	w.create(c)
	w.operate(0)
	w.awaitHeld(c, v1alpha1.ReasonRestoreFailed, "too small")
	w.simulation.restores.set(func(r *restores) { r.fault = "" })
	small := w.claim("data-orders-0")
	w.get(small)
	if err := w.person.Delete(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	w.awaitFreed(small)
	w.awaitReady(c)
	if n := w.simulation.restores.began(); n != 2 {
		t.Errorf("%d programs restored", n)
	}
}

// Who takes the labels by which a restore sees what is its own stops nothing.
func TestRestoreSeesItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	w.simulation.restores.set(func(r *restores) { r.held = true })
	w.monday("")
	w.create(w.keys())
	c := w.restoring("orders", 1)
	w.create(c)
	w.operate(0)
	await(w, c, "restoring", func(v1alpha1.Cluster) bool { return w.simulation.restores.began() == 1 })
	named := metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-restore"}
	for _, obj := range []client.Object{w.claim("data-orders-0"), &corev1.ConfigMap{ObjectMeta: named}, &batchv1.Job{ObjectMeta: named}} {
		w.get(obj)
		uid := obj.GetUID()
		edit(w, obj, func(obj client.Object) { obj.SetLabels(nil) })
		apitest.Eventually(t, fmt.Sprintf("%T is labelled again", obj), func(context.Context) (bool, string) {
			w.get(obj)
			return obj.GetLabels()[v1alpha1.LabelCluster] == "orders", fmt.Sprint(obj.GetLabels())
		})
		if obj.GetUID() != uid {
			t.Errorf("%T was made anew", obj)
		}
	}
	w.simulation.restores.set(func(r *restores) { r.held = false })
	w.awaitReady(c)
	if n := w.simulation.restores.began(); n != 1 {
		t.Errorf("%d programs restored", n)
	}
}

// Nothing is restored over a volume, or into a cluster that lives; and what is
// half restored is no database.
func TestRestoreNeverTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.monday("")
	w.create(w.keys())
	o := w.operate(0)
	c := w.cluster("orders", 1)
	w.create(c)
	w.awaitReady(c)
	w.awaitSteady(o)
	change := func(from *v1alpha1.ClusterRestore) error {
		w.get(c)
		before := c.DeepCopyObject().(client.Object)
		c.Common().Restore = from
		return w.person.Patch(t.Context(), c, client.MergeFrom(before))
	}
	if err := change(&v1alpha1.ClusterRestore{Backup: "monday"}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.restore") {
		t.Errorf("restore is added: %v", err)
	}
	// The same manifest from Git, after the cluster was lost and its volume kept.
	founder := w.claim("data-orders-0")
	w.get(founder)
	if err := w.person.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(c)
	c = w.restoring("orders", 1)
	w.create(c)
	w.awaitHeld(c, v1alpha1.ReasonRestoreRefused, "remove spec.restore to go on with what it holds")
	kept := w.claim("data-orders-0")
	w.get(kept)
	if kept.UID != founder.UID || kept.Annotations[v1alpha1.AnnotationRestoredBy] != "" || w.simulation.restores.began() != 0 {
		t.Errorf("%v", kept.Annotations)
	}
	if err := change(nil); err != nil {
		t.Fatal(err)
	}
	w.awaitReady(c)
}

// A volume of the name that has nothing to do with Holdfast stays as it is.
func TestRestoreLeavesStrangersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	w.monday("")
	w.create(w.keys())
	stranger := w.claim("data-orders-0")
	stranger.Spec = corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}
	w.create(stranger)
	c := w.restoring("orders", 1)
	w.create(c)
	w.operate(0)
	w.awaitHeld(c, v1alpha1.ReasonNameConflict, "PersistentVolumeClaim/data-orders-0")
	w.get(stranger)
	if len(stranger.Labels)+len(stranger.Annotations) != 0 || w.simulation.restores.began() != 0 {
		t.Errorf("%v %v", stranger.Labels, stranger.Annotations)
	}
}

// A cluster that is deleted in the middle leaves a part of a database, or
// nothing, as its deletionPolicy says. Nothing begins on such a part.
func TestDeletionWhileRestoring(t *testing.T) {
	t.Parallel()
	for _, policy := range []v1alpha1.DeletionPolicy{v1alpha1.DeletionRetain, v1alpha1.DeletionDelete} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t, postgresKind)
			w.monday("")
			w.create(w.keys())
			w.simulation.restores.set(func(r *restores) { r.held = true })
			c := w.restoring("orders", 1)
			c.Common().DeletionPolicy = policy
			w.create(c)
			w.operate(0)
			await(w, c, "restoring", func(v1alpha1.Cluster) bool { return w.simulation.restores.began() == 1 })
			if err := w.person.Delete(t.Context(), c, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
				t.Fatal(err)
			}
			w.awaitGone(c)
			w.awaitGone(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-restore"}})
			half := w.claim("data-orders-0")
			if policy == v1alpha1.DeletionDelete {
				w.awaitGone(half)
				return
			}
			w.get(half)
			plain := w.cluster("orders", 1)
			w.create(plain)
			w.awaitHeld(plain, v1alpha1.ReasonRestoreRefused, "look at what it holds first")
			if found := w.objects(plain); len(found["StatefulSet"]) > 0 {
				t.Errorf("%v", found)
			}
		})
	}
}

// The operator dies in the Nth write of a restore, for every N, and another one
// goes on: the volume is filled, and members run on nothing else.
func TestCrashWhileRestoring(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.monday("")
	w.create(w.keys())
	crashed := 0
	for n := 1; n < mostWrites; n++ {
		c := w.restoring(fmt.Sprintf("orders-%d", n), 1)
		first := w.operate(n)
		w.create(c)
		if !w.awaitCrash(first, c) {
			break
		}
		crashed = n
		second := w.operate(0)
		w.awaitReady(c)
		w.awaitCleared(c)
		w.wantWhole(c, 1)
		if r := c.CommonStatus().Restore; !r.Done() || r.Result == nil || c.CommonStatus().SystemIdentifier != system {
			t.Errorf("death in write %d: %+v", n, r)
		}
		w.remove(c, second)
	}
	if crashed < 28 {
		t.Errorf("a restore of %d writes is less than there are objects", crashed)
	}
}
