package etcd

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
)

// observation is what the start of etcd is planned from: all of it, flat, so that a case
// of a test names only what it is about.
type observation struct {
	Pod    string
	Volume volume

	// Version of etcd in the image, and OldEntries says that the Raft log holds
	// what only versions up to the lastReader read.
	Version    string
	OldEntries bool

	// ConfigKnown says that the cluster's configuration was read, and
	// ConfigHash which.
	ConfigKnown            bool
	ConfigHash             string
	ConfigSystemIdentifier string
	// Cluster is the UID of the cluster's object, and Fresh says that nothing
	// is there from before it.
	Cluster string
	Fresh   bool
	// JoinGrant for this pod; nil without one.
	JoinGrant *etcdapi.JoinGrant
	Recovery  *etcdapi.Recovery
	// Leaderless is the token of the request before which it was made sure that
	// no member leads.
	Leaderless string

	// Membership is the record as it was read, if it was.
	MembershipKnown bool
	Membership      leaseclient.MembershipRecord

	// Confirmed says what the group says to a join grant for a member that it
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
	// confirmYes: the group counts the grant's member at this pod's address.
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
	// actOpenRecord puts the membership record in the cluster's name.
	actOpenRecord
	// actName gives the volume its name.
	actName
	// actRecordStart records the grant's member on this volume.
	actRecordStart
	// actSetAside moves the data of a removed member aside.
	actSetAside
	// actBootstrap begins a new group, out of reach of all clients.
	actBootstrap
	// actRecordBootstrap records the bootstrap.
	actRecordBootstrap
	// actRecover drops all other members, out of reach of all clients.
	actRecover
	// actJoin starts on the empty volume.
	actJoin
	// actStart starts on the data.
	actStart
)

// plan is an action and its reason.
type plan struct {
	Action  action
	Hold    agentapi.Hold
	Message string
	// SpaceNeeded is what must be free on the volume before HoldVolumeFull ends.
	SpaceNeeded int64
	// Lost is the member that the group must remove before this pod starts.
	Lost string
}

func planWait(message string) plan { return plan{Action: actWait, Message: message} }

func planHold(h agentapi.Hold, format string, args ...any) plan {
	return plan{Action: actHold, Hold: h, Message: fmt.Sprintf(format, args...)}
}

// minimumFree is what a start needs: a file of the Raft log, which etcd allocates
// ahead, and some more.
const minimumFree = 72 << 20

// planStart says what to do before etcd runs. The order is the priority: what
// forbids a start comes before what allows it.
func planStart(f observation) plan {
	v := f.Volume
	switch {
	case v.Content == contentUnknown:
		return planHold(agentapi.HoldDataUnknown, "the volume holds files that are no data directory (%s): move them away, or give this member an empty volume", v.Unknown)
	case v.Content == contentData && f.isForeign():
		return planHold(agentapi.HoldSystemIdentifier, "the volume holds data of the cluster %s, and this cluster's is %s: the volume belongs to another cluster", v.RaftLog.Cluster, f.bootstrappedCluster())
	case !v.Space.Fits(minimumFree):
		d := planHold(agentapi.HoldVolumeFull, "the volume is full: set spec.storage.size to more")
		d.SpaceNeeded = minimumFree
		return d
	case !f.ConfigKnown:
		return planWait("waits for the cluster's configuration")
	case v.Content == contentData:
		return planForData(f)
	case f.JoinGrant == nil:
		return planWithoutGrant(f)
	case f.JoinGrant.State == etcdapi.JoinNew:
		return planSeedMember(f)
	default:
		return planJoiningMember(f)
	}
}

// planForData plans with data on the volume, which needs no join grant.
func planForData(f observation) plan {
	v := f.Volume
	switch {
	case f.isReplaced() && f.Confirmed == confirmYes:
		return plan{Action: actSetAside, Message: "sets the data of the removed member " + v.RaftLog.Member + " aside"}
	case f.Removed == v.RaftLog.Member:
		return planHold(agentapi.HoldRemoved, "the group has removed this member (%s); it comes back when the group admits the pod anew", v.RaftLog.Member)
	case f.refusedVersion() != "":
		return planHold(agentapi.HoldDataVersion, "%s", f.refusedVersion())
	case f.mustRecover() && f.Leaderless == f.Recovery.Token:
		return plan{Action: actRecover, Message: "goes on without the other members, as requested"}
	case f.isRestored() && f.MembershipKnown && !f.isRecorded():
		return planForRestoredData(f)
	case f.isOfCluster() && (f.MembershipKnown || !f.isRestored()):
		return plan{Action: actStart, Message: "starts"}
	case !f.MembershipKnown:
		return planWait("waits for the API server: the bootstrap of this data is not recorded")
	default:
		return plan{Action: actRecordBootstrap, Message: "records the bootstrap"}
	}
}

// planForRestoredData plans with data that was restored for this cluster and never
// ran in it: it is recorded as a bootstrap is.
func planForRestoredData(f observation) plan {
	switch {
	case f.hasEarlierRecord():
		return plan{Action: actOpenRecord, Message: "opens the membership record"}
	case f.Volume.Mark.Volume == "":
		return plan{Action: actName, Message: "names the volume"}
	default:
		return plan{Action: actRecordBootstrap, Message: "records the restored cluster"}
	}
}

// planWithoutGrant plans with an empty volume and no join grant.
func planWithoutGrant(f observation) plan {
	if id := f.findFormerMember(); id != "" {
		return planForLostMember(f, id)
	}
	if f.bootstrappedCluster() != "" {
		return planWait("waits until the group admits this member")
	}
	return planWait("waits for the operator to choose who begins")
}

// planSeedMember plans for the first member of a new group.
func planSeedMember(f observation) plan {
	v := f.Volume
	switch {
	case f.bootstrappedCluster() != "":
		return planHold(agentapi.HoldDataMissing, "the volume is empty, but the cluster %s was bootstrapped already: bring the volume back, or create a cluster of another name; only when its data is not needed any more: delete the cluster and every one of its volumes, and create it again", f.bootstrappedCluster())
	case v.Mark.Member != "":
		return planForLostMember(f, v.Mark.Member)
	case !f.MembershipKnown:
		return planWait("waits for the API server: the membership record cannot be read")
	case f.Membership.Cluster != f.Cluster:
		return plan{Action: actOpenRecord, Message: "opens the membership record"}
	case v.Mark.Volume == "":
		return plan{Action: actName, Message: "names the volume"}
	default:
		return plan{Action: actBootstrap, Message: "begins the cluster"}
	}
}

// planJoiningMember plans for a member that the group counts, and that never ran.
func planJoiningMember(f observation) plan {
	v, t := f.Volume, f.JoinGrant
	start, recorded := f.Membership.FindStart(t.MemberID)
	switch {
	case v.Mark.Member == t.MemberID || v.Mark.Begun == t.MemberID:
		return planForLostMember(f, t.MemberID)
	case !f.MembershipKnown:
		return planWait("waits for the API server: the membership record cannot be read")
	case recorded && start.Volume != v.Mark.Volume:
		return planForLostMember(f, t.MemberID)
	case f.Confirmed == confirmNone:
		return planWait("waits for a member of the group to confirm the join grant")
	case f.Confirmed == confirmNo:
		return planWait("waits for another join grant: the group does not count this one's member")
	case v.Mark.Volume == "":
		return plan{Action: actName, Message: "names the volume"}
	case !recorded:
		return plan{Action: actRecordStart, Message: "records the start"}
	default:
		return plan{Action: actJoin, Message: "joins the group"}
	}
}

// planForLostMember plans with an empty volume in place of one that was in use. What a member has
// promised to its group is gone with its data, so it must come back as another.
func planForLostMember(f observation, id string) plan {
	d := planHold(agentapi.HoldDataMissing, "the volume is empty, and %s ran on another or lost its data: it comes back when the group has removed the lost member %s and admits a new one", f.Pod, id)
	d.Lost = id
	return d
}

// findFormerMember finds the member that ran on this volume last, or on another one under
// this pod; empty when none did.
func (f observation) findFormerMember() string {
	switch m := f.Volume.Mark; {
	case m.Member != "":
		return m.Member
	case m.Begun != "":
		return m.Begun
	case f.MembershipKnown && !f.hasEarlierRecord():
		return f.Membership.FindLastMember(f.Pod)
	}
	return ""
}

// bootstrappedCluster is the ID of the cluster's etcd cluster, by any of the places
// where it is recorded; empty while none has a bootstrap.
func (f observation) bootstrappedCluster() string {
	if f.ConfigSystemIdentifier != "" || f.hasEarlierRecord() {
		return f.ConfigSystemIdentifier
	}
	return f.Membership.SystemIdentifier
}

// hasEarlierRecord says whether the membership record is that of an earlier cluster of the
// name, of whose data nothing is there: neither here nor on any other volume.
// Data that was restored for this cluster is not that one's.
func (f observation) hasEarlierRecord() bool {
	other := f.ConfigKnown && f.Membership.Cluster != "" && f.Membership.Cluster != f.Cluster
	if f.Volume.Content == contentEmpty {
		return other && f.Fresh && f.ConfigSystemIdentifier == ""
	}
	return other && f.isRestored()
}

// isRestored says whether the data was restored for this cluster, and has not
// been settled in it yet.
func (f observation) isRestored() bool {
	v := f.Volume
	return v.Content == contentData && f.ConfigKnown && v.RestoredFor == f.Cluster && v.Mark.Member != v.RaftLog.Member
}

// isRecorded says whether the membership record holds the data's cluster and a start of
// its member. Whether that was on this volume is settled as with any data.
func (f observation) isRecorded() bool {
	_, there := f.Membership.FindStart(f.Volume.RaftLog.Member)
	return there && f.Membership.SystemIdentifier == f.Volume.RaftLog.Cluster
}

// isForeign says whether any recorded ID is of another cluster than the data's.
func (f observation) isForeign() bool {
	recorded := f.Membership.SystemIdentifier
	if f.hasEarlierRecord() {
		recorded = ""
	}
	for _, id := range []string{f.ConfigSystemIdentifier, f.Volume.Mark.Cluster, recorded} {
		if id != "" && id != f.Volume.RaftLog.Cluster {
			return true
		}
	}
	return false
}

// isOfCluster says whether the data is known to be this cluster's.
func (f observation) isOfCluster() bool {
	id := f.Volume.RaftLog.Cluster
	return f.ConfigSystemIdentifier == id || f.Volume.Mark.Cluster == id || f.Membership.SystemIdentifier == id
}

// refusedVersion says why this version of etcd must not start on the data. It
// does not speak of going back by one minor version at most: etcd itself knows
// whether all members had left the older one.
func (f observation) refusedVersion() string {
	have, known := etcdversion.Parse(f.Volume.servedVersion())
	next, ours := etcdversion.Parse(f.Version)
	if !ours || !known && !f.OldEntries {
		return ""
	}
	switch obstacle, first := etcdversion.FindObstacle(have, next); {
	case obstacle == etcdversion.Older && next.Minor < have.Minor-1:
		return fmt.Sprintf("etcd %s has served the data, and etcd does not go back to %s: set spec.version to %q or newer", have, next, have)
	case obstacle == etcdversion.Patch:
		return fmt.Sprintf("etcd %s takes over data of %s or later only, and %s has served it last: set spec.version to %q or a later 3.%d first; %s",
			next, first, have, first, first.Minor, refillRemedy)
	case f.OldEntries && next.Minor > lastReader:
		return fmt.Sprintf("the Raft log holds entries of etcd 3.5, which etcd %s cannot read: set spec.version to a 3.%d, with which the member takes a snapshot when it starts, and once all members run it to %q again", next, lastReader, next)
	case obstacle == etcdversion.Minor:
		return fmt.Sprintf("etcd %s is more than one minor version ahead of %s, which has served the data last: set spec.version to a 3.%d first; %s", next, have, first.Minor, refillRemedy)
	}
	return ""
}

// refillRemedy is the way out where going back is none: a member that was away
// while the others were upgraded.
const refillRemedy = "where the other members serve with a newer version already, delete this member's volume and pod instead, and it is filled from them"

// mayHaveOldEntries says whether the Raft log must be checked before this version of
// etcd reads it: it does not read the old form, and has not served the data yet.
func (f observation) mayHaveOldEntries() bool {
	ours, _ := etcdversion.Parse(f.Version)
	served, known := etcdversion.Parse(f.Volume.servedVersion())
	return ours.Minor > lastReader && (!known || served.Minor <= lastReader)
}

// isReplaced says whether the join grant is for another member than the data's.
func (f observation) isReplaced() bool {
	return f.JoinGrant != nil && f.JoinGrant.State == etcdapi.JoinExisting && f.JoinGrant.MemberID != f.Volume.RaftLog.Member
}

// mustRecover says whether this member is requested to go on alone, and has not yet.
func (f observation) mustRecover() bool {
	r := f.Recovery
	return r != nil && r.Pod == f.Pod && r.MemberID == f.Volume.RaftLog.Member && r.Token != f.Volume.Mark.Recovered
}

// needsMembership says whether what the membership record holds matters.
func (f observation) needsMembership() bool {
	return f.ConfigKnown && (f.Volume.Content == contentEmpty || !f.isOfCluster() || f.isRestored())
}

// needsConfirmation says whether what the group says matters.
func (f observation) needsConfirmation() bool {
	if f.JoinGrant == nil || f.JoinGrant.State != etcdapi.JoinExisting {
		return false
	}
	return f.Volume.Content == contentEmpty || f.Volume.Content == contentData && f.isReplaced()
}
