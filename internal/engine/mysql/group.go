package mysql

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// group is the members' group, as its primary sees it.
type group struct {
	// leader is the ordinal of the member that leads a majority; memberset.NoLeader while
	// none is known to.
	leader int
	// status is what the leader reports; nil without one.
	status *agentapi.Status
	// primary is the UUID of the leader's server; empty without one.
	primary string
	// counted are the members that the group counts, by ordinal, and online those of
	// them that are online and answer. One that is online has a vote, also while it lags
	// and serves no client.
	counted, online map[int]bool
	// voters is the number of servers that the group counts, of the cluster or not.
	voters int
	// strangers are servers that the group counts and that are no pod of the cluster.
	strangers []mysqlapi.ViewMember
	// doubts say why a member that reports to be the primary is not believed, by
	// ordinal.
	doubts map[int]string
}

// readGroup finds the member that leads, and whom its group counts.
func readGroup(s objects.Set, o memberset.Observation) group {
	g := group{leader: memberset.NoLeader, counted: map[int]bool{}, online: map[int]bool{}, doubts: map[int]string{}}
	g.findLeader(s, o)
	if !g.isLed() {
		return g
	}
	servers := mapServers(o)
	for _, member := range readReport(g.status).View {
		g.voters++
		n, ours := servers[member.ServerUUID]
		if !ours {
			n, ours = ordinalOf(s, member.Address)
		}
		if !ours {
			g.strangers = append(g.strangers, member)
			continue
		}
		g.counted[n] = true
		if o.Member(n) != nil && member.State == mysqlapi.StateOnline {
			g.online[n] = true
		}
	}
	return g
}

// findLeader finds the member that reports to lead a majority. Where several do, some
// report what was: the one with the newest view leads. Where that cannot be said, none
// is believed.
func (g *group) findLeader(s objects.Set, o memberset.Observation) {
	newest, contradicted := memberset.NoLeader, false
	claimants := listClaimants(o)
	for _, n := range claimants {
		if newest == memberset.NoLeader {
			newest = n
			continue
		}
		order, comparable := compareViews(readReport(o.Member(n)).ViewID, readReport(o.Member(newest)).ViewID)
		contradicted = contradicted || !comparable || order == 0
		if order > 0 {
			newest = n
		}
	}
	for _, n := range claimants {
		switch {
		case contradicted:
			g.doubts[n] = "member " + s.PodName(n) + " reports that it is the primary, and so does another one"
		case n != newest:
			g.doubts[n] = fmt.Sprintf("member %s reports that it is the primary, and the view of %s is newer", s.PodName(n), s.PodName(newest))
		}
	}
	if newest != memberset.NoLeader && !contradicted {
		g.leader, g.status = newest, o.Member(newest)
		g.primary = readReport(g.status).ServerUUID
	}
}

// listClaimants are the members that lead a majority by their own view, ascending.
func listClaimants(o memberset.Observation) []int {
	var found []int
	for _, n := range slices.Sorted(maps.Keys(o.Pods)) {
		m := o.Member(n)
		if m == nil {
			continue
		}
		if r := readReport(m); r.HasMajority() && r.ServerUUID != "" && r.Primary() == r.ServerUUID {
			found = append(found, n)
		}
	}
	return found
}

// compareViews orders the IDs of two views of one run of a group, such as
// 17000000000000000:5, by their number. Those of two runs cannot be compared.
func compareViews(a, b string) (order int, comparable bool) {
	runA, numberA, _ := strings.Cut(a, ":")
	runB, numberB, _ := strings.Cut(b, ":")
	first, errA := strconv.ParseUint(numberA, 10, 64)
	second, errB := strconv.ParseUint(numberB, 10, 64)
	if runA != runB || errA != nil || errB != nil {
		return 0, false
	}
	return cmp.Compare(first, second), true
}

// mapServers are the ordinals of the members by the UUIDs of their servers.
func mapServers(o memberset.Observation) map[string]int {
	servers := map[string]int{}
	for n := range o.Pods {
		if m := o.Member(n); m != nil && readReport(m) != nil && readReport(m).ServerUUID != "" {
			servers[readReport(m).ServerUUID] = n
		}
	}
	return servers
}

// ordinalOf the pod that an address is of.
func ordinalOf(s objects.Set, address string) (int, bool) {
	for n := range objects.MostMembers {
		if strings.HasPrefix(address, s.PodHost(s.PodName(n))) {
			return n, true
		}
	}
	return 0, false
}

// isLed says whether a member is known to lead a majority. It may still apply what the
// primary before it left.
func (g group) isLed() bool { return g.leader != memberset.NoLeader }

// isServing says whether the leader serves clients.
func (g group) isServing() bool {
	return g.status != nil && g.status.Serving && g.status.Role == v1alpha1.RolePrimary
}

// takesWrites says whether the leader takes writes: it has applied what the primary
// before it left.
func (g group) takesWrites() bool {
	return g.isServing() && g.status.State == agentapi.StateRunning
}

// findExpected is the member to look at: the leader, or the bootstrap member. It only
// explains: nothing is deleted or replaced by it.
func (g group) findExpected() int {
	if g.isLed() {
		return g.leader
	}
	return memberset.BootstrapOrdinal
}

// describeRiskWithout says why the group must not do without a member now, which leaves
// it in order; empty where it may.
func (g group) describeRiskWithout(ordinal int) string {
	left, online := g.voters, len(g.online)
	if g.counted[ordinal] {
		left--
	}
	if g.online[ordinal] {
		online--
	}
	if left == 0 || online >= memberset.CountMajority(left) {
		return ""
	}
	return fmt.Sprintf("%d of the other %d members of the group are online, and %d must be", online, left, memberset.CountMajority(left))
}

// joinLimit is how long a member may be out of its group before its agent is taken for the
// cause: those that come first have their turns, and a join that no member answers fails
// after a minute.
const joinLimit = 2 * time.Minute

// findUnfitAgents are the members that a group with a single leader refuses for good, since
// their agents are of an earlier build. They say nothing of it: they try again and again. An
// agent that does not say that it can join such a group may be able to: it is not unfit if
// the group has taken in one of the same image, or before joinLimit is over. recheck is when
// the first of these limits ends; 0 for none.
func (g group) findUnfitAgents(view *memberset.View) (unfit map[int]string, recheck time.Duration) {
	unfit = map[int]string{}
	if !g.isLed() || !readReport(g.status).SingleLeader {
		return unfit, 0
	}
	for n, pod := range view.Observed.Pods {
		if g.counted[n] || !mayLackLeaderJoin(view.Observed.Member(n)) || g.hasTakenIn(view.Observed, memberset.InstallerImage(pod)) {
			continue
		}
		down, known := view.FindDownTime(n)
		switch {
		case !known:
		case down >= joinLimit:
			unfit[n] = "its agent is of an earlier build, which cannot join a group with a single leader"
		default:
			recheck = engine.SoonestOf(recheck, joinLimit-down)
		}
	}
	return unfit, recheck
}

// mayLackLeaderJoin says of a member in no group that its agent may be of a build that cannot
// join one with a single leader.
func mayLackLeaderJoin(m *agentapi.Status) bool {
	if m == nil {
		return false
	}
	r := readReport(m)
	return r != nil && !r.JoinsSingleLeader && (r.Phase == mysqlapi.PhaseDetached || r.Phase == mysqlapi.PhaseStarting)
}

// hasTakenIn says whether the group counts a member whose agent is of an image.
func (g group) hasTakenIn(o memberset.Observation, image string) bool {
	for n := range g.counted {
		if pod := o.Pods[n]; pod != nil && memberset.InstallerImage(pod) == image {
			return true
		}
	}
	return false
}

// DecodeStatus reads a member's answer.
func DecodeStatus(text []byte) (agentapi.Status, error) {
	return agentapi.DecodeStatus[mysqlapi.GroupStatus](text)
}

// readReport is a member's part in the group; nil where it reports none.
func readReport(m *agentapi.Status) *mysqlapi.MemberReport {
	return agentapi.ReadEngineStatus[mysqlapi.GroupStatus](m).GroupReplication
}
