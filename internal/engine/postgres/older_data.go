package postgres

import (
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// requestOlderData is the type of the request, as status has it.
var requestOlderData = strings.TrimPrefix(v1alpha1.AnnotationContinueWithOlderData, v1alpha1.GroupVersion.Group+"/")

// olderData is how far the request to go on with older data has come.
type olderData struct {
	// status is what is recorded of the last request; nil for none.
	status *v1alpha1.RequestStatus
	// request for the members; nil while there is none to carry out.
	request *postgresapi.OlderDataRequest
}

// planOlderData takes up a request once, for a primary that is held for older
// data: what is decided of another situation is not true of this one. It is
// recorded in status before its member hears of it.
func planOlderData(c *v1alpha1.PostgresCluster, o memberset.Observation) olderData {
	var r olderData
	for i := range c.Status.Requests {
		if c.Status.Requests[i].Type == requestOlderData {
			r.status = c.Status.Requests[i].DeepCopy()
		}
	}
	id, m, pod := c.Annotations[v1alpha1.AnnotationContinueWithOlderData], o.Member(primaryOrdinal), membersOf(c).PodName(primaryOrdinal)
	serves := m != nil && m.Role == v1alpha1.RolePrimary && m.Serving
	switch {
	case r.status != nil && r.status.Result == "":
		r.carryOut(m, serves)
	case id == "" || r.status != nil && r.status.ID == id || m == nil || o.AwaitsFirstAnswer():
		// nothing is requested, or nothing is known
	case m.State == agentapi.StateHeld && m.Hold == agentapi.HoldDataStale:
		r.status = &v1alpha1.RequestStatus{Type: requestOlderData, ID: id, Target: pod}
	case serves:
		r.status = &v1alpha1.RequestStatus{Type: requestOlderData, ID: id, Target: pod, Result: "not needed: " + pod + " is not held for older data"}
	}
	return r
}

// carryOut passes the request on until its member has carried it out, or leads
// without: the newer volume came back.
func (r *olderData) carryOut(m *agentapi.Status, serves bool) {
	switch {
	case m != nil && m.Recovered == r.status.ID:
		r.status.Result = fmt.Sprintf("%s went on with older data, on timeline %d", r.status.Target, readReplication(m).Timeline)
	case serves:
		r.status.Result = "not needed: " + r.status.Target + " is not held for older data"
	default:
		r.request = &postgresapi.OlderDataRequest{ID: r.status.ID, Pod: r.status.Target}
	}
}

// listRequests are the one-shot requests that status records.
func (r olderData) listRequests() []v1alpha1.RequestStatus {
	if r.status == nil {
		return nil
	}
	return []v1alpha1.RequestStatus{*r.status}
}
