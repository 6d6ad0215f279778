package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// scheduled is a cluster that is backed up every hour, and was at 11.
func scheduled() *v1alpha1.EtcdCluster {
	c := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "c"}}
	c.Spec.Backup = &v1alpha1.ClusterBackup{Schedule: "0 * * * *", Retention: "2d"}
	at := metav1.NewTime(noon)
	c.Status.Schedules = []v1alpha1.ScheduleStatus{{Name: "Backup", Schedule: "0 * * * *", NextSlot: &at}}
	return c
}

// made is a backup by schedule that ended so long ago; an error says that it
// failed.
func made(name string, ago time.Duration, err string) *v1alpha1.Backup {
	at := metav1.NewTime(noon.Add(-ago))
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at, Labels: map[string]string{v1alpha1.LabelSchedule: "x"}}}
	b.Status.StartTime, b.Status.CompletionTime, b.Status.Error, b.Status.ClusterUID = &at, &at, err, "c"
	if err == "" {
		b.Status.Result = &v1alpha1.BackupResult{}
	}
	return b
}

// ofAnother cluster, which had the same name.
func ofAnother(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Status.ClusterUID = "before"
	return b
}

func lostData(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Status.DataLost = true
	return b
}

func byHand(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Labels = nil
	return b
}

func underWay(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Status.CompletionTime, b.Status.Result = nil, nil
	return b
}

func names(all []*v1alpha1.Backup) string {
	var names []string
	for _, b := range all {
		names = append(names, b.Name)
	}
	return strings.Join(names, " ")
}

func TestSlots(t *testing.T) {
	cases := []struct {
		name      string
		change    func(c *v1alpha1.EtcdCluster)
		all       []*v1alpha1.Backup
		now       time.Time
		due, says string
	}{
		{"before the slot nothing is due", nil, nil, noon.Add(-time.Second), "", ""},
		{"at the slot one is due", nil, nil, noon, "orders-20260301-1200", ""},
		{"one that was missed is made up", nil, nil, noon.Add(59 * time.Minute), "orders-20260301-1200", ""},
		{"of many that were missed the newest is", nil, nil, noon.Add(5*time.Hour + time.Minute), "orders-20260301-1700", ""},
		{"while one is under way there is no other", nil, []*v1alpha1.Backup{underWay(made("orders-20260301-1100", time.Hour, ""))}, noon, "", "passed over: backup orders-20260301-1100 is still under way"},
		{"one of a lost cluster does not count", nil, []*v1alpha1.Backup{ofAnother(underWay(made("orders-20260301-1100", time.Hour, "")))}, noon, "orders-20260301-1200", ""},
		{"one by hand that is under way does not count", nil, []*v1alpha1.Backup{byHand(underWay(made("mine", time.Hour, "")))}, noon, "orders-20260301-1200", ""},
		{"one that was made already is its slot's", nil, []*v1alpha1.Backup{underWay(made("orders-20260301-1200", 0, ""))}, noon, "orders-20260301-1200", ""},
		{"its name is taken", nil, []*v1alpha1.Backup{byHand(made("orders-20260301-1200", 0, ""))}, noon, "orders-20260301-1200", ""},
		{"suspended", func(c *v1alpha1.EtcdCluster) { c.Spec.Suspend = true }, nil, noon, "", "passed over: spec.suspend is true"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := scheduled()
			if tc.change != nil {
				tc.change(c)
			}
			r := planBackups(c, "EtcdCluster", tc.all, nil, tc.now)
			due := ""
			if r.due != nil {
				due = r.due.Name
				if clusterOf(r.due) != "c" {
					t.Errorf("it is of %q", clusterOf(r.due))
				}
				if r.due.Spec.DeletionPolicy != v1alpha1.DeletionDelete || r.due.Spec.ClusterRef != (v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: "orders"}) {
					t.Errorf("%+v", r.due.Spec)
				}
				if !r.record.NextSlot.Time.Equal(noon) || r.done.NextSlot.Sub(tc.now) <= 0 {
					t.Error("the slot counts as done before its backup was made")
				}
			}
			if due != tc.due || r.record.Message != tc.says || r.wait <= 0 {
				t.Errorf("due %q, record %+v, looks again in %s", due, r.record, r.wait)
			}
		})
	}
}

func TestNoSchedule(t *testing.T) {
	for name, change := range map[string]func(c *v1alpha1.EtcdCluster){
		"nothing declared": func(c *v1alpha1.EtcdCluster) { c.Spec.Backup = nil },
		"turned off":       func(c *v1alpha1.EtcdCluster) { c.Spec.Backup.Enabled = new(false) },
	} {
		c := scheduled()
		change(c)
		r := planBackups(c, "EtcdCluster", []*v1alpha1.Backup{made("a", 100*24*time.Hour, ""), made("b", time.Hour, "")}, nil, noon)
		if r.due != nil || r.surplus != nil || r.facts != nil || r.record != nil || r.last == nil || r.last.Name != "b" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	c := scheduled()
	c.Spec.Backup.Schedule = "0 0 31 2 *"
	if r := planBackups(c, "EtcdCluster", nil, nil, noon); r.due != nil || r.record == nil || !r.record.NextSlot.Time.Equal(noon) || len(r.facts) != 1 || r.facts[0].Type != v1alpha1.ConditionStalled || !strings.Contains(r.facts[0].Message, "spec.backup.schedule") {
		t.Errorf("%+v", r)
	}
}

func TestBackedUp(t *testing.T) {
	cases := []struct {
		name, reason string
		all          []*v1alpha1.Backup
		last         string
	}{
		{"none yet", "NoBackup", nil, ""},
		{"the first is under way", "NoBackup", []*v1alpha1.Backup{underWay(made("a", 0, ""))}, ""},
		{"a good one", "BackedUp", []*v1alpha1.Backup{made("a", time.Hour, "")}, "a"},
		{"a good one after a failure", "BackedUp", []*v1alpha1.Backup{made("a", time.Hour, "full"), made("b", 0, "")}, "b"},
		{"a failure after a good one", "BackupFailed", []*v1alpha1.Backup{made("a", time.Hour, ""), made("b", 0, "full")}, "a"},
		{"only failures", "BackupFailed", []*v1alpha1.Backup{made("a", time.Hour, "full")}, ""},
		{"a good one of a lost cluster", "NoBackup", []*v1alpha1.Backup{ofAnother(made("a", time.Hour, ""))}, ""},
		{"a failure of a lost cluster", "BackedUp", []*v1alpha1.Backup{made("a", time.Hour, ""), ofAnother(made("b", 0, "full"))}, "a"},
		{"two slots have made none", "BackupOverdue", []*v1alpha1.Backup{made("a", 2*time.Hour+time.Minute, "")}, "a"},
		{"the last slot but one has made it", "BackedUp", []*v1alpha1.Backup{made("a", 2*time.Hour, "")}, "a"},
		{"a hang after a good one", "BackupOverdue", []*v1alpha1.Backup{made("a", 9*time.Hour, ""), underWay(made("b", 8*time.Hour, ""))}, "a"},
		{"a good one by hand is not too old", "BackedUp", []*v1alpha1.Backup{made("a", 9*time.Hour, ""), byHand(made("b", 0, ""))}, "b"},
		{"a good one whose volume is gone", "BackupFailed", []*v1alpha1.Backup{lostData(made("a", time.Hour, ""))}, ""},
		{"a good one by hand is no run of the schedule", "NoBackup", []*v1alpha1.Backup{byHand(made("a", 0, ""))}, "a"},
	}
	for _, tc := range cases {
		r := planBackups(scheduled(), "EtcdCluster", tc.all, nil, noon.Add(-time.Minute))
		fact, last := r.facts[0], ""
		if r.last != nil {
			last = r.last.Name
		}
		good := fact.Status == metav1.ConditionTrue
		if diff := cmp.Diff(tc.reason, fact.Reason); diff != "" || last != tc.last || good != (tc.reason == "BackedUp") {
			t.Errorf("%s: %+v, last %q", tc.name, fact, last)
		}
		if tc.reason == "BackupFailed" && tc.name != "a good one whose volume is gone" && !strings.Contains(fact.Message, "full") {
			t.Errorf("%s: %s", tc.name, fact.Message)
		}
	}
}

// What keeps a backup from beginning is said of its cluster, too.
func TestBackedUpSaysWhatIsInTheWay(t *testing.T) {
	stuck := underWay(made("b", 0, ""))
	stuck.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSecretMissing, Message: "there is no Secret keys"}}
	fact := planBackups(scheduled(), "EtcdCluster", []*v1alpha1.Backup{made("a", time.Hour, ""), stuck}, nil, noon.Add(-time.Minute)).facts[0]
	if fact.Status != metav1.ConditionTrue || !strings.Contains(fact.Message, "backup b cannot go on: there is no Secret keys; the next one is due at 2026-03-01T12:00:00Z") {
		t.Errorf("%+v", fact)
	}
}

// What a backup under way tries again is said of its cluster, too.
func TestBackedUpSaysWhatIsTriedAgain(t *testing.T) {
	busy := underWay(made("b", 0, ""))
	busy.Status.Run = &v1alpha1.BackupRun{Error: "write a: the store answered 503; it is tried until 2026-03-01T12:12:00Z"}
	fact := planBackups(scheduled(), "EtcdCluster", []*v1alpha1.Backup{made("a", time.Hour, ""), busy}, nil, noon.Add(-time.Minute)).facts[0]
	if fact.Status != metav1.ConditionTrue || !strings.Contains(fact.Message, "backup b is trying again: write a: the store answered 503; it is tried until 2026-03-01T12:12:00Z") {
		t.Errorf("%+v", fact)
	}
}

// keeping runs the backups of a cluster against a store of objects.
func keeping(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) (*pass[*v1alpha1.EtcdCluster], *events.FakeRecorder, error) {
	t.Helper()
	return keepingOf(t, scheduled(), nil, funcs, objects...)
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
		Keys:   versions{}, Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(noon),
	}
	p := &pass[*v1alpha1.EtcdCluster]{c: c, plan: plan}
	err := r.keepBackups(t.Context(), p)
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
		{name: "somebody's own has the name", there: slot("orders", nil), done: true, over: 1, message: "passed over: there is a Backup orders-20260301-1200 that the schedule has not made"},
		{name: "that of a lost cluster has the name", there: slot("orders", map[string]string{v1alpha1.LabelSchedule: "x", v1alpha1.LabelClusterUID: "before"}), done: true, over: 1,
			message: "passed over: there is a Backup orders-20260301-1200 that the schedule has not made"},
		{name: "that of another cluster has the name", there: slot("others", nil), done: true, over: 1, message: "passed over: there is a Backup orders-20260301-1200 that the schedule has not made"},
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
			record := recordOf(p.c.CommonStatus())
			if record == nil || record.NextSlot.After(noon) != tc.done || record.PassedOver != tc.over || record.Message != tc.message || (err != nil) != tc.fails {
				t.Errorf("%+v, %v", record, err)
			}
			if (len(recorder.Events) == 1) != (tc.over > 0) {
				t.Errorf("%d events", len(recorder.Events))
			}
		})
	}
}
