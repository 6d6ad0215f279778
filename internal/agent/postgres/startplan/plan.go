package startplan

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Observation is what the start of the database is decided from.
type Observation struct {
	// Ordinal of this member, and BinaryMajor, the major version of the programs.
	Ordinal, BinaryMajor int
	Volume               datavolume.Observation
	Config               Config

	// End is how far the WAL on the volume goes; zero while it is not known.
	End lsn.Extent
	// MissingWAL is the record that a start needs and the WAL lacks; empty for
	// none. Namespace and Pod of this member are for what is said of it.
	MissingWAL, Namespace, Pod string

	// Lease as it was read, and what else concerns the primary only.
	Lease leaseclient.Record
	Leading

	// Primary is another member that says that it is the primary.
	Primary leaderview.Primary

	// DivergedMark is the mark that the data holds what the primary does not.
	DivergedMark *datavolume.DivergedMark

	// CopyAgain says that the data was found unable to follow the primary, and
	// Contained that it was compared just now, and holds nothing more.
	CopyAgain, Contained bool
	// CopyFilled says that the last copy filled the volume.
	CopyFilled bool
}

// Config is what the cluster's configuration says.
type Config struct {
	// Known says that it was read; all else is zero without it.
	Known            bool
	SystemIdentifier string
	// Cluster is the UID of the cluster's object, and Fresh says that nothing
	// is there from before it.
	Cluster string
	Fresh   bool
}

// Action is the next thing to do.
type Action int

// What a member may do next.
const (
	// ActWait waits for something that the message names.
	ActWait Action = iota
	// ActHold holds the data, for a person.
	ActHold
	// ActClaim claims the Lease.
	ActClaim
	// ActBootstrap initialises the database system.
	ActBootstrap
	// ActRecord writes the system identifier on the Lease.
	ActRecord
	// ActClone copies the primary's data.
	ActClone
	// ActCopyAgain replaces data that can no longer follow by a copy of the
	// primary's.
	ActCopyAgain
	// ActMarkStandby makes a former primary's data a standby's.
	ActMarkStandby
	// ActStartPrimary and ActStartStandby start the database.
	ActStartPrimary
	ActStartStandby
)

// Plan is an action and its reason.
type Plan struct {
	Action  Action
	Hold    agentapi.Hold
	Message string
	// DiskSpace is what must be free on the volume before HoldVolumeFull ends.
	DiskSpace int64
	// NewTimeline has ActStartPrimary begin a timeline, which Request asked for
	// where it is not empty.
	NewTimeline bool
	Request     string
}

// PlanNext says what to do before the database runs. The order is the priority:
// what forbids a start comes before what allows it.
func PlanNext(o Observation) Plan {
	if p, held := holdVolume(o); held {
		return p
	}
	switch {
	case o.Ordinal == 0 && o.MissingWAL != "":
		return holdMissingWAL(o)
	case o.Ordinal == 0:
		return planPrimary(o)
	default:
		return planReplica(o)
	}
}

// holdMissingWAL holds data whose WAL lacks what a start needs.
func holdMissingWAL(o Observation) Plan {
	return Plan{Action: ActHold, Hold: agentapi.HoldWALMissing, Message: missingWALMessage(o)}
}

// missingWALMessage says what to do about data whose WAL does not hold what a
// start needs.
func missingWALMessage(o Observation) string {
	found := fmt.Sprintf("pg_control of member %s is newer than its WAL: pg_wal does not hold %s. Nothing is started, deleted or overwritten. "+
		"Check whether files of pg_wal were deleted or truncated, or came from an older copy of the volume, and put the WAL of this data back into %s/pg_wal", o.Pod, o.MissingWAL, datavolume.DataName)
	if o.Ordinal == 0 {
		return found + ". If it is lost, dump what a replica still has, or restore a backup: create a PostgresCluster of another name with spec.restore"
	}
	return found + fmt.Sprintf(". If it is lost and the primary serves with all its rows, delete this volume so that the member is cloned again: kubectl delete pvc data-%s -n %s --wait=false, then kubectl delete pod %s -n %s. If the primary is lost too, restore a backup: create a PostgresCluster of another name with spec.restore", o.Pod, o.Namespace, o.Pod, o.Namespace)
}

// holdVolume judges what any member's volume forbids.
func holdVolume(o Observation) (Plan, bool) {
	v := o.Volume
	hold := func(h agentapi.Hold, format string, args ...any) (Plan, bool) {
		return Plan{Action: ActHold, Hold: h, Message: fmt.Sprintf(format, args...)}, true
	}
	switch {
	case v.Content == datavolume.ContentUnknown:
		return hold(agentapi.HoldDataUnknown, "the volume holds files that are no data directory (%s): move them away, or give this member an empty volume", v.Unknown)
	case v.Content == datavolume.ContentData && v.Major != o.BinaryMajor:
		return hold(agentapi.HoldDataVersion, "the data directory is of PostgreSQL %d and the image holds PostgreSQL %d: set spec.version to \"%d\", and where spec.image names an image, let that hold PostgreSQL %d", v.Major, o.BinaryMajor, v.Major, v.Major)
	case v.Content == datavolume.ContentData && isForeign(v.Control.SystemIdentifier, o):
		return hold(agentapi.HoldSystemIdentifier, "the volume holds the database system %s, and this cluster's is %s: the volume belongs to another cluster", v.Control.SystemIdentifier, findBootstrapped(o))
	case dataspace.IsFull(v.Space) && v.ArchiveWaits:
		return Plan{Action: ActHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.MinimumFree, Message: "the volume is full, and WAL that waits for the store of spec.backup.destination takes part of it: make the store take WAL again, or set spec.storage.size to more; what the store does not take is discarded where that frees disk space"}, true
	case dataspace.IsFull(v.Space):
		return Plan{Action: ActHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.MinimumFree, Message: "the volume is full: set spec.storage.size to more"}, true
	}
	return Plan{}, false
}

// findBootstrapped is the identifier of the cluster's database system, by any of
// the records of it; empty while none of them names a bootstrap.
func findBootstrapped(o Observation) string {
	for _, id := range []string{o.Config.SystemIdentifier, o.readLeaseSystem(), o.Primary.SystemIdentifier} {
		if id != "" {
			return id
		}
	}
	return ""
}

// IsLeaseLeftBehind says whether the Lease is that of an earlier cluster of the name,
// of whose data nothing is there: neither here nor on any other volume. Data
// is not judged so, for it may be that cluster's, unless it was restored for
// this one.
func (o Observation) IsLeaseLeftBehind() bool {
	switch other := o.Config.Known && o.Lease.Cluster != "" && o.Lease.Cluster != o.Config.Cluster; o.Volume.Content {
	case datavolume.ContentEmpty:
		return other && o.Config.Fresh && o.Config.SystemIdentifier == ""
	case datavolume.ContentData:
		return other && o.Volume.RestoredFor == o.Config.Cluster
	default:
		return false
	}
}

// ignoresLease says whether the Lease says nothing of this data: it is another
// cluster's, or may turn out to be.
func (o Observation) ignoresLease() bool {
	return o.IsLeaseLeftBehind() || !o.Config.Known && o.Volume.RestoredFor != ""
}

// readLeaseSystem is the database system by the Lease, where that counts.
func (o Observation) readLeaseSystem() string {
	if o.ignoresLease() {
		return ""
	}
	return o.Lease.SystemIdentifier
}

// isForeign says whether any record names another database system.
func isForeign(id string, o Observation) bool {
	for _, recorded := range []string{o.Config.SystemIdentifier, o.readLeaseSystem(), o.Primary.SystemIdentifier} {
		if recorded != "" && recorded != id {
			return true
		}
	}
	return false
}

func describeHolder(r leaseclient.Record) string {
	if r.HolderPod != "" {
		return "an earlier pod " + r.HolderPod
	}
	return "an unknown pod"
}

// wantsCopy says whether the volume's content is to be the primary's data.
func (o Observation) wantsCopy() bool {
	return o.Volume.Content == datavolume.ContentEmpty || o.CopyAgain && o.Contained && o.Primary.Known && o.Primary.SystemIdentifier == o.Volume.Control.SystemIdentifier
}

// planReplica is for every other ordinal. It needs no Lease: nothing that it
// does makes a second primary.
func planReplica(o Observation) Plan { //nolint:gocyclo // an ordered switch: first match wins
	own := o.FindEnd()
	switch {
	case o.Volume.Content == datavolume.ContentData && o.DivergedMark != nil:
		return Plan{Action: ActHold, Hold: agentapi.HoldDataDiverged, Message: o.DivergedMark.DescribeHold()}
	case o.Volume.Content == datavolume.ContentData && o.Primary.Known && lsn.IsAhead(own, o.Primary.End):
		return Plan{Action: ActHold, Hold: agentapi.HoldDataDiverged, Message: datavolume.DivergedMark{Own: own, Primary: o.Primary.End}.DescribeHold()}
	case o.MissingWAL != "" && !o.wantsCopy():
		return holdMissingWAL(o)
	case o.Volume.Content == datavolume.ContentEmpty && !o.Primary.Known:
		return Plan{Action: ActWait, Message: "waits for a primary to copy from"}
	case o.Volume.Content == datavolume.ContentEmpty && isForeign(o.Primary.SystemIdentifier, o):
		return Plan{Action: ActWait, Message: "waits for a primary of this cluster's database system"}
	case o.wantsCopy() && !dataspace.CopyFits(o.Volume.Space, o.Primary.DataSize):
		return Plan{Action: ActHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.RoundUp(dataspace.SpaceForCopy(o.Primary.DataSize)), Message: dataspace.DescribeMissing(o.Volume.Space, o.Primary.Pod, o.Primary.DataSize)}
	case o.wantsCopy() && o.CopyFilled:
		return Plan{Action: ActHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.SpaceAfterFilled(o.Volume.Space), Message: "the volume filled up while the primary's data was copied: set spec.storage.size to more; until then it is tried again now and then"}
	case o.Volume.Content == datavolume.ContentEmpty:
		return Plan{Action: ActClone, Message: "copies the primary's data"}
	case o.wantsCopy():
		return Plan{Action: ActCopyAgain, Message: "copies the primary's data again"}
	case !o.Config.Known:
		return Plan{Action: ActWait, Message: "waits for the cluster's configuration"}
	case !o.Volume.Standby:
		return Plan{Action: ActMarkStandby, Message: "makes a former primary's data a standby's"}
	default:
		return Plan{Action: ActStartStandby, Message: "starts as a replica"}
	}
}
