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
	// Leader is what the volume records of its time as a primary's.
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

// isSettled says whether a volume that goes so far is of a primary that is known to
// have led without what the member holds.
func (m memberWAL) isSettled(reach lsn.Point) bool {
	return m.Without.Position > 0 && !m.Without.Newer(reach)
}

// findEnd is where the last complete record on the volume ends.
func (o observation) findEnd() lsn.Point {
	if o.End.Position > 0 && !o.Volume.Control.End().Newer(o.End.Point) {
		return o.End.Point
	}
	return o.Volume.Control.End()
}

// findReach is how far what a server called flushed can go on this volume.
func (o observation) findReach() lsn.Point {
	end := o.findEnd()
	if end == o.End.Point {
		end.Position = max(end.Position, o.End.Reach)
	}
	return end
}

// isBelowFloor says whether the Lease records more than the volume holds.
func (o observation) isBelowFloor() bool {
	return !o.Continues && !o.ignoresLease() && readFloor(o.Lease).Newer(o.findReach())
}

// findNewerMember is the member with the newest WAL of those that hold more than
// this volume; nil for none. What was written on a timeline before this one,
// after it was left, does not count: it was discarded.
func (o observation) findNewerMember() *memberWAL {
	var newest *memberWAL
	for i, m := range o.Members {
		if m.Known && !m.isSettled(o.findReach()) && m.End.Newer(o.findReach()) && (newest == nil || m.End.Newer(newest.End)) {
			newest = &o.Members[i]
		}
	}
	return newest
}

// findDivergedMember is one that is held for its data, which goes further than this
// volume's; empty for none.
func (o observation) findDivergedMember() string {
	for _, m := range o.Members {
		if m.isSettled(o.findReach()) && m.End.Newer(o.findReach()) {
			return m.Pod
		}
	}
	return ""
}

// listUnanswered are the members that have not answered, sorted.
func (o observation) listUnanswered() []string {
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
func (o observation) findRequest() string {
	switch {
	case o.Request != nil && o.Request.ID != o.Leader.Request:
		return o.Request.ID
	case o.Leader.Pending > 0 && o.Leader.Requested:
		return o.Leader.Request // taken up, and interrupted
	default:
		return ""
	}
}

// isRecordLost says whether the Lease does not say what a primary on this volume
// has recorded on it: it was deleted, edited, or put back to an earlier state.
func (o observation) isRecordLost() bool {
	if o.Leader.Term == 0 || o.ignoresLease() {
		return false
	}
	return readFloor(o.Lease) == lsn.Point{} || o.Lease.Term < o.Leader.Term
}

// isNewest says whether no other member can hold more than this volume: it is as
// a holder of the Lease left it that shut down in order, or as it was recorded
// before it ever ran, or the pod that led starts again under the same kernel.
func (o observation) isNewest() bool {
	control := o.Volume.Control
	first := o.Leader.Term == 0 && o.Lease.Flushed == "" && control.State == server.StateShutDown &&
		control.Checkpoint == o.Lease.Checkpoint && control.Timeline == o.Lease.Timeline
	inOrder := o.Taken.ShutdownPosition != "" && control.State == server.StateShutDown &&
		control.Checkpoint == o.Taken.ShutdownPosition && control.Timeline == o.Taken.Timeline
	same := o.Taken.Flushed != "" && o.Taken.HolderUID == o.PodUID && o.Taken.Boot != "" && o.Taken.Boot == o.Boot
	return o.Continues || first || inOrder || same
}

// holdStale holds data that is older than what another place holds.
func (o observation) holdStale(who string, goes lsn.Point) plan {
	return plan{Action: actHold, Hold: agentapi.HoldDataStale, Message: fmt.Sprintf(
		"the data on this volume goes to %s, and %s %s: an older volume is in its place. Bring the newer one back; or, to discard what was written since and go on with this data on a new timeline, annotate the PostgresCluster with %s=<an ID that was not used before>",
		o.findReach(), who, goes, v1alpha1.AnnotationContinueWithOlderData)}
}

// planPrimary is for ordinal 0, the primary of this version.
func planPrimary(o observation) plan { //nolint:gocyclo // an ordered switch: first match wins
	empty := o.Volume.Content == contentEmpty
	switch {
	case empty && findBootstrapped(o) != "":
		return plan{Action: actHold, Hold: agentapi.HoldDataMissing, Message: fmt.Sprintf(
			"the volume is empty, but the database system %s was bootstrapped in this cluster: bring the volume back, or create a cluster of another name; only when its data is not needed any more: delete the cluster and every one of its volumes, and create it again", findBootstrapped(o))}
	case o.Volume.Standby, o.Volume.Recovering && o.Leader.Pending == 0:
		return plan{Action: actHold, Hold: agentapi.HoldDataUnknown, Message: "the data directory is a standby's, and this member must be the primary: its data may be older than the cluster's"}
	case !empty && o.isBelowFloor() && o.findRequest() == "":
		return o.holdStale("the primary of this cluster has recorded", readFloor(o.Lease))
	case o.Lease.Claim == leaseclient.ClaimUnknown:
		return plan{Action: actWait, Message: "waits for the API server: the Lease cannot be read"}
	case !o.ConfigKnown:
		return plan{Action: actWait, Message: "waits for the cluster's configuration"}
	case o.Lease.Claim == leaseclient.ClaimHeld:
		return plan{Action: actWait, Message: "waits for the Lease, which may still be held by " + describeHolder(o.Lease)}
	case o.Lease.Claim != leaseclient.ClaimMine:
		return plan{Action: actClaim, Message: "claims the Lease"}
	case empty && o.Lease.SystemIdentifier != "":
		// The claim was made before the cluster's freshness was known.
		return plan{Action: actClaim, Message: "claims the Lease that an earlier cluster left behind"}
	case empty:
		return plan{Action: actBootstrap, Message: "creates the database system"}
	case o.Lease.SystemIdentifier == "":
		return plan{Action: actRecord, Message: "records the database system on the Lease"}
	default:
		return planTimeline(o)
	}
}

// planTimeline is for a holder of the Lease whose data may lead: on which
// timeline it does. The same is gone on with only where no other member can
// hold more of it.
func planTimeline(o observation) plan {
	begin := func(request, reason string) plan {
		return plan{Action: actStartPrimary, NewTimeline: true, Request: request, Message: "starts as the primary on a new timeline: " + reason}
	}
	newer, unasked, request := o.findNewerMember(), o.listUnanswered(), o.findRequest()
	switch {
	case newer != nil && request == "":
		return o.holdStale("that of member "+newer.Pod+" goes to", newer.End)
	case request != "" && (newer != nil || o.isBelowFloor()):
		return begin(request, "goes on with older data, as requested")
	case len(unasked) > 0 && o.Patient && !o.isNewest():
		return plan{Action: actWait, Message: "asks how far the data of " + strings.Join(unasked, ", ") + " goes"}
	case o.Leader.Pending > 0:
		return begin("", fmt.Sprintf("the promotion to timeline %d was interrupted", o.Leader.Pending))
	case o.isRecordLost():
		return begin("", "the Lease does not say any more how far the data went")
	case len(unasked) > 0 && !o.isNewest():
		return begin("", strings.Join(unasked, ", ")+" did not answer, and may hold more")
	case o.findDivergedMember() != "" && !o.isNewest():
		return begin("", o.findDivergedMember()+" is held, and its data goes further on this one")
	default:
		return plan{Action: actStartPrimary, Message: "starts as the primary"}
	}
}

// describeStopped is what the archiver needs to know of this data.
func (o observation) describeStopped() archive.StoppedDatabase {
	return archive.StoppedDatabase{Control: o.Volume.Control, Promoting: o.Leader.Pending > 0, Primary: !o.Volume.Standby, MayArchive: o.mayArchive()}
}

// mayArchive says whether this member's WAL is its own to archive, or to discard.
func (o observation) mayArchive() bool {
	return o.Volume.Standby || o.Ordinal == 0 && o.Lease.Claim != leaseclient.ClaimHeld && o.Lease.Claim != leaseclient.ClaimUnknown
}
