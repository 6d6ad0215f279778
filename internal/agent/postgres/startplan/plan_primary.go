package startplan

import (
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// holdStale holds data that is older than what another place holds.
func (o Observation) holdStale(who string, goes lsn.Point) Plan {
	return Plan{Action: ActHold, Hold: agentapi.HoldDataStale, Message: fmt.Sprintf(
		"the data on this volume goes to %s, and %s %s: an older volume is in its place. Bring the newer one back; or, to discard what was written since and go on with this data on a new timeline, annotate the PostgresCluster with %s=<an ID that was not used before>",
		o.findReach(), who, goes, v1alpha1.AnnotationContinueWithOlderData)}
}

// planPrimary is for ordinal 0, the primary of this version.
func planPrimary(o Observation) Plan { //nolint:gocyclo // an ordered switch: first match wins
	empty := o.Volume.Content == datavolume.ContentEmpty
	switch {
	case empty && findBootstrapped(o) != "":
		return Plan{Action: ActHold, Hold: agentapi.HoldDataMissing, Message: fmt.Sprintf(
			"the volume is empty, but the database system %s was bootstrapped in this cluster: bring the volume back, or create a cluster of another name; only when its data is not needed any more: delete the cluster and every one of its volumes, and create it again", findBootstrapped(o))}
	case o.Volume.Standby, o.Volume.Recovering && o.Leader.Pending == 0:
		return Plan{Action: ActHold, Hold: agentapi.HoldDataUnknown, Message: "the data directory is a standby's, and this member must be the primary: its data may be older than the cluster's"}
	case !empty && o.isBelowFloor() && o.findRequest() == "":
		return o.holdStale("the primary of this cluster has recorded", readFloor(o.Lease))
	case o.Lease.Claim == leaseclient.ClaimUnknown:
		return Plan{Action: ActWait, Message: "waits for the API server: the Lease cannot be read"}
	case !o.Config.Known:
		return Plan{Action: ActWait, Message: "waits for the cluster's configuration"}
	case o.Lease.Claim == leaseclient.ClaimHeld:
		return Plan{Action: ActWait, Message: "waits for the Lease, which may still be held by " + describeHolder(o.Lease)}
	case o.Lease.Claim != leaseclient.ClaimMine:
		return Plan{Action: ActClaim, Message: "claims the Lease"}
	case empty && o.Lease.SystemIdentifier != "":
		// The claim was made before the cluster's freshness was known.
		return Plan{Action: ActClaim, Message: "claims the Lease that an earlier cluster left behind"}
	case empty:
		return Plan{Action: ActBootstrap, Message: "creates the database system"}
	case o.Lease.SystemIdentifier == "":
		return Plan{Action: ActRecord, Message: "records the database system on the Lease"}
	default:
		return planTimeline(o)
	}
}

// planTimeline is for a holder of the Lease whose data may lead: on which
// timeline it does. The same is gone on with only where no other member can
// hold more of it.
func planTimeline(o Observation) Plan {
	begin := func(request, reason string) Plan {
		return Plan{Action: ActStartPrimary, NewTimeline: true, Request: request, Message: "starts as the primary on a new timeline: " + reason}
	}
	newer, unasked, request := o.findNewerMember(), o.listUnanswered(), o.findRequest()
	switch {
	case newer != nil && request == "":
		return o.holdStale("that of member "+newer.Pod+" goes to", newer.End)
	case request != "" && (newer != nil || o.isBelowFloor()):
		return begin(request, "goes on with older data, as requested")
	case len(unasked) > 0 && o.Patient && !o.isNewest():
		return Plan{Action: ActWait, Message: "asks how far the data of " + strings.Join(unasked, ", ") + " goes"}
	case o.Leader.Pending > 0:
		return begin("", fmt.Sprintf("the promotion to timeline %d was interrupted", o.Leader.Pending))
	case o.IsRecordLost():
		return begin("", "the Lease does not say any more how far the data went")
	case len(unasked) > 0 && !o.isNewest():
		return begin("", strings.Join(unasked, ", ")+" did not answer, and may hold more")
	case o.findDivergedMember() != "" && !o.isNewest():
		return begin("", o.findDivergedMember()+" is held, and its data goes further on this one")
	default:
		return Plan{Action: ActStartPrimary, Message: "starts as the primary"}
	}
}

// MayArchive says whether this member's WAL is its own to archive, or to discard.
func (o Observation) MayArchive() bool {
	return o.Volume.Standby || o.Ordinal == 0 && o.Lease.Claim != leaseclient.ClaimHeld && o.Lease.Claim != leaseclient.ClaimUnknown
}
