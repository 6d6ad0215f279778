package mysql

import (
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/serving"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

func newMatcher(pattern string) func(string) bool { return regexp.MustCompile(pattern).MatchString }

// memberState is what the goroutines of a run know of the member, and report together.
type memberState struct {
	run *serverRun

	mu sync.Mutex
	up bool
	// observation is the newest one of the server.
	observation group.Observation
	applier     serving.Applier
	// drainedFor is the view in which the member leads, once it has applied what it had
	// received before.
	drained bool
	// prepared says that the accounts of clients are there, since the member leads.
	prepared bool
	// claimed is the term by which the member started the group, and confirmed says that
	// this is still the last one.
	claimed   int64
	confirmed bool
	// role is what clients are sent to the member for, and leads since when it is the primary; 0
	// while it is not.
	role  string
	leads time.Duration
	// restore puts a primary back into its Service after a switchover that has ended at
	// switched; nil without one.
	restore  func()
	switched time.Duration
	// online is since when the member is online; 0 while it is not.
	online time.Duration
	// unanswered is why the server did not answer the last question about its group in time; nil
	// where it did, or was about to join or start one.
	unanswered error

	// unprepared wakes who prepares a primary for clients, and changed who judges the member.
	unprepared, changed clock.Waker
}

func newMemberState(r *serverRun) *memberState {
	return &memberState{run: r, confirmed: true, unprepared: clock.NewWaker(), changed: clock.NewWaker()}
}

// readsLimit is how long a replica that has become the primary may serve reads before it takes
// writes.
const readsLimit = 5 * time.Second

// endSwitchover says that a switchover has ended, one way or the other. Only what the server
// says afterwards tells whether the member still is the primary.
func (m *memberState) endSwitchover(restore func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restore, m.switched = restore, clock.Boottime()
	m.changed.Wake()
}

// restoreAfter puts a member that still is the primary after a switchover back into its
// Service, by an observation that began at a time.
func (m *memberState) restoreAfter(began time.Duration, o group.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.restore == nil || began < m.switched {
		return
	}
	if serving.IsPrimary(o) {
		m.restore()
	}
	m.restore = nil
}

func (m *memberState) setUp() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.up = true
}

// isUp says whether the server has answered.
func (m *memberState) isUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up
}

// setUnanswered takes in that a question about the group was not answered in time.
func (m *memberState) setUnanswered(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unanswered = err
}

// checkAnswers fails while the server does not answer questions about its group.
func (m *memberState) checkAnswers() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unanswered != nil {
		return fmt.Errorf("%w: %w", health.ErrUnanswered, m.unanswered)
	}
	return nil
}

// current is the newest observation of the server.
func (m *memberState) current() group.Observation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.observation
}

// isPrimary says whether the server leads a group that takes writes, as it said last.
func (m *memberState) isPrimary() bool { return serving.IsPrimary(m.current()) }

// onlineFor is how long the member has been online.
func (m *memberState) onlineFor() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.online == 0 {
		return 0
	}
	return clock.Boottime() - m.online
}

// startsGroup says by which term the member is about to start the group; 0 where it needs
// none.
func (m *memberState) startsGroup(term int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claimed, m.confirmed = term, term == 0
}

// claim is the term by which the member started the group, while it is not confirmed; 0 for
// none.
func (m *memberState) claim() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.confirmed {
		return 0
	}
	return m.claimed
}

func (m *memberState) confirm() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.confirmed {
		m.confirmed = true
		m.changed.Wake()
	}
}

func (m *memberState) setPrepared() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.prepared {
		m.prepared = true
		m.changed.Wake()
	}
}

// isPrepared says whether the accounts of clients are known to be there, since the member
// leads.
func (m *memberState) isPrepared() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.prepared
}

// observe takes in what the server says.
func (m *memberState) observe(o group.Observation) serving.Situation {
	now := clock.Boottime()
	silent := ""
	if accepts, why := m.run.health.Serving(); !accepts {
		silent = why
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observation = o
	m.applier = m.applier.Observe(now, o.Received, o.Executed)
	switch {
	case o.State != group.Online:
		m.online = 0
	case m.online == 0:
		m.online = now
	}
	switch leads := serving.IsPrimary(o); {
	case !leads:
		m.leads = 0
	case m.leads == 0:
		m.leads = now
	}
	if !serving.IsPrimary(o) {
		m.drained, m.prepared = false, false
	} else if !m.drained {
		m.drained = o.Executed.Contains(o.Received)
	}
	if serving.IsPrimary(o) && !o.SuperReadOnly && !m.prepared {
		m.unprepared.Wake() // clients wait
	}
	return serving.Situation{
		Observation: o, Lag: m.applier.Lag(now), Drained: m.drained, Prepared: m.prepared, Confirmed: m.confirmed,
		Reads: m.role == v1alpha1.RoleReplica && (m.leads == 0 || now-m.leads < readsLimit), Silent: silent,
	}
}

// reportInGroup reports a member in a group.
func (m *memberState) reportInGroup(o group.Observation) {
	s := m.observe(o)
	j := serving.JudgeMember(s)
	m.publish(o, false, "", func(st *agentapi.Status) {
		st.State, st.Message, st.Role, st.Serving = j.State, j.Message, j.Role, j.Serving()
		if serving.IsPrimary(o) {
			st.Lag = 0
		} else {
			st.Lag = s.Lag.Seconds()
		}
		changeReport(st, func(r *mysqlapi.MemberReport) { r.Missing, r.Errant = nil, "" })
	})
	m.setRole(j.Role)
}

// detachedState is what a member reports whose server is in no group.
type detachedState struct {
	state    agentapi.State
	hold     agentapi.Hold
	message  string
	starting bool
	plan     group.Plan
}

// reportDetached reports a member whose server is in no group.
func (m *memberState) reportDetached(o group.Observation, d detachedState) {
	m.observe(o)
	if now := m.run.Store.Get(); now.State != d.state || now.Message != d.message {
		m.run.o.Log.Info("state", "state", d.state, "hold", d.hold, "message", d.message)
	}
	m.publish(o, d.starting, d.hold, func(st *agentapi.Status) {
		st.State, st.Message, st.Role, st.Serving, st.Lag = d.state, d.message, v1alpha1.RoleMember, false, -1
		changeReport(st, func(r *mysqlapi.MemberReport) { r.Missing, r.Errant = d.plan.Missing, d.plan.Errant.String() })
	})
	m.setRole(v1alpha1.RoleMember)
}

// publish reports what the server says, and the rest by change.
func (m *memberState) publish(o group.Observation, starting bool, hold agentapi.Hold, change func(*agentapi.Status)) {
	r := m.run
	self := group.Report{Pod: r.o.Identity.Pod, Ordinal: r.ordinal, Group: r.name}
	report := o.NewReport(self, starting, r.persisted.Record()).WriteReport()
	r.Store.Update(func(st *agentapi.Status) {
		st.SystemIdentifier, st.Version, st.Hold = r.name, r.version.String(), hold
		st.Position = uint64(o.Executed.Union(o.Received).Count())
		changeReport(st, func(own *mysqlapi.MemberReport) {
			report.Missing, report.Errant, report.Refused, report.RefusedReason = own.Missing, own.Errant, own.Refused, own.RefusedReason
			*own = report
		})
		change(st)
	})
}

// reportSilent reports that the server did not answer.
func (m *memberState) reportSilent() {
	if accepts, why := m.run.health.Serving(); !accepts {
		m.run.Store.Update(func(st *agentapi.Status) {
			st.State, st.Message, st.Role, st.Serving = agentapi.StateHung, why, v1alpha1.RoleMember, false
		})
		m.setRole(v1alpha1.RoleMember)
	}
}

// setRole labels the pod.
func (m *memberState) setRole(role string) {
	m.mu.Lock()
	m.role = role
	m.mu.Unlock()
	m.run.leads.Store(role == v1alpha1.RolePrimary)
	m.run.Labeller.SetRole(role)
}
