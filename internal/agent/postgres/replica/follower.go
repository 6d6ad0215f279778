package replica

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
)

// Follower is what a replica knows of the primary that it follows. It outlives the
// runs of the server, and serves one goroutine. The zero value knows nothing.
type Follower struct {
	tracker lagTracker
	silence silence
	primary lsn.Point // where its WAL ended when it was asked last
	// primaryUID is that of the pod that said so.
	primaryUID string
	before     uint64 // what the replica had replayed at the observation before
	stall      stall
}

// Answer is what a primary that serves said.
type Answer struct {
	// Position of its WAL, in bytes, by any database system's.
	Position uint64
	// End is the same of the replica's database system; unknown of another.
	End lsn.Point
	// PodUID of the pod that said so.
	PodUID string
}

// RecordAnswer takes in an answer to what was asked at a time.
func (f *Follower) RecordAnswer(asked time.Duration, answer Answer) {
	f.silence = silence{}
	f.tracker.recordSample(asked, answer.Position)
	f.primary, f.primaryUID = answer.End, answer.PodUID
}

// RecordDown takes in that the primary's agent answered, and that it does not serve.
func (f *Follower) RecordDown() { f.silence = silence{} }

// RecordSilence takes in that the primary did not answer what was asked at a time,
// and says whether its silence begins. Gone says that no agent is there.
func (f *Follower) RecordSilence(asked time.Duration, gone bool) (begins bool) {
	if begins = f.silence.since == 0; begins {
		f.silence = silence{since: asked, view: ViewSilent}
		if f.tracker.begun {
			f.silence.since = f.tracker.last
		}
	}
	if f.silence.gone = gone; gone && f.silence.view == ViewSilent {
		f.silence.view = ViewDown
	}
	return begins
}

// MustCheckLease says whether to read the Lease now, to find out what the silence
// means.
func (f *Follower) MustCheckLease(now time.Duration) bool { return f.silence.mustCheck(now) }

// RecordLease takes in a version of the Lease, and how long ago it was renewed.
func (f *Follower) RecordLease(now time.Duration, version string, age time.Duration) {
	f.silence = f.silence.recordLease(now, version, age)
}

// RecordReleased takes in that the Lease is released: the primary shut down in order.
func (f *Follower) RecordReleased() { f.silence.view = ViewDown }

// RecordUnreadable takes in that the Lease could not be read.
func (f *Follower) RecordUnreadable(now time.Duration) {
	f.silence = f.silence.recordUnreadable(now)
}

// SilentView is what the primary's silence means.
func (f *Follower) SilentView() PrimaryView { return f.silence.view }

// PrimaryEnd is where the primary's WAL ended when it was asked last, and the UID of
// the pod that said so.
func (f *Follower) PrimaryEnd() (lsn.Point, string) { return f.primary, f.primaryUID }

// ReadLag at a time of a replica that has replayed up to a position.
func (f *Follower) ReadLag(now time.Duration, replayed uint64) Lag {
	return f.tracker.readLag(now, replayed)
}

// RecordReplayed takes in what the replica has replayed, for the next observation.
func (f *Follower) RecordReplayed(position uint64) { f.before = position }

// FollowsPrimary says whether what a replica holds is surely the primary's. One that is
// ahead of what the primary says a moment later, or of one that sends nothing, or
// that receives a timeline which the primary has left, would serve what was never,
// or is no longer, true.
func (f *Follower) FollowsPrimary(observed server.Observation) bool {
	switch {
	case f.before == 0, f.primary.Position > 0 && f.before > f.primary.Position:
		return false
	case observed.Receiving:
		return observed.Timeline == f.primary.Timeline
	default:
		return uint64(observed.Position) <= f.tracker.newest
	}
}

// ForgetStall begins anew to watch for half a record.
func (f *Follower) ForgetStall() { f.stall = stall{} }

// WatchStall takes in an observation, and whether the replica stands before half a
// record. It says whether that is proven to be all that comes of it, and then
// begins anew.
func (f *Follower) WatchStall(now time.Duration, observed server.Observation, half bool) (proven bool) {
	f.stall = f.stall.recordObservation(now, observed, half)
	if half && f.stall.isProven(now) {
		f.stall = stall{}
		return true
	}
	return false
}
