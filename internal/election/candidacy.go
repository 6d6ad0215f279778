package election

import (
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// candidacy is a member's attempt to win the Lease: when it begins, what it builds on,
// and the replies to it.
type candidacy struct {
	after     time.Duration // no candidacy before, while the Lease has afterTerm
	afterTerm int64
	expiredAt lease.Version // for which after was set
	tried     lease.Version // a released Lease that the member cannot take at once
	backAt    lease.Version // of the free Lease that the member stands back from
	backUntil time.Duration
	takeover  bool   // of a released Lease, with all of its holder's WAL
	forcing   string // ID of the request that began the candidacy
	forced    string // what Disk.Forced was before the claim
	found     bool   // the claim was on the Lease
	base      lease.Version
	baseOf    lease.Record // what the claim changes
	baseAge   lease.Age
	begun     time.Duration
	askSent   time.Duration
	replies   []VoteReply
	above     int64    // the highest term that a reply named
	silent    []string // volumes of members that are probably cut off or down
}

// mayBegin reports whether a candidacy is due.
func (c *candidacy) mayBegin(m member, now time.Duration) bool {
	timing, record := m.findExpiry(), m.lease.record
	if !m.lease.isFree(timing) || m.lease.missing || now < m.promise || m.explainIneligible(m.ownWAL()) != "" {
		return false
	}
	if c.isStandingBack(m, now) {
		return false
	}
	isNamed := record.Successor == "" || record.Successor == m.Disk.VolumeID
	if record.IsReleased() && isNamed && c.tried != m.lease.version {
		return c.isPauseOver(m, now)
	}
	if !m.lease.hasExpired(timing) {
		return false
	}
	if c.expiredAt != m.lease.version {
		c.expiredAt = m.lease.version
		// Others have observed the same within a repeated reading. One that this member
		// has voted for has longer.
		if c.isPauseOver(m, now) {
			c.pause(m, now+m.delayByTurn(4, 10))
		}
	}
	return c.isPauseOver(m, now)
}

// pause leaves the Lease, as it is now, to others until then.
func (c *candidacy) pause(m member, until time.Duration) {
	c.after, c.afterTerm = until, m.lease.record.Term
}

// isPauseOver reports whether the member may try again. Once another term was won, what
// it waited for is done: that term's end is another failover.
func (c candidacy) isPauseOver(m member, now time.Duration) bool {
	return now >= c.after || m.lease.record.Term != c.afterTerm
}

// isStandingBack reports whether a member whose server did not come to serve again and
// again leaves the free Lease to the others. It counts from its first look at that
// Lease, so that it stands back after a restart, too.
func (c *candidacy) isStandingBack(m member, now time.Duration) bool {
	if m.explainStandingBack() == "" {
		return false
	}
	if c.backAt != m.lease.version {
		c.backAt, c.backUntil = m.lease.version, now+m.standBackTime()
	}
	return now < c.backUntil
}

// maxTerm bounds what is taken over from an edited Lease.
const maxTerm = 1 << 40

// beginForced begins the candidacy that a person asked for. What a person cannot
// decide still holds: the Lease was observed without a renewal for its duration,
// and no member leads or has promised not to be elected.
func (c *candidacy) beginForced(m *member, now time.Duration, in ForceRequest) []Effect {
	if in.ID == "" || in.ID == m.Disk.Forced || m.Phase != Standby || now < m.promise ||
		m.isForbidden() || !m.lease.isFreeForForce(m.findExpiry()) {
		return nil
	}
	if !m.lease.readable {
		// Members that have read an edited term take no lower one for a new Lease.
		m.Disk.raisePromise(min(m.lease.record.Term, maxTerm), 0)
	}
	m.lease.assumeKnown(m.Disk.Known)
	record := m.lease.record
	if record.Validate() != nil || record.SystemIdentifier != m.Disk.SystemIdentifier {
		return m.reportStall("this member cannot be forced to lead: it has no record of this database")
	}
	if !record.MayLead(m.Disk.VolumeID) { // a primary without the API server does not ask it
		return m.reportStall("this member cannot be forced to lead: its volume is not one that the Lease lets lead")
	}
	return c.beginCandidacy(m, now, in.ID)
}

// beginCandidacy persists the term before anything of it is sent. An ID is that of
// a person's request, empty for a failover.
func (c *candidacy) beginCandidacy(m *member, now time.Duration, forced string) []Effect {
	record := m.lease.record
	c.forcing, c.begun = forced, now
	c.base, c.baseOf, c.baseAge, c.replies, c.silent = m.lease.version, record, record.Age(), nil, nil
	m.term = max(m.Disk.Promised, m.Disk.Known.Term, record.Term, c.above) + 1
	m.timeline = m.highestTimeline() + 1
	m.Disk.recordPromise(m.term, m.lease.version)
	m.Disk.raisePromise(m.term, m.timeline)
	m.Phase, m.following = Stopping, 0
	return []Effect{Persist{m.Disk}, StopReceiver{}}
}

// askVotes judges by the measured WAL: what is persisted may name a timeline of
// which nothing arrived.
func (c *candidacy) askVotes(m *member, now time.Duration) []Effect {
	if m.lease.version != c.base || c.forcing == "" && !m.lease.readable {
		return c.giveUp(m, now, "")
	}
	if c.forcing == "" {
		if reason := m.explainIneligible(m.wal) + m.explainLost(); reason != "" {
			return c.giveUp(m, now, reason)
		}
	}
	c.takeover = c.baseOf.IsReleased() && m.wal.hasAll(*c.baseOf.Shutdown)
	if c.forcing == "" && c.baseOf.IsReleased() && !c.takeover && !m.lease.hasExpired(m.findExpiry()) {
		c.tried, m.Phase = m.lease.version, Standby
		return nil
	}
	m.Phase, c.askSent = Asking, now
	var effects []Effect
	for _, volume := range c.baseOf.Volumes {
		if volume != m.Disk.VolumeID {
			effects = append(effects, AskVote{volume, VoteRequest{From: m.Disk.VolumeID, Term: m.term, Timeline: m.timeline, Base: c.base, BaseAge: c.baseAge, Flushed: m.wal.Flushed}})
		}
	}
	return append(effects, c.decideClaim(m, now)...)
}

// countVote takes the first reply of each member.
func (c *candidacy) countVote(m *member, now time.Duration, v VoteReply) []Effect {
	if m.Phase != Asking || v.Term != m.term {
		return nil
	}
	if slices.ContainsFunc(c.replies, func(r VoteReply) bool { return r.From == v.From }) {
		return nil
	}
	c.replies = append(slices.Clone(c.replies), v)
	effects := m.recordStreamed(v)
	return append(effects, c.decideClaim(m, now)...)
}

// recordSilent notes a member that is not waited for as long as others.
func (c *candidacy) recordSilent(m *member, now time.Duration, in VoterSilent) []Effect {
	if m.Phase != Asking || in.Term != m.term {
		return nil
	}
	c.silent = append(slices.Clone(c.silent), in.Volume)
	return c.decideClaim(m, now)
}

// isWaiting reports whether the reply of a member may still come. Those that do not
// answer are waited for, but not for ever, and least for those that were silent before.
func (c candidacy) isWaiting(m member, waited, wait time.Duration) bool {
	for _, volume := range c.baseOf.Volumes {
		if volume == m.Disk.VolumeID || slices.ContainsFunc(c.replies, func(r VoteReply) bool { return r.From == volume }) {
			continue
		}
		limit := wait
		if slices.Contains(c.silent, volume) {
			limit = min(wait, m.Config.Timing.SilentWait())
		}
		if waited < limit {
			return true
		}
	}
	return false
}

// decideClaim claims, waits or gives up. The votes of a quorum are waited for as long as
// any other.
func (c *candidacy) decideClaim(m *member, now time.Duration) []Effect {
	if !c.isLeaseFree(*m) || m.lease.version != c.base {
		return c.giveUp(m, now, "")
	}
	for _, r := range c.replies {
		if refused, reason := c.isRefusedBy(*m, r); refused {
			return c.giveUp(m, now, reason)
		}
	}
	if reason := m.explainLost(); reason != "" && c.forcing == "" {
		return c.giveUp(m, now, reason)
	}
	if slices.ContainsFunc(c.replies, func(r VoteReply) bool { return r.isAbove(m.term, m.timeline) }) {
		return c.planRetry(m, now)
	}
	wait, hasQuorum := m.Config.Timing.VoteWait(), c.hasQuorum(*m)
	if c.takeover && hasQuorum {
		wait /= 4 // a member that knows of a newer term may still veto
	}
	waited := now - c.askSent
	if c.isWaiting(*m, waited, wait) {
		return nil
	}
	if !hasQuorum {
		if waited < wait {
			return nil
		}
		return c.giveUp(m, now, "too few members of the synchronous quorum answer")
	}
	return c.sendClaim(m, now)
}

// isLeaseFree reports whether the Lease may be claimed by this kind of candidacy.
func (c candidacy) isLeaseFree(m member) bool {
	if c.forcing != "" {
		return m.lease.isFreeForForce(m.findExpiry())
	}
	return m.lease.isFree(m.findExpiry())
}

// isRefusedBy reports whether a reply ends the candidacy, and why no member may
// lead if it is not only this one: a veto, a candidacy that comes first, a newer state
// of the Lease, or a member that has more WAL.
func (c candidacy) isRefusedBy(m member, r VoteReply) (refused bool, reason string) {
	switch {
	case r.Vetoed:
		return true, ""
	case c.forcing != "":
		return false, ""
	case r.Competes:
		return true, ""
	case c.baseAge.IsOlder(r.Known):
		return true, "another member has read a newer Lease: the API server was restored to an earlier state"
	case !r.WAL.Flushed.Newer(m.wal.Flushed):
		return false, ""
	}
	// A vote of the quorum may stand for an acknowledged write that no other voter
	// has, whether or not its member may lead.
	if m.isEligible(r.From, r.SystemIdentifier, r.WAL) && !r.NoFailover || r.Granted && m.lease.isInQuorum(r.From) {
		return true, "volume " + r.From + " has more WAL than this member"
	}
	return false, ""
}

// hasQuorum reports whether the votes overlap with each acknowledged write.
func (c candidacy) hasQuorum(m member) bool {
	quorum := m.lease.record.Quorum
	if quorum == nil || c.forcing != "" {
		return true
	}
	votes := 0
	if m.lease.isInQuorum(m.Disk.VolumeID) {
		votes++
	}
	for _, r := range c.replies {
		// An empty volume holds none of what it may be on record for.
		if r.Granted && m.lease.isInQuorum(r.From) && r.WAL.Flushed.Timeline > 0 {
			votes++
		}
	}
	return votes >= quorum.CountVotes()
}

// planRetry begins again soon, above all terms and timelines that were answered. It is
// no reason to let others go first: a member that may not lead may have raised them.
// Until then a member may vote for one that has such a term: it is not promised.
func (c *candidacy) planRetry(m *member, now time.Duration) []Effect {
	for _, r := range c.replies {
		c.above = max(c.above, r.Promised)
		m.Disk.raisePromise(0, r.Timeline)
	}
	c.pause(*m, now+m.delayByTurn(1, 1))
	m.Phase, c.forcing = Standby, ""
	return nil
}

// giveUp lets others try first, except if a person named this member. A reason is
// reported.
func (c *candidacy) giveUp(m *member, now time.Duration, reason string) []Effect {
	if c.forcing == "" {
		c.pause(*m, now+m.delayByTurn(30, 10))
	}
	m.Phase, c.forcing = Standby, ""
	if reason == "" {
		return nil
	}
	return m.reportStall(reason)
}

// yieldCandidacy gives the candidate that this member votes for time for its claim.
// Two that compete at once take each other's votes for ever.
func (c *candidacy) yieldCandidacy(m member, now time.Duration) {
	c.pause(m, now+m.delayByTurn(50, 10))
	c.forcing = ""
}

// sendClaim persists the claim before it is sent.
func (c *candidacy) sendClaim(m *member, now time.Duration) []Effect {
	record, err := c.baseOf.Acquire(lease.Claim{
		UID: m.Config.UID, Pod: m.Config.Pod, Volume: m.Disk.VolumeID, SystemIdentifier: m.Disk.SystemIdentifier,
		Term: m.term, Timeline: m.timeline, Flushed: m.wal.Flushed, Duration: m.Config.Timing.Duration(), Free: c.isLeaseFree(*m), Forced: c.forcing != "",
	})
	if err != nil {
		return c.giveUp(m, now, err.Error())
	}
	c.forced, c.found = m.Disk.Forced, false
	m.Disk.recordClaim(m.term, c.forcing)
	m.Phase, m.durationAt, m.replaced = Claiming, now, c.baseOf
	effects := []Effect{Persist{m.Disk}}
	return append(effects, m.requests.startWriting(now, c.base, record)...)
}

// endClaim takes the answer to a claim, and reports whether it won.
func (c *candidacy) endClaim(m *member, now time.Duration, w LeaseWritten) (effects []Effect, won bool) {
	switch w.Answer {
	case lease.Done:
	case lease.Unanswered:
		m.Phase = Unsure
		return nil, false
	default:
		m.lease.discardRecord() // another member was first
		m.requests.requireReading()
		effects = c.returnRequest(m)
		return append(effects, c.giveUp(m, now, "")...), false
	}
	if now >= m.findReliance(m.requests.pending).Deadlines(w.Sent).Soft || now < m.promise {
		return c.giveUp(m, now, ""), false // too late to rely on: the Lease expires
	}
	if m.isForbidden() {
		return c.giveUp(m, now, ""), false // meanwhile: the Lease expires
	}
	m.lease.recordWrite(w.Version, m.requests.pending)
	c.forcing = ""
	return nil, true
}

// resolveClaim learns the outcome of a claim. One that was done is written once
// more: nothing is known of how long ago it was. One that was edited meanwhile is given
// up: it may no longer let this member lead.
func (c *candidacy) resolveClaim(m *member, now time.Duration) []Effect {
	record := m.lease.record
	own := record.HolderUID == m.Config.UID && record.Term == m.term && m.Disk.Wrote == m.term && record.Contradicts(m.requests.pending) == ""
	if !own || !m.lease.readable || now < m.promise || m.isForbidden() {
		var effects []Effect
		if record.Term < m.term {
			effects = c.returnRequest(m)
		}
		return append(effects, c.giveUp(m, now, "")...)
	}
	c.base, c.found, m.Phase = m.lease.version, true, Claiming
	return m.requests.startWriting(now, c.base, record)
}

// resolveMissing ends a claim whose Lease is gone: a claim that still arrives makes
// this member the holder of a Lease that it does not lead by.
func (c *candidacy) resolveMissing(m *member, now time.Duration) []Effect {
	if m.Phase != Unsure || !m.lease.missing {
		return nil
	}
	return append(c.returnRequest(m), c.giveUp(m, now, "")...)
}

// returnRequest has a person's request count as not carried out: its claim is not on the
// Lease. A claim that still arrives makes this member the holder of a Lease that it does
// not lead by, and one that was once found there counts.
func (c *candidacy) returnRequest(m *member) []Effect {
	if c.forcing == "" || c.found {
		return nil
	}
	m.Disk.Forced = c.forced
	return []Effect{Persist{m.Disk}}
}
