package startplan

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Observation is what the start of the database is decided from.
type Observation struct {
	// Bootstrap says that this is the member that creates the database system, and
	// Alone that the cluster declares no other one.
	Bootstrap, Alone bool
	// NoData says that no other member has data, as each of them reported.
	NoData bool
	// BinaryMajor is the major version of the programs.
	BinaryMajor int
	Volume      datavolume.Observation
	Config      Config

	// End is how far the WAL on the volume goes; zero while it is not known.
	End lsn.Extent
	// MissingWAL is the record that a start needs and the WAL lacks; empty for
	// none. Namespace and Pod of this member are for what is said of it.
	MissingWAL, Namespace, Pod string

	// Lease as this member knows it.
	Lease Lease
	// Leads says that this member holds the Lease in a term in which this process had a
	// primary on this data already: the server has crashed.
	Leads bool

	// Primary is another member that says that it is the primary.
	Primary leaderview.Primary

	// DivergedMark is the mark that the data holds what the primary does not.
	DivergedMark *datavolume.DivergedMark
	// Superseded says that the data holds WAL that the leader was elected without, on a
	// timeline that the leader's history has left.
	Superseded bool

	// Rewind is what is known of a rewind of the data.
	Rewind Rewind

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

// LeaseState is what the Lease means to the start of a member.
type LeaseState int

// The states of a Lease.
const (
	// LeaseUnknown: it could not be read.
	LeaseUnknown LeaseState = iota
	// LeaseMissing: there is none.
	LeaseMissing
	// LeaseRecorded: it has a record by which members elect.
	LeaseRecorded
	// LeaseLeftBehind: it is that of an earlier cluster of the name, of whose data
	// nothing is there.
	LeaseLeftBehind
	// LeaseEarlierHeld: an agent of an earlier version holds it, or may hold it still.
	LeaseEarlierHeld
	// LeaseEarlierFree: that agent has released it, or has not renewed it for its
	// duration.
	LeaseEarlierFree
	// LeaseDamaged: it was edited.
	LeaseDamaged
)

// Lease is what is known of the Lease.
type Lease struct {
	State LeaseState
	// SystemIdentifier of the database, and Holder, the pod that held it last.
	SystemIdentifier, Holder string
	// Led says that this volume was in an election already: the first record was made.
	Led bool
}

// Rewind is what is known of a rewind of the data.
type Rewind struct {
	datavolume.RewindProgress
	// Refused is why the data is not rewound, or not again: it is copied. It is empty while
	// nothing speaks against it.
	Refused string
	// DiskSpace is how many bytes have to be free for the WAL that a rewind drops; 0 where
	// that is not known.
	DiskSpace int64
	// Reachable says that the primary's WAL leads through the point at which rewound data
	// is consistent, and Lost that it does not. Neither is true while that is not known.
	Reachable, Lost bool
}

// Action is the next thing to do.
type Action int

// What a member may do next.
const (
	// ActWait waits for something that the message names.
	ActWait Action = iota
	// ActHold holds the data, for a person.
	ActHold
	// ActBootstrap initializes the database system.
	ActBootstrap
	// ActRecord makes the first record of the Lease.
	ActRecord
	// ActClone copies the primary's data.
	ActClone
	// ActCopyAgain replaces data that can no longer follow by a copy of the
	// primary's.
	ActCopyAgain
	// ActRewind rewinds the data to the primary's.
	ActRewind
	// ActStartRewound starts data that was rewound, which receives from the primary until
	// it is consistent.
	ActStartRewound
	// ActContinue starts the database as the primary that it was before it crashed.
	ActContinue
	// ActStartStandby starts the database as a standby. The election decides what
	// becomes of it.
	ActStartStandby
)

// Plan is an action and its reason.
type Plan struct {
	Action  Action
	Hold    agentapi.Hold
	Message string
	// MayVote says that data that is held is whole: its member votes.
	MayVote bool
	// Reason why data that is there is copied, as the end of a message; empty for the
	// reasons that are not those of a rewind.
	Reason string
	// DiskSpace is what must be free on the volume before HoldVolumeFull ends.
	DiskSpace int64
}

// PlanNext says what to do before the database runs. The order is the priority:
// what forbids a start comes before what allows it.
func PlanNext(o Observation) Plan {
	if p, held := holdVolume(o); held {
		return p
	}
	if o.Volume.Content == datavolume.ContentEmpty {
		return planEmpty(o)
	}
	return planData(o)
}

// planData is for a volume with data.
func planData(o Observation) Plan {
	own := o.FindEnd()
	switch {
	case o.Leads && o.MissingWAL == "" && o.Rewind.Stage == datavolume.RewindNone:
		return Plan{Action: ActContinue, Message: "starts again as the primary, whose database has ended"}
	case o.DivergedMark != nil:
		return Plan{Action: ActHold, Hold: agentapi.HoldDataDiverged, Message: o.DivergedMark.DescribeHold()}
	case o.Rewind.Stage != datavolume.RewindNone:
		return planRewound(o)
	case o.Primary.Known && lsn.IsAhead(own, o.Primary.End):
		return Plan{Action: ActHold, Hold: agentapi.HoldDataDiverged, Message: datavolume.DivergedMark{Own: own, Primary: o.Primary.End}.DescribeHold()}
	case o.MissingWAL != "" && !o.wantsCopy():
		return Plan{Action: ActHold, Hold: agentapi.HoldWALMissing, Message: missingWALMessage(o)}
	case o.wantsCopy():
		return planReplacement(o)
	case !o.Config.Known:
		return Plan{Action: ActWait, Message: "waits for the cluster's configuration"}
	case o.needsRecord():
		return planRecord(o)
	default:
		return Plan{Action: ActStartStandby, Message: "starts as a standby"}
	}
}

// planReplacement is for data that cannot follow the primary as it is.
func planReplacement(o Observation) Plan {
	switch {
	case o.Superseded && !o.Config.Known: // that says where WAL is archived
		return Plan{Action: ActWait, Message: "waits for the cluster's configuration"}
	case o.Superseded && o.Rewind.Refused == "" && !o.Volume.Space.Fits(o.Rewind.DiskSpace):
		return Plan{
			Action: ActHold, Hold: agentapi.HoldVolumeFull, MayVote: o.mayVote(), DiskSpace: dataspace.RoundUp(o.Rewind.DiskSpace),
			Message: dataspace.DescribeMissingForRewind(o.Volume.Space, o.Primary.Pod, o.Rewind.DiskSpace),
		}
	case o.Superseded && o.Rewind.Refused == "":
		return Plan{Action: ActRewind, Message: "rewinds the data to the primary's"}
	}
	return planCopy(o, Plan{Action: ActCopyAgain, Message: "copies the primary's data again", Reason: o.Rewind.describeRefusal()})
}

// planRewound is for data whose rewind is not complete: it is never started by itself,
// and nothing of it is measured.
func planRewound(o Observation) Plan {
	copied := Plan{Action: ActCopyAgain, Message: "copies the primary's data again", Reason: o.Rewind.describeRefusal()}
	switch isOurs := o.Primary.Known && o.Primary.SystemIdentifier == o.Volume.Control.SystemIdentifier; {
	case !isOurs && o.Rewind.Stage == datavolume.RewindReplaying:
		return Plan{Action: ActWait, Message: "waits for a primary: the data was rewound, and is consistent once it has received the WAL up to " + o.Rewind.Consistent.String()}
	case !isOurs:
		return Plan{Action: ActWait, Message: "waits for a primary: the rewind of the data was interrupted"}
	case o.Rewind.Refused != "":
		return planCopy(o, copied)
	case o.Rewind.Stage != datavolume.RewindReplaying:
		return Plan{Action: ActRewind, Message: "rewinds the data to the primary's once more"}
	case o.Rewind.Lost:
		copied.Reason = ": the primary to which this member's data was rewound has failed, and what that one wrote up to " + o.Rewind.Consistent.String() + " is lost"
		return planCopy(o, copied)
	case o.Rewind.Reachable:
		return Plan{Action: ActStartRewound, Message: "starts data that was rewound"}
	}
	return Plan{Action: ActWait, Message: "waits for the primary's answer: the data was rewound, and is consistent once it has received the WAL up to " + o.Rewind.Consistent.String()}
}

// describeRefusal is the end of a message that says why a copy is made.
func (r Rewind) describeRefusal() string {
	if r.Refused == "" {
		return ""
	}
	return ": this member's data cannot be rewound: " + r.Refused
}

// needsRecord reports whether this member has to make the first record of the Lease.
// Of a volume that was in an election, the Lease was lost: that elects no member.
func (o Observation) needsRecord() bool {
	return o.Bootstrap && !o.Lease.Led && o.Lease.State != LeaseRecorded
}

// planRecord is for data of which no election knows yet: of a bootstrap, a restore, or
// an earlier version.
func planRecord(o Observation) Plan {
	switch o.Lease.State {
	case LeaseUnknown:
		return Plan{Action: ActWait, Message: "waits for the API server: the Lease cannot be read"}
	case LeaseEarlierHeld:
		return Plan{Action: ActWait, Message: "waits for the Lease, which may still be held by an earlier pod " + o.Lease.Holder}
	case LeaseDamaged:
		return Plan{Action: ActHold, Hold: agentapi.HoldDataUnknown, Message: "the Lease of the primary was edited: it says neither which member led nor how far its data went. Restore it from a backup of the API objects, or delete it if the data on this volume is the cluster's newest"}
	}
	return Plan{Action: ActRecord, Message: "records the database system on the Lease"}
}

// planEmpty is for a volume without data.
func planEmpty(o Observation) Plan {
	bootstrapped := findBootstrapped(o)
	switch {
	case o.Primary.Known && isForeign(o.Primary.SystemIdentifier, o):
		return Plan{Action: ActWait, Message: "waits for a primary of this cluster's database system"}
	case o.Primary.Known:
		return planCopy(o, Plan{Action: ActClone, Message: "copies the primary's data"})
	case bootstrapped != "" && (o.Alone || o.NoData):
		return Plan{Action: ActHold, Hold: agentapi.HoldDataMissing, Message: fmt.Sprintf(
			"the volume is empty, but the database system %s was bootstrapped in this cluster: bring the volume back, or create a cluster of another name; only when its data is not needed any more: delete the cluster and every one of its volumes, and create it again", bootstrapped)}
	case bootstrapped != "" || !o.Bootstrap || o.Lease.Led:
		return Plan{Action: ActWait, Message: "waits for a primary to copy from"}
	case !o.Config.Known:
		return Plan{Action: ActWait, Message: "waits for the cluster's configuration"}
	}
	switch o.Lease.State {
	case LeaseMissing, LeaseLeftBehind:
		return Plan{Action: ActBootstrap, Message: "creates the database system"}
	case LeaseUnknown:
		return Plan{Action: ActWait, Message: "waits for the API server: the Lease cannot be read"}
	}
	return Plan{Action: ActWait, Message: "waits for a primary to copy from"}
}

// planCopy makes sure that a copy fits.
func planCopy(o Observation, p Plan) Plan {
	switch {
	case !dataspace.CopyFits(o.Volume.Space, o.Primary.DataSize):
		return Plan{Action: ActHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.RoundUp(dataspace.SpaceForCopy(o.Primary.DataSize)), Message: dataspace.DescribeMissing(o.Volume.Space, o.Primary.Pod, o.Primary.DataSize)}
	case o.CopyFilled:
		return Plan{Action: ActHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.SpaceAfterFilled(o.Volume.Space), Message: "the volume filled up while the primary's data was copied: set spec.storage.size to more; until then it is tried again now and then"}
	}
	return p
}

// missingWALMessage says what to do about data whose WAL does not hold what a
// start needs.
func missingWALMessage(o Observation) string {
	found := fmt.Sprintf("pg_control of member %s is newer than its WAL: pg_wal does not hold %s. Nothing is started, deleted or overwritten. "+
		"Check whether files of pg_wal were deleted or truncated, or came from an older copy of the volume, and put the WAL of this data back into %s/pg_wal", o.Pod, o.MissingWAL, datavolume.DataName)
	if o.Alone {
		return found + ". If it is lost, restore a backup: create a PostgresCluster of another name with spec.restore"
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
		return Plan{Action: ActHold, Hold: agentapi.HoldVolumeFull, MayVote: o.mayVote(), DiskSpace: dataspace.MinimumFree, Message: "the volume is full, and WAL that waits for the store of spec.backup.destination takes part of it: make the store take WAL again, or set spec.storage.size to more; what the store does not take is discarded where that frees disk space"}, true
	case dataspace.IsFull(v.Space):
		return Plan{Action: ActHold, Hold: agentapi.HoldVolumeFull, MayVote: o.mayVote(), DiskSpace: dataspace.MinimumFree, Message: "the volume is full: set spec.storage.size to more"}, true
	}
	return Plan{}, false
}

// mayVote reports whether data that is held for its disk space alone is whole, and the
// cluster's.
func (o Observation) mayVote() bool {
	return o.Volume.Content == datavolume.ContentData && o.Volume.Control.SystemIdentifier != "" && o.MissingWAL == "" && o.DivergedMark == nil && o.Rewind.Stage == datavolume.RewindNone
}

// FindEnd is where the last complete record on the volume ends.
func (o Observation) FindEnd() lsn.Point {
	if o.End.Position > 0 && !o.Volume.Control.End().Newer(o.End.Point) {
		return o.End.Point
	}
	return o.Volume.Control.End()
}

// findBootstrapped is the identifier of the cluster's database system, by any of
// the records of it; empty while none of them names a bootstrap.
func findBootstrapped(o Observation) string {
	for _, id := range listSystems(o) {
		if id != "" {
			return id
		}
	}
	return ""
}

// isForeign says whether any record names another database system.
func isForeign(id string, o Observation) bool {
	for _, recorded := range listSystems(o) {
		if recorded != "" && recorded != id {
			return true
		}
	}
	return false
}

// listSystems are the records of the cluster's database system.
func listSystems(o Observation) []string {
	return []string{o.Config.SystemIdentifier, o.Lease.SystemIdentifier, o.Primary.SystemIdentifier}
}

// wantsCopy says whether the volume's data is to be replaced by the primary's.
func (o Observation) wantsCopy() bool {
	if !o.Primary.Known || o.Primary.SystemIdentifier != o.Volume.Control.SystemIdentifier {
		return false
	}
	return o.Superseded || o.CopyAgain && o.Contained
}
