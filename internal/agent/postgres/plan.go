package postgres

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// observation are what the start of the database is decided from.
type observation struct {
	Ordinal     int
	BinaryMajor int
	Volume      volume

	// ConfigKnown says that the cluster's configuration was read.
	ConfigKnown            bool
	ConfigSystemIdentifier string
	// Cluster is the UID of the cluster's object, and Fresh says that nothing
	// is there from before it.
	Cluster string
	Fresh   bool

	// End is how far the WAL on the volume goes; zero while it is not known.
	End lsn.Extent
	// MissingWAL is the record that a start needs and the WAL lacks; empty for
	// none. Namespace and Pod of this member are for what is said of it.
	MissingWAL, Namespace, Pod string

	// Lease as it was read, and what else concerns the primary only.
	Lease leaseclient.Record
	leading

	// PrimaryKnown says that another member says that it is the primary.
	PrimaryKnown            bool
	PrimarySystemIdentifier string
	// Primary is its pod, and PrimaryDataSize what a copy takes; 0 while it
	// does not say.
	Primary         string
	PrimaryEnd      lsn.Point
	PrimaryDataSize int64

	// DivergedMark is the mark that the data holds what the primary does not.
	DivergedMark *divergedMark

	// CopyAgain says that the data was found unable to follow the primary, and
	// Contained that it was compared just now, and holds nothing more.
	CopyAgain, Contained bool
	// CopyFilled says that the last copy filled the volume.
	CopyFilled bool
}

// action is the next thing to do.
type action int

const (
	actWait action = iota
	actHold
	// actClaim claims the Lease.
	actClaim
	// actBootstrap initialises the database system.
	actBootstrap
	// actRecord writes the system identifier on the Lease.
	actRecord
	// actClone copies the primary's data.
	actClone
	// actCopyAgain replaces data that can no longer follow by a copy of the
	// primary's.
	actCopyAgain
	// actMarkStandby makes a former primary's data a standby's.
	actMarkStandby
	actStartPrimary
	actStartStandby
)

// plan is an action and its reason.
type plan struct {
	Action  action
	Hold    agentapi.Hold
	Message string
	// DiskSpace is what must be free on the volume before HoldVolumeFull ends.
	DiskSpace int64
	// NewTimeline has actStartPrimary begin a timeline, which Request asked for
	// where it is not empty.
	NewTimeline bool
	Request     string
}

// planNext says what to do before the database runs. The order is the priority:
// what forbids a start comes before what allows it.
func planNext(o observation) plan {
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
func holdMissingWAL(o observation) plan {
	return plan{Action: actHold, Hold: agentapi.HoldWALMissing, Message: missingWALMessage(o)}
}

// holdVolume judges what any member's volume forbids.
func holdVolume(o observation) (plan, bool) {
	v := o.Volume
	hold := func(h agentapi.Hold, format string, args ...any) (plan, bool) {
		return plan{Action: actHold, Hold: h, Message: fmt.Sprintf(format, args...)}, true
	}
	switch {
	case v.Content == contentUnknown:
		return hold(agentapi.HoldDataUnknown, "the volume holds files that are no data directory (%s): move them away, or give this member an empty volume", v.Unknown)
	case v.Content == contentData && v.Major != o.BinaryMajor:
		return hold(agentapi.HoldDataVersion, "the data directory is of PostgreSQL %d and the image holds PostgreSQL %d: set spec.version to \"%d\", and where spec.image names an image, let that hold PostgreSQL %d", v.Major, o.BinaryMajor, v.Major, v.Major)
	case v.Content == contentData && isForeign(v.Control.SystemIdentifier, o):
		return hold(agentapi.HoldSystemIdentifier, "the volume holds the database system %s, and this cluster's is %s: the volume belongs to another cluster", v.Control.SystemIdentifier, findBootstrapped(o))
	case dataspace.IsFull(v.Space) && v.ArchiveWaits:
		return plan{Action: actHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.MinimumFree, Message: "the volume is full, and WAL that waits for the store of spec.backup.destination takes part of it: make the store take WAL again, or set spec.storage.size to more; what the store does not take is discarded where that frees disk space"}, true
	case dataspace.IsFull(v.Space):
		return plan{Action: actHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.MinimumFree, Message: "the volume is full: set spec.storage.size to more"}, true
	}
	return plan{}, false
}

// findBootstrapped is the identifier of the cluster's database system, by any of
// the records of it; empty while none of them names a bootstrap.
func findBootstrapped(o observation) string {
	for _, id := range []string{o.ConfigSystemIdentifier, o.readLeaseSystem(), o.PrimarySystemIdentifier} {
		if id != "" {
			return id
		}
	}
	return ""
}

// isLeaseLeftBehind says whether the Lease is that of an earlier cluster of the name,
// of whose data nothing is there: neither here nor on any other volume. Data
// is not judged so, for it may be that cluster's, unless it was restored for
// this one.
func (o observation) isLeaseLeftBehind() bool {
	switch other := o.ConfigKnown && o.Lease.Cluster != "" && o.Lease.Cluster != o.Cluster; o.Volume.Content {
	case contentEmpty:
		return other && o.Fresh && o.ConfigSystemIdentifier == ""
	case contentData:
		return other && o.Volume.RestoredFor == o.Cluster
	default:
		return false
	}
}

// ignoresLease says whether the Lease says nothing of this data: it is another
// cluster's, or may turn out to be.
func (o observation) ignoresLease() bool {
	return o.isLeaseLeftBehind() || !o.ConfigKnown && o.Volume.RestoredFor != ""
}

// readLeaseSystem is the database system by the Lease, where that counts.
func (o observation) readLeaseSystem() string {
	if o.ignoresLease() {
		return ""
	}
	return o.Lease.SystemIdentifier
}

// isForeign says whether any record names another database system.
func isForeign(id string, o observation) bool {
	for _, recorded := range []string{o.ConfigSystemIdentifier, o.readLeaseSystem(), o.PrimarySystemIdentifier} {
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
func (o observation) wantsCopy() bool {
	return o.Volume.Content == contentEmpty || o.CopyAgain && o.Contained && o.PrimaryKnown && o.PrimarySystemIdentifier == o.Volume.Control.SystemIdentifier
}

// planReplica is for every other ordinal. It needs no Lease: nothing that it
// does makes a second primary.
func planReplica(o observation) plan { //nolint:gocyclo // an ordered switch: first match wins
	own := o.findEnd()
	switch {
	case o.Volume.Content == contentData && o.DivergedMark != nil:
		return plan{Action: actHold, Hold: agentapi.HoldDataDiverged, Message: o.DivergedMark.describeHold()}
	case o.Volume.Content == contentData && o.PrimaryKnown && isAhead(own, o.PrimaryEnd):
		return plan{Action: actHold, Hold: agentapi.HoldDataDiverged, Message: divergedMark{Own: own, Primary: o.PrimaryEnd}.describeHold()}
	case o.MissingWAL != "" && !o.wantsCopy():
		return holdMissingWAL(o)
	case o.Volume.Content == contentEmpty && !o.PrimaryKnown:
		return plan{Action: actWait, Message: "waits for a primary to copy from"}
	case o.Volume.Content == contentEmpty && isForeign(o.PrimarySystemIdentifier, o):
		return plan{Action: actWait, Message: "waits for a primary of this cluster's database system"}
	case o.wantsCopy() && !dataspace.CopyFits(o.Volume.Space, o.PrimaryDataSize):
		return plan{Action: actHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.RoundUp(dataspace.SpaceForCopy(o.PrimaryDataSize)), Message: dataspace.DescribeMissing(o.Volume.Space, o.Primary, o.PrimaryDataSize)}
	case o.wantsCopy() && o.CopyFilled:
		return plan{Action: actHold, Hold: agentapi.HoldVolumeFull, DiskSpace: dataspace.SpaceAfterFilled(o.Volume.Space), Message: "the volume filled up while the primary's data was copied: set spec.storage.size to more; until then it is tried again now and then"}
	case o.Volume.Content == contentEmpty:
		return plan{Action: actClone, Message: "copies the primary's data"}
	case o.wantsCopy():
		return plan{Action: actCopyAgain, Message: "copies the primary's data again"}
	case !o.ConfigKnown:
		return plan{Action: actWait, Message: "waits for the cluster's configuration"}
	case !o.Volume.Standby:
		return plan{Action: actMarkStandby, Message: "makes a former primary's data a standby's"}
	default:
		return plan{Action: actStartStandby, Message: "starts as a replica"}
	}
}
