package etcd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// orderRecoverQuorum is the type of the order, as status has it.
var orderRecoverQuorum = strings.TrimPrefix(v1alpha1.AnnotationRecoverQuorum, v1alpha1.GroupVersion.Group+"/")

// recovery is how far the order to go on without a lost majority has come.
type recovery struct {
	// status is what is on record of the last order; nil for none.
	status *v1alpha1.OrderStatus
	// order for the members; nil while there is none to carry out.
	order *memberapi.Recovery
	// underWay says that an order was taken up and is not done.
	underWay bool
	// refused says why the order cannot be taken up, and what to do.
	refused string
}

// recoveryOf takes up an order once. Who goes on is chosen once, too: the choice
// is on record in the status before any member hears of it, for two members
// that went on alone would be two clusters.
func recoveryOf(c *v1alpha1.EtcdCluster, o Observation, g group) recovery {
	var r recovery
	for i := range c.Status.Orders {
		if c.Status.Orders[i].Type == orderRecoverQuorum {
			r.status = c.Status.Orders[i].DeepCopy()
		}
	}
	token := c.Annotations[v1alpha1.AnnotationRecoverQuorum]
	switch {
	case r.status != nil && r.status.Result == "":
		r.carryOut(c, o, g)
	case token == "" || r.status != nil && r.status.Token == token || o.Blind():
		// nothing is ordered, or nothing is known
	case g.led || c.Status.SystemIdentifier == "":
		r.status = &v1alpha1.OrderStatus{Type: orderRecoverQuorum, Token: token, Result: "not needed: the quorum is not lost"}
	default:
		target, refused := survivor(c, o, g)
		if r.refused = refused; refused == "" {
			r.status = &v1alpha1.OrderStatus{Type: orderRecoverQuorum, Token: token, Target: target}
			r.underWay = true
		}
	}
	return r
}

// carryOut tells the member that was chosen to go on, until it has.
func (r *recovery) carryOut(c *v1alpha1.EtcdCluster, o Observation, g group) {
	r.underWay = true
	for n := range o.Pods {
		m := o.Member(n)
		if set(c).PodName(n) != r.status.Target || m == nil {
			continue
		}
		switch {
		case m.Recovered == r.status.Token:
			r.underWay = false
			r.status.Result = r.status.Target + " went on with its data, and the others join anew"
			return
		case m.LostMember != "":
			r.underWay = false
			r.status.Result = "failed: " + r.status.Target + " has lost its data"
			return
		}
		if g.led {
			// The quorum came back before the order went out, or before its
			// member heard of it: to go on alone now would make two groups.
			r.underWay = false
			r.status.Result = "not needed: the quorum came back"
			return
		}
		if m.Group != nil && m.Group.Self != "" {
			r.order = &memberapi.Recovery{Token: r.status.Token, Pod: r.status.Target, MemberID: m.Group.Self}
		}
	}
}

// survivors sorts the members of a group without a leader by what is known of
// their data.
func survivors(c *v1alpha1.EtcdCluster, o Observation, g group) (alive, lost, unknown []int) {
	for n := range memberset.MostMembers {
		if _, counted := g.members[n]; !counted {
			continue
		}
		m := o.Member(n)
		switch {
		case m != nil && m.SystemIdentifier != "" && m.Group != nil && m.Group.Self != "":
			alive = append(alive, n)
		case m != nil && m.LostMember != "":
			lost = append(lost, n)
		default:
			unknown = append(unknown, n)
		}
	}
	return alive, lost, unknown
}

// survivor is the pod with the newest data, when nobody can have newer, and
// when the others can never again make decisions without it.
func survivor(c *v1alpha1.EtcdCluster, o Observation, g group) (pod, refused string) {
	alive, _, unknown := survivors(c, o, g)
	voting := slices.DeleteFunc(slices.Clone(alive), func(n int) bool { return g.members[n].Learner })
	switch {
	case len(alive) == 0:
		return "", "no member has data and answers: bring one back with its volume"
	case len(voting) == 0:
		return "", fmt.Sprintf("%s never had a vote, and etcd cannot go on from that alone: bring a voting member back with its volume", names(c, alive))
	case len(voting) >= quorum(g.voters()):
		return "", fmt.Sprintf("%s have their data and can go on by themselves: mend what keeps them from each other", names(c, voting))
	case len(unknown) > 0:
		return "", fmt.Sprintf("what %s has is not known, and it may be newer: bring it back, or, when its data is lost for good, delete its PersistentVolumeClaim and its pod", names(c, unknown))
	}
	newest := slices.MaxFunc(voting, func(a, b int) int { return cmp.Compare(o.Member(a).Position, o.Member(b).Position) })
	return set(c).PodName(newest), ""
}

// quorumLost says whether so many members have lost their data that the others
// can never agree again.
func quorumLost(c *v1alpha1.EtcdCluster, o Observation, g group) bool {
	if !g.known || g.led || o.Blind() {
		return false
	}
	_, lost, _ := survivors(c, o, g)
	voting := 0
	for _, n := range lost {
		if !g.members[n].Learner {
			voting++
		}
	}
	return g.voters()-voting < quorum(g.voters())
}

func names(c *v1alpha1.EtcdCluster, ordinals []int) string {
	var out []string
	for _, n := range ordinals {
		out = append(out, set(c).PodName(n))
	}
	return strings.Join(out, ", ")
}
