package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// synchronousBy declares that a number of standbys acknowledge a commit, and has the
// leader report a quorum.
func (w *world) synchronousBy(number int32, quorum []string, write int, streaming ...string) {
	w.c.Spec.Synchronous = &v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousQuorum, Number: number}
	w.c.Status.RolledOut = &v1alpha1.RolledOutStatus{Generation: w.c.Generation}
	w.reportElection(2, func(e *postgresapi.ElectionState) { e.Quorum, e.Write, e.Streaming = quorum, write, streaming })
}

func findFact(facts []condition.Fact, conditionType, reason string) *condition.Fact {
	for _, f := range facts {
		if f.Type == conditionType && f.Reason == reason {
			return &f
		}
	}
	return nil
}

// Members get what spec.synchronous and the Lease's duration say. None of it replaces
// a pod.
func TestSynchronousConfig(t *testing.T) {
	w := ledBy(t, 3, 2)
	before := membersOf(w.c).RolloutHash("image")
	for name, c := range map[string]struct {
		synchronous *v1alpha1.PostgresSynchronous
		duration    string
		want        postgresapi.FailoverConfig
	}{
		"nothing":  {nil, "", postgresapi.FailoverConfig{}},
		"Off":      {&v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousOff, Number: 2}, "10s", postgresapi.FailoverConfig{}},
		"Block":    {&v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousQuorum, Number: 2, WhenUnavailable: v1alpha1.UnavailableBlock}, "60s", postgresapi.FailoverConfig{LeaseDuration: 60, Synchronous: &postgresapi.SynchronousConfig{Number: 2}}},
		"Degrade":  {&v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousQuorum, Number: 1, WhenUnavailable: v1alpha1.UnavailableDegrade}, "15s", postgresapi.FailoverConfig{LeaseDuration: 15, Synchronous: &postgresapi.SynchronousConfig{Number: 1, Degrade: true}}},
		"defaults": {&v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousQuorum}, "", postgresapi.FailoverConfig{Synchronous: &postgresapi.SynchronousConfig{Number: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			w.c.Spec.Synchronous, w.c.Spec.Failover = c.synchronous, &v1alpha1.PostgresFailover{LeaseDuration: c.duration}
			if diff := cmp.Diff(c.want, w.config().FailoverConfig); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if step := w.plan().Step; step != nil || membersOf(w.c).RolloutHash("image") != before {
				t.Errorf("a pod is replaced: %v", step)
			}
		})
	}
}

func TestSynchronousIsJudged(t *testing.T) {
	volumes := []string{"volume-of-orders-0", "volume-of-orders-1", "volume-of-orders-2"}
	for _, c := range []struct {
		name      string
		change    func(w *world)
		state     string
		available bool
		says      []string // of Degraded; nothing without
	}{
		{"as many acknowledge as are declared", func(w *world) { w.synchronousBy(1, volumes, 2, "orders-0", "orders-1") }, "Full", true, nil},
		{"one of two streams, and one is enough", func(w *world) { w.synchronousBy(1, volumes, 2, "orders-0") }, "Full", true, nil},
		{"commits wait", func(w *world) { w.synchronousBy(1, volumes, 2) }, "Waiting", false,
			[]string{"commits wait: 1 of orders-0, orders-1 must flush each, and 0 of these stream", "Bring back orders-0, orders-1", "set spec.synchronous.whenUnavailable to Degrade"}},
		{"one streams that is not in the quorum", func(w *world) { w.synchronousBy(1, volumes[1:], 2, "orders-0") }, "Waiting", false, []string{"1 of orders-1 must flush each"}},
		{"an absent member is named by its volume", func(w *world) { w.synchronousBy(1, []string{"volume-of-orders-2", "v9"}, 2) }, "Waiting", false, []string{"1 of v9 must flush each"}},
		{"it is degraded to one", func(w *world) { w.synchronousBy(2, volumes[1:], 2, "orders-1") }, "Degraded", true,
			[]string{"flushed by 1 standby before it is acknowledged, and spec.synchronous.number is 2", "Bring back orders-0"}},
		{"it is degraded to none", func(w *world) { w.synchronousBy(1, volumes[2:], 1) }, "Degraded", true,
			[]string{"flushed by no standby before it is acknowledged, and spec.synchronous.number is 1", "Bring back orders-0, orders-1"}},
		{"there is no quorum", func(w *world) { w.synchronousBy(1, nil, 0, "orders-0", "orders-1") }, "", true, []string{"flushed by no standby"}},
		{"mode Off", func(w *world) { w.synchronousBy(1, nil, 0); w.c.Spec.Synchronous.Mode = v1alpha1.SynchronousOff }, "", true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ledBy(t, 3, 2).elects()
			c.change(w)
			p := w.plan()
			state := ""
			if q := p.Report.Election.Synchronous; q != nil {
				state = q.State
			}
			if state != c.state {
				t.Errorf("state %q, not %q", state, c.state)
			}
			available := findFact(p.Facts, v1alpha1.ConditionAvailable, v1alpha1.ReasonAvailable)
			waits := findFact(p.Facts, v1alpha1.ConditionAvailable, v1alpha1.ReasonSynchronousDegraded)
			if (available != nil) != c.available || (waits != nil && waits.Status == metav1.ConditionFalse) == c.available {
				t.Errorf("available: %v, %v", available, waits)
			}
			degraded := findFact(p.Facts, v1alpha1.ConditionDegraded, v1alpha1.ReasonSynchronousDegraded)
			if (degraded != nil) != (len(c.says) > 0) {
				t.Fatalf("Degraded: %v", degraded)
			}
			for _, text := range c.says {
				if !strings.Contains(degraded.Message, text) {
					t.Errorf("it does not say %q: %s", text, degraded.Message)
				}
			}
		})
	}
}

// What keeps an import from its end is said: its own commit waits, too.
func TestCommitsThatWaitAreSaidDuringAnImport(t *testing.T) {
	w := ledBy(t, 3, 2).elects()
	w.synchronousBy(1, []string{"volume-of-orders-0", "volume-of-orders-1", "volume-of-orders-2"}, 2)
	w.c.Status.Import = &v1alpha1.ImportStatus{}
	if f := findFact(w.plan().Facts, v1alpha1.ConditionAvailable, v1alpha1.ReasonSynchronousDegraded); f == nil || f.Status != metav1.ConditionFalse {
		t.Errorf("%+v", f)
	}
}

// The status shows the duration that the Lease has, not the one that is declared.
func TestLeaseDurationStatus(t *testing.T) {
	for seconds, want := range map[int64]string{0: "10s", 15: "15s", 60: "60s"} {
		w := ledBy(t, 3, 2).elects()
		w.reportElection(2, func(e *postgresapi.ElectionState) { e.LeaseDuration = seconds })
		if got := w.plan().Report.Election.LeaseDuration; got != want {
			t.Errorf("%d s: %q", seconds, got)
		}
	}
}

// A change is under way until its quorum acknowledges; nothing is broken for it.
func TestSynchronousChangeIsUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		mode  v1alpha1.SynchronousMode
		write int
		under bool
	}{
		"to Quorum":       {v1alpha1.SynchronousQuorum, 0, true},
		"Quorum is there": {v1alpha1.SynchronousQuorum, 2, false},
		"to Off":          {v1alpha1.SynchronousOff, 2, true},
		"Off is there":    {v1alpha1.SynchronousOff, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := ledBy(t, 3, 2).elects()
			quorum := []string{"volume-of-orders-0", "volume-of-orders-1", "volume-of-orders-2"}
			if c.write == 0 {
				quorum = nil
			}
			w.synchronousBy(1, quorum, c.write, "orders-0", "orders-1")
			w.c.Spec.Synchronous.Mode, w.c.Status.RolledOut = c.mode, nil
			facts := w.plan().Facts
			takesUp := func(f condition.Fact) bool {
				return f.Type == v1alpha1.ConditionReconciling && strings.Contains(f.Message, "take up spec.synchronous")
			}
			if under := slices.ContainsFunc(facts, takesUp); under != c.under {
				t.Errorf("under way: %v", under)
			}
			if f := findFact(facts, v1alpha1.ConditionDegraded, v1alpha1.ReasonSynchronousDegraded); f != nil {
				t.Errorf("broken: %s", f.Message)
			}
		})
	}
}
