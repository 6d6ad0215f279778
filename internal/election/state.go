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
	// Rewinding says that the data directory is being rewound or replaced: what it
	// holds is not known until that is complete.
	Rewinding bool
	// Forced is the ID of the last ForceRequest that led to a claim.
	Forced string
}

// Config is what does not change while the agent runs.
type Config struct {
	// UID and Pod are those of the member's pod.
	UID, Pod string
	// Rank delays a candidacy by its multiples, so that members do not collide.
	Rank int
	// NoFailover keeps the member from leading.
	NoFailover bool
	// MaxLag is how many bytes of acknowledged WAL a failover may lose in
	// asynchronous mode; 0 sets no limit.
	MaxLag uint64
	Timing lease.Timing
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
	// Releasing: its server is gone, and the Lease is to be given up.
	Releasing
)

// State is a member. Everything but Disk is lost when its agent ends. It is one value
// with all that a member knows and has promised, for a step is a pure function from one
// State to the next, and its rules are about several parts of it at once.
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
	pending   lease.Record // the last that was sent, whatever became of it

	// Receiving.
	following int64 // term
	wal       WAL

	// Candidacy and votes.
	after     time.Duration // no candidacy before
	expiredAt lease.Version // for which after was set
	tried     lease.Version // a released Lease that the member cannot take at once
	takeover  bool          // of a released Lease, with all of its holder's WAL
	forcing   string        // ID of the request that began the candidacy
	term      int64
	timeline  int64
	base      lease.Version
	baseOf    lease.Record // what the claim changes
	baseAge   lease.Age
	askSent   time.Duration
	replies   []VoteReply
	request   VoteRequest

	// Leading.
	deadlines    lease.Deadlines
	renewed      time.Duration // send of the last successful renewal
	reached      int64
	acknowledged lease.Position
	stopBy       time.Duration
	successor    string
	end          lease.Position // of the shutdown checkpoint, while Releasing

	// Members and quorum.
	wanted    *MembersWanted
	effective *lease.Quorum
	setting   bool  // the server is being given another quorum
	settingID int64 // of the last SetQuorum

	// Failsafe.
	promise   time.Duration // not elected, and no vote, before
	asked     []string
	confirmed []string
	roundSent time.Duration

	stalled string
}

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

// isInQuorum reports whether the volume's vote is one of the mandatory ones.
func (s State) isInQuorum(volume string) bool {
	return s.record.Quorum != nil && slices.Contains(s.record.Quorum.Volumes, volume)
}

// explainIneligible says why this member may not lead with its data; empty if it may.
func (s State) explainIneligible(w WAL) string {
	switch {
	case s.Disk.Rewinding:
		return "this member's data is being rewound or replaced"
	case s.Config.NoFailover:
		return "noFailover keeps this member from leading"
	case !s.isEligible(s.Disk.VolumeID, s.Disk.SystemIdentifier, w):
		return "this member's volume, database or timeline is not one that the Lease lets lead"
	case s.record.Quorum != nil && !s.isInQuorum(s.Disk.VolumeID):
		return "this member's volume is not in the synchronous quorum"
	}
	return ""
}

// explainLost says which acknowledged WAL this member lacks; empty if it may lead
// without it.
func (s State) explainLost() string {
	switch {
	case s.record.Quorum != nil && s.record.Acknowledged.Newer(s.wal.Flushed):
		return "this member has less WAL than the synchronous quorum had acknowledged: its volume is older than that"
	case s.record.Quorum == nil && s.Config.MaxLag > 0 && s.record.CountLag(s.wal.Flushed) > s.Config.MaxLag:
		return "this member lacks more acknowledged WAL than failover.maxLag allows"
	}
	return ""
}

// ownWAL is what the volume is known to hold.
func (s State) ownWAL() WAL { return WAL{Flushed: s.wal.Flushed, Timelines: s.Disk.Timelines} }

// highestTimeline is the highest one that the member knows of, used or not.
func (s State) highestTimeline() int64 {
	return max(s.record.HighestTimeline, s.Disk.Known.HighestTimeline, s.Disk.PromisedTimeline, slices.Max(append([]int64{0}, s.Disk.Timelines...)))
}

// recordKnown merges a record that was read into what is persisted. What changes
// with each renewal is no reason to write to the volume.
func (s *State) recordKnown(r lease.Record) []Effect {
	known := s.Disk.Known
	if r.Age() == known.Age() && r.HolderUID == known.HolderUID && r.HighestTimeline <= known.HighestTimeline &&
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

// beginRewind persists that the data directory is incomplete.
func (s *State) beginRewind() []Effect {
	s.Disk.Rewinding = true
	return []Effect{Persist{s.Disk}}
}

// endRewind persists that it is complete again. What was received before and is not
// in the source's history is gone.
func (s *State) endRewind(in RewindEnded) []Effect {
	s.Disk.Rewinding, s.Disk.SystemIdentifier = false, in.SystemIdentifier
	s.Disk.Timelines = slices.Clone(in.Timelines)
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
