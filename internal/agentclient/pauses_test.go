package agentclient

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// says is what one member reports: its pod and UID, such as a1 for the first pod of the
// name a, and whether it leads, follows, stops or is not reached.
type says struct{ member, does string }

func (s says) report() reported {
	r := reported{uid: types.UID(s.member), pod: s.member[:1], answers: true}
	switch s.does {
	case "leads":
		r.leads = true
	case "leads and stops":
		r.leads, r.stops = true, true
	case "stops":
		r.stops = true
	case "led and is lost":
		r.answers, r.leads = false, true
	case "stopped and is lost":
		r.answers, r.stops = false, true
	}
	return r
}

// Pauses are measured from the moment at which the members' answers show that none leads.
func TestPauses(t *testing.T) {
	type step struct {
		after time.Duration
		all   []says
	}
	second := time.Second
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		steps []step
		want  []Pause
	}{
		"a cluster that is bootstrapped": {[]step{{0, []says{{"a1", "follows"}}}, {9 * second, []says{{"a1", "leads"}}}}, nil},
		"a steady cluster":               {[]step{{0, []says{{"a1", "leads"}, {"b1", "follows"}}}, {9 * second, []says{{"a1", "leads"}, {"b1", "follows"}}}}, nil},
		"a switchover": {
			[]step{{0, []says{{"a1", "leads"}, {"b1", "follows"}}}, {second, []says{{"a1", "follows"}, {"b1", "follows"}}}, {2 * second, []says{{"a1", "follows"}, {"b1", "leads"}}}},
			[]Pause{{v1alpha1.WritePauseSwitchover, at.Add(3 * second), 2 * second}},
		},
		"a switchover before a pod ends": {
			[]step{{0, []says{{"a1", "leads"}, {"b1", "follows"}}}, {second, []says{{"a1", "leads and stops"}, {"b1", "follows"}}}, {second, []says{{"a1", "stops"}, {"b1", "follows"}}}, {second / 2, []says{{"a1", "stopped and is lost"}, {"b1", "leads"}}}},
			[]Pause{{v1alpha1.WritePauseSwitchover, at.Add(2500 * time.Millisecond), second / 2}},
		},
		"a pod that has gone before another leads": {
			[]step{{0, []says{{"a1", "leads"}, {"b1", "follows"}}}, {second, []says{{"a1", "stops"}, {"b1", "follows"}}}, {second, []says{{"b1", "follows"}}}, {second, []says{{"b1", "leads"}}}},
			[]Pause{{v1alpha1.WritePauseSwitchover, at.Add(3 * second), 2 * second}},
		},
		"answers that cross": {
			[]step{{0, []says{{"a1", "leads"}, {"b1", "follows"}}}, {second, []says{{"a1", "leads"}, {"b1", "leads"}}}, {second / 4, []says{{"a1", "follows"}, {"b1", "leads"}}}},
			[]Pause{{v1alpha1.WritePauseSwitchover, at.Add(second), 0}},
		},
		"answers that cross, of a pod that stops": {
			[]step{{0, []says{{"a1", "leads and stops"}, {"b1", "follows"}}}, {second, []says{{"a1", "leads and stops"}, {"b1", "leads"}}}, {second / 4, []says{{"b1", "leads"}}}},
			[]Pause{{v1alpha1.WritePauseSwitchover, at.Add(second), 0}},
		},
		"a leader that is lost": {
			[]step{{0, []says{{"a1", "leads"}, {"b1", "follows"}}}, {second, []says{{"a1", "led and is lost"}, {"b1", "follows"}}}, {6 * second, []says{{"a1", "led and is lost"}, {"b1", "leads"}}}},
			[]Pause{{v1alpha1.WritePauseFailover, at.Add(7 * second), 6 * second}},
		},
		"a loss that shows after its successor": {
			[]step{{0, []says{{"a1", "leads"}, {"b1", "follows"}}}, {second, []says{{"a1", "leads"}, {"b1", "leads"}}}, {second, []says{{"a1", "led and is lost"}, {"b1", "leads"}}}}, nil,
		},
		"a leader that is not reached for a while": {
			[]step{{0, []says{{"a1", "leads"}}}, {second, []says{{"a1", "led and is lost"}}}, {6 * second, []says{{"a1", "leads"}}}}, nil,
		},
		"a single member whose pod is replaced": {
			[]step{{0, []says{{"a1", "leads"}}}, {second, []says{{"a1", "stops"}}}, {second, nil}, {second, []says{{"a2", "follows"}}}, {4 * second, []says{{"a2", "leads"}}}},
			[]Pause{{v1alpha1.WritePauseRestart, at.Add(7 * second), 6 * second}},
		},
		"a single member whose pod is lost": {
			[]step{{0, []says{{"a1", "leads"}}}, {second, nil}, {second, []says{{"a2", "leads"}}}},
			[]Pause{{v1alpha1.WritePauseRestart, at.Add(2 * second), second}},
		},
		"a database that restarts in its pod": {
			[]step{{0, []says{{"a1", "leads"}, {"b1", "follows"}}}, {second, []says{{"a1", "follows"}, {"b1", "follows"}}}, {3 * second, []says{{"a1", "leads"}, {"b1", "follows"}}}},
			[]Pause{{v1alpha1.WritePauseRestart, at.Add(4 * second), 3 * second}},
		},
		"there and back": {
			[]step{
				{0, []says{{"a1", "leads"}, {"b1", "follows"}}}, {second, []says{{"a1", "follows"}, {"b1", "follows"}}}, {second, []says{{"a1", "follows"}, {"b1", "leads"}}},
				{time.Minute, []says{{"a1", "follows"}, {"b1", "follows"}}}, {2 * second, []says{{"a1", "leads"}, {"b1", "follows"}}},
			},
			[]Pause{{v1alpha1.WritePauseSwitchover, at.Add(2 * second), second}, {v1alpha1.WritePauseSwitchover, at.Add(64 * second), 2 * second}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p pauses
			var answers []Pause
			now := at
			for _, step := range c.steps {
				now = now.Add(step.after)
				var all []reported
				for _, s := range step.all {
					all = append(all, s.report())
				}
				if over := p.observe(now, all); over != nil {
					answers = append(answers, *over)
				}
			}
			if diff := cmp.Diff(c.want, p.newest); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(c.want, answers); diff != "" {
				t.Errorf("of what is returned (-want +got)\n%s", diff)
			}
		})
	}
}

// Memory is bounded, however often the lead moves.
func TestPausesAreBounded(t *testing.T) {
	var p pauses
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 100 {
		for _, all := range [][]says{{{"a1", "leads"}}, {{"a1", "follows"}}} {
			now = now.Add(time.Second)
			p.observe(now, []reported{all[0].report()})
		}
	}
	if n := len(p.newest); n != 9 || !p.newest[n-1].At.Equal(now.Add(-time.Second)) {
		t.Errorf("%d pauses, the last at %v", n, p.newest[n-1].At)
	}
}

// The poller measures what its members' answers say.
func TestThePollerMeasuresPauses(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		is := func(role string, state agentapi.State) {
			w.agent.changeStatus(func(s *agentapi.Status) { s.Role, s.State, s.Serving = role, state, state == agentapi.StateRunning })
			synctest.Wait()
		}
		is(v1alpha1.RolePrimary, agentapi.StateRunning)
		w.watchMembers(nil)
		time.Sleep(time.Minute)
		is(v1alpha1.RoleMember, agentapi.StateRecovering)
		time.Sleep(3 * time.Second)
		is(v1alpha1.RolePrimary, agentapi.StateRunning)
		time.Sleep(time.Minute)
		got := w.poller.Pauses(orders)
		if len(got) != 1 || got[0].Event != v1alpha1.WritePauseRestart || got[0].Duration < 2*time.Second || got[0].Duration > 4*time.Second {
			t.Errorf("%+v", got)
		}
		w.poller.Forget(orders)
		if got := w.poller.Pauses(orders); got != nil {
			t.Errorf("%+v", got)
		}
	})
}
