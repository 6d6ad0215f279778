package etcd

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
)

// facts are what the start of etcd is decided from.
type facts struct {
	Pod    string
	Volume volume

	// Version of etcd in the image, and OldForm says that the log holds what
	// only versions up to the lastReader read.
	Version string
	OldForm bool

	// ConfigKnown says that the cluster's configuration was read, and
	// ConfigHash which.
	ConfigKnown            bool
	ConfigHash             string
	ConfigSystemIdentifier string
	// Cluster is the UID of the cluster's object, and Fresh says that nothing
	// is there from before it.
	Cluster string
	Fresh   bool
	// Ticket for this pod; nil without one.
	Ticket   *etcdapi.JoinGrant
	Recovery *etcdapi.Recovery
	// Leaderless is the token of the order before which it was made sure that
	// nobody leads.
	Leaderless string

	// Register as it was read, if it was.
	RegisterKnown bool
	Register      leaseclient.Register

	// Confirmed says what the group says to a ticket for a member that it
	// counts.
	Confirmed confirmation
	// Removed is the ID that etcd said the group has removed; empty for none.
	Removed string
}

// confirmation is the group's answer.
type confirmation int

const (
	// confirmNone: no member of the group answered.
	confirmNone confirmation = iota
	// confirmYes: the group counts the ticket's member at this pod's address.
	confirmYes
	// confirmNo: it does not, or not any more, or not yet.
	confirmNo
)

// action is the next thing to do. Each has one lasting effect at most, so that
// a crash falls between two of them.
type action int

const (
	actWait action = iota
	actHold
	// actOpen puts the register in the cluster's name.
	actOpen
	// actName gives the volume its name.
	actName
	// actRegister records the ticket's member on this volume.
	actRegister
	// actSetAside moves the data of a removed member aside.
	actSetAside
	// actBirth begins a new group, out of everybody's reach.
	actBirth
	// actLatch records the bootstrap.
	actLatch
	// actRecover drops all other members, out of everybody's reach.
	actRecover
	// actJoin starts on the empty volume.
	actJoin
	// actStart starts on the data.
	actStart
)

// decision is an action and its reason.
type decision struct {
	Action  action
	Hold    agentapi.Hold
	Message string
	// Room is what must be free on the volume before HoldVolumeFull ends.
	Room int64
	// Lost is the member that the group must remove before this pod starts.
	Lost string
}

func wait(message string) decision { return decision{Action: actWait, Message: message} }

func hold(h agentapi.Hold, format string, args ...any) decision {
	return decision{Action: actHold, Hold: h, Message: fmt.Sprintf(format, args...)}
}

// minimumFree is what a start needs: a file of the log, which etcd allocates
// ahead, and some more.
const minimumFree = 72 << 20

// decide says what to do before etcd runs. The order is the priority: what
// forbids a start comes before what allows it.
func decide(f facts) decision {
	v := f.Volume
	switch {
	case v.Content == contentUnknown:
		return hold(agentapi.HoldDataUnknown, "the volume holds files that are no data directory (%s): move them away, or give this member an empty volume", v.Unknown)
	case v.Content == contentData && f.foreign():
		return hold(agentapi.HoldSystemIdentifier, "the volume holds data of the cluster %s, and this cluster's is %s: the volume belongs to another cluster", v.Log.Cluster, f.born())
	case !v.Space.Fits(minimumFree):
		d := hold(agentapi.HoldVolumeFull, "the volume is full: set spec.storage.size to more")
		d.Room = minimumFree
		return d
	case !f.ConfigKnown:
		return wait("waits for the cluster's configuration")
	case v.Content == contentData:
		return decideData(f)
	case f.Ticket == nil:
		return decideUnasked(f)
	case f.Ticket.State == etcdapi.JoinNew:
		return decideSeed(f)
	default:
		return decideJoiner(f)
	}
}

// decideData: data needs no ticket.
func decideData(f facts) decision {
	v := f.Volume
	switch {
	case f.replaced() && f.Confirmed == confirmYes:
		return decision{Action: actSetAside, Message: "sets the data of the removed member " + v.Log.Member + " aside"}
	case f.Removed == v.Log.Member:
		return hold(agentapi.HoldRemoved, "the group has removed this member (%s); it comes back when the group admits the pod anew", v.Log.Member)
	case f.refusedVersion() != "":
		return hold(agentapi.HoldDataVersion, "%s", f.refusedVersion())
	case f.recovers() && f.Leaderless == f.Recovery.Token:
		return decision{Action: actRecover, Message: "goes on without the other members, as ordered"}
	case f.restored() && f.RegisterKnown && !f.onRecord():
		return decideRestored(f)
	case f.latched() && (f.RegisterKnown || !f.restored()):
		return decision{Action: actStart, Message: "starts"}
	case !f.RegisterKnown:
		return wait("waits for the API server: the bootstrap of this data is not recorded")
	default:
		return decision{Action: actLatch, Message: "records the bootstrap"}
	}
}

// decideRestored: data that was restored for this cluster, which never ran in
// it, goes on record as a birth does.
func decideRestored(f facts) decision {
	switch {
	case f.leftBehind():
		return decision{Action: actOpen, Message: "opens the register of members"}
	case f.Volume.Mark.Volume == "":
		return decision{Action: actName, Message: "names the volume"}
	default:
		return decision{Action: actLatch, Message: "records the restored cluster"}
	}
}

// decideUnasked: an empty volume without a ticket.
func decideUnasked(f facts) decision {
	if id := f.ranBefore(); id != "" {
		return lost(f, id)
	}
	if f.born() != "" {
		return wait("waits until the group admits this member")
	}
	return wait("waits for the operator to choose who begins")
}

// decideSeed: the first member of a new group.
func decideSeed(f facts) decision {
	v := f.Volume
	switch {
	case f.born() != "":
		return hold(agentapi.HoldDataMissing, "the volume is empty, but the cluster %s was bootstrapped already: bring the volume back, or create a cluster of another name; only when its data is to be given up for good: delete the cluster and every one of its volumes, and create it again", f.born())
	case v.Mark.Member != "":
		return lost(f, v.Mark.Member)
	case !f.RegisterKnown:
		return wait("waits for the API server: the register of members cannot be read")
	case f.Register.Cluster != f.Cluster:
		return decision{Action: actOpen, Message: "opens the register of members"}
	case v.Mark.Volume == "":
		return decision{Action: actName, Message: "names the volume"}
	default:
		return decision{Action: actBirth, Message: "begins the cluster"}
	}
}

// decideJoiner: a member that the group counts, and that never ran.
func decideJoiner(f facts) decision {
	v, t := f.Volume, f.Ticket
	start, registered := f.Register.Start(t.MemberID)
	switch {
	case v.Mark.Member == t.MemberID || v.Mark.Begun == t.MemberID:
		return lost(f, t.MemberID)
	case !f.RegisterKnown:
		return wait("waits for the API server: the register of members cannot be read")
	case registered && start.Volume != v.Mark.Volume:
		return lost(f, t.MemberID)
	case f.Confirmed == confirmNone:
		return wait("waits for a member of the group to confirm the join grant")
	case f.Confirmed == confirmNo:
		return wait("waits for another join grant: the group does not count this one's member")
	case v.Mark.Volume == "":
		return decision{Action: actName, Message: "names the volume"}
	case !registered:
		return decision{Action: actRegister, Message: "records the start"}
	default:
		return decision{Action: actJoin, Message: "joins the group"}
	}
}

// lost: an empty volume in place of one that was in use. What a member has
// promised to its group is gone with its data, so it must come back as another.
func lost(f facts, id string) decision {
	d := hold(agentapi.HoldDataMissing, "the volume is empty, and %s ran on another or lost its data: it comes back when the group has removed the lost member %s and admits a new one", f.Pod, id)
	d.Lost = id
	return d
}

// ranBefore is the member that ran on this volume last, or on another one under
// this pod; empty when none did.
func (f facts) ranBefore() string {
	switch m := f.Volume.Mark; {
	case m.Member != "":
		return m.Member
	case m.Begun != "":
		return m.Begun
	case f.RegisterKnown && !f.leftBehind():
		return f.Register.Last(f.Pod)
	}
	return ""
}

// born is the ID of the cluster's etcd cluster, by any of the latches; empty
// while nobody knows of a birth.
func (f facts) born() string {
	if f.ConfigSystemIdentifier != "" || f.leftBehind() {
		return f.ConfigSystemIdentifier
	}
	return f.Register.SystemIdentifier
}

// leftBehind says whether the register is that of an earlier cluster of the
// name, of whose data nothing is there: neither here nor on any other volume.
// Data that was restored for this cluster is not that one's.
func (f facts) leftBehind() bool {
	other := f.ConfigKnown && f.Register.Cluster != "" && f.Register.Cluster != f.Cluster
	if f.Volume.Content == contentEmpty {
		return other && f.Fresh && f.ConfigSystemIdentifier == ""
	}
	return other && f.restored()
}

// restored says whether the data was restored for this cluster, and has not
// been settled in it yet.
func (f facts) restored() bool {
	v := f.Volume
	return v.Content == contentData && f.ConfigKnown && v.RestoredFor == f.Cluster && v.Mark.Member != v.Log.Member
}

// onRecord says whether the register holds the data's cluster and a start of
// its member. Whether that was on this volume is settled as with any data.
func (f facts) onRecord() bool {
	_, there := f.Register.Start(f.Volume.Log.Member)
	return there && f.Register.SystemIdentifier == f.Volume.Log.Cluster
}

// foreign says whether any latch names another cluster than the data's.
func (f facts) foreign() bool {
	register := f.Register.SystemIdentifier
	if f.leftBehind() {
		register = ""
	}
	for _, latch := range []string{f.ConfigSystemIdentifier, f.Volume.Mark.Cluster, register} {
		if latch != "" && latch != f.Volume.Log.Cluster {
			return true
		}
	}
	return false
}

// latched says whether the data is known to be this cluster's.
func (f facts) latched() bool {
	id := f.Volume.Log.Cluster
	return f.ConfigSystemIdentifier == id || f.Volume.Mark.Cluster == id || f.Register.SystemIdentifier == id
}

// refusedVersion says why this version of etcd must not start on the data. It
// does not speak of going back by one minor version at most: etcd itself knows
// whether all members had left the older one.
func (f facts) refusedVersion() string {
	have, known := etcdversion.Parse(f.Volume.version())
	next, ours := etcdversion.Parse(f.Version)
	if !ours || !known && !f.OldForm {
		return ""
	}
	switch obstacle, first := etcdversion.FindObstacle(have, next); {
	case obstacle == etcdversion.Older && next.Minor < have.Minor-1:
		return fmt.Sprintf("etcd %s has served the data, and etcd does not go back to %s: set spec.version to %q or newer", have, next, have)
	case obstacle == etcdversion.Patch:
		return fmt.Sprintf("etcd %s takes over data of %s or later only, and %s has served it last: set spec.version to %q or a later 3.%d first; %s",
			next, first, have, first, first.Minor, leftBehind)
	case f.OldForm && next.Minor > lastReader:
		return fmt.Sprintf("the Raft log holds entries of etcd 3.5, which etcd %s cannot read: set spec.version to a 3.%d, with which the member takes a snapshot when it starts, and once all members run it to %q again", next, lastReader, next)
	case obstacle == etcdversion.Minor:
		return fmt.Sprintf("etcd %s is more than one minor version ahead of %s, which has served the data last: set spec.version to a 3.%d first; %s", next, have, first.Minor, leftBehind)
	}
	return ""
}

// leftBehind is the way out where going back is none: a member that was away
// while the others were upgraded.
const leftBehind = "where the other members serve with a newer version already, delete this member's volume and pod instead, and it is filled from them"

// mayBeOld says whether the log must be looked at before this version of etcd
// reads it: it does not read the old form, and has not served the data yet.
func (f facts) mayBeOld() bool {
	ours, _ := etcdversion.Parse(f.Version)
	served, known := etcdversion.Parse(f.Volume.version())
	return ours.Minor > lastReader && (!known || served.Minor <= lastReader)
}

// replaced says whether the ticket is for another member than the data's.
func (f facts) replaced() bool {
	return f.Ticket != nil && f.Ticket.State == etcdapi.JoinExisting && f.Ticket.MemberID != f.Volume.Log.Member
}

// recovers says whether this member is ordered to go on alone, and has not yet.
func (f facts) recovers() bool {
	r := f.Recovery
	return r != nil && r.Pod == f.Pod && r.MemberID == f.Volume.Log.Member && r.Token != f.Volume.Mark.Recovered
}

// wantsRegister says whether what the register holds matters.
func (f facts) wantsRegister() bool {
	return f.ConfigKnown && (f.Volume.Content == contentEmpty || !f.latched() || f.restored())
}

// wantsConfirmation says whether what the group says matters.
func (f facts) wantsConfirmation() bool {
	if f.Ticket == nil || f.Ticket.State != etcdapi.JoinExisting {
		return false
	}
	return f.Volume.Content == contentEmpty || f.Volume.Content == contentData && f.replaced()
}
