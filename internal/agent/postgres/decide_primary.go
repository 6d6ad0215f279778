package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// leading are the facts that only a primary's start is decided from.
type leading struct {
	// Taken is the Lease as it was before this process claimed it.
	Taken leaseclient.Record
	// Leader is what the volume has on record of its time as a primary's.
	Leader leaderRecord
	// Request to go on with older data, for this member; nil for none.
	Request *postgresapi.OlderDataRequest
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
	End   lsn.Point
	// Without is where a primary was that led without what this member holds,
	// which is held for that; zero for none.
	Without lsn.Point
}

// settled says whether a volume that goes so far is of a primary that is known to
// have led without what the member holds.
func (m memberWAL) settled(reach lsn.Point) bool {
	return m.Without.Position > 0 && !m.Without.Newer(reach)
}

// end is where the last complete record on the volume ends.
func (f facts) end() lsn.Point {
	if f.End.Position > 0 && !f.Volume.Control.End().Newer(f.End.Point) {
		return f.End.Point
	}
	return f.Volume.Control.End()
}

// reach is how far what a server called flushed can go on this volume.
func (f facts) reach() lsn.Point {
	end := f.end()
	if end == f.End.Point {
		end.Position = max(end.Position, f.End.Reach)
	}
	return end
}

// belowFloor says whether the Lease records more than the volume holds.
func (f facts) belowFloor() bool {
	return !f.Continues && !f.pastLease() && floor(f.Lease).Newer(f.reach())
}

// newerMember is the member with the newest WAL of those that hold more than
// this volume; nil for none. What was written on a timeline before this one,
// after it was left, does not count: it was given up.
func (f facts) newerMember() *memberWAL {
	var newest *memberWAL
	for i, m := range f.Members {
		if m.Known && !m.settled(f.reach()) && m.End.Newer(f.reach()) && (newest == nil || m.End.Newer(newest.End)) {
			newest = &f.Members[i]
		}
	}
	return newest
}

// divergedMember is one that is held for its data, which goes further than this
// volume's; empty for none.
func (f facts) divergedMember() string {
	for _, m := range f.Members {
		if m.settled(f.reach()) && m.End.Newer(f.reach()) {
			return m.Pod
		}
	}
	return ""
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
	case f.Request != nil && f.Request.ID != f.Leader.Request:
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
	return floor(f.Lease) == lsn.Point{} || f.Lease.Term < f.Leader.Term
}

// newest says whether no other member can hold more than this volume: it is as
// a holder of the Lease left it that shut down in order, or as it was recorded
// before it ever ran, or the pod that led starts again under the same kernel.
func (f facts) newest() bool {
	control := f.Volume.Control
	first := f.Leader.Term == 0 && f.Lease.Flushed == "" && control.State == server.StateShutDown &&
		control.Checkpoint == f.Lease.Checkpoint && control.Timeline == f.Lease.Timeline
	inOrder := f.Taken.ShutdownPosition != "" && control.State == server.StateShutDown &&
		control.Checkpoint == f.Taken.ShutdownPosition && control.Timeline == f.Taken.Timeline
	same := f.Taken.Flushed != "" && f.Taken.HolderUID == f.PodUID && f.Taken.Boot != "" && f.Taken.Boot == f.Boot
	return f.Continues || first || inOrder || same
}

// holdBehind holds data that is older than what another place holds.
func (f facts) holdBehind(who string, goes lsn.Point) decision {
	return decision{Action: actHold, Hold: agentapi.HoldDataStale, Message: fmt.Sprintf(
		"the data on this volume goes to %s, and %s %s: an older volume is in its place. Bring the newer one back; or, to give up what was written since and go on with this data on a new timeline, annotate the PostgresCluster with %s=<an ID that was not used before>",
		f.reach(), who, goes, v1alpha1.AnnotationContinueWithOlderData)}
}

// decidePrimary is for ordinal 0, the primary of this version.
func decidePrimary(f facts) decision { //nolint:gocyclo // an ordered switch: first match wins
	empty := f.Volume.Content == contentEmpty
	switch {
	case empty && born(f) != "":
		return decision{Action: actHold, Hold: agentapi.HoldDataMissing, Message: fmt.Sprintf(
			"the volume is empty, but the database system %s was bootstrapped in this cluster: bring the volume back, or create a cluster of another name; only when its data is to be given up for good: delete the cluster and every one of its volumes, and create it again", born(f))}
	case f.Volume.Standby, f.Volume.Recovering && f.Leader.Pending == 0:
		return decision{Action: actHold, Hold: agentapi.HoldDataUnknown, Message: "the data directory is a standby's, and this member must be the primary: its data may be older than the cluster's"}
	case !empty && f.belowFloor() && f.request() == "":
		return f.holdBehind("the primary of this cluster has recorded", floor(f.Lease))
	case f.Lease.Claim == leaseclient.ClaimUnknown:
		return decision{Action: actWait, Message: "waits for the API server: the Lease cannot be read"}
	case !f.ConfigKnown:
		return decision{Action: actWait, Message: "waits for the cluster's configuration"}
	case f.Lease.Claim == leaseclient.ClaimHeld:
		return decision{Action: actWait, Message: "waits for the Lease, which may still be held by " + holder(f.Lease)}
	case f.Lease.Claim != leaseclient.ClaimMine:
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
	case f.divergedMember() != "" && !f.newest():
		return begin("", f.divergedMember()+" is held, and its data goes further on this one")
	default:
		return decision{Action: actStartPrimary, Message: "starts as the primary"}
	}
}

// stopped is what the archiver needs to know of this data.
func (f facts) stopped() archive.StoppedDatabase {
	return archive.StoppedDatabase{Control: f.Volume.Control, Promoting: f.Leader.Pending > 0, Primary: !f.Volume.Standby, MayArchive: f.mayArchive()}
}

// mayArchive says whether this member's WAL is its own to archive, or to give up.
func (f facts) mayArchive() bool {
	return f.Volume.Standby || f.Ordinal == 0 && f.Lease.Claim != leaseclient.ClaimHeld && f.Lease.Claim != leaseclient.ClaimUnknown
}
