package etcd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// requestRecoverQuorum is the type of the request, as status has it.
var requestRecoverQuorum = strings.TrimPrefix(v1alpha1.AnnotationRecoverQuorum, v1alpha1.GroupVersion.Group+"/")

// recovery is how far the request to go on without a lost majority has come.
type recovery struct {
	// status is what is recorded of the last request; nil for none.
	status *v1alpha1.RequestStatus
	// request for the members; nil while there is none to carry out.
	request *etcdapi.Recovery
	// underWay says that a request was taken up and is not done.
	underWay bool
	// awaited says that its member does not answer.
	awaited bool
	// refused says why the request cannot be taken up, and what to do.
	refused string
}

// recoveryOf takes up a request once. Who goes on is chosen once, too: the choice
// is recorded in the status before any member hears of it, for two members
// that went on alone would be two clusters.
func recoveryOf(c *v1alpha1.EtcdCluster, o Observation, g group) recovery {
	var r recovery
	for i := range c.Status.Requests {
		if c.Status.Requests[i].Type == requestRecoverQuorum {
			r.status = c.Status.Requests[i].DeepCopy()
		}
	}
	token := c.Annotations[v1alpha1.AnnotationRecoverQuorum]
	switch {
	case r.status != nil && r.status.Result == "":
		r.carryOut(c, o, g)
	case token == "" || r.status != nil && r.status.ID == token || o.AwaitsFirstAnswer():
		// nothing is requested, or nothing is known
	case g.led || c.Status.SystemIdentifier == "":
		r.status = &v1alpha1.RequestStatus{Type: requestRecoverQuorum, ID: token, Result: "not needed: the quorum is not lost"}
	default:
		target, refused := chooseSurvivor(c, o, g)
		if r.refused = refused; refused == "" {
			r.status = &v1alpha1.RequestStatus{Type: requestRecoverQuorum, ID: token,
				Target: membersOf(c).PodName(target), MemberID: g.members[target].ID}
			r.underWay = true
		}
	}
	return r
}

// carryOut asks the member that was chosen to go on, until it has. The choice
// ends only when it cannot be followed any more: the member may have followed it
// without an answer, and one that leads as the only one with a vote has, and marks
// it.
func (r *recovery) carryOut(c *v1alpha1.EtcdCluster, o Observation, g group) {
	r.underWay = true
	end := func(result string) { r.underWay, r.status.Result = false, result }
	for n := range objects.MostMembers {
		if membersOf(c).PodName(n) != r.status.Target {
			continue
		}
		m := o.Member(n)
		switch {
		case m != nil && m.Recovered == r.status.ID:
			end(r.status.Target + " went on with its data, and the others join anew")
		case isEmptyMember(o, n), m != nil && readGroup(m).Group != nil && readGroup(m).Group.Self != "" && readGroup(m).Group.Self != r.status.MemberID:
			end("failed: " + r.status.Target + " has lost its data")
		case m == nil:
			r.awaited = true
		case g.led && (g.leader != n || g.voters > 1):
			// The quorum came back before the request went out, or before its
			// member heard of it: to go on alone now would make two groups.
			end("not needed: the quorum came back")
		default:
			r.request = &etcdapi.Recovery{Token: r.status.ID, Pod: r.status.Target, MemberID: r.status.MemberID}
		}
	}
}

// isEmptyMember says that a pod is known to have no data: its agent says so, or its
// claim never had a volume and there is no node for the pod.
func isEmptyMember(o Observation, ordinal int) bool {
	if m := o.Member(ordinal); m != nil {
		return readGroup(m).LostMember != "" || waitsEmpty(m)
	}
	return o.NeverHadVolume(ordinal)
}

// waitsEmpty says that an agent has read its volume, found nothing, and
// waits for a join grant or a request.
func waitsEmpty(m *agentapi.Status) bool {
	return m.State == agentapi.StateWaiting && m.ConfigHash != "" && m.SystemIdentifier == "" && readGroup(m).Group == nil
}

// survivors are the members of a group by what is known of their data.
type survivors struct {
	// alive have it, lost do not, and the unknown do not answer.
	alive, lost, unknown []int
}

// findSurvivors sorts the members of a group without a leader. A pod that the
// newest view does not count has nothing newer, once it answers: it was removed, or
// it has not yet learnt that it was admitted.
func findSurvivors(o Observation, g group, members memberset.Membership) (s survivors) {
	for n := range objects.MostMembers {
		member, counted := g.members[n]
		m := o.Member(n)
		viewed := m != nil && m.SystemIdentifier != "" && readGroup(m).Group != nil && readGroup(m).Group.Self != ""
		neverRan := member.Name == "" && !members.Includes(n)
		switch {
		case !counted && (o.Pods[n] == nil || viewed || isEmptyMember(o, n)):
		case isEmptyMember(o, n), neverRan:
			s.lost = append(s.lost, n)
		case viewed && readGroup(m).Group.Self == member.ID:
			s.alive = append(s.alive, n)
		case viewed:
			s.lost = append(s.lost, n) // the data of a member before it
		default:
			s.unknown = append(s.unknown, n)
		}
	}
	return s
}

// filterVoters are those of them that have a vote.
func (g group) filterVoters(ordinals []int) []int {
	return slices.DeleteFunc(slices.Clone(ordinals), func(n int) bool { return g.members[n].ID == "" || g.members[n].Learner })
}

// chooseSurvivor is the member with the newest data, when no other can have newer, and
// when the others can never again make decisions without it.
func chooseSurvivor(c *v1alpha1.EtcdCluster, o Observation, g group) (ordinal int, refused string) {
	alive, unknown := g.survivors.alive, g.survivors.unknown
	voting := g.filterVoters(alive)
	switch {
	case len(alive) == 0:
		return 0, "no member has data and answers: bring one back with its volume"
	case len(voting) == 0:
		return 0, fmt.Sprintf("%s never had a vote, and etcd cannot go on from that alone: bring a voting member back with its volume", listNames(c, alive))
	case len(voting) >= memberset.CountMajority(g.voters):
		return 0, fmt.Sprintf("%s have their data and can go on by themselves: fix what keeps them from each other", listNames(c, voting))
	case len(unknown) > 0:
		return 0, fmt.Sprintf("what %s has is not known, and it may be newer: bring it back, or %s", listNames(c, unknown), memberset.LostRemedy)
	}
	return slices.MaxFunc(voting, func(a, b int) int { return cmp.Compare(o.Member(a).Position, o.Member(b).Position) }), ""
}

// quorumLost says whether so many members have lost their data that the others
// can never agree again.
func quorumLost(o Observation, g group) bool {
	if !g.known || g.led || o.AwaitsFirstAnswer() {
		return false
	}
	return g.voters-len(g.filterVoters(g.survivors.lost)) < memberset.CountMajority(g.voters)
}

// quorumAway says whether so many members are away, or have lost their data,
// that the others cannot agree now.
func quorumAway(o Observation, g group) bool {
	if !g.known || g.led || o.AwaitsFirstAnswer() {
		return false
	}
	return len(g.filterVoters(g.survivors.alive)) < memberset.CountMajority(g.voters)
}

// nothingLeft says whether the cluster was bootstrapped and no member has any data.
func (j *judgement) nothingLeft() bool {
	if j.Desired.SystemIdentifier == "" || j.g.known || j.o.AwaitsFirstAnswer() {
		return false
	}
	for n := range j.Desired.Count {
		if !isEmptyMember(j.o, n) {
			return false
		}
	}
	return true
}

// judgeRecovery says what a lost majority asks of a person, and what becomes of
// the request.
func (j *judgement) judgeRecovery() {
	switch {
	case j.r.awaited:
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonRecovering,
			"member %s is to go on alone, as requested, and does not answer: bring it back, or %s; then repeat the request with another ID", j.r.status.Target, memberset.LostRemedy)
	case j.r.underWay:
		j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonRecovering, "member %s goes on alone, as requested", j.r.status.Target)
		j.Facts[len(j.Facts)-1].Requested = true
	case j.nothingLeft():
		j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonDataMissing,
			"the volumes of all members are empty, and the cluster %s was bootstrapped: bring a volume back; only when its data is not needed any more: delete the cluster and every one of its volumes, and create it again", j.Desired.SystemIdentifier)
	case j.r.refused != "":
		j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonRecoveryRefused, "the request by annotation %s is not carried out: %s", v1alpha1.AnnotationRecoverQuorum, j.r.refused)
	case quorumLost(j.o, j.g):
		alive, unknown := j.g.survivors.alive, j.g.survivors.unknown
		j.AddFact(v1alpha1.ConditionStalled, v1alpha1.ReasonQuorumLost,
			"most of the %d voting members have lost their data, so no write can be agreed on any more. With data: %s; not answering: %s. Bring lost volumes back; or go on with the newest data that is left, which may lack the last writes, by annotating the cluster with %s=<an ID that was not used before>",
			j.g.voters, listNames(j.c, alive), listNames(j.c, unknown), v1alpha1.AnnotationRecoverQuorum)
	case quorumAway(j.o, j.g):
		lost, unknown := j.g.survivors.lost, j.g.survivors.unknown
		j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonQuorumLost,
			"%d of %d voting members must agree on a write, and too few answer. Not answering: %s; without data: %s. Service comes back with the members; of each that cannot come back: %s",
			memberset.CountMajority(j.g.voters), j.g.voters, listNames(j.c, unknown), listNames(j.c, lost), memberset.LostRemedy)
	}
}

func listNames(c *v1alpha1.EtcdCluster, ordinals []int) string {
	return memberset.NameMembers(membersOf(c), ordinals)
}
