package election

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// Config is what the member is given of itself and of the cluster.
type Config struct {
	// UID and Pod are those of the member's pod.
	UID, Pod string
	// NoFailover keeps the member from leading.
	NoFailover bool
	// MaxLag is how many bytes of acknowledged WAL a failover may lose in
	// asynchronous mode; 0 sets no limit.
	MaxLag uint64
	// Timing is that of the declared duration. What the Lease records may differ.
	Timing lease.Timing
}

// member is what a member is and knows in each of its roles: as a standby, a voter,
// a candidate and a primary. A role that only reads it gets it by value.
type member struct {
	Config Config
	Disk   Persistent
	Phase  Phase

	lease    leaseObservation
	requests leaseRequests

	// Receiving.
	following int64 // term
	wal       WAL

	// Of the Lease that it holds or tries to win.
	term     int64
	timeline int64

	durations  []DurationReport // of the other members
	durationAt time.Duration    // the holder wrote another duration of the Lease
	replaced   lease.Record     // by the holder's claim

	promise time.Duration // not elected, and no vote, before
	held    Held          // why the member does not lead
	// hinderedAt is since when it could neither vote nor lead by a free Lease.
	hindered   bool
	hinderedAt time.Duration
	stalled    string
}

// IsPrimary reports whether the member's server may be running as a primary.
func (m member) IsPrimary() bool {
	return m.Phase == Promoting || m.Phase == Leading || m.Phase == Ending
}

// findExpiry is the timing by which the Lease expires to this member: of the longest of
// its own duration and those that the Lease records and recorded, so that no change of
// the duration elects early.
func (m member) findExpiry() lease.Timing {
	return lease.LongestTiming(m.Config.Timing, m.lease.record.Duration, m.Disk.Known.Duration)
}

// findReliance is the timing by which the member relies on a write as the holder: of
// the shortest one of its own duration, that of the write, and the one that all other
// members that may lead know.
func (m member) findReliance(written lease.Record) lease.Timing {
	t := m.Config.Timing.Within(cmp.Or(written.Duration, lease.DefaultDuration))
	if m.holds() {
		return t.Within(m.findCovered())
	}
	return t
}

// Pace is the timing by which requests to the API server and to other members are due,
// and end: that of the shorter one of the recorded and the declared duration. A claim has
// the time that it has by these, however much of it is relied on when it is won: what
// other members know is not reported yet.
func (m member) Pace() lease.Timing {
	if m.Phase == Claiming || m.Phase == Unsure {
		return m.Config.Timing.Within(cmp.Or(m.lease.record.Duration, lease.DefaultDuration))
	}
	return m.findReliance(m.lease.record)
}

// PromisedUntil is until when the member is not elected and does not vote.
func (m member) PromisedUntil() time.Duration { return m.promise }

// Held is why the member neither votes nor leads; empty for no reason.
func (m member) Held() string { return m.held.Reason }

// Term is that of the Lease that the member holds or tries to win.
func (m member) Term() int64 { return m.term }

// isEligible reports whether data may lead by the record.
func (m member) isEligible(volume, system string, wal WAL) bool {
	reached := max(m.lease.record.ReachedTimeline, m.Disk.Known.ReachedTimeline)
	return m.lease.record.MayLead(volume) && system == m.lease.record.SystemIdentifier &&
		slices.Contains(wal.Timelines, reached)
}

// explainIneligible says why this member may not lead with its data; empty if it may.
func (m member) explainIneligible(w WAL) string {
	switch {
	case m.held.Reason != "":
		return m.held.Reason
	case m.Disk.Rewinding:
		return "this member's data is being rewound or replaced"
	case m.Config.NoFailover:
		return "noFailover keeps this member from leading"
	case !m.isEligible(m.Disk.VolumeID, m.Disk.SystemIdentifier, w):
		return "this member's volume, database or timeline is not one that the Lease lets lead"
	case m.lease.record.Quorum != nil && !m.lease.isInQuorum(m.Disk.VolumeID):
		return "this member's volume is not in the synchronous quorum"
	}
	return ""
}

// OlderVolume begins the reason for which the last holder of the Lease does not lead:
// its volume lacks what it had on its disk when it led.
const OlderVolume = "this member's volume is older than the one that it led with"

// explainLost says which acknowledged WAL this member lacks; empty if it may lead
// without it.
func (m member) explainLost() string {
	record := m.lease.record
	switch {
	case record.HolderVolume == m.Disk.VolumeID && record.Acknowledged.Newer(m.wal.findReach()):
		return fmt.Sprintf("%s: its WAL goes to %d/%X, and the Lease recorded %d/%X of it", OlderVolume, m.wal.Flushed.Timeline, m.wal.Flushed.LSN, record.Acknowledged.Timeline, record.Acknowledged.LSN)
	case record.HolderVolume == m.Disk.VolumeID && record.Timeline == m.Disk.Streamed.Timeline && m.Disk.Streamed.Newer(m.wal.findReach()):
		return fmt.Sprintf("%s: its WAL goes to %d/%X, and another member received it to %d/%X", OlderVolume, m.wal.Flushed.Timeline, m.wal.Flushed.LSN, m.Disk.Streamed.Timeline, m.Disk.Streamed.LSN)
	case record.Quorum != nil && record.Acknowledged.Newer(m.wal.findReach()):
		return "this member has less WAL than the synchronous quorum had acknowledged: its volume is older than that"
	case record.Quorum == nil && m.Config.MaxLag > 0 && record.CountLag(m.wal.Flushed) > m.Config.MaxLag:
		return "this member lacks more acknowledged WAL than failover.maxLag allows"
	}
	return ""
}

// recordStreamed keeps what a reply shows to be missing on this volume, which led last: only
// the holder of a term writes its timeline, and it streams no more than it has flushed. It
// is kept because the member that showed it may not answer the next time.
func (m *member) recordStreamed(r VoteReply) []Effect {
	theirs := r.WAL.Flushed
	if m.lease.record.HolderVolume != m.Disk.VolumeID || theirs.Timeline != m.lease.record.Timeline || r.SystemIdentifier != m.Disk.SystemIdentifier ||
		!theirs.Newer(m.wal.findReach()) || !theirs.Newer(m.Disk.Streamed) {
		return nil
	}
	m.Disk.Streamed = theirs
	return []Effect{Persist{m.Disk}}
}

// explainStall says why this member does not lead although no other one does.
// Once a reason is given it stays until the Lease is held or a candidacy begins.
func (m member) explainStall() string {
	switch {
	case m.lease.missing && m.lease.expiry.IsLost(m.findExpiry()):
		return "the Lease is missing, and its holder does not write it again"
	case m.lease.readable && m.lease.hasExpired(m.findExpiry()):
		if reason := m.explainIneligible(m.ownWAL()); reason != "" {
			return reason
		}
		if reason := m.explainStandingBack(); reason != "" {
			return reason
		}
	}
	return m.stalled
}

// findTurnOf is the place of a member, by its volume, among those that may lead in the
// holder's stead, from 0: it delays a candidacy, so that members do not collide. The
// holder comes last.
func (m member) findTurnOf(volume string) int {
	turn := 0
	for _, other := range m.lease.record.Volumes {
		switch {
		case other == m.lease.record.HolderVolume:
		case volume == m.lease.record.HolderVolume || other < volume:
			turn++
		}
	}
	return turn
}

// delayByTurn is a number of hundredths of the Lease's duration, and as much again for
// each member whose turn is before this one's, of another number.
func (m member) delayByTurn(hundredths, perTurn int) time.Duration {
	return m.Config.Timing.Duration() * time.Duration(hundredths+perTurn*m.findTurnOf(m.Disk.VolumeID)) / 100
}

// ownWAL is what the volume is known to hold.
func (m member) ownWAL() WAL { return WAL{Flushed: m.wal.Flushed, Timelines: m.Disk.Timelines} }

// highestTimeline is the highest one that the member knows of, used or not.
func (m member) highestTimeline() int64 {
	return max(m.lease.record.HighestTimeline, m.Disk.Known.HighestTimeline, m.Disk.PromisedTimeline, slices.Max(append([]int64{0}, m.Disk.Timelines...)))
}

// recordHeld records why the member does not lead. What it may not do any more is given
// up.
func (m *member) recordHeld(in Held) {
	m.held = in
	m.giveUpForbidden()
}

// isCandidate reports whether the member has a candidacy, and has not claimed by it.
func (m member) isCandidate() bool { return m.Phase == Stopping || m.Phase == Asking }

// giveUpForbidden ends a vote and a candidacy that what the volume holds forbids by now.
func (m *member) giveUpForbidden() {
	isVote := m.Phase == Voting && m.mayNotVote()
	isCandidacy := m.isCandidate() && m.isForbidden()
	if isVote || isCandidacy {
		m.Phase = Standby
	}
}

// isForbidden reports whether what the volume holds keeps the member from leading, also by
// a claim that it has sent.
func (m member) isForbidden() bool { return m.Disk.Rewinding || m.held.Reason != "" }

// mayNotVote reports whether what the volume holds is not known, or may not be used.
func (m member) mayNotVote() bool { return m.Disk.Rewinding || m.held.Reason != "" && !m.held.Votes }

// watchHindrance notes since when the member can neither vote nor lead, although it has
// observed the Lease as free: its data is held, or its receiver or its volume does not
// answer.
func (m *member) watchHindrance(now time.Duration) {
	before := m.hindered
	m.hindered = (m.mayNotVote() || m.Phase == Stopping || m.Phase == Voting) && m.lease.isFree(m.findExpiry())
	if m.hindered && !before {
		m.hinderedAt = now
	}
}

// isHinderedLong reports whether that has lasted for the duration of the Lease: the others
// no longer leave the Lease to this member. What it holds stays on its volume.
func (m member) isHinderedLong(now time.Duration) bool {
	return m.hindered && now-m.hinderedAt >= m.findExpiry().Duration()
}

// recordWAL records what the volume holds, as it was measured.
func (m *member) recordWAL(w WAL) {
	m.wal = w
	m.Disk.recordTimelines(w.Timelines)
}

// readRecord takes in what the Lease says.
func (m *member) readRecord(r lease.Reading) []Effect {
	known := m.Disk.Known
	if m.Disk.SystemIdentifier == "" {
		known.SystemIdentifier = "" // without data, it may have read an edited one first
	}
	if reason := m.lease.recordReading(r, known); reason != "" {
		return m.reportStall(reason)
	}
	effects := m.Disk.recordKnown(m.confirmShorter(r))
	if !m.lease.hasExpired(m.findExpiry()) {
		effects = append(effects, m.reportStall("")...)
	}
	return effects
}

// followHolder streams from the holder, unless the member voted at this state of
// the Lease: a candidate relies on the position that it reported.
func (m *member) followHolder() []Effect {
	record, voted := m.lease.record, m.lease.version == m.Disk.PromisedAt
	if m.Phase != Standby || !m.lease.readable || record.HolderUID == "" || record.HolderVolume == m.Disk.VolumeID ||
		m.following == record.Term || voted {
		return nil
	}
	m.following = record.Term
	return []Effect{Follow{record.HolderVolume, record.Term}}
}

// reportStall reports a reason once.
func (m *member) reportStall(reason string) []Effect {
	if m.stalled == reason {
		return nil
	}
	m.stalled = reason
	return []Effect{Stall{reason}}
}
