package group

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// Phase of a member.
type Phase int

// The phases.
const (
	// Empty: it has no data.
	Empty Phase = iota
	// Down: its server does not run.
	Down
	// Detached: its server runs, in no group, and nothing is under way that may change
	// that. It takes no write.
	Detached
	// Starting: it is about to join a group or to start one. A member reports that before
	// it claims to start the group, until it is in one or has failed.
	Starting
	// InGroup: its view says more.
	InGroup
)

// Report is what a member says of itself.
type Report struct {
	Pod string
	// Ordinal at the end of the pod's name.
	Ordinal int
	UUID    string
	// Group that its data belongs to.
	Group string
	Phase Phase
	// Executed transactions, Received ones that may still wait to be applied, and Purged
	// ones, which no other member can get from it.
	Executed, Received, Purged mysqlgtid.Set
	View                       View
	// ReplicationName is that of the group that the server is in; empty for the name of
	// Group.
	ReplicationName string
	// SingleLeader says that the group that the server is in agrees by a single leader, its
	// primary, and not by all members in turn. Others cannot join it.
	SingleLeader bool
	// JoinsSingleLeader says, of a peer, that its agent can have it join such a group.
	JoinsSingleLeader bool
	// Persisted are the UUIDs in the record that is on the member's volume, Revision and
	// Lineage those of that record.
	Persisted []string
	Revision  int64
	Lineage   Lineage
}

// replicationName of the group that the server is in.
func (r Report) replicationName() string { return cmp.Or(r.ReplicationName, r.Group) }

// Held are all transactions that the member's volume holds.
func (r Report) Held() mysqlgtid.Set { return r.Executed.Union(r.Received) }

// leads says whether the member is in a group that takes writes.
func (r Report) leads() bool { return r.Phase == InGroup && r.View.HasMajority() }

// Situation is what a member that is in no group decides by.
type Situation struct {
	Self Report
	// Peers are the members that answered, after the record was read.
	Peers []Report
	// Record as it was read last from the API server; RecordKnown is false while that
	// fails.
	Record      Record
	RecordKnown bool
	// Persisted is the record on this member's volume; the zero value for none.
	Persisted Record
	// Claimed is the term that this member claimed since its server is detached; 0 for
	// none. An earlier claim counts for nothing.
	Claimed int64
	// Forced says that a person requests that this member starts the group without those
	// that do not answer.
	Forced bool
	// NewName is a random UUID for the lineage that begins with a forced start.
	NewName string
}

// Action of a member.
type Action int

// The actions.
const (
	// Wait for the reason.
	Wait Action = iota
	// Hold: the data has diverged, and a person decides.
	Hold
	// CloneFrom the peer beside the data.
	CloneFrom
	// RecordJoining: record itself before it joins.
	RecordJoining
	// Join the group of the peer.
	Join
	// ClaimBoot: record the claim to start the group anew.
	ClaimBoot
	// StartGroup anew, under the claim.
	StartGroup
)

// Plan is what to do next.
type Plan struct {
	Action Action
	// Peer to clone or to join.
	Peer string
	// Record to write, bound to the one that was read.
	Record Record
	// ReplicationName of the group to join or to start.
	ReplicationName string
	// SingleLeader is how the group to join or to start agrees: see Report.
	SingleLeader bool
	// Seeds are the addresses of the members that may let this one into the group, the
	// primary's first. One that is about to join itself never answers.
	Seeds []string
	// Turn is how many members are to join that come first. A server that lets two in at once
	// keeps one waiting for five seconds or more.
	Turn int
	// Errant are transactions that the group does not have.
	Errant mysqlgtid.Set
	// Foreign says, of Hold, that the data is of another group.
	Foreign bool
	// Missing are the pods, or the servers, that must answer first.
	Missing []string
	Reason  string
}

// PlanStart says what a member does that is in no group.
func PlanStart(s Situation) Plan {
	if peers := s.listServing(); len(peers) > 0 {
		return s.planJoin(peers)
	}
	switch {
	case s.Self.Phase == Empty:
		return Plan{Reason: "no member of the group serves that could be cloned"}
	case s.Self.Phase != Detached:
		return Plan{Reason: "the own server is not ready"}
	case !s.RecordKnown && s.Persisted.IsOnly(s.Self.UUID):
		// No other member can have joined without this volume's knowledge.
		return Plan{Action: StartGroup, ReplicationName: s.Persisted.ReplicationName(), SingleLeader: s.canAllJoinSingleLeader(), Reason: "the only member of the group"}
	case !s.RecordKnown:
		return Plan{Reason: "the record of the members cannot be read"}
	}
	return s.planBoot()
}

// listServing are the peers that are online in a group that takes writes, secondaries
// first: the primary has other work.
func (s Situation) listServing() []Report {
	var serving, primaries []Report
	for _, p := range s.Peers {
		m, _ := p.View.Find(p.UUID)
		switch {
		case !p.leads() || m.State != Online:
		case m.Primary:
			primaries = append(primaries, p)
		default:
			serving = append(serving, p)
		}
	}
	return append(serving, primaries...)
}

// planJoin joins the group that the peers serve in.
func (s Situation) planJoin(peers []Report) Plan {
	first := peers[0]
	for _, p := range peers {
		if p.replicationName() != first.replicationName() {
			return Plan{Reason: fmt.Sprintf("%s and %s serve in two groups: stop the one whose data is not needed", first.Pod, p.Pod)}
		}
	}
	if s.Self.Phase == Empty {
		return Plan{Action: CloneFrom, Peer: first.Pod, Reason: "the volume is empty"}
	}
	if s.Self.Group != first.Group {
		return Plan{Action: Hold, Foreign: true, Reason: fmt.Sprintf("the data is of the group %s, and %s is in %s", s.Self.Group, first.Pod, first.Group)}
	}
	if s.Self.Phase != Detached {
		return Plan{Reason: "the own server is not ready"}
	}
	// One peer may have received what another one has not yet.
	var held mysqlgtid.Set
	for _, p := range peers {
		held = held.Union(p.Held())
	}
	if errant := s.Self.Held().Subtract(held); !errant.IsEmpty() {
		return Plan{
			Action: Hold, Errant: errant,
			Reason: fmt.Sprintf("the data holds transactions that the group does not have: %s", errant),
		}
	}
	if i := slices.IndexFunc(peers, func(p Report) bool { return s.Self.Held().Contains(p.Purged) }); i < 0 {
		missed := first.Purged.Subtract(s.Self.Held())
		return Plan{Action: CloneFrom, Peer: first.Pod, Reason: fmt.Sprintf("no member has a binlog any more of what is missing; %s lacks %s", first.Pod, missed)}
	}
	for _, p := range peers {
		if _, listed := p.View.Find(s.Self.UUID); listed {
			return Plan{Reason: "the group has not expelled the earlier run of this member yet"}
		}
	}
	return s.planRecordedJoin(first)
}

// planRecordedJoin joins once the record says so, on the API server and on the volume of
// the primary: alone it would start without this member after an outage.
func (s Situation) planRecordedJoin(peer Report) Plan {
	if !s.RecordKnown {
		return Plan{Reason: "the record of the members cannot be read"}
	}
	if e, found := s.Record.Find(s.Self.UUID); !found || !e.Joining {
		return Plan{Action: RecordJoining, Record: s.Record.WithJoining(s.Self.UUID, s.Self.Pod), Reason: "a member is recorded before it joins"}
	}
	primary, ok := peer.View.Primary()
	if !ok {
		return Plan{Reason: "the group has no primary"}
	}
	for _, p := range append([]Report{peer}, s.Peers...) {
		if strings.EqualFold(p.UUID, primary.UUID) {
			if p.Revision > s.Record.Revision {
				return Plan{Reason: "the record of the members was set back: " + p.Pod + " has a newer one, and writes it again"}
			}
			if !slices.Contains(p.Persisted, s.Self.UUID) {
				return Plan{Reason: p.Pod + " has not persisted yet that this member joins"}
			}
			return Plan{
				Action: Join, Peer: peer.Pod, ReplicationName: peer.replicationName(), SingleLeader: p.SingleLeader, Seeds: listSeeds(peer.View, primary), Turn: s.countEarlier(),
				Reason: "the group of " + peer.Pod + " serves",
			}
		}
	}
	return Plan{Reason: "the agent of the primary does not answer"}
}

// listSeeds are the addresses of the primary and of the other members that are online.
func listSeeds(v View, primary Member) []string {
	seeds := []string{primary.Address}
	for _, m := range v.Members {
		if m.State == Online && m.UUID != primary.UUID {
			seeds = append(seeds, m.Address)
		}
	}
	return seeds
}

// countEarlier counts the members in no group that come before this one.
func (s Situation) countEarlier() int {
	count := 0
	for _, p := range s.Peers {
		if (p.Phase == Detached || p.Phase == Starting) && p.Ordinal < s.Self.Ordinal {
			count++
		}
	}
	return count
}

// planBoot starts the group anew when every recorded member is out of it and answers:
// an acknowledgement precedes the disks of the secondaries, so that a majority is not
// enough.
func (s Situation) planBoot() Plan {
	if i := slices.IndexFunc(s.Peers, func(p Report) bool { return p.Phase == InGroup || p.Phase == Starting }); i >= 0 {
		return Plan{Reason: s.Peers[i].Pod + " is in a group, or is about to be"}
	}
	if s.Record.Group != "" && s.Record.Group != s.Self.Group {
		return Plan{Action: Hold, Foreign: true, Reason: fmt.Sprintf("the data is of the group %s, and %s is recorded", s.Self.Group, s.Record.Group)}
	}
	s.Record = s.Record.withReported(s.Peers)
	if len(s.Record.Entries) == 0 && !s.Forced {
		return Plan{Reason: "no member of the group is recorded"}
	}
	present, missing := s.listRecorded()
	if len(missing) > 0 && !s.Forced {
		return Plan{Missing: missing, Reason: "these members must answer first, for they may hold the latest writes: " + strings.Join(missing, ", ")}
	}
	return s.planStarter(present, missing)
}

// planStarter has the member start the group that holds all transactions of those present.
// By a person's request all detached ones count, recorded or not.
func (s Situation) planStarter(present []Report, missing []string) Plan {
	if s.Forced {
		present = s.listDetached()
	}
	starter, ok := s.chooseStarter(present)
	switch {
	case !ok:
		return Plan{Action: Hold, Reason: "no member holds all transactions of the others: " + describeDifferences(present)}
	case starter.UUID != s.Self.UUID:
		return Plan{Reason: starter.Pod + " starts the group"}
	case s.holdsClaim() && len(missing) == 0:
		return Plan{Action: StartGroup, ReplicationName: s.Record.ReplicationName(), SingleLeader: s.canAllJoinSingleLeader(), Reason: "it holds all transactions of the recorded members"}
	case s.Forced:
		return s.planForcedClaim(present, missing)
	}
	return Plan{Action: ClaimBoot, Record: s.Record.WithClaim(s.Self.UUID), Reason: "it holds all transactions of the recorded members"}
}

// canAllJoinSingleLeader says whether each peer that answers could join a group that agrees by
// a single leader. One whose agent is of an earlier build may be refused there for good: the group
// goes on with turns while one does not say that it can.
func (s Situation) canAllJoinSingleLeader() bool {
	return !slices.ContainsFunc(s.Peers, func(p Report) bool { return !p.JoinsSingleLeader })
}

// planForcedClaim goes on without the members that are missing. One that was not recorded may
// go on, too: it was out of the group before the others were, and a person says that what they
// had is lost.
func (s Situation) planForcedClaim(present []Report, missing []string) Plan {
	reason := "a person requests it"
	if _, recorded := s.Record.Find(s.Self.UUID); !recorded {
		reason += "; this member was not in the group any more when the others were lost, so that what they wrote since is lost"
	}
	return Plan{Action: ClaimBoot, Record: s.Record.WithForcedClaim(s.Self, listUUIDs(present), s.NewName), Missing: missing, Reason: reason}
}

// holdsClaim says whether this member's claim to start the group is the last one.
func (s Situation) holdsClaim() bool {
	return s.Claimed > 0 && s.Record.Boot == Boot{s.Claimed, s.Self.UUID}
}

// chooseStarter is the member that starts the group. Of several that hold as much it is the
// one that a person names, or that has claimed the start; otherwise the ordinal decides.
func (s Situation) chooseStarter(present []Report) (Report, bool) {
	newest, ok := findNewest(present)
	counts := slices.ContainsFunc(present, func(r Report) bool { return r.UUID == s.Self.UUID })
	if ok && counts && (s.Forced || s.holdsClaim()) && s.Self.Held().Contains(newest.Held()) {
		return s.Self, true
	}
	return newest, ok
}

// listRecorded are the recorded members that are detached, with the own one, and the
// names of the others. A detached member that is not recorded was out of the group
// before the others were.
func (s Situation) listRecorded() (present []Report, missing []string) {
	all := append([]Report{s.Self}, s.Peers...)
	for _, e := range s.Record.Entries {
		i := slices.IndexFunc(all, func(r Report) bool { return r.Phase == Detached && strings.EqualFold(r.UUID, e.UUID) })
		switch {
		case i >= 0:
			present = append(present, all[i])
		case e.Pod != "":
			missing = append(missing, e.Pod)
		default:
			missing = append(missing, e.UUID)
		}
	}
	return present, missing
}

// listDetached are all members with data of the group that are detached, recorded or not.
func (s Situation) listDetached() []Report {
	return slices.DeleteFunc(append([]Report{s.Self}, s.Peers...), func(r Report) bool {
		return r.Phase != Detached || r.Group != s.Self.Group
	})
}

// findNewest is the member that holds all transactions of all; among equal ones the one
// with the lowest ordinal.
func findNewest(reports []Report) (Report, bool) {
	var all mysqlgtid.Set
	for _, r := range reports {
		all = all.Union(r.Held())
	}
	var newest Report
	found := false
	for _, r := range reports {
		if r.Held().Contains(all) && (!found || r.Ordinal < newest.Ordinal) {
			newest, found = r, true
		}
	}
	return newest, found
}

// describeDifferences says what each member holds that another one does not.
func describeDifferences(reports []Report) string {
	var parts []string
	for _, r := range reports {
		others := mysqlgtid.Set{}
		for _, other := range reports {
			if other.UUID != r.UUID {
				others = others.Union(other.Held())
			}
		}
		if alone := r.Held().Subtract(others); !alone.IsEmpty() {
			parts = append(parts, fmt.Sprintf("only %s has %s", r.Pod, alone))
		}
	}
	return strings.Join(parts, "; ")
}

func listUUIDs(reports []Report) []string {
	var uuids []string
	for _, r := range reports {
		uuids = append(uuids, r.UUID)
	}
	return uuids
}

// MayServe says whether a group that this member started anew may be reached by clients:
// its claim is still the last one. A member that stood still between its claim and its
// start may have been left behind by a person's request.
func MayServe(r Record, uuid string, term int64) bool {
	_, recorded := r.Find(uuid)
	return recorded && r.Boot.Term == term && r.Boot.UUID == uuid
}
