package agentclient

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Pause is a time in which no member of a cluster took writes, by what the members
// reported. Both ends are of the operator's clock, to about a quarter of a second.
type Pause struct {
	// Event that paused them.
	Event v1alpha1.WritePauseEvent
	// At is when a member took writes again, after Duration.
	At       time.Time
	Duration time.Duration
}

// reported is what is known of one member when pauses are measured.
type reported struct {
	uid types.UID
	pod string
	// answers says that the member answered last time, and leads and stops what it said
	// then: that it takes writes, and that it is about to end.
	answers, leads, stops bool
}

// pauses follows which member of a cluster takes writes. What began before the operator
// watched the cluster is not measured.
type pauses struct {
	// leader takes writes, or took them last; its uid is empty before the first.
	leader reported
	// ended is when leader ceased; zero while it leads. Known says that it said so: one
	// that was not reached meanwhile may have led all the time.
	ended time.Time
	known bool
	// former led before leader, and has not reported yet that it does so no more; its uid
	// is empty for none. Since is when leader began.
	former reported
	since  time.Time
	// newest is the last pause of each event, the oldest first.
	newest []Pause
}

// observe takes note of what the members report now. It returns the pause that is over by
// it; nil for none.
func (p *pauses) observe(now time.Time, members []reported) *Pause {
	over := p.follow(now, members)
	if over == nil {
		return nil
	}
	over.Duration = over.Duration.Round(100 * time.Millisecond)
	p.newest = append(slices.Clone(p.newest), *over)
	if extra := len(p.newest) - v1alpha1.MaxWritePauses*len(v1alpha1.WritePauseEvents); extra > 0 {
		p.newest = p.newest[extra:]
	}
	return over
}

// follow is observe without the memory of pauses.
func (p *pauses) follow(now time.Time, members []reported) *Pause {
	if p.former.uid != "" {
		return p.concludeOverlap(members)
	}
	p.checkLeader(now, members)
	i := slices.IndexFunc(members, func(m reported) bool { return m.answers && m.leads && m.uid != p.leader.uid })
	if i < 0 {
		return p.resume(now)
	}
	next := members[i]
	var over *Pause
	switch {
	case p.leader.uid == "":
	case p.ended.IsZero():
		p.former, p.since = p.leader, now
	default:
		over = &Pause{Event: p.nameEvent(next), At: now, Duration: now.Sub(p.ended)}
	}
	p.leader, p.ended, p.known = next, time.Time{}, false
	return over
}

// checkLeader notes whether the member that led goes on, and since when it does not.
func (p *pauses) checkLeader(now time.Time, members []reported) {
	is := findReported(members, p.leader.uid)
	switch {
	case p.leader.uid == "":
		return
	case is == nil:
		p.leader.answers, p.leader.leads = false, false
	default:
		p.leader = *is
	}
	if p.leader.answers && p.leader.leads {
		return
	}
	if p.ended.IsZero() {
		p.ended = now
	}
	p.known = p.known || p.leader.answers || p.leader.stops
}

// resume is the pause after which the same pod leads again.
func (p *pauses) resume(now time.Time) *Pause {
	if p.ended.IsZero() || !p.leader.answers || !p.leader.leads {
		return nil
	}
	var over *Pause
	if p.known {
		over = &Pause{Event: v1alpha1.WritePauseRestart, At: now, Duration: now.Sub(p.ended)}
	}
	p.ended, p.known = time.Time{}, false
	return over
}

// nameEvent is what has another pod lead.
func (p *pauses) nameEvent(next reported) v1alpha1.WritePauseEvent {
	switch {
	case next.pod == p.leader.pod:
		return v1alpha1.WritePauseRestart
	case p.known:
		return v1alpha1.WritePauseSwitchover
	}
	return v1alpha1.WritePauseFailover
}

// concludeOverlap waits for the member that led before to say that it does so no more: two
// answers cross each other where the lead moves at once. Since when one that is
// lost did not, is not known.
func (p *pauses) concludeOverlap(members []reported) *Pause {
	was := findReported(members, p.former.uid)
	if was != nil && was.answers && was.leads {
		return nil
	}
	orderly := p.former.stops || was != nil && (was.answers || was.stops)
	p.former = reported{}
	if !orderly {
		return nil
	}
	return &Pause{Event: v1alpha1.WritePauseSwitchover, At: p.since}
}

func findReported(members []reported, uid types.UID) *reported {
	if i := slices.IndexFunc(members, func(m reported) bool { return m.uid == uid }); i >= 0 {
		return &members[i]
	}
	return nil
}

// IsPrimary says whether a member reports that it takes writes, of an engine whose members
// have the role of a primary.
func IsPrimary(s *agentapi.Status) bool {
	return s.Role == v1alpha1.RolePrimary && (s.Serving || s.State == agentapi.StateStopping)
}

// notePauses measures what the members' newest answers end; the caller holds mu.
func (p *Poller) notePauses(c *cluster) {
	members := make([]reported, 0, len(c.members))
	for _, m := range c.members {
		if s := m.observation.Status; s != nil {
			members = append(members, reported{
				uid: m.UID, pod: m.Pod, answers: m.failing.IsZero(), leads: p.opts.Leads(s), stops: s.State == agentapi.StateStopping,
			})
		}
	}
	if over := c.pauses.observe(p.opts.Clock.Now(), members); over != nil {
		p.opts.Observe(*over)
	}
}

// Pauses are the newest times in which no member of a cluster took writes, the oldest
// first.
func (p *Poller) Pauses(name types.NamespacedName) []Pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clusters[name]; c != nil {
		return c.pauses.newest
	}
	return nil
}
