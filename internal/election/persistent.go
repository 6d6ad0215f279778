package election

import (
	"slices"

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
	// Streamed is the furthest position that another member was seen to have received from
	// this volume, of those that this volume lacks; of the last term's timeline.
	Streamed lease.Position
	// Failed counts the terms in a row that this member won and in which its server did
	// not come to serve, the present one included.
	Failed int
}

// recordKnown merges a record that was read into what is persisted. What changes
// with each renewal is no reason to write to the volume.
func (d *Persistent) recordKnown(r lease.Record) []Effect {
	known := d.Known
	if r.Age() == known.Age() && r.HolderUID == known.HolderUID && r.HighestTimeline <= known.HighestTimeline &&
		r.ReachedTimeline <= known.ReachedTimeline && r.IsReleased() == known.IsReleased() && r.Duration == known.Duration {
		return nil
	}
	r.HighestTimeline = max(r.HighestTimeline, known.HighestTimeline)
	r.ReachedTimeline = max(r.ReachedTimeline, known.ReachedTimeline)
	d.Known = r
	if d.Streamed.Timeline != r.Timeline {
		d.Streamed = lease.Position{}
	}
	return []Effect{Persist{*d}}
}

// recordPromise records a term that the member votes for or wants to win itself, and
// the state of the Lease at which it does.
func (d *Persistent) recordPromise(term int64, at lease.Version) {
	d.Promised, d.PromisedAt = term, at
}

// raisePromise records a term and a timeline that later ones have to be above.
func (d *Persistent) raisePromise(term, timeline int64) {
	d.Promised = max(d.Promised, term)
	d.PromisedTimeline = max(d.PromisedTimeline, timeline)
}

// recordClaim records the term of a claim, and the person's request that led to it.
func (d *Persistent) recordClaim(term int64, forced string) {
	d.Wrote = term
	if forced != "" {
		d.Forced = forced
	}
}

// recordTimelines merges what was received into what is persisted.
func (d *Persistent) recordTimelines(received []int64) {
	merged := append(slices.Clone(d.Timelines), received...)
	slices.Sort(merged)
	d.Timelines = slices.Compact(merged)
}

// recordReceived persists a timeline before WAL of it is on the volume. Data that is
// about to follow a later leader is none that only this member has.
func (d *Persistent) recordReceived(timeline int64) []Effect {
	if slices.Contains(d.Timelines, timeline) {
		return nil
	}
	d.Failed = 0
	d.recordTimelines([]int64{timeline})
	return []Effect{Persist{*d}}
}

// beginRewind persists that the data directory is incomplete.
func (d *Persistent) beginRewind() []Effect {
	d.Rewinding = true
	return []Effect{Persist{*d}}
}

// endRewind persists that it is complete again. What was received before and is not
// in the source's history is gone.
func (d *Persistent) endRewind(in RewindEnded) []Effect {
	d.Rewinding, d.SystemIdentifier, d.Failed, d.Streamed = false, in.SystemIdentifier, 0, lease.Position{}
	d.Timelines = slices.Clone(in.Timelines)
	return []Effect{Persist{*d}}
}
