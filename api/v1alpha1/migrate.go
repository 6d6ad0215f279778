package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// annotationDivergedBefore is the earlier name of AnnotationDiverged.
const annotationDivergedBefore = "holdfast.dev/data-ahead"

// MarkedDiverged says whether a volume is marked by AnnotationDiverged, under
// its name of today or under the earlier one.
func MarkedDiverged(volume metav1.Object) bool {
	marks := volume.GetAnnotations()
	return marks[AnnotationDiverged] != "" || marks[annotationDivergedBefore] != ""
}

// MigrateRequests moves requests that an earlier operator recorded to where
// this one reads them, so that none is carried out a second time.
func (s *CommonStatus) MigrateRequests() {
	for _, before := range s.Orders {
		if s.findRequest(before.Type) == nil {
			s.Requests = append(s.Requests, RequestStatus{
				Type: before.Type, ID: before.Token, Target: before.Target, MemberID: before.MemberID, Result: before.Result,
			})
		}
	}
	s.Orders = nil
}

func (s *CommonStatus) findRequest(kind string) *RequestStatus {
	for i := range s.Requests {
		if s.Requests[i].Type == kind {
			return &s.Requests[i]
		}
	}
	return nil
}
