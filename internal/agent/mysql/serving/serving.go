// Package serving judges what clients may be sent to a member of MySQL for: its state,
// its role and its lag. It is pure.
package serving

import (
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// LagLimit is how old the oldest transaction may be that a replica has received and not
// applied, before clients are not sent to it any more.
const LagLimit = time.Second

// Applier follows what a member has received and not applied. It measures by the member's
// own clock: those of two nodes differ. The zero value has observed nothing.
type Applier struct {
	waiting mysqlgtid.Set
	since   time.Duration
}

// Observe takes in what the server has received and executed at a time.
func (a Applier) Observe(now time.Duration, received, executed mysqlgtid.Set) Applier {
	if !a.waiting.IsEmpty() && !executed.Contains(a.waiting) {
		return a
	}
	rest := received.Subtract(executed)
	if rest.IsEmpty() {
		return Applier{}
	}
	return Applier{waiting: rest, since: now}
}

// Lag is how long the oldest of them has waited at least.
func (a Applier) Lag(now time.Duration) time.Duration {
	if a.waiting.IsEmpty() {
		return 0
	}
	return now - a.since
}

// Situation is what a member in a group is judged by.
type Situation struct {
	Observation group.Observation
	Lag         time.Duration
	// Drained says that the member has applied all that it had received when it became the
	// primary.
	Drained bool
	// Prepared says that the accounts of clients are there, of a primary.
	Prepared bool
	// Confirmed says that the start of the group by this member is still the last one.
	Confirmed bool
	// Reads says that clients are sent to the member for reads.
	Reads bool
	// Silent says why the server is not reached by clients; empty where it is.
	Silent string
}

// Judgement is what a member reports.
type Judgement struct {
	State   agentapi.State
	Role    string
	Message string
}

// Serving says whether clients may be sent to the member.
func (j Judgement) Serving() bool { return j.Role != v1alpha1.RoleMember }

// IsPrimary says whether the server leads a group that takes writes, as it sees it.
func IsPrimary(o group.Observation) bool {
	p, ok := o.View.Primary()
	return ok && p.UUID == o.UUID && o.State == group.Online && o.View.HasMajority()
}

// JudgeMember judges a member in a group.
func JudgeMember(s Situation) Judgement {
	o := s.Observation
	switch {
	case s.Silent != "":
		return outOfService(agentapi.StateHung, s.Silent)
	case o.State == group.Recovering:
		return outOfService(agentapi.StateCatchingUp, "gets from the group what it lacks")
	case o.State != group.Online || !o.View.HasMajority():
		return outOfService(agentapi.StateDisconnected, "does not reach a majority of the group")
	case IsPrimary(o):
		return keepReads(s, judgePrimary(s))
	}
	if _, leads := o.View.Primary(); !leads {
		return outOfService(agentapi.StateDisconnected, "the group has no primary")
	}
	if s.Lag >= LagLimit {
		return outOfService(agentapi.StateCatchingUp, "is behind the primary")
	}
	return Judgement{State: agentapi.StateStreaming, Role: v1alpha1.RoleReplica}
}

func judgePrimary(s Situation) Judgement {
	switch {
	case !s.Confirmed:
		return outOfService(agentapi.StateRecovering, "waits for the API server: another member may have been asked to start the group")
	case !s.Drained:
		return outOfService(agentapi.StateRecovering, "applies what it received before it became the primary")
	case s.Observation.SuperReadOnly:
		return outOfService(agentapi.StateRecovering, "becomes the primary")
	case !s.Prepared:
		return outOfService(agentapi.StateRecovering, "prepares accounts")
	}
	return Judgement{State: agentapi.StateRunning, Role: v1alpha1.RolePrimary}
}

// keepReads leaves clients that read with a member that becomes the primary, until it takes
// writes: it leaves one Service when it comes into the other.
func keepReads(s Situation, j Judgement) Judgement {
	if s.Reads && s.Confirmed && !j.Serving() && s.Lag < LagLimit {
		j.Role = v1alpha1.RoleReplica
	}
	return j
}

func outOfService(state agentapi.State, message string) Judgement {
	return Judgement{State: state, Role: v1alpha1.RoleMember, Message: message}
}
