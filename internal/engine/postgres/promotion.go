package postgres

import (
	"fmt"
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// requestPromote is the type of the request that one member leads with what it has, as
// status has it.
var requestPromote = requestType(v1alpha1.AnnotationPromote)

// promotion is how far the request that one member leads with what it has has come.
type promotion struct {
	// status is what is recorded of the last request; nil for none.
	status *v1alpha1.RequestStatus
	// request for the members; nil while there is none to carry out.
	request *postgresapi.PromotionRequest
}

// planPromotion takes up a request once, while no member leads. It waits while another
// request for less data is carried out, and while members may still answer: one of
// them may lead, or show that it has more.
func planPromotion(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, members int, waits bool) promotion {
	r := promotion{status: findRequest(c, requestPromote)}
	s := membersOf(c)
	id, pod := splitRequest(c.Annotations[v1alpha1.AnnotationPromote])
	switch {
	case isRunning(r.status) && !r.isReplaced(findMember(s, o, r.status.Target) == nil, id):
		r.carryOut(s, o, lead)
	case id == "" || r.status != nil && r.status.ID == id:
		// nothing is requested
	case c.Status.SystemIdentifier == "":
		r.status = &v1alpha1.RequestStatus{Type: requestPromote, ID: id, Target: pod, Result: notAtCreation}
	case o.AwaitsFirstAnswer():
		// nothing is known
	case lead.isServing():
		r.status = &v1alpha1.RequestStatus{Type: requestPromote, ID: id, Target: pod, Result: "not needed: " + s.PodName(lead.leader) + " leads"}
	case !isMemberPod(s, pod, members):
		r.status = &v1alpha1.RequestStatus{Type: requestPromote, ID: id, Target: pod,
			Result: fmt.Sprintf("refused: it names no member: write <ID>@<pod>, with one of %s to %s and another ID", s.PodName(0), s.PodName(members-1))}
	case lead.isLed() || waits || c.Spec.Suspend:
		// it cannot be decided yet
	default:
		r.status = &v1alpha1.RequestStatus{Type: requestPromote, ID: id, Target: pod}
	}
	return r
}

// isReplaced says whether a request that is under way gives way to another one: its
// member does not answer, and a person has named another ID.
func (r *promotion) isReplaced(silent bool, id string) bool {
	return silent && id != "" && id != r.status.ID
}

// carryOut passes the request on until its member leads by it, has used it up without, or
// another one leads.
func (r *promotion) carryOut(s objects.Set, o memberset.Observation, lead leadership) {
	switch leader := nameServing(s, lead); {
	case leader == "" && hasUsedUp(findMember(s, o, r.status.Target), lead, r.status.ID):
		r.status.Result = describeUsedUp(r.status.Target)
	case leader == "":
		r.request = &postgresapi.PromotionRequest{ID: r.status.ID, Pod: r.status.Target}
	case leader == r.status.Target && lead.readElection().Forced == r.status.ID:
		r.status.Result = fmt.Sprintf("%s was promoted with what it had, on timeline %d", leader, readReplication(o.Member(lead.leader)).Timeline)
	default:
		r.status.Result = "not needed: " + leader + " leads"
	}
}

// phasesWithoutClaim are those of a member that has no claim under way and does not lead.
var phasesWithoutClaim = []string{"Standby", "Voting", "Stopping", "Asking"}

// hasUsedUp says whether a member has claimed the Lease by a request, and does not come to
// lead by it any more: it carries each request out once.
func hasUsedUp(m *agentapi.Status, lead leadership, id string) bool {
	return !lead.isLed() && m != nil && wasForced(m, id) && slices.Contains(phasesWithoutClaim, readReplication(m).Election.Phase)
}

// describeUsedUp says what became of such a request, and what to do.
func describeUsedUp(target string) string {
	return "used up: " + target + " claimed the Lease by it and does not lead: see what its pod logs; to try again, or to have another member lead, use another ID"
}

// isMemberPod says whether a pod is one of so many members.
func isMemberPod(s objects.Set, pod string, members int) bool {
	for n := range members {
		if s.PodName(n) == pod {
			return true
		}
	}
	return false
}
