package etcd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// group is the membership, as one of the members sees it.
type group struct {
	// known says that a member answered that sees one.
	known bool
	// led says that the view is the leader's own, which alone is never behind.
	led bool
	// leader is the leader's ordinal; -1 without one.
	leader int
	// members by ordinal.
	members map[int]etcdapi.GroupMember
	// strangers are members whose address is no pod of the cluster.
	strangers []etcdapi.GroupMember
	// healthy are the voters, by ordinal, that serve.
	healthy map[int]bool
	// voters is the number of members that have a vote, of the cluster or not.
	voters int
	// joining is the ordinal of the member that has no vote yet; at most one is
	// there at a time, and while it is, no other is admitted. -1 for none.
	joining int
	// ordinals is one more than the highest ordinal in the group, and started one
	// more than that of a member that has ever started.
	ordinals, started int
	// survivors are the members of a group without a leader by what is known of
	// their data.
	survivors survivors
}

// peerURL is the address that other members reach a member by.
func peerURL(s objects.Set, ordinal int) string {
	return fmt.Sprintf("https://%s:%d", s.PodHost(s.PodName(ordinal)), PeerPort)
}

// ordinalOf the pod that a peer URL is the address of.
func ordinalOf(s objects.Set, url string) (int, bool) {
	rest, found := strings.CutPrefix(url, "https://"+s.Named("-"))
	if !found {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || n >= objects.MostMembers || url != peerURL(s, n) {
		return 0, false
	}
	return n, true
}

// groupOf is the leader's view; without a leader that of the member with the
// newest data.
func groupOf(c *v1alpha1.EtcdCluster, o Observation, members memberset.Membership) group {
	s := membersOf(c)
	g := group{leader: -1, joining: -1, members: map[int]etcdapi.GroupMember{}, healthy: map[int]bool{}}
	for _, member := range g.observeMembers(o) {
		n, ours := ordinalOf(s, member.PeerURL)
		if !ours {
			g.strangers = append(g.strangers, member)
			continue
		}
		g.members[n] = member
		if canVote(o.Member(n), member) {
			g.healthy[n] = true
		}
	}
	g.countMembers()
	if !g.led {
		g.survivors = findSurvivors(o, g, members)
	}
	return g
}

// observeMembers takes up who leads, and answers the members in the view that counts.
func (g *group) observeMembers(o Observation) []etcdapi.GroupMember {
	var view []etcdapi.GroupMember
	newest := uint64(0)
	for n := range objects.MostMembers {
		m := o.Member(n)
		if m == nil || readGroup(m).Group == nil || len(readGroup(m).Group.Members) == 0 {
			continue
		}
		if readGroup(m).Group.Leader != "" && readGroup(m).Group.Self == readGroup(m).Group.Leader && m.Serving {
			g.known, g.led, g.leader = true, true, n
			return readGroup(m).Group.Members
		}
		if view == nil || m.Position > newest {
			view, newest, g.known = readGroup(m).Group.Members, m.Position, true
		}
	}
	return view
}

// canVote says whether a pod serves as the member that the group counts.
func canVote(m *agentapi.Status, as etcdapi.GroupMember) bool {
	return m != nil && m.Serving && m.State == agentapi.StateRunning && !as.Learner && readGroup(m).Group != nil && readGroup(m).Group.Self == as.ID
}

// countMembers counts who is in the group, and how far each has come.
func (g *group) countMembers() {
	for _, m := range g.strangers {
		if !m.Learner {
			g.voters++
		}
	}
	for n, m := range g.members {
		if !m.Learner {
			g.voters++
		}
		if (m.Learner || m.Name == "") && (g.joining < 0 || n < g.joining) {
			g.joining = n
		}
		g.ordinals = max(g.ordinals, n+1)
		if m.Name != "" {
			g.started = max(g.started, n+1)
		}
	}
}

// change of the membership, whose safety is a matter of counting.
type change int

const (
	// addMember admits a member without a vote that is to get one.
	addMember change = iota
	// removeHealthy takes the vote from a member that serves.
	removeHealthy
	// removeLost takes the vote from a member that does not.
	removeLost
	// removeLearner drops a member that never had one.
	removeLearner
	// stopHealthy lets a member be away for a while.
	stopHealthy
)

// describeRisk says why a change must not be made with that many voters, of whom so
// many are healthy; empty when it may.
func describeRisk(what change, voters, healthy int) string {
	if healthy < memberset.CountMajority(voters) {
		return fmt.Sprintf("only %d of %d voting members are healthy, and %d must agree", healthy, voters, memberset.CountMajority(voters))
	}
	left, present := voters, healthy
	switch what {
	case removeLost:
		return "" // a member that was missed before is missed no more
	case removeLearner:
		return ""
	case removeHealthy:
		left, present = voters-1, healthy-1
	case addMember:
		left = voters + 1 // the joining member may fail as soon as it has its vote
	case stopHealthy:
		present = healthy - 1
	}
	if present >= memberset.CountMajority(left) {
		return ""
	}
	if healthy == voters && what != removeHealthy {
		return "" // it is as safe as it will ever be: one or two bear no loss
	}
	return fmt.Sprintf("%d of %d voting members would be healthy then, and %d must agree", present, left, memberset.CountMajority(left))
}
