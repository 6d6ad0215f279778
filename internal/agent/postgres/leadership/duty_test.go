package leadership

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// fakeElector shows a view that a test sets, and records what is asked of it.
type fakeElector struct {
	mu      sync.Mutex
	view    elector.View
	changed chan struct{}
	asked   []string
	limits  election.LimitsWanted
	members election.MembersWanted
	refusal error
	// durations are those that were reported last.
	durations []election.DurationReport
}

func (e *fakeElector) ReadView() (elector.View, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.view, e.changed
}

// show replaces the view.
func (e *fakeElector) show(v elector.View) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.view = v
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *fakeElector) ask(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, what)
}

// takeAsked is what was asked since it was called last.
func (e *fakeElector) takeAsked() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	asked := e.asked
	e.asked = nil
	return asked
}

func (e *fakeElector) RequestLimits(l election.LimitsWanted) {
	e.ask("limits")
	e.mu.Lock()
	defer e.mu.Unlock()
	e.limits = l
}

func (e *fakeElector) RequestForce(id string) { e.ask("force " + id) }

func (e *fakeElector) ReportDurations(r []election.DurationReport) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.durations = r
}

func (e *fakeElector) RequestMembers(w election.MembersWanted) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.members = w
}

func (e *fakeElector) RequestSwitchover(_ context.Context, target string) error {
	e.ask("switchover to " + target)
	return e.refusal
}

// dutyWorld is the duty of orders-0, which leads term 5 beside two members.
type dutyWorld struct {
	elector *fakeElector
	peers   *fakePeers
	store   *statusserver.Store
	duty    *Duty

	mu      sync.Mutex
	config  *agent.Config
	changed chan struct{}
	reached []string
}

var leadingView = elector.View{
	Volume: "v0", Phase: election.Leading, Term: 5, MayLead: "v2,v0,v1",
	Leader: elector.Leader{UID: "p0", Pod: "orders-0", Volume: "v0", Term: 5, Timeline: 5},
}

func newDutyWorld(t *testing.T) *dutyWorld {
	t.Helper()
	directory, peers := newDirectory("orders-0", "orders-1", "orders-2")
	peers.set("orders-1", "v1", "7")
	peers.set("orders-2", "v2", "7")
	directory.askMembers(t.Context())
	w := &dutyWorld{
		elector: &fakeElector{view: leadingView, changed: make(chan struct{})}, peers: peers, store: statusserver.NewStore(agentapi.Status{}),
		config:  &agent.Config{Live: true, ClusterConfig: agentapi.ClusterConfig{Members: []string{"orders-0", "orders-1", "orders-2"}}},
		changed: make(chan struct{}), reached: []string{"orders-1", "orders-2"},
	}
	w.duty = NewDuty(DutyOptions{
		Log: slog.New(slog.DiscardHandler), Pod: "orders-0", Elector: w.elector, Directory: directory, Peers: peers, Store: w.store,
		Config: func() (*agent.Config, <-chan struct{}) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.config, w.changed
		},
		Checkpoint: func(context.Context) { w.elector.ask("checkpoint") },
		Withdraw: func(context.Context) func() {
			w.elector.ask("withdraw")
			return func() { w.elector.ask("restore") }
		},
		Reached: func() []string {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.reached
		},
		SetTiming: func(timing lease.Timing) { w.elector.ask("timing " + timing.Duration().String()) },
		Fences:    2,
	})
	return w
}

// configure replaces the configuration.
func (w *dutyWorld) configure(change func(*agentapi.ClusterConfig)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := *w.config
	change(&next.ClusterConfig)
	w.config = &next
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *dutyWorld) setReached(pods ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reached = pods
}

func (w *dutyWorld) readElection() postgresapi.ElectionState {
	status := w.store.Get()
	if state := agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&status).Election; state != nil {
		return *state
	}
	return postgresapi.ElectionState{}
}

// inDuty runs a test beside a duty, by a clock of its own.
func inDuty(t *testing.T, test func(t *testing.T, w *dutyWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newDutyWorld(t)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.duty.Follow(ctx)
		}()
		synctest.Wait()
		test(t, w)
		stop()
		<-ended
		synctest.Wait()
	})
}

func expectAsked(t *testing.T, w *dutyWorld, want ...string) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, w.elector.takeAsked()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

func TestRule17SwitchoverIsHandledOnce(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		request := func(id string, term int64, target string) {
			w.configure(func(c *agentapi.ClusterConfig) {
				c.Switchover = &postgresapi.SwitchoverRequest{ID: id, Term: term, Target: target}
			})
		}
		request("of an earlier term", 4, "orders-1")
		expectAsked(t, w)
		request("of a later term", 6, "orders-1")
		expectAsked(t, w)
		if state := w.readElection(); state.Refused != "" {
			t.Errorf("a request of another term is answered: %+v", state)
		}

		request("once", 5, "orders-1")
		expectAsked(t, w, "checkpoint", "withdraw", "checkpoint", "switchover to v1")
		w.configure(func(c *agentapi.ClusterConfig) { c.MaxLag = 7 }) // the request is still there
		expectAsked(t, w, "limits")
		standby := leadingView
		standby.Phase = election.Standby
		w.elector.show(standby)
		request("of a member that does not lead", 5, "")
		expectAsked(t, w)
		w.elector.show(leadingView)
		// Without a name, the member that shuts down could be elected again.
		expectAsked(t, w, "checkpoint", "withdraw", "checkpoint", "switchover to v1")
		if state := w.readElection(); state.Refused != "" {
			t.Errorf("refused: %+v", state)
		}
	})
}

func TestRule17RefusedSwitchoverIsReported(t *testing.T) {
	for _, c := range []struct {
		name, target string
		prepare      func(*dutyWorld)
		reason       string
	}{
		{"a pod whose volume is not known", "orders-7", func(*dutyWorld) {}, "which volume orders-7 runs on is not known"},
		{"a member that does not stream", "orders-2", func(w *dutyWorld) { w.setReached("orders-1") }, "orders-2 does not stream"},
		{"a volume that may not lead", "orders-1", func(w *dutyWorld) {
			view := leadingView
			view.MayLead = "v0,v2"
			w.elector.show(view)
		}, "not one that may lead"},
		{"a volume that acknowledges no commits", "orders-1", func(w *dutyWorld) {
			view := leadingView
			view.Quorum = "v0,v2"
			w.elector.show(view)
		}, "not one that may lead"},
		{"no member streams", "", func(w *dutyWorld) { w.setReached() }, "no other member streams"},
		{"the election refuses", "orders-1", func(w *dutyWorld) { w.elector.refusal = errors.New("the Lease was not renewed just now") }, "not renewed just now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inDuty(t, func(t *testing.T, w *dutyWorld) {
				c.prepare(w)
				w.configure(func(config *agentapi.ClusterConfig) {
					config.Switchover = &postgresapi.SwitchoverRequest{ID: "once", Term: 5, Target: c.target}
				})
				time.Sleep(targetLimit + time.Second)
				synctest.Wait()
				if state := w.readElection(); state.Refused != "once" || !strings.Contains(state.RefusedReason, c.reason) {
					t.Errorf("refused %q: %q", state.Refused, state.RefusedReason)
				}
				asked := w.elector.takeAsked()
				if slices.ContainsFunc(asked, func(what string) bool { return strings.HasPrefix(what, "switchover") }) != (w.elector.refusal != nil) {
					t.Errorf("asked %v", asked)
				}
			})
		})
	}
}

// A member that streams a moment after it was asked for is not refused.
func TestRule17SwitchoverWaitsForItsTarget(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		w.setReached("orders-1")
		w.configure(func(c *agentapi.ClusterConfig) {
			c.Switchover = &postgresapi.SwitchoverRequest{ID: "once", Term: 5, Target: "orders-2"}
		})
		time.Sleep(targetLimit / 2)
		expectAsked(t, w)
		w.setReached("orders-1", "orders-2")
		time.Sleep(dutyInterval)
		expectAsked(t, w, "checkpoint", "withdraw", "checkpoint", "switchover to v2")
	})
}

// A standing request is tried again, its refusals are reported, and it ends with the
// request.
func TestRule17StandingSwitchoverIsTriedAgain(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		w.elector.refusal = errors.New("the Lease was not renewed just now")
		request := &postgresapi.SwitchoverRequest{ID: "scaling", Term: 5, Target: "orders-2", Standing: true}
		w.configure(func(c *agentapi.ClusterConfig) { c.Switchover = request })
		expectAsked(t, w, "checkpoint", "withdraw", "checkpoint", "switchover to v2", "restore")
		if state := w.readElection(); state.Refused != "scaling" || !strings.Contains(state.RefusedReason, "not renewed") {
			t.Errorf("refused %q: %q", state.Refused, state.RefusedReason)
		}
		time.Sleep(standingInterval)
		expectAsked(t, w, "checkpoint", "withdraw", "checkpoint", "switchover to v2", "restore")
		w.configure(func(c *agentapi.ClusterConfig) { c.Switchover = nil })
		time.Sleep(10 * standingInterval)
		expectAsked(t, w)
	})
}

// After a failover the quorum waits for the other standbys to follow. One that has gone
// longer degrades it.
func TestRule15QuorumDegradesAfterAWhile(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		view := leadingView
		view.Quorum, view.Write, view.Term, view.Leader.Term = "v0,v1,v2", 2, 6, 6
		w.setReached()
		w.configure(func(c *agentapi.ClusterConfig) {
			c.Synchronous = &postgresapi.SynchronousConfig{Number: 1, Degrade: true}
		})
		w.elector.show(view)
		expect := func(write int) {
			t.Helper()
			synctest.Wait()
			w.elector.mu.Lock()
			defer w.elector.mu.Unlock()
			if q := w.elector.members.Quorum; q == nil || q.Write != write {
				t.Errorf("%+v, want %d", q, write)
			}
		}
		expect(2)
		time.Sleep(firstPatience - time.Second)
		expect(2)
		time.Sleep(time.Second + dutyInterval)
		expect(1)
		w.setReached("orders-1")
		time.Sleep(dutyInterval)
		expect(2)
		w.setReached()
		time.Sleep(patience - dutyInterval)
		expect(2)
		time.Sleep(2 * dutyInterval)
		expect(1)
	})
}

// The mounted configuration may be of before the cluster had a quorum.
func TestRule15OlderConfigurationChangesNoQuorum(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		w.mu.Lock()
		older := *w.config
		older.Live = false
		w.config = &older
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		synctest.Wait()
		w.elector.mu.Lock()
		w.elector.members = election.MembersWanted{}
		w.elector.mu.Unlock()
		time.Sleep(10 * dutyInterval)
		w.elector.mu.Lock()
		defer w.elector.mu.Unlock()
		if len(w.elector.members.Volumes) > 0 {
			t.Errorf("it wants %+v", w.elector.members)
		}
	})
}

// Limits and requests are passed on when they change. A request for another pod is none.
func TestRule10LimitsAndRequestsArePassedOn(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		expectAsked(t, w)
		w.configure(func(c *agentapi.ClusterConfig) {
			c.MaxLag, c.NoFailover, c.LeaseDuration = 100, []string{"orders-0"}, 15
		})
		expectAsked(t, w, "timing 15s", "limits")
		timing, _ := lease.NewTiming(15 * time.Second)
		if want := (election.LimitsWanted{NoFailover: true, MaxLag: 100, Timing: timing}); w.elector.limits != want {
			t.Errorf("limits %+v", w.elector.limits)
		}
		w.configure(func(c *agentapi.ClusterConfig) { c.NoFailover = []string{"orders-1"} })
		expectAsked(t, w, "limits")
		if want := (election.LimitsWanted{MaxLag: 100, Timing: timing}); w.elector.limits != want {
			t.Errorf("limits %+v", w.elector.limits)
		}

		w.configure(func(c *agentapi.ClusterConfig) {
			c.OlderData, c.Promotion = &postgresapi.OlderDataRequest{ID: "a", Pod: "orders-1"}, &postgresapi.PromotionRequest{ID: "b", Pod: "orders-2"}
		})
		expectAsked(t, w)
		w.configure(func(c *agentapi.ClusterConfig) {
			c.OlderData, c.Promotion = &postgresapi.OlderDataRequest{ID: "c", Pod: "orders-0"}, nil
		})
		expectAsked(t, w, "force c")
		w.configure(func(c *agentapi.ClusterConfig) {
			c.OlderData, c.Promotion = nil, &postgresapi.PromotionRequest{ID: "d", Pod: "orders-0"}
		})
		expectAsked(t, w, "force d")
		w.configure(func(c *agentapi.ClusterConfig) { c.Promotion = nil })
		expectAsked(t, w, "force ")
	})
}

func TestDutyReportsTheElection(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		v := leadingView
		v.Quorum, v.Write, v.Stalled, v.Forced, v.Fences = "v1,v0", 2, "why", "once", 1
		w.elector.show(v)
		synctest.Wait()
		want := postgresapi.ElectionState{
			Volume: "v0", Stream: "orders-0_v0", Phase: "Leading", Stalled: "why", Fences: 3, MayLead: []string{"v0", "v1", "v2"},
			Quorum: []string{"v0", "v1"}, Write: 2, Streaming: []string{"orders-1", "orders-2"}, Forced: "once",
		}
		if diff := cmp.Diff(want, w.readElection()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		status := w.store.Get()
		if status.Recovered != "once" {
			t.Errorf("recovered %q", status.Recovered)
		}
		held := agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&status).Lease
		if diff := cmp.Diff(&postgresapi.LeaseState{HolderUID: "p0", HolderPod: "orders-0", Term: 5}, held); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}

		// A Lease without a holder was held by the last one.
		v.Leader.UID, v.Leader.Pod = "", ""
		w.elector.show(v)
		synctest.Wait()
		status = w.store.Get()
		held = agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&status).Lease
		if diff := cmp.Diff(&postgresapi.LeaseState{HolderPod: "orders-0", Term: 5}, held); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Only a leader says which volumes may lead.
func TestDutyPlansMembersWhileItLeads(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		want := election.MembersWanted{Volumes: []string{"v0", "v1", "v2"}}
		if diff := cmp.Diff(want, w.elector.members); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		w.configure(func(c *agentapi.ClusterConfig) { c.Synchronous = &postgresapi.SynchronousConfig{Number: 1} })
		synctest.Wait()
		want.Quorum = &lease.Quorum{Volumes: want.Volumes, Write: 2}
		if diff := cmp.Diff(want, w.elector.members); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		standby := leadingView
		standby.Phase = election.Standby
		w.elector.show(standby)
		synctest.Wait()
		w.elector.members = election.MembersWanted{}
		w.configure(func(c *agentapi.ClusterConfig) { c.Members = c.Members[:2] })
		synctest.Wait()
		if diff := cmp.Diff(election.MembersWanted{}, w.elector.members); diff != "" {
			t.Errorf("a standby plans (-want +got):\n%s", diff)
		}
	})
}

// The other members read a Lease that was released at once.
func TestRule17ReleaseIsAnnounced(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		v := leadingView
		for _, phase := range []election.Phase{election.Ending, election.Releasing} {
			v.Phase = phase
			w.elector.show(v)
			synctest.Wait()
		}
		if posted := w.peers.listPosted(); len(posted) > 0 {
			t.Errorf("announced before it was released: %v", posted)
		}
		v.Phase = election.Standby
		w.elector.show(v)
		synctest.Wait()
		want := []string{"orders-1" + postgresapi.ReleasedPath, "orders-2" + postgresapi.ReleasedPath}
		if diff := cmp.Diff(want, w.peers.listPosted()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A leader hears which durations of the Lease the others know. While the Lease records a
// longer one than the default, no member joins that does not know it.
func TestRule2DutyReportsWhichDurationsAreKnown(t *testing.T) {
	for name, c := range map[string]struct {
		duration     time.Duration
		term, knows  int64
		wantedVolume []string
	}{
		"it knows the duration":           {time.Minute, 5, 60, []string{"v0", "v1", "v2"}},
		"it knows a shorter one":          {time.Minute, 5, 30, []string{"v0", "v1"}},
		"it knows that of another term":   {time.Minute, 4, 60, []string{"v0", "v1"}},
		"its agent knows of no duration":  {time.Minute, 5, 0, []string{"v0", "v1"}},
		"the default duration is known":   {0, 5, 0, []string{"v0", "v1", "v2"}},
		"an earlier agent by the default": {10 * time.Second, 0, 0, []string{"v0", "v1", "v2"}},
	} {
		t.Run(name, func(t *testing.T) {
			inDuty(t, func(t *testing.T, w *dutyWorld) {
				w.peers.setLease("orders-2", c.term, c.knows)
				w.duty.o.Directory.askMembers(t.Context())
				view := leadingView
				view.LeaseDuration, view.MayLead = c.duration, "v0,v1"
				w.elector.show(view)
				synctest.Wait()
				w.elector.mu.Lock()
				defer w.elector.mu.Unlock()
				if diff := cmp.Diff(c.wantedVolume, w.elector.members.Volumes); diff != "" {
					t.Errorf("volumes (-want +got):\n%s", diff)
				}
				reports := w.elector.durations
				if len(reports) != 2 || reports[1].Volume != "v2" || reports[1].Term != c.term || reports[1].Duration != time.Duration(c.knows)*time.Second {
					t.Errorf("reported %+v", reports)
				}
			})
		})
	}
}

// What the others know of the duration is known before a member leads: its first deadline
// as the holder is by that.
func TestRule2DurationsAreReportedBeforeAMemberLeads(t *testing.T) {
	inDuty(t, func(t *testing.T, w *dutyWorld) {
		w.elector.ReportDurations(nil)
		view := leadingView
		view.Phase = election.Claiming
		w.elector.show(view)
		synctest.Wait()
		w.elector.mu.Lock()
		defer w.elector.mu.Unlock()
		if len(w.elector.durations) != 2 {
			t.Errorf("reported %+v", w.elector.durations)
		}
	})
}
