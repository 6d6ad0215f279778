package election

import (
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// leadership is what a primary relies on, and what it has reached, in its term.
type leadership struct {
	deadlines    lease.Deadlines
	renewed      time.Duration // send of the last successful renewal
	renewal      lease.Record  // that it wrote
	reached      int64
	acknowledged lease.Position
	stopBy       time.Duration
	successor    string
	end          lease.Position // of the shutdown checkpoint, while Releasing

	quorum   quorumChange
	failsafe failsafeRound
	service  service
}

// beginTerm promotes the server of a member whose claim, sent then, has won.
func (l *leadership) beginTerm(m *member, sent time.Duration) []Effect {
	record := m.lease.record
	l.deadlines, l.renewed, l.renewal = m.findReliance(record).Deadlines(sent), sent, record
	l.reached, l.acknowledged = 0, lease.Position{}
	l.quorum.beginWith(record.Quorum)
	l.failsafe.endRound()
	m.Phase = Promoting
	effects := m.Disk.recordKnown(record)
	effects = append(effects, l.service.begin(&m.Disk, m.timeline)...)
	return append(effects, ExtendGuard{l.deadlines.Fence}, Promote{m.term, m.timeline, record.Quorum})
}

// fenceServer ends the server and the member's leadership.
func (l *leadership) fenceServer(m *member) []Effect {
	return append([]Effect{Fence{}}, l.endTerm(m)...)
}

// endTerm makes a member whose server is gone a standby. That its server did not come
// to serve before counts only if the server failed.
func (l *leadership) endTerm(m *member) []Effect {
	l.successor = ""
	l.quorum.beginWith(nil)
	l.failsafe.endRound()
	m.requests.abandonWriting()
	m.lease.discardRecord()
	m.Phase, m.following = Standby, 0
	return l.service.excuse(&m.Disk)
}

// finishPromotion makes the winner of a term its primary.
func (l *leadership) finishPromotion(m *member, now time.Duration, in Promoted) []Effect {
	if m.Phase != Promoting || in.Term != m.term || in.Timeline != m.timeline {
		return nil
	}
	m.Phase, l.service.promoted = Leading, now
	return m.reportStall("")
}

// endFailedTerm ends a term whose server does not serve. The Lease expires: nothing
// is known of how far the server came.
func (l *leadership) endFailedTerm(m *member, in ServerFailed) []Effect {
	if !m.IsPrimary() || in.Term != m.term {
		return nil
	}
	l.service.fail(&m.Disk)
	return append(l.fenceServer(m), Persist{m.Disk})
}

// recordStreamed records that a second member follows the primary's timeline.
func (l *leadership) recordStreamed(m member, in Streamed) {
	if m.Phase == Leading && in.Timeline == m.timeline {
		l.reached = in.Timeline
	}
}

// recordAcknowledged records what the next renewal reports.
func (l *leadership) recordAcknowledged(m *member, now time.Duration, in Acknowledged) []Effect {
	if m.Phase != Leading || in.Position.Timeline != m.timeline {
		return nil
	}
	l.acknowledged = in.Position
	return l.service.recordServing(m, now)
}

// passTime does what is due for a primary, or for one that gives the Lease up.
func (l *leadership) passTime(m *member, now time.Duration) []Effect {
	switch {
	case m.Phase == Releasing && now >= l.stopBy:
		return l.endTerm(m)
	case m.Phase == Releasing:
		return l.renewWhenDue(m, now)
	case m.Phase == Ending && now >= l.stopBy:
		return l.fenceServer(m)
	case m.Phase == Leading && now >= l.deadlines.Soft:
		return l.beginStop(m, now)
	}
	effects := l.renewWhenDue(m, now)
	return append(effects, l.askConfirmations(*m, now)...)
}

// renewWhenDue renews, or reads the Lease first if the outcome of the last write is
// unknown. A release is a renewal that is due at once.
func (l *leadership) renewWhenDue(m *member, now time.Duration) []Effect {
	due := now-m.requests.writeSent >= m.Pace().Renewal() || m.Phase == Releasing || l.quorum.isDue(*m)
	if m.requests.writing || m.requests.reading || !due && !m.requests.outage {
		return nil
	}
	if m.requests.outage {
		return m.requests.startReading(now)
	}
	return l.writeRenewal(m, now)
}

// writeRenewal writes what is due: the release, a change of the members, or the same
// record again.
func (l *leadership) writeRenewal(m *member, now time.Duration) []Effect {
	record, err := l.nextRecord(*m, now)
	if err != nil {
		return l.fenceServer(m)
	}
	return m.requests.startWriting(now, m.lease.version, record)
}

// nextRecord is what the Lease says next.
func (l *leadership) nextRecord(m member, now time.Duration) (lease.Record, error) {
	if m.Phase == Releasing {
		return m.lease.record.Release(m.Config.UID, m.term, l.end, l.successor)
	}
	record, err := m.lease.record.Renew(m.Config.UID, m.term, lease.Progress{Reached: l.reached, Acknowledged: l.acknowledged, Duration: l.nextDuration(m, now)})
	if err != nil {
		return record, err
	}
	volumes, quorum, changed := l.quorum.nextMembers(m)
	if !changed {
		return record, nil
	}
	next, err := record.ChangeMembers(m.Config.UID, m.term, volumes, quorum)
	if err != nil {
		l.quorum.rejectMembers() // a wrong wish does not end a renewal
		return record, nil
	}
	return next, nil
}

// nextDuration is the duration that a write of this moment records. A shorter one than
// before is recorded once the deadline is no later than that of such a write: a
// member that waits for the shorter one alone waits for the deadline, too. Until then this one
// relies on the shorter one, and its deadline, which never moves back, comes nearer.
func (l *leadership) nextDuration(m member, now time.Duration) time.Duration {
	wanted := m.Config.Timing
	if l.deadlines.Fence > wanted.Deadlines(now).Fence {
		return max(wanted.Duration(), m.lease.record.Duration)
	}
	return wanted.Duration()
}

// wroteRenewal relies on a renewal from its send on.
func (l *leadership) wroteRenewal(m *member, now time.Duration, w LeaseWritten) []Effect {
	switch w.Answer {
	case lease.Done:
		m.recordDuration(now, m.requests.pending)
		m.lease.recordWrite(w.Version, m.requests.pending)
		l.renewed, l.renewal = w.Sent, m.lease.record
		effects := l.extendDeadlines(m.findReliance(m.lease.record), w.Sent)
		effects = append(effects, m.Disk.recordKnown(m.lease.record)...)
		return append(effects, l.quorum.setServerWhenDue(*m)...)
	case lease.Conflict, lease.Missing:
		return m.requests.startReading(now)
	}
	return nil
}

// extendDeadlines moves the deadlines to those of a request that was sent then, never
// back.
func (l *leadership) extendDeadlines(t lease.Timing, sent time.Duration) []Effect {
	extended := t.Deadlines(sent)
	l.deadlines.Soft = max(l.deadlines.Soft, extended.Soft)
	if extended.Fence <= l.deadlines.Fence {
		return nil
	}
	l.deadlines.Fence = extended.Fence
	return []Effect{ExtendGuard{l.deadlines.Fence}}
}

// relyOnKnown relies on the last renewal for longer once all members know its duration.
func (l *leadership) relyOnKnown(m member) []Effect {
	if m.Phase != Leading {
		return nil
	}
	return l.extendDeadlines(m.findReliance(l.renewal), l.renewed)
}

// wroteRelease ends the term, or reads the Lease to try again.
func (l *leadership) wroteRelease(m *member, now time.Duration, w LeaseWritten) []Effect {
	switch w.Answer {
	case lease.Conflict, lease.Missing:
		return m.requests.startReading(now)
	case lease.Unanswered:
		return nil
	case lease.Forbidden:
		if !m.requests.pending.IsReleased() { // a renewal that was on its way: the release may have another one
			return l.renewWhenDue(m, now)
		}
	case lease.Done:
		if pending := m.requests.pending; !pending.IsReleased() { // a renewal that was on its way
			m.lease.recordWrite(w.Version, pending)
			return l.renewWhenDue(m, now)
		}
	}
	return l.endTerm(m)
}

// readLease continues only with the Lease that this member wrote. One that was
// deleted or emptied is written again, by its holder alone: no member can have been
// elected by it while this one's deadline has not passed.
func (l *leadership) readLease(m *member, now time.Duration, r lease.Reading) []Effect {
	own := r.Record.HolderUID == m.Config.UID && r.Record.Term == m.term && r.Record.Validate() == nil
	emptied := r.Answer == lease.Missing || r.Record.Term == 0 && r.Record.HolderUID == ""
	switch {
	case r.Answer != lease.Done && r.Answer != lease.Missing:
		return nil
	case own, emptied && now < l.deadlines.Fence:
		m.recordDuration(now, m.requests.pending)
		m.lease.adoptRevision(r, m.requests.pending)
		return l.writeRenewal(m, now)
	case m.Phase == Releasing:
		return l.endTerm(m)
	}
	return l.fenceServer(m)
}

// beginSwitchover shuts down in order, if the Lease was renewed just now.
func (l *leadership) beginSwitchover(m *member, now time.Duration, in SwitchoverRequest) []Effect {
	record := m.lease.record
	switch {
	case m.Phase != Leading:
		return []Effect{RefuseSwitchover{"this member is not the primary"}}
	case in.Target == m.Disk.VolumeID:
		return []Effect{RefuseSwitchover{"the target is the primary"}}
	case in.Target != "" && (!record.MayLead(in.Target) || record.Quorum != nil && !slices.Contains(record.Quorum.Volumes, in.Target)):
		return []Effect{RefuseSwitchover{"the target's volume is not one that may lead"}}
	case m.requests.outage || !in.Stops && now-l.renewed > 2*m.Pace().Renewal():
		return []Effect{RefuseSwitchover{"the Lease was not renewed just now"}}
	}
	l.successor = in.Target
	return l.beginStop(m, now)
}

// beginStop shuts the server down in order.
func (l *leadership) beginStop(m *member, now time.Duration) []Effect {
	m.Phase, l.stopBy = Ending, now+m.Config.Timing.Duration()/2
	return []Effect{StopServer{}}
}

// beginRelease gives the Lease up once no process of the server is left. A renewal
// that is on its way is waited for: the release builds on its outcome.
func (l *leadership) beginRelease(m *member, now time.Duration, end lease.Position) []Effect {
	if m.Phase != Ending {
		return nil
	}
	if end.Timeline != m.timeline {
		return l.fenceServer(m)
	}
	m.Phase, m.following, l.end = Releasing, 0, end
	l.stopBy = now + m.Config.Timing.Duration()
	return l.renewWhenDue(m, now)
}

// askConfirmations asks the members that may lead, several times per renewal, while
// the API server does not answer.
func (l *leadership) askConfirmations(m member, now time.Duration) []Effect {
	timing := m.Pace()
	if m.Phase != Leading || !m.requests.isSilent(now, timing.RequestTimeout()) || now-l.failsafe.sent < timing.Renewal()/8 {
		return nil
	}
	effects := l.failsafe.beginRound(m, now)
	if len(effects) == 0 { // no other member may lead
		return l.extendDeadlines(timing, now)
	}
	return effects
}

// countConfirm extends the deadlines, from the send of the request, when every
// member that was asked has confirmed.
func (l *leadership) countConfirm(m member, r ConfirmReply) []Effect {
	if m.Phase != Leading || r.Term != m.term || !l.failsafe.recordConfirm(r) || !l.failsafe.isConfirmed() {
		return nil
	}
	// A member that has forgotten its promise waits for the recorded duration.
	return l.extendDeadlines(m.Pace().Within(l.failsafe.promised), r.Sent)
}
