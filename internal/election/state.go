package election

import (
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// Persistent is what a member keeps on its volume.
type Persistent struct {
	// VolumeID is made once, with the data.
	VolumeID         string
	SystemIdentifier string
	// Promised is the highest term that the member voted for, and PromisedAt the
	// state of the Lease at which it did.
	Promised   int64
	PromisedAt lease.Version
	// PromisedTimeline is the highest timeline that a candidate wanted to reserve.
	PromisedTimeline int64
	// Wrote is the last term that the member itself tried to win.
	Wrote int64
	// Known is the newest record of the Lease that the member read.
	Known lease.Record
	// Timelines are all that were received, in the order of their numbers.
	Timelines []int64
}

// Config is what does not change while the agent runs.
type Config struct {
	// UID and Pod are those of the member's pod.
	UID, Pod string
	// Rank delays a candidacy by its multiples, so that members do not collide.
	Rank int
	// NoFailover keeps the member from leading.
	NoFailover bool
	Timing     lease.Timing
}

// Phase is what a member is doing.
type Phase int

// The phases.
const (
	// Standby: the member follows, or waits for a primary.
	Standby Phase = iota
	// Voting: its receiver stops for a vote.
	Voting
	// Stopping: its receiver stops for its own candidacy.
	Stopping
	// Asking: it waits for votes.
	Asking
	// Claiming: its claim is sent.
	Claiming
	// Unsure: the outcome of its claim is unknown until the Lease is read.
	Unsure
	// Promoting: it won, and its server is not the primary yet.
	Promoting
	// Leading: its server takes writes.
	Leading
	// Ending: its server shuts down in order.
	Ending
	// Releasing: its server is gone, and the release is sent.
	Releasing
)

// State is a member. Everything but Disk is lost when its agent ends.
type State struct {
	Config Config
	Disk   Persistent
	Phase  Phase

	// The Lease as last read or written.
	expiry   lease.Expiry
	version  lease.Version
	record   lease.Record
	readable bool // the record is there, valid, and not older than what is known
	missing  bool
	outage   bool // the last request had no answer
	readSent time.Duration
	reading  bool
	ignore   time.Duration // readings that were sent before are outdated

	writeSent time.Duration
	writing   bool
	pending   lease.Record

	// Receiving.
	following int64 // term
	wal       WAL

	// Candidacy and votes.
	after     time.Duration // no candidacy before
	expiredAt lease.Version // for which after was set
	tried     lease.Version // a released Lease that the member cannot take at once
	takeover  bool          // of a released Lease, with all of its holder's WAL
	term      int64
	timeline  int64
	base      lease.Version
	baseTerm  int64
	askSent   time.Duration
	replies   []VoteReply
	request   VoteRequest

	// Leading.
	deadlines lease.Deadlines
	renewed   time.Duration // send of the last successful renewal
	reached   int64
	stopBy    time.Duration

	// Failsafe.
	promise   time.Duration // not elected, and no vote, before
	confirmed []string
	roundSent time.Duration

	stalled string
	flaw    flaw
}

// flaw breaks a rule on purpose. Only tests set it.
type flaw int

// NewState is a member whose agent just started: it does not lead, whatever the
// Lease says.
func NewState(c Config, d Persistent) State { return State{Config: c, Disk: d} }

// IsPrimary reports whether the member's server may be running as a primary.
func (s State) IsPrimary() bool {
	return s.Phase == Promoting || s.Phase == Leading || s.Phase == Ending
}

// PromisedUntil is until when the member is not elected and does not vote.
func (s State) PromisedUntil() time.Duration { return s.promise }

// Term is that of the Lease that the member holds or tries to win.
func (s State) Term() int64 { return s.term }

// isEligible reports whether data may lead by the record.
func (s State) isEligible(volume, system string, wal WAL) bool {
	reached := max(s.record.ReachedTimeline, s.Disk.Known.ReachedTimeline)
	return s.record.MayLead(volume) && system == s.record.SystemIdentifier &&
		slices.Contains(wal.Timelines, reached)
}

// ownWAL is what the volume is known to hold.
func (s State) ownWAL() WAL { return WAL{Flushed: s.wal.Flushed, Timelines: s.Disk.Timelines} }

// recordKnown merges a record that was read into what is persisted.
func (s *State) recordKnown(r lease.Record) []Effect {
	known := s.Disk.Known
	if r.Term == known.Term && r.HolderUID == known.HolderUID && r.HighestTimeline <= known.HighestTimeline &&
		r.ReachedTimeline <= known.ReachedTimeline && r.IsReleased() == known.IsReleased() {
		return nil
	}
	r.HighestTimeline = max(r.HighestTimeline, known.HighestTimeline)
	r.ReachedTimeline = max(r.ReachedTimeline, known.ReachedTimeline)
	s.Disk.Known = r
	return []Effect{Persist{s.Disk}}
}

// recordTimelines merges what was received into what is persisted.
func (s *State) recordTimelines(w WAL) {
	s.wal = w
	merged := append(slices.Clone(s.Disk.Timelines), w.Timelines...)
	slices.Sort(merged)
	s.Disk.Timelines = slices.Compact(merged)
}

// recordReceived persists a timeline before WAL of it is on the volume.
func (s *State) recordReceived(timeline int64) []Effect {
	if slices.Contains(s.Disk.Timelines, timeline) {
		return nil
	}
	s.recordTimelines(WAL{Flushed: s.wal.Flushed, Timelines: []int64{timeline}})
	return []Effect{Persist{s.Disk}}
}

// stall reports a reason once.
func (s *State) stall(reason string) []Effect {
	if s.stalled == reason {
		return nil
	}
	s.stalled = reason
	return []Effect{Stall{reason}}
}
