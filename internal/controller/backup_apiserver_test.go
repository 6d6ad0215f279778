//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// yearly is due in no test.
const yearly = "0 0 1 1 *"

// backedUp is a cluster that backs up to a volume of its own, in a namespace
// that lets only restricted pods in. It has had a backup by schedule, so that no
// first one is made.
func (w *world) backedUp() v1alpha1.Cluster {
	w.t.Helper()
	c := w.neverBackedUp()
	b := w.backup("earlier", v1alpha1.DeletionRetain)
	b.Labels = map[string]string{v1alpha1.LabelSchedule: "20200101-0000", v1alpha1.LabelClusterUID: string(c.GetUID())}
	w.create(b)
	edited := b.DeepCopy()
	at := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	edited.Status.ClusterUID, edited.Status.StartTime, edited.Status.CompletionTime = string(c.GetUID()), &at, &at
	edited.Status.Result = &v1alpha1.BackupResult{Version: w.kind.version, EndPosition: "1", Manifest: "m", Checksum: "c"}
	if err := w.person.Status().Patch(w.t.Context(), edited, client.MergeFrom(b)); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// neverBackedUp is such a cluster before its first backup.
func (w *world) neverBackedUp() v1alpha1.Cluster {
	w.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}
	edit(w, ns, func(ns *corev1.Namespace) { ns.Labels["pod-security.kubernetes.io/enforce"] = "restricted" })
	c := w.cluster("orders", 1)
	c.Common().Backup = &v1alpha1.ClusterBackup{Schedule: yearly}
	w.create(c)
	return c
}

func (w *world) backup(name string, policy v1alpha1.DeletionPolicy) *v1alpha1.Backup {
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	b.Spec = v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: w.kind.name, Name: "orders"}, DeletionPolicy: policy}
	return b
}

// awaitBackup waits until a backup is as a condition says.
func (w *world) awaitBackup(b *v1alpha1.Backup, what string, holds func(*v1alpha1.Backup) bool) {
	w.t.Helper()
	apitest.Eventually(w.t, what, func(ctx context.Context) (bool, string) {
		if err := w.person.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return false, err.Error()
		}
		return holds(b), fmt.Sprintf("%+v", b.Status)
	})
}

func completed(b *v1alpha1.Backup) bool {
	return conditions.IsTrue(b, v1alpha1.ConditionReady) && b.Status.ObservedGeneration == b.Generation
}

// awaitGone waits until an object is there no more.
func (w *world) awaitGone(obj client.Object) {
	w.t.Helper()
	apitest.Eventually(w.t, "gone", func(ctx context.Context) (bool, string) {
		err := w.person.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		return apierrors.IsNotFound(err), fmt.Sprintf("%T %s: %v %v", obj, obj.GetName(), obj.GetFinalizers(), err)
	})
}

// owns are the objects that belong to a backup.
func (w *world) owns(b *v1alpha1.Backup) []string {
	w.t.Helper()
	var names []string
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}} {
		if err := w.person.List(w.t.Context(), list, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelBackup: b.Name}); err != nil {
			w.t.Fatal(err)
		}
		switch list := list.(type) {
		case *batchv1.JobList:
			for i := range list.Items {
				names = append(names, "Job/"+list.Items[i].Name)
			}
		case *rbacv1.RoleList:
			for i := range list.Items {
				names = append(names, "Role/"+list.Items[i].Name)
			}
		case *rbacv1.RoleBindingList:
			for i := range list.Items {
				names = append(names, "RoleBinding/"+list.Items[i].Name)
			}
		}
	}
	return names
}

// A backup by hand, from the manifest to its end: and its data goes with it.
func TestBackupByHand(t *testing.T) { eachCopiedKind(t, backupByHand) }

func backupByHand(t *testing.T, w *world) {
	b := w.backup("before-release", v1alpha1.DeletionDelete)
	w.create(b) // before its cluster, as Git tools may apply it
	w.operate(0)
	w.awaitBackup(b, "the cluster is missed", func(b *v1alpha1.Backup) bool {
		return conditions.GetReason(b, v1alpha1.ConditionStalled) == v1alpha1.ReasonClusterMissing
	})
	c := w.backedUp()
	w.awaitBackup(b, "completed", completed)
	st := b.Status
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-backups"}}
	w.get(claim)
	want := &v1alpha1.BackupLocation{URL: "file:///backups", ClaimName: claim.Name, ClaimUID: string(claim.UID), Prefix: fmt.Sprintf("%s/orders/%s/before-release-%s/", w.Namespace, c.GetUID(), b.UID)}
	if diff := cmp.Diff(want, st.Location); diff != "" {
		t.Errorf("location (-want +got):\n%s", diff)
	}
	if st.Phase != "Completed" || st.Result == nil || st.Result.EndPosition != "42" || st.CompletionTime == nil || st.Duration == "" || st.ClusterUID != string(c.GetUID()) || kstatus(b) != "Current" {
		t.Errorf("%+v", st)
	}
	apitest.Eventually(t, "its Job goes", func(context.Context) (bool, string) { return len(w.owns(b)) == 0, fmt.Sprint(w.owns(b)) })
	await(w, c, "the cluster knows its backup", func(c v1alpha1.Cluster) bool {
		last := c.CommonStatus().LastBackup
		return last != nil && last.Name == b.Name && c.CommonStatus().NextBackup != nil
	})
	if size := claim.Spec.Resources.Requests[corev1.ResourceStorage]; size.String() != "2Gi" || len(claim.OwnerReferences) != 0 {
		t.Errorf("a volume of %s, owned by %v", size.String(), claim.OwnerReferences)
	}
	if err := w.person.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(b)
	verb := map[string]string{"PostgresCluster": "postgres", "EtcdCluster": "etcd", "MySQLCluster": "mysql"}[w.kind.name]
	if diff := cmp.Diff(map[string]int{verb: 1, "remove": 1}, w.simulation.jobs.verbs()); diff != "" {
		t.Errorf("programs (-want +got):\n%s", diff)
	}
	for _, task := range w.simulation.jobs.tasks {
		if task.Prefix != want.Prefix || task.Store.URL != want.URL || task.UID != string(b.UID) {
			t.Errorf("%+v", task)
		}
	}
}

// Where the data is to stay, and where no Job can be made any more, deletion
// waits for nothing.
func TestDeletingBackups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c := w.backedUp()
	w.operate(0)
	// It has the name of its cluster, which is no conflict.
	kept, running := w.backup("orders", v1alpha1.DeletionRetain), w.backup("running", v1alpha1.DeletionDelete)
	w.create(kept)
	w.awaitBackup(kept, "completed", completed)
	w.simulation.jobs.set(func(j *jobs) { j.held = true })
	w.create(running)
	w.awaitBackup(running, "copying", func(b *v1alpha1.Backup) bool {
		return b.Status.Phase == "Copying" && w.simulation.jobs.verbs()["etcd"] == 2
	})
	behind := w.backup("behind", v1alpha1.DeletionDelete)
	w.create(behind)
	w.awaitBackup(behind, "waits for its turn", func(b *v1alpha1.Backup) bool {
		return conditions.GetReason(b, v1alpha1.ConditionReconciling) == v1alpha1.ReasonWaitingForTurn
	})
	for _, b := range []*v1alpha1.Backup{kept, behind} {
		if err := w.person.Delete(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		w.awaitGone(b)
	}
	if verbs := w.simulation.jobs.verbs(); verbs["remove"] != 0 {
		t.Errorf("%v", verbs)
	}
	// A backup that is deleted while it runs ends first, and its data goes with
	// the cluster gone, too.
	for _, obj := range []client.Object{c, running} {
		if err := w.person.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	apitest.Eventually(t, "the removal begins", func(context.Context) (bool, string) {
		return w.simulation.jobs.verbs()["remove"] == 1, fmt.Sprint(w.simulation.jobs.verbs(), w.owns(running))
	})
	if owns := w.owns(running); slices.Contains(owns, "Job/running-copy") {
		t.Errorf("%v: it is removed while it is written", owns)
	}
	w.simulation.jobs.set(func(j *jobs) { j.held = false })
	w.awaitGone(running)
}

// What only a person can fix ends the backup at once, in the pod's own words;
// anything else is tried again.
func TestBackupThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c := w.backedUp()
	w.simulation.jobs.set(func(j *jobs) { j.code, j.fault = agentapi.ExitPermanent, "there is no such bucket" })
	w.operate(0)
	b := w.backup("first", v1alpha1.DeletionRetain)
	w.create(b)
	failed := func(b *v1alpha1.Backup) bool {
		return b.Status.Phase == "Failed" && conditions.GetReason(b, v1alpha1.ConditionStalled) == v1alpha1.ReasonBackupFailed
	}
	w.awaitBackup(b, "failed", failed)
	if b.Status.Error != "there is no such bucket" || kstatus(b) != "Failed" || w.simulation.jobs.verbs()["postgres"] != 1 {
		t.Errorf("%+v after %v", b.Status, w.simulation.jobs.verbs())
	}
	if owns := w.owns(b); !slices.Contains(owns, "Job/first-copy") {
		t.Errorf("the log of a backup that failed is gone: %v", owns)
	}
	w.awaitReady(c)
}

// No pod waits for keys that are not there; with them the backup goes on.
func TestBackupWithoutKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c := w.backedUp()
	edit(w, c, func(c v1alpha1.Cluster) {
		c.Common().Backup.Destination = &v1alpha1.BackupDestination{URL: "s3://acme/etcd", CredentialsSecretRef: &v1alpha1.SecretReference{Name: "keys"}}
	})
	w.operate(0)
	b := w.backup("first", v1alpha1.DeletionRetain)
	w.create(b)
	w.awaitBackup(b, "the keys are missed", func(b *v1alpha1.Backup) bool {
		return conditions.GetReason(b, v1alpha1.ConditionStalled) == v1alpha1.ReasonSecretMissing
	})
	if owns := w.owns(b); len(owns) != 0 {
		t.Errorf("%v", owns)
	}
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "keys"}})
	w.awaitBackup(b, "completed", completed)
	if at := b.Status.Location; at.URL != "s3://acme/etcd" || at.CredentialsSecret != "keys" || at.ClaimName != "" {
		t.Errorf("%+v", at)
	}
}

// A cluster that is lost takes its copy in the making with it: the next one of
// its name is not copied instead, and what was lost is not what it has.
func TestBackupOfALostCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	lost := w.backedUp()
	w.operate(0)
	good, running := w.backup("good", v1alpha1.DeletionRetain), w.backup("running", v1alpha1.DeletionRetain)
	w.create(good)
	w.awaitBackup(good, "completed", completed)
	w.simulation.jobs.set(func(j *jobs) { j.held = true })
	w.create(running)
	w.awaitBackup(running, "copying", func(*v1alpha1.Backup) bool { return w.simulation.jobs.verbs()["etcd"] == 2 })
	if err := w.person.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	w.awaitBackup(running, "abandoned", func(b *v1alpha1.Backup) bool {
		return b.Status.Phase == "Failed" && strings.Contains(b.Status.Error, "EtcdCluster orders, which it is of, is gone")
	})
	w.awaitGone(lost)
	w.simulation.jobs.set(func(j *jobs) { j.held = false })
	next := w.cluster("orders", 1)
	next.Common().Backup = &v1alpha1.ClusterBackup{Schedule: yearly}
	w.create(next)
	w.awaitReady(next)
	apitest.Eventually(t, "its parts are swept", func(context.Context) (bool, string) {
		return w.simulation.jobs.verbs()["sweep"] == 1 && slices.Contains(w.owns(running), "Job/running-sweep"), fmt.Sprint(w.simulation.jobs.verbs(), w.owns(running))
	})
	await(w, next, "it has a first backup of its own", func(c v1alpha1.Cluster) bool {
		last := c.CommonStatus().LastBackup
		return last != nil && strings.HasPrefix(last.Name, "orders-first-") && conditions.IsTrue(c, v1alpha1.ConditionBackedUp)
	})
	if verbs := w.simulation.jobs.verbs(); verbs["etcd"] != 3 {
		t.Errorf("%v", verbs)
	}
}

// Where the store knows Jobs by their ServiceAccount, that stays as long as
// there is something to remove: without spec.backup, and without the cluster.
func TestBackupKeepsItsAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c := w.backedUp()
	edit(w, c, func(c v1alpha1.Cluster) {
		c.Common().Backup.Destination = &v1alpha1.BackupDestination{URL: "s3://acme/etcd"}
	})
	w.operate(0)
	b := w.backup("first", v1alpha1.DeletionDelete)
	w.create(b)
	w.awaitBackup(b, "completed", completed)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-backup"}}
	w.get(account)
	uid := account.UID
	if len(account.OwnerReferences) != 2 {
		t.Fatalf("owners %v", account.OwnerReferences)
	}
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Backup.Enabled = new(false) })
	await(w, c, "the cluster has no backups", func(c v1alpha1.Cluster) bool {
		return c.CommonStatus().NextBackup == nil && c.CommonStatus().ObservedGeneration == c.GetGeneration()
	})
	if err := w.person.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(c)
	apitest.Eventually(t, "the cluster owns the account no more", func(ctx context.Context) (bool, string) {
		err := w.person.Get(ctx, client.ObjectKeyFromObject(account), account)
		return err == nil && len(account.OwnerReferences) == 1, fmt.Sprint(account.OwnerReferences, err)
	})
	w.simulation.jobs.set(func(j *jobs) { j.held = true })
	if err := w.person.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "first-removal"}}
	apitest.Eventually(t, "the removal begins", func(ctx context.Context) (bool, string) {
		err := w.person.Get(ctx, client.ObjectKeyFromObject(job), job)
		return err == nil, fmt.Sprint(err)
	})
	if name := job.Spec.Template.Spec.ServiceAccountName; name != "orders-backup" || account.UID != uid {
		t.Errorf("it is removed as %q", name)
	}
	w.simulation.jobs.set(func(j *jobs) { j.held = false })
	w.awaitGone(b)
	w.awaitGone(account)
}

// The operator dies in the Nth write of a backup and of its deletion, for every
// N: the cluster is copied once, and what is stored is removed once.
func TestCrashWhileBackingUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c := w.backedUp()
	settled := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(settled)
	settled.stop()
	crashed := 0
	for n := 1; n < mostWrites; n++ {
		before := w.simulation.jobs.verbs()
		b := w.backup(fmt.Sprintf("crash-%d", n), v1alpha1.DeletionDelete)
		w.create(b)
		first := w.operate(n)
		if died := w.dies(first, b, completed); died {
			crashed++
		}
		second := w.operate(0)
		w.awaitBackup(b, "completed", completed)
		second.stop()
		if err := w.person.Delete(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		third := w.operate(n)
		died := w.dies(third, b, nil)
		fourth := w.operate(0)
		w.awaitGone(b)
		fourth.stop()
		after := w.simulation.jobs.verbs()
		if after["etcd"] != before["etcd"]+1 || after["remove"] != before["remove"]+1 {
			t.Errorf("death in write %d: %v, then %v", n, before, after)
		}
		if crashed < n && !died {
			break
		}
	}
	if crashed < 5 {
		t.Errorf("a backup of %d writes is too few", crashed)
	}
}

// dies says whether an operator died before a backup was as it should be; nil
// for gone.
func (w *world) dies(o *operator, b *v1alpha1.Backup, holds func(*v1alpha1.Backup) bool) bool {
	w.t.Helper()
	died := false
	apitest.Eventually(w.t, "crash or the end", func(ctx context.Context) (bool, string) {
		select {
		case <-o.crashed:
			died = true
			return true, ""
		default:
		}
		err := w.person.Get(ctx, client.ObjectKeyFromObject(b), b)
		if holds == nil {
			return apierrors.IsNotFound(err), fmt.Sprintf("%+v", b.Status)
		}
		return err == nil && holds(b), fmt.Sprintf("%+v", b.Status)
	})
	o.stop()
	return died
}

// The first backup is made as soon as the cluster serves. A slot that went by
// while no operator was there is made up once; a new good backup lets those go
// that are kept no longer, and their data.
func TestBackupBySchedule(t *testing.T) { eachCopiedKind(t, backupBySchedule) }

func backupBySchedule(t *testing.T, w *world) {
	c := w.neverBackedUp()
	one := int32(1)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Backup.MaxBackups = &one })
	o := w.operate(0)
	await(w, c, "the first backup", func(c v1alpha1.Cluster) bool {
		last := c.CommonStatus().LastBackup
		return ready(c) && last != nil && strings.HasPrefix(last.Name, "orders-first-") && conditions.IsTrue(c, v1alpha1.ConditionBackedUp)
	})
	w.awaitSteady(o)
	w.get(c)
	newYear := time.Date(time.Now().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
	want := []v1alpha1.ScheduleStatus{{Name: "Backup", Schedule: yearly, NextSlot: &metav1.Time{Time: newYear}}}
	if diff := cmp.Diff(want, c.CommonStatus().Schedules); diff != "" {
		t.Fatalf("%s; schedules (-want +got):\n%s", describeDrifts(c), diff)
	}
	var last string
	for round := 2; round > 0; round-- {
		o.stop()
		before := c.DeepCopyObject().(client.Object)
		slot := newYear.AddDate(-round, 0, 0)
		c.CommonStatus().Schedules[0].NextSlot = &metav1.Time{Time: slot}
		if round == 2 {
			c.CommonStatus().Schedules[0].NextSlot = &metav1.Time{Time: slot.AddDate(-5, 0, 0)}
		}
		if err := w.person.Status().Patch(t.Context(), c, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		o = w.operate(0)
		await(w, c, "the backup of the slot", func(c v1alpha1.Cluster) bool {
			st := c.CommonStatus()
			return conditions.IsTrue(c, v1alpha1.ConditionBackedUp) && st.LastBackup != nil && strings.HasSuffix(st.LastBackup.Name, "0101-0000") && st.NextBackup != nil && st.NextBackup.Time.Equal(newYear)
		})
		last = c.CommonStatus().LastBackup.Name
		w.awaitSteady(o)
		w.get(c)
	}
	apitest.Eventually(t, "the others go once a Job has removed their data", func(ctx context.Context) (bool, string) {
		var all v1alpha1.BackupList
		err := w.person.List(ctx, &all, client.InNamespace(w.Namespace))
		return err == nil && len(all.Items) == 1 && all.Items[0].Name == last, fmt.Sprintf("%d backups, %v", len(all.Items), err)
	})
	if !strings.HasPrefix(last, "orders-") || !strings.HasSuffix(last, "0101-0000") {
		t.Errorf("the last one is %s", last)
	}
}

// The volume is made with the first backup and not before. Where it cannot be
// made the cluster is as ready as it was, BackedUp says why, and what is fixed
// is seen.
func TestBackupVolumeComesWithTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, etcdKind)
	c := w.backedUp()
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(o)
	if claims := w.objects(c)["PersistentVolumeClaim"]; len(claims) != 1 {
		t.Errorf("before any backup there are %v", claims)
	}
	others := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-backups"}}
	others.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	others.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.create(others)
	b := w.backup("first", v1alpha1.DeletionRetain)
	w.create(b)
	await(w, c, "BackedUp says whose volume it is", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionBackedUp) == v1alpha1.ReasonNameConflict && ready(c) && !conditions.Has(c, v1alpha1.ConditionStalled)
	})
	if err := w.person.Delete(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(others)
	edit(w, c, func(c v1alpha1.Cluster) {
		c.SetAnnotations(map[string]string{"reconcile.fluxcd.io/requestedAt": "now"})
	})
	w.awaitBackup(b, "completed", completed)
	w.awaitReady(c)
	if claims := w.objects(c)["PersistentVolumeClaim"]; len(claims) != 2 {
		t.Errorf("with a backup there are %v", claims)
	}
}

// What the schema makes of a declaration, and what kubectl shows.
func TestBackupDefaults(t *testing.T) {
	t.Parallel()
	w := &world{Cluster: apitest.New(t), t: t}
	person := w.As(t, "kubectl")
	c := w.NewPostgresCluster("orders", 1)
	c.Spec.Backup = nil
	if err := person.Create(t.Context(), c, client.DryRunAll); err != nil || !*c.Spec.Backup.Enabled || c.Spec.Backup.Schedule != "" || c.Spec.Backup.Retention != "" {
		t.Errorf("%+v, %v", c.Spec.Backup, err)
	}
	w.kind = postgresKind
	b := w.backup("mine", "")
	if err := person.Create(t.Context(), b); err != nil || b.Spec.DeletionPolicy != v1alpha1.DeletionRetain || kstatus(b) != "InProgress" {
		t.Errorf("%+v, %v", b.Spec, err)
	}
	b.Spec.ClusterRef.Name = "others"
	if err := person.Update(t.Context(), b); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "make another Backup") {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"Kind", "Cluster", "Phase", "Progress", "Size", "Duration", "Age", "Status"}, w.columns("backups.holdfast.dev")); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}
