// Package startplan decides what a member of MySQL does before its server runs: make the
// first data, clone a member, start, or hold. It is pure.
package startplan

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
)

// Observation is what a start is planned from.
type Observation struct {
	Pod    string
	Volume datavolume.Observation
	// Version of the programs in the image.
	Version mysqlversion.Version
	// Config is the cluster's configuration; nil while none was read. Live says that the
	// API server gave it: a mounted one may be older.
	Config *agentapi.ClusterConfig
	Live   bool
	// Membership is the record on the Lease, if it was read.
	MembershipKnown bool
	Membership      Membership
}

// Membership is what the Lease of the members says.
type Membership struct {
	// Cluster is the UID of the cluster's object that it was written for; empty without a
	// record.
	Cluster string
	Record  group.Record
}

// Action is the next thing to do. Each has one lasting effect at most.
type Action int

// The actions.
const (
	Wait Action = iota
	Hold
	// NameVolume gives the volume its random name.
	NameVolume
	// PinGroup records the name of the group that is about to be made.
	PinGroup
	// Bootstrap makes the first data.
	Bootstrap
	// Clone another member, if one serves.
	Clone
	// AwaitFirst makes ready to clone, and waits for the first member.
	AwaitFirst
	// Start the server on the data.
	Start
	// AdoptRestored records which group restored data is to begin.
	AdoptRestored
)

// Plan is an action and its reason.
type Plan struct {
	Action  Action
	Hold    agentapi.Hold
	Message string
	// Group is the name to pin and to make data for.
	Group string
	// SpaceNeeded is what must be free on the volume before HoldVolumeFull ends.
	SpaceNeeded int64
}

func planWait(message string) Plan { return Plan{Action: Wait, Message: message} }

func planHold(hold agentapi.Hold, format string, args ...any) Plan {
	return Plan{Action: Hold, Hold: hold, Message: fmt.Sprintf(format, args...)}
}

// minimumFree is what a start needs: the temporary tablespaces and the next binlog.
const minimumFree = 48 << 20

// groupNames is the name space of the groups' names.
var groupNames = uuid.MustParse("0b0f9a54-6f3c-4c43-9d0b-4d1f3c8b6a11")

// NameGroup is the name of the group whose first data is made on a volume for a cluster.
// Transactions carry it: two bootstraps never have the same one.
func NameGroup(cluster, volume string) string {
	return uuid.NewSHA1(groupNames, []byte(cluster+"/"+volume)).String()
}

// PlanStart says what to do before the server runs. What forbids a start comes before what
// allows it.
func PlanStart(o Observation) Plan {
	v := o.Volume
	switch {
	case v.Content == datavolume.ContentUnknown:
		return planHold(agentapi.HoldDataUnknown, "the volume holds files that are no data directory of MySQL (%s): move them away, or give this member an empty volume", v.Unknown)
	case v.Content == datavolume.ContentData && v.Mark.Group == "" && v.Restored.Group == "":
		return planHold(agentapi.HoldDataUnknown, "the volume holds data that no group is recorded for: move it away, or give this member an empty volume")
	case o.Config == nil:
		return planWait("waits for the cluster's configuration")
	case o.volumeGroup() == "" && v.Content == datavolume.ContentData:
		return planHold(agentapi.HoldDataUnknown, "the volume holds data that was restored for another cluster, and never ran: restore the backup for this one, or give this member an empty volume")
	case o.volumeGroup() != "" && o.findOtherGroup() != "":
		return planHold(agentapi.HoldSystemIdentifier, "the volume belongs to the group %s, and this cluster's is %s: the volume is another cluster's", o.volumeGroup(), o.findOtherGroup())
	case o.Live && !slices.Contains(o.Config.Members, o.Pod):
		return planHold(agentapi.HoldRemoved, "spec.replicas does not count this member any more: its data is kept and not started")
	case !v.Space.Fits(minimumFree):
		p := planHold(agentapi.HoldVolumeFull, "the volume is full: set spec.storage.size to more")
		p.SpaceNeeded = minimumFree
		return p
	case v.Content == datavolume.ContentData:
		return o.planForData()
	}
	return o.planForEmpty()
}

func (o Observation) planForData() Plan {
	if have := o.Volume.Version; have != (mysqlversion.Version{}) {
		switch obstacle, first := mysqlversion.FindObstacle(have, o.Version); obstacle {
		case mysqlversion.None:
		case mysqlversion.Older:
			return planHold(agentapi.HoldDataVersion, "MySQL %s has written the data, and MySQL does not go back to %s: set spec.version to %q or newer", have, o.Version, have.Series)
		case mysqlversion.SkipsSeries:
			return planHold(agentapi.HoldDataVersion, "MySQL %s does not take over data of %s: set spec.version to %q first", o.Version, have, first)
		case mysqlversion.Unsupported:
			return planHold(agentapi.HoldDataVersion, "MySQL %s is not known to take over data of %s: set spec.version to %q", o.Version, have, have.Series)
		}
	}
	if o.beginsGroup() {
		return o.planForRestored()
	}
	return Plan{Action: Start, Message: "starts"}
}

// beginsGroup says whether the data was restored for this cluster and was in no group yet.
func (o Observation) beginsGroup() bool {
	v := o.Volume
	return v.Content == datavolume.ContentData && v.RestoredFor == o.Config.UID && v.Restored.Group != "" && !v.HasRecord
}

// planForRestored records the group that restored data begins, as a bootstrap does. An
// earlier cluster of the name may have left its record: its volumes are gone, or nothing
// would have been restored.
func (o Observation) planForRestored() Plan {
	name := o.volumeGroup()
	switch {
	case !o.Live:
		return planWait("waits for the API server: the mounted configuration may be an older one")
	case !o.MembershipKnown:
		return planWait("waits for the API server: the record of the members cannot be read")
	case o.Volume.Mark.Group == "":
		return Plan{Action: AdoptRestored, Group: name, Message: "takes up the restored data"}
	case o.Membership.Cluster != o.Config.UID || o.Membership.Record.Group != name:
		return Plan{Action: PinGroup, Group: name, Message: "records the name of the group"}
	}
	return Plan{Action: Start, Message: "starts on the restored data"}
}

// volumeGroup is the group that the volume's data belongs to, or begins; empty for none.
func (o Observation) volumeGroup() string {
	v := o.Volume
	if v.Mark.Group == "" && v.RestoredFor == o.Config.UID {
		return v.Restored.Group
	}
	return v.Mark.Group
}

// planForEmpty plans with a volume without data. It is made once, on the first member, and
// cloned on all others.
func (o Observation) planForEmpty() Plan {
	v := o.Volume
	switch {
	case o.isBootstrapped() && len(o.Config.Members) == 1:
		return planHold(agentapi.HoldDataMissing, "the volume is empty, but the group %s was bootstrapped already: bring the volume back, or create a cluster of another name; "+
			"only when its data is not needed any more: delete the cluster and its volume, and create it again", o.bootstrappedGroup())
	case o.isBootstrapped():
		return Plan{Action: Clone, Message: "clones a member"}
	case len(o.Config.Members) == 0 || o.Config.Members[0] != o.Pod:
		return Plan{Action: AwaitFirst, Message: "waits until the first member has bootstrapped the cluster"}
	case !o.Live:
		return planWait("waits for the API server: the mounted configuration may be an older one")
	case !o.MembershipKnown:
		return planWait("waits for the API server: the record of the members cannot be read")
	case v.Mark.Volume == "":
		return Plan{Action: NameVolume, Message: "names the volume"}
	}
	name := NameGroup(o.Config.UID, v.Mark.Volume)
	if err := v.MayBootstrapAs(name); err != nil {
		return planHold(agentapi.HoldDataMissing, "the volume is empty and is not bootstrapped: %v; bring its data back, or give this member a new volume", err)
	}
	if o.Membership.Cluster != o.Config.UID || o.Membership.Record.Group != name {
		return Plan{Action: PinGroup, Group: name, Message: "records the name of the group"}
	}
	return Plan{Action: Bootstrap, Group: name, Message: "makes the first data"}
}

// hasEarlierRecord says whether the record is of an earlier cluster of the name, of which
// nothing else is left.
func (o Observation) hasEarlierRecord() bool {
	return o.MembershipKnown && o.Membership.Cluster != "" && o.Membership.Cluster != o.Config.UID &&
		o.Config.Fresh && o.Config.SystemIdentifier == "" && o.Volume.Content == datavolume.ContentEmpty
}

// isBootstrapped says whether data of the cluster was ever reachable, or is that of
// another cluster's record: a server of the group is recorded before it starts it.
func (o Observation) isBootstrapped() bool {
	if o.Config.SystemIdentifier != "" {
		return true
	}
	m := o.Membership
	return o.MembershipKnown && !o.hasEarlierRecord() && (len(m.Record.Entries) > 0 || m.Cluster != "" && m.Cluster != o.Config.UID && m.Record.Group != "")
}

// bootstrappedGroup is the name of the cluster's group by the first place that has it;
// empty while none does.
func (o Observation) bootstrappedGroup() string {
	if o.Config.SystemIdentifier != "" || !o.MembershipKnown || o.hasEarlierRecord() {
		return o.Config.SystemIdentifier
	}
	return o.Membership.Record.Group
}

// findOtherGroup is the cluster's group, where the volume is of another one; empty where it
// is not.
func (o Observation) findOtherGroup() string {
	name := o.bootstrappedGroup()
	switch {
	case o.Volume.Content == datavolume.ContentEmpty && !o.isBootstrapped():
		return "" // a bootstrap that was not finished: see MayBootstrapAs
	case o.beginsGroup():
		name = o.beganGroup()
	}
	if name == o.volumeGroup() {
		return ""
	}
	return name
}

// beganGroup is the group that the cluster has begun already, of one that has restored data
// to begin with; empty for none. A name that was recorded for a volume whose server never
// ran is none, and neither is what an earlier cluster of the name left.
func (o Observation) beganGroup() string {
	m := o.Membership
	if o.MembershipKnown && m.Cluster == o.Config.UID && len(m.Record.Entries) > 0 {
		return m.Record.Group
	}
	return o.Config.SystemIdentifier
}

// NeedsMembership says whether what the Lease records matters before the server runs.
func (o Observation) NeedsMembership() bool {
	return o.Config != nil && (o.Volume.Content == datavolume.ContentEmpty || o.Config.SystemIdentifier == "" || o.beginsGroup())
}

// PlanFirstEntry is the record in which the server of the first data stands, before it
// starts the group for the first time; false where that is not due.
func PlanFirstEntry(r group.Record, name, serverUUID, pod string) (group.Record, bool) {
	if r.Group != name || len(r.Entries) > 0 || r.Boot != (group.Boot{}) || serverUUID == "" {
		return group.Record{}, false
	}
	return r.WithJoining(serverUUID, pod), true
}
