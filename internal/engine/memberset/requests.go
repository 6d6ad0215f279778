package memberset

import (
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// NotAtCreation is the result of a request that a cluster was created with: it would be
// carried out as a surprise once there is something to do.
const NotAtCreation = "not carried out: the cluster was created with it, or had no data yet; to request it now, use another ID"

// RequestType is the type of a request by its annotation, as status has it.
func RequestType(annotation string) string {
	return strings.TrimPrefix(annotation, v1alpha1.GroupVersion.Group+"/")
}

// FindRequest is a copy of what status records of the last request of a type; nil for
// none.
func FindRequest(c v1alpha1.Cluster, kind string) *v1alpha1.RequestStatus {
	for i := range c.CommonStatus().Requests {
		if c.CommonStatus().Requests[i].Type == kind {
			return c.CommonStatus().Requests[i].DeepCopy()
		}
	}
	return nil
}

// IsRunning says whether a request was taken up and has no result yet.
func IsRunning(r *v1alpha1.RequestStatus) bool { return r != nil && r.Result == "" }

// SplitRequest is the ID and the pod of a request that is written as <ID>@<pod>. The
// pod may be missing. A value without an ID is an ID as a whole.
func SplitRequest(value string) (id, pod string) {
	at := strings.LastIndex(value, "@")
	if at <= 0 {
		return value, ""
	}
	return value[:at], value[at+1:]
}
