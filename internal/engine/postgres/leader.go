package postgres

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// leadership is which member leads, by what the members report of themselves and
// of the Lease. The operator reads no Lease.
type leadership struct {
	// leader is the ordinal of the member that leads; memberset.NoLeader while none
	// is known to.
	leader int
	// status is what the leader reports; nil without one.
	status *agentapi.Status
	// holder is the ordinal of the member that the newest known state of the Lease
	// names as its holder or as its last one, whether it leads or not;
	// memberset.NoLeader while that is not known. leaseKnown says that members report
	// the Lease.
	holder     int
	leaseKnown bool
	// term of that state; 0 while it is not known. The state itself is nil while no
	// member reports it, or members contradict each other.
	term  int64
	lease *postgresapi.LeaseState
	// doubts say why a member that reports to be the primary is not believed, by
	// ordinal.
	doubts map[int]string
}

// findLeader finds the member that leads: the pod that the newest known state of the
// Lease names as its holder, if it reports itself to be the primary, of that term. A
// report without the Lease is not believed. What status records of a newer term counts
// as well: the members that know it may not answer now. Agents of earlier versions
// report no Lease, and let none but the bootstrap member lead.
func findLeader(s objects.Set, o memberset.Observation) leadership {
	l := leadership{leader: memberset.NoLeader, holder: memberset.NoLeader, doubts: map[int]string{}}
	newest, contradicted := findNewestLease(o)
	if newest != nil {
		l.term = newest.Term
	}
	recorded := findRecorded(s, o, l.term)
	l.leaseKnown = newest != nil || recorded != nil
	switch {
	case recorded != nil:
		l.term = recorded.Term
		l.holder = findHolder(s, o, postgresapi.LeaseState{HolderPod: recorded.Leader})
	case newest != nil && !contradicted:
		l.lease, l.holder = newest, findHolder(s, o, *newest)
	}
	claimants := listClaimants(o)
	for _, n := range claimants {
		why := ""
		switch {
		case recorded != nil:
			why = fmt.Sprintf("and %s held the Lease in term %d, which is newer", recorded.Leader, recorded.Term)
		case newest != nil:
			why = doubtHolder(o.Member(n), *newest, contradicted)
		default:
			why = doubtEarlierAgent(n, len(claimants))
		}
		if why == "" {
			l.leader, l.status = n, o.Member(n)
			continue
		}
		l.doubts[n] = "member " + s.PodName(n) + " reports that it is the primary, " + why
	}
	return l
}

// isLed says whether a member is known to lead.
func (l leadership) isLed() bool { return l.leader != memberset.NoLeader }

// findExpected is the member to look at: the leader; while none leads, the one that
// the Lease names; and where nothing points at another, the bootstrap member. It
// only explains: nothing is deleted or replaced by it.
func (l leadership) findExpected() int {
	switch {
	case l.isLed():
		return l.leader
	case l.leaseKnown && (l.holder != memberset.NoLeader || len(l.doubts) > 0):
		return l.holder
	}
	return memberset.BootstrapOrdinal
}

// isServing says whether the leader answers queries.
func (l leadership) isServing() bool { return l.status != nil && l.status.Serving }

// isChanging says whether a member has no primary to follow for the moment: none serves,
// or the member has not read the newest term of the Lease yet. What it then does not
// receive is no failure of its own.
func (l leadership) isChanging(m *agentapi.Status) bool {
	own := readReplication(m).Lease
	return !l.isServing() || own != nil && own.Term < l.term
}

// mayTakeOver says whether a replica may lead after the leader, as far as both report
// it. Agents of earlier versions report nothing of that.
func (l leadership) mayTakeOver(m *agentapi.Status) bool {
	own, leader := readReplication(m).Election, l.readElection()
	return own == nil || len(leader.MayLead) == 0 || slices.Contains(leader.MayLead, own.Volume)
}

// counts says whether a standby acknowledges commits, by the leader's answer: it is in the
// quorum, and streams. Without a quorum commits wait for none, and agents of earlier
// versions know of none.
func (l leadership) counts(pod string, m *agentapi.Status) bool {
	own, leader := readReplication(m).Election, l.readElection()
	return own == nil || len(leader.Quorum) == 0 || slices.Contains(leader.Quorum, own.Volume) && slices.Contains(leader.Streaming, pod)
}

// takesWrites says whether the leader takes writes.
func (l leadership) takesWrites() bool {
	return l.isServing() && l.status.State == agentapi.StateRunning
}

// listDoubts are the doubts, by ascending ordinal.
func (l leadership) listDoubts() []string {
	var all []string
	for _, n := range slices.Sorted(maps.Keys(l.doubts)) {
		all = append(all, l.doubts[n])
	}
	return all
}

// listClaimants are the members that report to be the primary, ascending.
func listClaimants(o memberset.Observation) []int {
	var found []int
	for _, n := range slices.Sorted(maps.Keys(o.Pods)) {
		if m := o.Member(n); m != nil && m.Role == v1alpha1.RolePrimary {
			found = append(found, n)
		}
	}
	return found
}

// findNewestLease is the state of the Lease with the highest term that a member
// reports; nil where none reports any. Contradicted says that members name two
// holders of that term: the Lease was edited. A Lease is released after it was held,
// and another holder has another term: no holder is newer than one of the same term.
func findNewestLease(o memberset.Observation) (newest *postgresapi.LeaseState, contradicted bool) {
	for _, n := range slices.Sorted(maps.Keys(o.Pods)) {
		m := o.Member(n)
		if m == nil {
			continue
		}
		switch lease := readReplication(m).Lease; {
		case lease == nil:
		case newest == nil || lease.Term > newest.Term:
			newest, contradicted = lease, false
		case lease.Term < newest.Term || lease.HolderUID == newest.HolderUID:
		case lease.HolderUID == "":
			newest = lease
		case newest.HolderUID != "":
			contradicted = true
		}
	}
	return newest, contradicted
}

// findHolder is the ordinal of the Lease's holder, by its pod or, where that is gone
// or has released the Lease, by the name of the pod; memberset.NoLeader if it is none
// of the cluster's.
func findHolder(s objects.Set, o memberset.Observation, lease postgresapi.LeaseState) int {
	for n, pod := range o.Pods {
		if lease.HolderUID != "" && string(pod.UID) == lease.HolderUID {
			return n
		}
	}
	for n := range objects.MostMembers {
		if s.PodName(n) == lease.HolderPod {
			return n
		}
	}
	return memberset.NoLeader
}

// doubtHolder says why a member that reports to be the primary does not lead by the
// newest known state of the Lease; empty if it does.
func doubtHolder(m *agentapi.Status, newest postgresapi.LeaseState, contradicted bool) string {
	own := readReplication(m).Lease
	switch {
	case contradicted:
		return fmt.Sprintf("and members name different holders of the Lease in term %d", newest.Term)
	case newest.HolderUID == "":
		return fmt.Sprintf("and the Lease has no holder since term %d", newest.Term)
	case newest.HolderUID != m.PodUID:
		return fmt.Sprintf("and the Lease names another pod %s in term %d", newest.HolderPod, newest.Term)
	case own != nil && own.Term != newest.Term:
		return fmt.Sprintf("of term %d, and the Lease is in term %d", own.Term, newest.Term)
	}
	return ""
}

// doubtEarlierAgent says why a member that reports to be the primary does not lead
// where no member reports the Lease; empty if it does.
func doubtEarlierAgent(ordinal, claimants int) string {
	switch {
	case claimants > 1:
		return "and so does another one"
	case ordinal != memberset.BootstrapOrdinal:
		return "and no member reports a Lease that names it"
	}
	return ""
}

// explainNoPrimary says why no member takes writes; empty where that is not known.
func (j *judgement) explainNoPrimary() string {
	if s := j.Standings[j.lead.findExpected()]; s.Message != "" {
		return s.Message
	}
	return strings.Join(j.lead.listDoubts(), "; ")
}

// DecodeStatus reads a member's answer.
func DecodeStatus(text []byte) (agentapi.Status, error) {
	return agentapi.DecodeStatus[postgresapi.ReplicationStatus](text)
}

// readReplication is what of a status only members of PostgreSQL report.
func readReplication(m *agentapi.Status) postgresapi.ReplicationStatus {
	return agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](m)
}
