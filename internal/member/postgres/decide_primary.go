package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// leading are the facts that only a primary's start is decided from.
type leading struct {
	// Taken is the Lease as it was before this process claimed it.
	Taken member.Record
	// Leader is what the volume has on record of its time as a primary's.
	Leader leaderRecord
	// Request to go on with older data, for this member; nil for none.
	Request *memberapi.OlderDataRequest
	// PodUID and Boot, the boot ID of the kernel, are of now.
	PodUID, Boot string
	// Continues says that this process has led with this data since it claimed
	// the Lease: nothing on the volume can have been exchanged.
	Continues bool
	// Members are the other members that the cluster declares, as they answered.
	Members []memberWAL
	// Patient says that members that did not answer are waited for still.
	Patient bool
}

// memberWAL is how far the WAL of another member goes.
type memberWAL struct {
	Pod string
	// Known says that it answered, and End what; zero for a volume without data
	// of this database system.
	Known bool
	End   point
}

// extent is how far the WAL on a volume goes. The complete records end at point;
// pages that hold a part of one more end at Reach.
type extent struct {
	point
	Reach uint64
}

// end is where the last complete record on the volume ends.
func (f facts) end() point {
	if f.End.Position > 0 && !f.Volume.Control.end().newer(f.End.point) {
		return f.End.point
	}
	return f.Volume.Control.end()
}

// reach is how far what a server called flushed can go on this volume.
func (f facts) reach() point {
	end := f.end()
	if end == f.End.point {
		end.Position = max(end.Position, f.End.Reach)
	}
	return end
}

// belowFloor says whether the Lease records more than the volume holds.
func (f facts) belowFloor() bool {
	return !f.Continues && !f.pastLease() && floor(f.Lease).newer(f.reach())
}

// newerMember is the member with the newest WAL of those that hold more than
// this volume; nil for none. What was written on a timeline before this one,
// after it was left, does not count: it was given up.
func (f facts) newerMember() *memberWAL {
	var newest *memberWAL
	for i, m := range f.Members {
		if m.Known && m.End.newer(f.reach()) && (newest == nil || m.End.newer(newest.End)) {
			newest = &f.Members[i]
		}
	}
	return newest
}

// unasked are the members that have not answered, sorted.
func (f facts) unasked() []string {
	var names []string
	for _, m := range f.Members {
		if !m.Known {
			names = append(names, m.Pod)
		}
	}
	slices.Sort(names)
	return names
}

// request is the ID of the request to go on with older data that this member has
// not carried out; empty for none.
func (f facts) request() string {
	switch {
	case f.Request != nil && (f.Request.ID != f.Leader.Request || f.Leader.Pending > 0):
		return f.Request.ID
	case f.Leader.Pending > 0 && f.Leader.Requested:
		return f.Leader.Request // taken up, and interrupted
	default:
		return ""
	}
}

// recordLost says whether the Lease does not say what a primary on this volume
// has recorded on it: it was deleted, edited, or put back to an earlier state.
func (f facts) recordLost() bool {
	if f.Leader.Term == 0 || f.pastLease() {
		return false
	}
	return floor(f.Lease) == point{} || f.Lease.Term < f.Leader.Term
}

// newest says whether no other member can hold more than this volume: it is as
// a holder of the Lease left it that shut down in order, or as it was recorded
// before it ever ran, or the pod that led starts again under the same kernel.
func (f facts) newest() bool {
	control := f.Volume.Control
	first := f.Leader.Term == 0 && f.Lease.Flushed == "" && control.State == stateShutDown &&
		control.Checkpoint == f.Lease.Checkpoint && control.Timeline == f.Lease.Timeline
	inOrder := f.Taken.ShutdownPosition != "" && control.State == stateShutDown &&
		control.Checkpoint == f.Taken.ShutdownPosition && control.Timeline == f.Taken.Timeline
	same := f.Taken.Flushed != "" && f.Taken.HolderUID == f.PodUID && f.Taken.Boot != "" && f.Taken.Boot == f.Boot
	return f.Continues || first || inOrder || same
}

// stateShutDown is pg_control's word for a shutdown in order.
const stateShutDown = "shut down"

// holdBehind holds data that is older than what another place holds.
func (f facts) holdBehind(who string, goes point) decision {
	return decision{Action: actHold, Hold: memberapi.HoldDataBehind, Message: fmt.Sprintf(
		"the data on this volume goes to %s, and %s %s: an older volume is in its place. Bring the newer one back; or, to give up what was written since and go on with this data on a new timeline, annotate the PostgresCluster with %s=<an ID that was not used before>",
		f.reach(), who, goes, v1alpha1.AnnotationContinueWithOlderData)}
}

// decidePrimary is for ordinal 0, the primary of this version.
func decidePrimary(f facts) decision { //nolint:gocyclo // an ordered switch: first match wins
	empty := f.Volume.Content == contentEmpty
	switch {
	case empty && born(f) != "":
		return decision{Action: actHold, Hold: memberapi.HoldDataMissing, Message: fmt.Sprintf(
			"the volume is empty, but the database system %s was born in this cluster: bring the volume back, or create a cluster of another name; only when its data is to be given up for good: delete the cluster and every one of its volumes, and create it again", born(f))}
	case f.Volume.Standby, f.Volume.Recovering && f.Leader.Pending == 0:
		return decision{Action: actHold, Hold: memberapi.HoldDataUnknown, Message: "the data directory is a standby's, and this member must be the primary: its data may be older than the cluster's"}
	case !empty && f.belowFloor() && f.request() == "":
		return f.holdBehind("the primary of this cluster has recorded", floor(f.Lease))
	case f.Lease.Claim == member.ClaimUnknown:
		return decision{Action: actWait, Message: "waits for the API server: the Lease cannot be read"}
	case !f.ConfigKnown:
		return decision{Action: actWait, Message: "waits for the cluster's configuration"}
	case f.Lease.Claim == member.ClaimHeld:
		return decision{Action: actWait, Message: "waits for the Lease, which may still be held by " + holder(f.Lease)}
	case f.Lease.Claim != member.ClaimMine:
		return decision{Action: actClaim, Message: "claims the Lease"}
	case empty && f.Lease.SystemIdentifier != "":
		// The claim was made before the cluster's freshness was known.
		return decision{Action: actClaim, Message: "claims the Lease that an earlier cluster left behind"}
	case empty:
		return decision{Action: actBirth, Message: "creates the database system"}
	case f.Lease.SystemIdentifier == "":
		return decision{Action: actRecord, Message: "records the database system on the Lease"}
	default:
		return decideTimeline(f)
	}
}

// decideTimeline is for a holder of the Lease whose data may lead: on which
// timeline it does. The same is gone on with only where no other member can
// hold more of it.
func decideTimeline(f facts) decision {
	begin := func(request, reason string) decision {
		return decision{Action: actStartPrimary, NewTimeline: true, Request: request, Message: "starts as the primary on a new timeline: " + reason}
	}
	newer, unasked, request := f.newerMember(), f.unasked(), f.request()
	switch {
	case newer != nil && request == "":
		return f.holdBehind("that of member "+newer.Pod+" goes to", newer.End)
	case request != "" && (newer != nil || f.belowFloor()):
		return begin(request, "goes on with older data, as requested")
	case len(unasked) > 0 && f.Patient && !f.newest():
		return decision{Action: actWait, Message: "asks how far the data of " + strings.Join(unasked, ", ") + " goes"}
	case f.Leader.Pending > 0:
		return begin("", fmt.Sprintf("the promotion to timeline %d was interrupted", f.Leader.Pending))
	case f.recordLost():
		return begin("", "the Lease does not say any more how far the data went")
	case len(unasked) > 0 && !f.newest():
		return begin("", strings.Join(unasked, ", ")+" did not answer, and may hold more")
	default:
		return decision{Action: actStartPrimary, Message: "starts as the primary"}
	}
}
