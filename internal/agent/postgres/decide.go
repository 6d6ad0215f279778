package postgres

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// facts are what the start of the database is decided from.
type facts struct {
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

	// Ahead is the mark that the data holds what the primary does not.
	Ahead *aheadMark

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
	// actBirth initialises the database system.
	actBirth
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

// decision is an action and its reason.
type decision struct {
	Action  action
	Hold    agentapi.Hold
	Message string
	// Room is what must be free on the volume before HoldVolumeFull ends.
	Room int64
	// NewTimeline has actStartPrimary begin a timeline, which Request asked for
	// where it is not empty.
	NewTimeline bool
	Request     string
}

// decide says what to do before the database runs. The order is the priority:
// what forbids a start comes before what allows it.
func decide(f facts) decision {
	if d, held := holdVolume(f); held {
		return d
	}
	switch {
	case f.Ordinal == 0 && f.MissingWAL != "":
		return holdMissingWAL(f)
	case f.Ordinal == 0:
		return decidePrimary(f)
	default:
		return decideReplica(f)
	}
}

// holdMissingWAL holds data whose WAL lacks what a start needs.
func holdMissingWAL(f facts) decision {
	return decision{Action: actHold, Hold: agentapi.HoldWALMissing, Message: missingWALMessage(f)}
}

// holdVolume judges what any member's volume forbids.
func holdVolume(f facts) (decision, bool) {
	v := f.Volume
	hold := func(h agentapi.Hold, format string, args ...any) (decision, bool) {
		return decision{Action: actHold, Hold: h, Message: fmt.Sprintf(format, args...)}, true
	}
	switch {
	case v.Content == contentUnknown:
		return hold(agentapi.HoldDataUnknown, "the volume holds files that are no data directory (%s): move them away, or give this member an empty volume", v.Unknown)
	case v.Content == contentData && v.Major != f.BinaryMajor:
		return hold(agentapi.HoldDataVersion, "the data directory is of PostgreSQL %d and the image holds PostgreSQL %d: set spec.version to \"%d\", and where spec.image names an image, let that hold PostgreSQL %d", v.Major, f.BinaryMajor, v.Major, v.Major)
	case v.Content == contentData && foreign(v.Control.SystemIdentifier, f):
		return hold(agentapi.HoldSystemIdentifier, "the volume holds the database system %s, and this cluster's is %s: the volume belongs to another cluster", v.Control.SystemIdentifier, born(f))
	case dataspace.IsFull(v.Space) && v.ArchiveWaits:
		return decision{Action: actHold, Hold: agentapi.HoldVolumeFull, Room: dataspace.MinimumFree, Message: "the volume is full, and WAL that waits for the store of spec.backup.destination takes part of it: make the store take WAL again, or set spec.storage.size to more; what the store does not take is given up where that frees disk space"}, true
	case dataspace.IsFull(v.Space):
		return decision{Action: actHold, Hold: agentapi.HoldVolumeFull, Room: dataspace.MinimumFree, Message: "the volume is full: set spec.storage.size to more"}, true
	}
	return decision{}, false
}

// born is the identifier of the cluster's database system, by any of the
// latches; empty while nobody knows of a birth.
func born(f facts) string {
	for _, id := range []string{f.ConfigSystemIdentifier, f.leaseSystem(), f.PrimarySystemIdentifier} {
		if id != "" {
			return id
		}
	}
	return ""
}

// leftBehind says whether the Lease is that of an earlier cluster of the name,
// of whose data nothing is there: neither here nor on any other volume. Data
// is not judged so, for it may be that cluster's, unless it was restored for
// this one.
func (f facts) leftBehind() bool {
	switch other := f.ConfigKnown && f.Lease.Cluster != "" && f.Lease.Cluster != f.Cluster; f.Volume.Content {
	case contentEmpty:
		return other && f.Fresh && f.ConfigSystemIdentifier == ""
	case contentData:
		return other && f.Volume.RestoredFor == f.Cluster
	default:
		return false
	}
}

// pastLease says whether the Lease says nothing of this data: it is another
// cluster's, or may turn out to be.
func (f facts) pastLease() bool {
	return f.leftBehind() || !f.ConfigKnown && f.Volume.RestoredFor != ""
}

// leaseSystem is the database system by the Lease, where that counts.
func (f facts) leaseSystem() string {
	if f.pastLease() {
		return ""
	}
	return f.Lease.SystemIdentifier
}

// foreign says whether any latch names another database system.
func foreign(id string, f facts) bool {
	for _, latch := range []string{f.ConfigSystemIdentifier, f.leaseSystem(), f.PrimarySystemIdentifier} {
		if latch != "" && latch != id {
			return true
		}
	}
	return false
}

func holder(r leaseclient.Record) string {
	if r.HolderPod != "" {
		return "an earlier pod " + r.HolderPod
	}
	return "an unknown pod"
}

// wantsCopy says whether the volume's content is to be the primary's data.
func (f facts) wantsCopy() bool {
	return f.Volume.Content == contentEmpty || f.CopyAgain && f.Contained && f.PrimaryKnown && f.PrimarySystemIdentifier == f.Volume.Control.SystemIdentifier
}

// decideReplica is for every other ordinal. It needs no Lease: nothing that it
// does makes a second primary.
func decideReplica(f facts) decision { //nolint:gocyclo // an ordered switch: first match wins
	own := f.end()
	switch {
	case f.Volume.Content == contentData && f.Ahead != nil:
		return decision{Action: actHold, Hold: agentapi.HoldDataDiverged, Message: f.Ahead.message()}
	case f.Volume.Content == contentData && f.PrimaryKnown && ahead(own, f.PrimaryEnd):
		return decision{Action: actHold, Hold: agentapi.HoldDataDiverged, Message: aheadMark{Own: own, Primary: f.PrimaryEnd}.message()}
	case f.MissingWAL != "" && !f.wantsCopy():
		return holdMissingWAL(f)
	case f.Volume.Content == contentEmpty && !f.PrimaryKnown:
		return decision{Action: actWait, Message: "waits for a primary to copy from"}
	case f.Volume.Content == contentEmpty && foreign(f.PrimarySystemIdentifier, f):
		return decision{Action: actWait, Message: "waits for a primary of this cluster's database system"}
	case f.wantsCopy() && !dataspace.CopyFits(f.Volume.Space, f.PrimaryDataSize):
		return decision{Action: actHold, Hold: agentapi.HoldVolumeFull, Room: dataspace.RoundUp(dataspace.SpaceForCopy(f.PrimaryDataSize)), Message: dataspace.DescribeMissing(f.Volume.Space, f.Primary, f.PrimaryDataSize)}
	case f.wantsCopy() && f.CopyFilled:
		return decision{Action: actHold, Hold: agentapi.HoldVolumeFull, Room: dataspace.SpaceAfterFilled(f.Volume.Space), Message: "the volume filled up while the primary's data was copied: set spec.storage.size to more; until then it is tried again now and then"}
	case f.Volume.Content == contentEmpty:
		return decision{Action: actClone, Message: "copies the primary's data"}
	case f.wantsCopy():
		return decision{Action: actCopyAgain, Message: "copies the primary's data again"}
	case !f.ConfigKnown:
		return decision{Action: actWait, Message: "waits for the cluster's configuration"}
	case !f.Volume.Standby:
		return decision{Action: actMarkStandby, Message: "makes a former primary's data a standby's"}
	default:
		return decision{Action: actStartStandby, Message: "starts as a replica"}
	}
}
