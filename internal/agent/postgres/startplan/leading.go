package startplan

import (
	"slices"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Leading are the facts that only a primary's start is decided from.
type Leading struct {
	// Taken is the Lease as it was before this process claimed it.
	Taken leaseclient.Record
	// Leader is what the volume records of its time as a primary's.
	Leader datavolume.LeaderRecord
	// Request to go on with older data, for this member; nil for none.
	Request *postgresapi.OlderDataRequest
	// PodUID and Boot, the boot ID of the kernel, are of now.
	PodUID, Boot string
	// Continues says that this process has led with this data since it claimed
	// the Lease: nothing on the volume can have been exchanged.
	Continues bool
	// Members are the other members that the cluster declares, as they answered.
	Members []MemberWAL
	// Patient says that members that did not answer are waited for still.
	Patient bool
}

// MemberWAL is how far the WAL of another member goes.
type MemberWAL struct {
	Pod string
	// Known says that it answered, and End what; zero for a volume without data
	// of this database system.
	Known bool
	End   lsn.Point
	// Without is where a primary was that led without what this member holds,
	// which is held for that; zero for none.
	Without lsn.Point
}

// isSettled says whether a volume that goes so far is of a primary that is known to
// have led without what the member holds.
func (m MemberWAL) isSettled(reach lsn.Point) bool {
	return m.Without.Position > 0 && !m.Without.Newer(reach)
}

// FindEnd is where the last complete record on the volume ends.
func (o Observation) FindEnd() lsn.Point {
	if o.End.Position > 0 && !o.Volume.Control.End().Newer(o.End.Point) {
		return o.End.Point
	}
	return o.Volume.Control.End()
}

// findReach is how far what a server called flushed can go on this volume.
func (o Observation) findReach() lsn.Point {
	end := o.FindEnd()
	if end == o.End.Point {
		end.Position = max(end.Position, o.End.Reach)
	}
	return end
}

// isBelowFloor says whether the Lease records more than the volume holds.
func (o Observation) isBelowFloor() bool {
	return !o.Continues && !o.ignoresLease() && readFloor(o.Lease).Newer(o.findReach())
}

// findNewerMember is the member with the newest WAL of those that hold more than
// this volume; nil for none. What was written on a timeline before this one,
// after it was left, does not count: it was discarded.
func (o Observation) findNewerMember() *MemberWAL {
	var newest *MemberWAL
	for i, m := range o.Members {
		if m.Known && !m.isSettled(o.findReach()) && m.End.Newer(o.findReach()) && (newest == nil || m.End.Newer(newest.End)) {
			newest = &o.Members[i]
		}
	}
	return newest
}

// findDivergedMember is one that is held for its data, which goes further than this
// volume's; empty for none.
func (o Observation) findDivergedMember() string {
	for _, m := range o.Members {
		if m.isSettled(o.findReach()) && m.End.Newer(o.findReach()) {
			return m.Pod
		}
	}
	return ""
}

// listUnanswered are the members that have not answered, sorted.
func (o Observation) listUnanswered() []string {
	var names []string
	for _, m := range o.Members {
		if !m.Known {
			names = append(names, m.Pod)
		}
	}
	slices.Sort(names)
	return names
}

// findRequest is the ID of the request to go on with older data that this member has
// not carried out; empty for none.
func (o Observation) findRequest() string {
	switch {
	case o.Request != nil && o.Request.ID != o.Leader.Request:
		return o.Request.ID
	case o.Leader.Pending > 0 && o.Leader.Requested:
		return o.Leader.Request // taken up, and interrupted
	default:
		return ""
	}
}

// IsRecordLost says whether the Lease does not say what a primary on this datavolume.Observation
// has recorded on it: it was deleted, edited, or put back to an earlier state.
func (o Observation) IsRecordLost() bool {
	if o.Leader.Term == 0 || o.ignoresLease() {
		return false
	}
	return readFloor(o.Lease) == lsn.Point{} || o.Lease.Term < o.Leader.Term
}

// isNewest says whether no other member can hold more than this volume: it is as
// a holder of the Lease left it that shut down in order, or as it was recorded
// before it ever ran, or the pod that led starts again under the same kernel.
func (o Observation) isNewest() bool {
	control := o.Volume.Control
	first := o.Leader.Term == 0 && o.Lease.Flushed == "" && control.State == server.StateShutDown &&
		control.Checkpoint == o.Lease.Checkpoint && control.Timeline == o.Lease.Timeline
	inOrder := o.Taken.ShutdownPosition != "" && control.State == server.StateShutDown &&
		control.Checkpoint == o.Taken.ShutdownPosition && control.Timeline == o.Taken.Timeline
	same := o.Taken.Flushed != "" && o.Taken.HolderUID == o.PodUID && o.Taken.Boot != "" && o.Taken.Boot == o.Boot
	return o.Continues || first || inOrder || same
}

// readFloor is the least that the data of a primary must hold: what a holder of the
// Lease had on its disk at a renewal, a checkpoint or a shutdown in order.
func readFloor(r leaseclient.Record) lsn.Point {
	var most lsn.Point
	for _, position := range []string{r.Checkpoint, r.ShutdownPosition, r.Flushed} {
		if recorded := lsn.Parse(r.Timeline, position); recorded.Newer(most) {
			most = recorded
		}
	}
	return most
}

// ChooseTimeline is higher than any that was reserved, or that any member's data is
// on, as far as it is known here.
func ChooseTimeline(o Observation, histories map[uint32]wal.History) int64 {
	highest := max(1, o.Lease.Timeline, o.Lease.Reserved, o.Leader.Reserved, o.Leader.Pending,
		o.Volume.Control.Timeline, o.Volume.Control.RecoveryTimeline, o.End.Timeline)
	for _, m := range o.Members {
		highest = max(highest, m.End.Timeline)
	}
	for timeline := range histories {
		highest = max(highest, int64(timeline))
	}
	return highest + 1
}
