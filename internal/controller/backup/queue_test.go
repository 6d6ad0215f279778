package backup

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// saying is a backup of another cluster, made so long ago, that says something.
func saying(name string, ago time.Duration, begun bool, conditionType, reason string) v1alpha1.Backup {
	b := v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(backupstest.Noon.Add(-ago))}}
	if begun {
		b.Status.Location = &v1alpha1.BackupLocation{URL: "s3://acme"}
	}
	if reason != "" {
		b.Status.Conditions = []metav1.Condition{{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason}}
	}
	return b
}

// reconcilerOf has some backups in its cache, and makes so many at the same time.
func reconcilerOf(t *testing.T, concurrent int, all ...v1alpha1.Backup) *Reconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithIndex(&v1alpha1.Backup{}, indexTurn, indexByTurn).WithStatusSubresource(&v1alpha1.Backup{})
	for i := range all {
		b := all[i].DeepCopy()
		if b.DeletionTimestamp != nil {
			b.Finalizers = []string{v1alpha1.BackupFinalizer}
		}
		c = c.WithObjects(b)
	}
	return &Reconciler{Client: c.Build(), Concurrent: concurrent, Clock: clocktesting.NewFakePassiveClock(backupstest.Noon)}
}

func TestHasTurn(t *testing.T) {
	copying := saying("copying", time.Hour, true, v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying)
	later := saying("later", 0, true, v1alpha1.ConditionReconciling, v1alpha1.ReasonVerifying)
	noNode := saying("no-node", 0, true, v1alpha1.ConditionStalled, v1alpha1.ReasonWaitingForSource)
	noJob, started := saying("no-job", time.Hour, true, v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying), saying("started", 0, true, v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying)
	noJob.Status.StartTime, started.Status.StartTime = &noJob.CreationTimestamp, &started.CreationTimestamp
	suspended := saying("suspended", time.Hour, true, v1alpha1.ConditionStalled, v1alpha1.ReasonSuspended)
	refused := saying("refused", time.Hour, true, v1alpha1.ConditionStalled, v1alpha1.ReasonNameConflict)
	noVolume := saying("no-volume", time.Hour, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonWaitingForTurn)
	unseen := saying("unseen", time.Hour, false, "", "")
	queued := saying("queued", time.Minute, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonQueued)
	newer := saying("newer", 0, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonQueued)
	twin := saying("a-twin", 30*time.Second, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonQueued)
	done, going, leaving := *copying.DeepCopy(), *copying.DeepCopy(), *queued.DeepCopy()
	done.Name, done.UID, going.Name, going.UID, leaving.Name, leaving.UID = "done", "done", "going", "going", "leaving", "leaving"
	done.Status.CompletionTime = new(metav1.NewTime(backupstest.Noon))
	going.DeletionTimestamp, leaving.DeletionTimestamp = new(metav1.NewTime(backupstest.Noon)), new(metav1.NewTime(backupstest.Noon))
	b := saying("b", 30*time.Second, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonQueued)
	for _, c := range []struct {
		name   string
		others []v1alpha1.Backup
		want   bool
	}{
		{"alone", nil, true},
		{"beside one", []v1alpha1.Backup{copying}, true},
		{"beside two", []v1alpha1.Backup{copying, later}, false},
		{"beside one whose pod has no node", []v1alpha1.Backup{copying, noNode}, false},
		{"beside one that never got a Job", []v1alpha1.Backup{copying, noJob}, true},
		{"beside one that is about to get one", []v1alpha1.Backup{copying, started}, false},
		{"behind an older one", []v1alpha1.Backup{copying, queued}, false},
		{"behind one of the same second", []v1alpha1.Backup{copying, twin}, false},
		{"before a newer one", []v1alpha1.Backup{copying, newer}, true},
		{"those that wait for something else do not count", []v1alpha1.Backup{copying, suspended, refused, noVolume, unseen}, true},
		{"those that are done or go do not count", []v1alpha1.Backup{copying, done, going, leaving}, true},
	} {
		r := reconcilerOf(t, 2, append(c.others, b)...)
		s := observation{backup: &b, now: backupstest.Noon}
		if err := r.observeTurn(t.Context(), &s); err != nil || (s.most == 0) != c.want {
			t.Errorf("%s: %d, %v", c.name, s.most, err)
		}
	}
}

// One that waits for its turn writes nothing after it has said so, and looks for
// no keys; one that was begun goes on.
func TestObserveTurn(t *testing.T) {
	copying := saying("copying", time.Hour, true, v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying)
	copying.Namespace = "other"
	r := reconcilerOf(t, 1, copying)
	s := begun().with(fresh)
	s.cluster.Common().Backup.Destination = &v1alpha1.BackupDestination{URL: "s3://acme", CredentialsSecretRef: &v1alpha1.SecretReference{Name: "keys"}}
	if err := r.observeTurn(t.Context(), &s); err != nil || s.most != 1 {
		t.Fatalf("%v, %d", err, s.most)
	}
	first := planBackup(s)
	s.backup.Status = first.status
	if second := planBackup(s); !isQueued(s.backup) || acts(second) != "" || second.recheck != queuedRecheck || second.fact.Message != first.fact.Message {
		t.Errorf("%+v, then %+v", first, second)
	}
	if err := r.observeKeys(t.Context(), &s); err != nil {
		t.Error(err) // without a live client it would have died
	}
	going := begun()
	if err := r.observeTurn(t.Context(), &going); err != nil || going.most != 0 {
		t.Errorf("%v: one that was begun waits", err)
	}
	again := begun()
	again.job = nil
	again.backup.Status.Conditions = copying.Status.Conditions
	if err := r.observeTurn(t.Context(), &again); err != nil || again.most != 0 {
		t.Errorf("%v: one whose place is on record waits", err)
	}
	if err := r.Client.Delete(t.Context(), &copying, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if s.most = 0; r.observeTurn(t.Context(), &s) != nil || s.most != 0 || acts(planBackup(s)) != "record" {
		t.Errorf("it has its turn, and does %q", acts(planBackup(s)))
	}
}

// The end of a backup wakes those whose turn it is, the oldest first, and no more.
func TestFollowTurns(t *testing.T) {
	copying := saying("copying", time.Hour, true, v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying)
	done := *copying.DeepCopy()
	done.Status.CompletionTime = new(metav1.NewTime(backupstest.Noon))
	queued := func(name string, ago time.Duration) v1alpha1.Backup {
		return saying(name, ago, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonQueued)
	}
	first, second, third := queued("first", 3*time.Minute), queued("second", 2*time.Minute), queued("third", time.Minute)
	suspended := saying("first", 3*time.Minute, false, v1alpha1.ConditionStalled, v1alpha1.ReasonSuspended)
	for _, c := range []struct {
		name          string
		before, after v1alpha1.Backup
		deleted       bool
		concurrent    int
		all           []v1alpha1.Backup
		want          []string
	}{
		{"the only one ends", copying, done, false, 1, []v1alpha1.Backup{third, second, first}, []string{"first"}},
		{"one of two ends, and the other goes on", copying, done, false, 2, []v1alpha1.Backup{saying("b", 0, true, v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying), second, first}, []string{"first"}},
		{"two are free", copying, done, false, 2, []v1alpha1.Backup{third, first, second}, []string{"first", "second"}},
		{"more are free than wait", copying, done, false, 20, []v1alpha1.Backup{first}, []string{"first"}},
		{"none waits", copying, done, false, 1, nil, nil},
		{"it goes on", copying, copying, false, 1, []v1alpha1.Backup{first}, nil},
		{"one has its turn", first, copying, false, 2, []v1alpha1.Backup{second}, nil},
		{"one waits for something else", first, suspended, false, 1, []v1alpha1.Backup{second}, []string{"second"}},
		{"one is deleted while it is made", copying, v1alpha1.Backup{}, true, 1, []v1alpha1.Backup{first}, []string{"first"}},
		{"one is deleted that was done", done, v1alpha1.Backup{}, true, 1, []v1alpha1.Backup{first}, nil},
	} {
		r := reconcilerOf(t, c.concurrent, c.all...)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		if c.deleted {
			r.followTurns().Delete(t.Context(), event.DeleteEvent{Object: &c.before}, queue)
		} else {
			r.followTurns().Update(t.Context(), event.UpdateEvent{ObjectOld: &c.before, ObjectNew: &c.after}, queue)
		}
		var woken []string
		for queue.Len() > 0 {
			next, _ := queue.Get()
			woken = append(woken, next.Name)
		}
		if !slices.Equal(woken, c.want) {
			t.Errorf("%s: %q are woken, not %q", c.name, woken, c.want)
		}
	}
}

// A backup that was begun counts before the cache shows it, once, and no longer when it
// shows it otherwise, another one has its name, or it has not been shown for long.
func TestBegunBackupCountsBeforeTheCacheShowsIt(t *testing.T) {
	begun := saying("begun", time.Minute, false, "", "")
	queued := saying("begun", time.Minute, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonQueued)
	seen := saying("begun", time.Minute, true, v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying)
	done := *seen.DeepCopy()
	done.Status.CompletionTime = new(metav1.NewTime(backupstest.Noon))
	another := *begun.DeepCopy()
	another.UID = "another"
	b := saying("b", 0, false, "", "")
	for _, c := range []struct {
		name       string
		cached     []v1alpha1.Backup
		of         v1alpha1.Backup
		later      time.Duration
		concurrent int
		waits      bool
	}{
		{"the cache does not show it yet", []v1alpha1.Backup{begun}, b, 0, 1, true},
		{"the cache shows it as queued", []v1alpha1.Backup{queued}, b, 0, 1, true},
		{"the cache shows it as queued, and two may be made", []v1alpha1.Backup{queued}, b, 0, 2, false},
		{"the cache shows that it is made", []v1alpha1.Backup{seen}, b, 0, 1, true},
		{"the cache shows that it is made, and two may be", []v1alpha1.Backup{seen}, b, 0, 2, false},
		{"it is done", []v1alpha1.Backup{done}, b, 0, 1, false},
		{"it is gone", nil, b, 0, 1, false},
		{"another one has its name", []v1alpha1.Backup{another}, b, 0, 1, false},
		{"it never comes to be shown", []v1alpha1.Backup{begun}, b, 2 * time.Minute, 1, false},
		{"it does not wait for itself", []v1alpha1.Backup{begun}, begun, 0, 1, false},
		{"it does not wait for itself, though the cache shows by now that it is made", []v1alpha1.Backup{seen}, begun, 0, 1, false},
	} {
		r := reconcilerOf(t, c.concurrent, c.cached...)
		r.rememberBegun(&begun)
		s := observation{backup: &c.of, now: backupstest.Noon.Add(c.later)}
		if err := r.observeTurn(t.Context(), &s); err != nil || (s.most > 0) != c.waits {
			t.Errorf("%s: %d, %v", c.name, s.most, err)
		}
	}
}

// A backup that was begun, and waited for something else before it had a Job, takes its turn
// again.
func TestPausedBackupTakesItsTurnAgain(t *testing.T) {
	copying := saying("copying", time.Hour, true, v1alpha1.ConditionReconciling, v1alpha1.ReasonCopying)
	paused := saying("paused", 2*time.Hour, true, v1alpha1.ConditionStalled, v1alpha1.ReasonSuspended)
	for concurrent, waits := range map[int]bool{1: true, 2: false} {
		s := observation{backup: &paused, now: backupstest.Noon}
		if err := reconcilerOf(t, concurrent, copying, paused).observeTurn(t.Context(), &s); err != nil || (s.most > 0) != waits {
			t.Errorf("with %d: %d, %v", concurrent, s.most, err)
		}
	}
}

// copiesOf finds one cluster by any name.
type copiesOf struct{ cluster v1alpha1.Cluster }

func (c copiesOf) Find(context.Context, types.NamespacedName) (v1alpha1.Cluster, error) {
	return c.cluster, nil
}

func (c copiesOf) Copying(context.Context, types.NamespacedName) (v1alpha1.Cluster, engine.CopyPlan, error) {
	return c.cluster, engine.CopyPlan{Sources: []engine.Source{{}}}, nil
}

// A queued backup whose passes fail when its turn comes gives its place to the next ones, which
// are woken, and takes its turn when a pass of it succeeds: as many are made as may be, in order.
func TestFailingBackupGivesItsPlaceToTheNext(t *testing.T) {
	queued := func(name string, ago time.Duration) v1alpha1.Backup {
		b := saying(name, ago, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonQueued)
		b.Spec.ClusterRef.Kind = "EtcdCluster"
		return b
	}
	failing, second, third := queued("failing", 3*time.Minute), queued("second", 2*time.Minute), queued("third", time.Minute)
	r := reconcilerOf(t, 1, third, failing, second)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	r.queue = queue
	c := backupstest.Scheduled()
	c.Spec.Backup.Destination = &v1alpha1.BackupDestination{URL: "s3://acme", CredentialsSecretRef: &v1alpha1.SecretReference{Name: "keys"}}
	r.Kinds = map[string]Copies{"EtcdCluster": copiesOf{c}}
	broken := errors.New("the API server does not answer")
	r.Live = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		},
	})
	waits := func(b v1alpha1.Backup) bool {
		t.Helper()
		s := observation{backup: &b, now: backupstest.Noon}
		if err := r.observeTurn(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		return s.most > 0
	}
	woken := func() (names []string) {
		for queue.Len() > 0 {
			next, _ := queue.Get()
			names = append(names, next.Name)
			queue.Done(next)
		}
		return names
	}
	reconcileFailing := func() error {
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&failing)})
		return err
	}
	if !waits(second) || waits(failing) {
		t.Fatal("the oldest does not come first")
	}
	if err := reconcileFailing(); !errors.Is(err, broken) {
		t.Fatalf("the pass fails with %v", err)
	}
	if waits(second) || !waits(third) || waits(failing) {
		t.Errorf("after it failed: second waits %t, third %t, the failing one %t", waits(second), waits(third), waits(failing))
	}
	if got := woken(); !slices.Equal(got, []string{"second"}) {
		t.Errorf("woken are %q", got)
	}
	if err := reconcileFailing(); !errors.Is(err, broken) || woken() != nil {
		t.Errorf("the next failure, %v, wakes others again", err)
	}
	r.enqueueNext(t.Context(), queue) // as the end of another one does
	if got := woken(); !slices.Equal(got, []string{"second"}) {
		t.Errorf("the end of another backup wakes %q", got)
	}
	r.rememberBegun(&second)
	if !waits(failing) || !waits(third) {
		t.Error("more are made than may be")
	}
	delete(r.begun, client.ObjectKeyFromObject(&second))
	r.recordPass(t.Context(), &failing, nil)
	if !waits(second) || waits(failing) {
		t.Error("it works again, and has not its place")
	}
	again := failing
	again.UID = "again"
	r.recordPass(t.Context(), &again, broken)
	if !waits(second) {
		t.Error("the failure of one that had this name counts")
	}
	if err := r.Client.Delete(t.Context(), &failing, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if _, known := r.failed.Load(client.ObjectKeyFromObject(&failing)); !known {
		t.Fatal("the failure is not remembered")
	}
	r.Applier = &forgetting{}
	if err := reconcileFailing(); err != nil {
		t.Fatal(err)
	}
	if _, known := r.failed.Load(client.ObjectKeyFromObject(&failing)); known {
		t.Error("a failure is remembered of a Backup that is gone")
	}
}

// A backup counts as begun also where it is not known whether its place was recorded: others take
// the places of one whose pass failed, and no more are made than may be.
func TestBackupWithoutAnAnswerCountsAsBegun(t *testing.T) {
	backups := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "backups"}
	for _, c := range []struct {
		name  string
		err   error
		waits bool
	}{
		{"no answer", context.DeadlineExceeded, true},
		{"the API server's store was late", apierrors.NewTimeoutError("etcdserver: request timed out", 1), true},
		{"the API server failed", apierrors.NewInternalError(errors.New("etcdserver: leader changed")), true},
		{"it is not allowed", apierrors.NewForbidden(backups, "failing", errors.New("RBAC")), false},
		{"the API server is busy", apierrors.NewTooManyRequests("later", 1), false},
		{"the cache is behind", apierrors.NewConflict(backups, "failing", errors.New("changed")), false},
	} {
		failing := saying("failing", 2*time.Minute, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonQueued)
		next := saying("next", time.Minute, false, v1alpha1.ConditionReconciling, v1alpha1.ReasonQueued)
		r := reconcilerOf(t, 1, failing, next)
		r.Client = interceptor.NewClient(r.Client.(client.WithWatch), interceptor.Funcs{
			SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
				return c.err
			},
		})
		p := plan{status: *failing.Status.DeepCopy()}
		p.status.Location = &v1alpha1.BackupLocation{URL: "s3://acme"}
		if err := r.writeStatus(t.Context(), &failing, &p); !errors.Is(err, c.err) {
			t.Fatalf("%s: %v", c.name, err)
		}
		r.recordPass(t.Context(), &failing, c.err)
		s := observation{backup: &next, now: backupstest.Noon}
		if err := r.observeTurn(t.Context(), &s); err != nil || (s.most > 0) != c.waits {
			t.Errorf("%s: %d, %v", c.name, s.most, err)
		}
	}
}
