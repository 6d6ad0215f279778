package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// keeping runs the backups of a cluster against a store of objects.
func keeping(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) (*pass[*v1alpha1.EtcdCluster], *events.FakeRecorder, error) {
	t.Helper()
	return keepingOf(t, backupstest.Scheduled(), nil, funcs, objects...)
}

// keepingOf a cluster whose engine wants a backup.
func keepingOf(t *testing.T, c *v1alpha1.EtcdCluster, wanted *engine.Demand, funcs interceptor.Funcs, objects ...client.Object) (*pass[*v1alpha1.EtcdCluster], *events.FakeRecorder, error) {
	t.Helper()
	return keepPlanned(t, c, engine.Plan{Demand: wanted, Facts: []condition.Fact{{Type: v1alpha1.ConditionReady}}}, funcs, objects...)
}

// passOver a cluster with what its engine has planned.
func passOver(t *testing.T, c *v1alpha1.EtcdCluster, plan engine.Plan, funcs interceptor.Funcs, objects ...client.Object) (*pass[*v1alpha1.EtcdCluster], error) {
	t.Helper()
	p, _, err := keepPlanned(t, c, plan, funcs, objects...)
	return p, err
}

func keepPlanned(t *testing.T, c *v1alpha1.EtcdCluster, plan engine.Plan, funcs interceptor.Funcs, objects ...client.Object) (*pass[*v1alpha1.EtcdCluster], *events.FakeRecorder, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), batchv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(8)
	r := &Reconciler[*v1alpha1.EtcdCluster, int]{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).Build(),
		Keys:   versions{}, Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(backupstest.Noon),
	}
	p := &pass[*v1alpha1.EtcdCluster]{c: c, plan: plan}
	err := r.reconcileBackups(t.Context(), p)
	p.judgeBackedUp()
	fillReport(p.c.CommonStatus(), p)
	return p, recorder, err
}

// A slot is done when its own backup is there, and otherwise not, or not
// silently.
func TestSlotIsDone(t *testing.T) {
	slot := func(cluster string, labels map[string]string) *v1alpha1.Backup {
		return &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-20260301-1200", Labels: labels},
			Spec: v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: cluster}}}
	}
	ours := map[string]string{v1alpha1.LabelSchedule: "20260301-1200", v1alpha1.LabelClusterUID: "c"}
	away := errors.New("the API server is away")
	cases := []struct {
		name    string
		there   *v1alpha1.Backup
		funcs   interceptor.Funcs
		done    bool
		over    int64
		message string
		fails   bool
	}{
		{name: "it is made", done: true},
		{name: "it was made by a pass that died", there: slot("orders", ours), done: true},
		{name: "somebody's own has the name", there: slot("orders", nil), done: true, over: 1, message: "skipped: there is a Backup orders-20260301-1200 that the schedule has not made"},
		{name: "that of a lost cluster has the name", there: slot("orders", map[string]string{v1alpha1.LabelSchedule: "x", v1alpha1.LabelClusterUID: "before"}), done: true, over: 1,
			message: "skipped: there is a Backup orders-20260301-1200 that the schedule has not made"},
		{name: "that of another cluster has the name", there: slot("others", nil), done: true, over: 1, message: "skipped: there is a Backup orders-20260301-1200 that the schedule has not made"},
		{name: "it cannot be made", fails: true, funcs: interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return away }}},
		{name: "nothing can be read", fails: true, funcs: interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return away }}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var objects []client.Object
			if tc.there != nil {
				objects = append(objects, tc.there)
			}
			p, recorder, err := keeping(t, tc.funcs, objects...)
			record := backups.FindScheduleRecord(p.c.CommonStatus())
			if record == nil || record.NextSlot.After(backupstest.Noon) != tc.done || record.Skipped != tc.over || record.Message != tc.message || (err != nil) != tc.fails {
				t.Errorf("%+v, %v", record, err)
			}
			if (len(recorder.Events) == 1) != (tc.over > 0) {
				t.Errorf("%d events", len(recorder.Events))
			}
		})
	}
}

// A Backup of anybody else that has the name is not taken for it, and said.
func TestDemandNameTaken(t *testing.T) {
	others := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-gap-1"},
		Spec: v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: "others"}}}
	ahead := backupstest.Scheduled()
	ahead.Status.Schedules[0].NextSlot = new(metav1.NewTime(backupstest.Noon.Add(time.Hour)))
	for name, there := range map[string][]client.Object{"": nil, "NameConflict": {others}} {
		p, _, err := keepingOf(t, ahead.DeepCopy(), &engine.Demand{Name: "orders-gap-1", Since: backupstest.Noon}, interceptor.Funcs{}, there...)
		got := ""
		for _, f := range p.facts {
			if f.Reason == v1alpha1.ReasonNameConflict && strings.Contains(f.Message, "orders-gap-1") {
				got = f.Reason
			}
		}
		if err != nil || got != name {
			t.Errorf("%v: %+v, want %q", err, p.facts, name)
		}
	}
}

// A pass over a cluster that serves and has no backup makes the first one.
func TestFirstBackupIsMade(t *testing.T) {
	c := backupstest.Scheduled()
	c.Status.Schedules[0].NextSlot = new(metav1.NewTime(backupstest.Noon.Add(time.Hour)))
	p, err := passOver(t, c, engine.Plan{Facts: []condition.Fact{backupstest.Available}}, interceptor.Funcs{})
	if err != nil || p.backups.Due == nil || p.backups.Due.Name != backups.FirstBackupName(c) {
		t.Errorf("%v: %+v", err, p.backups.Due)
	}
}

// The first backup of a cluster is made as soon as it serves, once, and where
// nothing is known against the place that it goes to.
func TestFirstBackup(t *testing.T) {
	toStore := func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup.Destination = &v1alpha1.BackupDestination{URL: "s3://acme"}
	}
	usable := storePlan{check: &v1alpha1.StoreCheck{}}
	says := func(reason string) storePlan {
		return storePlan{check: &v1alpha1.StoreCheck{Reason: reason}, fault: &condition.Fact{Reason: reason}}
	}
	const first = "orders-first-2e7d2c"
	cases := []struct {
		name   string
		facts  []condition.Fact
		change func(c *v1alpha1.EtcdCluster)
		all    []*v1alpha1.Backup
		store  storePlan
		want   string
	}{
		{"it serves", []condition.Fact{backupstest.Available}, nil, nil, storePlan{}, first},
		{"it does not serve yet", []condition.Fact{backupstest.Unavailable}, nil, nil, storePlan{}, ""},
		{"nothing is known of it", nil, nil, nil, storePlan{}, ""},
		{"members still join", []condition.Fact{backupstest.Available, backupstest.Syncing}, nil, nil, storePlan{}, ""},
		{"members that join make no progress", []condition.Fact{backupstest.Available, backupstest.Syncing}, func(c *v1alpha1.EtcdCluster) {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue}}
		}, nil, storePlan{}, first},
		{"it was made", []condition.Fact{backupstest.Available}, nil, []*v1alpha1.Backup{backupstest.Made(first, time.Hour, "")}, storePlan{}, ""},
		{"it has failed, and the schedule makes the next", []condition.Fact{backupstest.Available}, nil, []*v1alpha1.Backup{backupstest.Made(first, time.Hour, "full")}, storePlan{}, ""},
		{"one by hand is none by schedule", []condition.Fact{backupstest.Available}, nil, []*v1alpha1.Backup{backupstest.ByHand(backupstest.Made("mine", time.Hour, ""))}, storePlan{}, first},
		{"one of a cluster that had the name does not count", []condition.Fact{backupstest.Available}, nil, []*v1alpha1.Backup{backupstest.OfAnother(backupstest.Made("old", time.Hour, ""))}, storePlan{}, first},
		{"suspended", []condition.Fact{backupstest.Available}, func(c *v1alpha1.EtcdCluster) { c.Spec.Suspend = true }, nil, storePlan{}, ""},
		{"turned off", []condition.Fact{backupstest.Available}, func(c *v1alpha1.EtcdCluster) { c.Spec.Backup.Enabled = new(false) }, nil, storePlan{}, ""},
		{"the store was not tried yet", []condition.Fact{backupstest.Available}, toStore, nil, storePlan{}, ""},
		{"the store can be used", []condition.Fact{backupstest.Available}, toStore, nil, usable, first},
		{"the store cannot be used", []condition.Fact{backupstest.Available}, toStore, nil, says(v1alpha1.ReasonStoreUnusable), ""},
		{"its Secret is missing", []condition.Fact{backupstest.Available}, toStore, nil, says(v1alpha1.ReasonSecretMissing), ""},
		{"the store cannot be tried", []condition.Fact{backupstest.Available}, toStore, nil, says(v1alpha1.ReasonStoreUnchecked), first},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := backupstest.Scheduled()
			if tc.change != nil {
				tc.change(c)
			}
			now := backupstest.Noon.Add(-time.Minute) // no slot is due
			r := backups.PlanSchedule(c, "EtcdCluster", tc.all, nil, now)
			r.AddDemand(c, "EtcdCluster", tc.all, backups.FindDemand(c, engine.Plan{Facts: tc.facts}, backups.FilterOwn(c, tc.all), tc.store.mayBeUsed(c)), now)
			got := ""
			if r.Due != nil {
				got = r.Due.Name
			}
			if got != tc.want {
				t.Errorf("due %q, want %q", got, tc.want)
			}
		})
	}
}

// While the destination is removed no backup is made, by whatever wants it, none
// is dropped, no volume appears, and what to do is said.
func TestRemovedDestinationHoldsBackups(t *testing.T) {
	removed := func() *v1alpha1.EtcdCluster {
		c := backupstest.Scheduled()
		c.Spec.Backup = &v1alpha1.ClusterBackup{Schedule: "0 * * * *"} // retention, too, is the default's
		c.Status.BackupPlace = &v1alpha1.BackupPlace{URL: "s3://acme/etcd"}
		return c
	}
	all := []*v1alpha1.Backup{backupstest.At(backupstest.Made("orders-1", 20*24*time.Hour, ""), "s3://acme/etcd"), backupstest.At(backupstest.Made("orders-2", time.Hour, ""), "s3://acme/etcd")}
	r := backups.PlanSchedule(removed(), "EtcdCluster", all, nil, backupstest.Noon)
	if r.Due != nil || r.Record.Skipped != 1 || !strings.Contains(r.Record.Message, "spec.backup.destination was removed") {
		t.Errorf("due %+v, record %+v", r.Due, r.Record)
	}
	if r.Surplus != nil {
		t.Errorf("%s would be dropped", backupstest.Names(r.Surplus))
	}
	for _, wanted := range []string{v1alpha1.ConditionStalled, v1alpha1.ConditionBackedUp} {
		found := false
		for _, f := range append(r.Facts, *r.Verdicts.JudgeBackedUp()) {
			found = found || f.Type == wanted && f.Reason == v1alpha1.ReasonDestinationRemoved && (f.Status == metav1.ConditionTrue) == (wanted == v1alpha1.ConditionStalled) &&
				strings.Contains(f.Message, "spec.backup.destination") && strings.Contains(f.Message, "s3://acme/etcd") && strings.Contains(f.Message, "spec.backup.volume")
		}
		if !found {
			t.Errorf("no %s among %+v", wanted, r.Facts)
		}
	}
	r.AddDemand(removed(), "EtcdCluster", all, &engine.Demand{Name: "orders-before-3-7"}, backupstest.Noon)
	if r.Due != nil {
		t.Errorf("%s is demanded", r.Due.Name)
	}
	p, err := passOver(t, removed(), engine.Plan{Facts: []condition.Fact{backupstest.Available}}, interceptor.Funcs{})
	if st := p.c.CommonStatus(); err != nil || p.backups.Due != nil || st.NextBackup != nil || st.BackupPlace == nil || st.BackupPlace.URL != "s3://acme/etcd" {
		t.Errorf("%v: due %+v, next %v, place %+v", err, p.backups.Due, st.NextBackup, st.BackupPlace)
	}
}

// Retention leaves a backup that the pod of a restore may have chosen.
func TestRetentionLeavesWhatIsRead(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for from, stays := range map[string]bool{"monday": true, "": true, "tuesday": false} {
		c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "copy"}}
		c.Status.Restore = &v1alpha1.RestoreStatus{Backup: from, Target: &v1alpha1.RestoreTarget{Latest: true}, Location: &v1alpha1.BackupLocation{URL: "s3://acme", Prefix: "shop/orders/"}}
		b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "monday"}}
		b.Status.Location = &v1alpha1.BackupLocation{URL: "s3://acme", Prefix: "shop/orders/c-uid/monday-1/"}
		r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(c).Build()}
		drop, err := r.filterUnread(t.Context(), "PostgresCluster", "shop", []*v1alpha1.Backup{b})
		if err != nil || (len(drop) == 0) != stays {
			t.Errorf("a restore of %q: %d backups go, %v", from, len(drop), err)
		}
	}
}
