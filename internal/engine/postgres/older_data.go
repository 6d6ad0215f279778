package postgres

import (
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// requestOlderData is the type of the request, as status has it.
var requestOlderData = requestType(v1alpha1.AnnotationContinueWithOlderData)

// olderData is how far the request to go on with older data has come.
type olderData struct {
	// status is what is recorded of the last request; nil for none.
	status *v1alpha1.RequestStatus
	// request for the members; nil while there is none to carry out.
	request *postgresapi.OlderDataRequest
}

// planOlderData takes up a request once, for a member that is held for older data
// while none leads: what is decided of another situation is not true of this one. It
// is recorded in status before its member hears of it. It waits while a promotion is
// carried out, and while members may still answer: one may lead, or have newer data.
func planOlderData(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, waits bool) olderData {
	r := olderData{status: findRequest(c, requestOlderData)}
	s, id, held := membersOf(c), c.Annotations[v1alpha1.AnnotationContinueWithOlderData], findStale(o)
	switch {
	case isRunning(r.status):
		r.carryOut(findMember(s, o, r.status.Target), lead, nameServing(s, lead))
	case id == "" || r.status != nil && r.status.ID == id || o.AwaitsFirstAnswer():
		// nothing is requested, or nothing is known
	case lead.isServing():
		r.status = &v1alpha1.RequestStatus{Type: requestOlderData, ID: id, Target: s.PodName(lead.leader)}
		r.status.Result = describeNotNeeded(r.status.Target, r.status.Target)
	case held >= 0 && !waits:
		r.status = &v1alpha1.RequestStatus{Type: requestOlderData, ID: id, Target: s.PodName(held)}
	}
	return r
}

// findStale is the member that is held for older data and has the newest of those
// that are, by ordinal; -1 for none.
func findStale(o memberset.Observation) int {
	found, newest := -1, postgresapi.WALPoint{}
	for _, n := range slices.Sorted(maps.Keys(o.Pods)) {
		m := o.Member(n)
		if m == nil || m.State != agentapi.StateHeld || m.Hold != agentapi.HoldDataStale {
			continue
		}
		if end := readWALEnd(m); found < 0 || compareWAL(end, newest) > 0 {
			found, newest = n, end
		}
	}
	return found
}

// findMember is what the member of a pod's name reports; nil while it reports nothing.
func findMember(s objects.Set, o memberset.Observation, pod string) *agentapi.Status {
	for n := range o.Pods {
		if s.PodName(n) == pod {
			return o.Member(n)
		}
	}
	return nil
}

// nameServing names the leader that serves; empty where none does.
func nameServing(s objects.Set, lead leadership) string {
	if !lead.isServing() {
		return ""
	}
	return s.PodName(lead.leader)
}

// describeNotNeeded says why a member is not asked to go on with older data.
func describeNotNeeded(target, leader string) string {
	if target != leader {
		return "not needed: " + leader + " leads"
	}
	return "not needed: " + target + " is not held for older data"
}

// carryOut passes the request on until its member leads by it, has used it up without, or
// a member leads otherwise: the newer volume came back.
func (r *olderData) carryOut(m *agentapi.Status, lead leadership, leader string) {
	switch {
	case m != nil && hasContinued(m, leader == r.status.Target, r.status.ID):
		r.status.Result = fmt.Sprintf("%s went on with older data, on timeline %d", r.status.Target, readReplication(m).Timeline)
	case leader != "":
		r.status.Result = describeNotNeeded(r.status.Target, leader)
	case hasUsedUp(m, lead, r.status.ID):
		r.status.Result = describeUsedUp(r.status.Target)
	default:
		r.request = &postgresapi.OlderDataRequest{ID: r.status.ID, Pod: r.status.Target}
	}
}

// hasContinued says whether a member went on with older data by a request. It has to
// serve: a claim of the Lease alone may come to nothing. Agents of earlier versions, which
// do not elect, report what they did.
func hasContinued(m *agentapi.Status, serves bool, id string) bool {
	if serves {
		return m.Recovered == id || wasForced(m, id)
	}
	return m.Recovered == id && readReplication(m).Election == nil
}

// wasForced says whether a member claimed the Lease by a request.
func wasForced(m *agentapi.Status, id string) bool {
	election := readReplication(m).Election
	return election != nil && election.Forced == id
}
