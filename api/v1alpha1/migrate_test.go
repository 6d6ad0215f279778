package v1alpha1

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMigrateRequests(t *testing.T) {
	before := RequestStatusBefore{Type: "recover-quorum", Token: "first", Target: "orders-0", MemberID: "1f", Result: "recovered"}
	now := RequestStatus{Type: "recover-quorum", ID: "first", Target: "orders-0", MemberID: "1f", Result: "recovered"}
	newer := RequestStatus{Type: "recover-quorum", ID: "second"}
	for _, test := range []struct {
		name         string
		status, want CommonStatus
	}{
		{"a request of before is carried over whole", CommonStatus{Orders: []RequestStatusBefore{before}}, CommonStatus{Requests: []RequestStatus{now}}},
		{"a newer one of its type is kept", CommonStatus{Orders: []RequestStatusBefore{before}, Requests: []RequestStatus{newer}}, CommonStatus{Requests: []RequestStatus{newer}}},
		{"nothing is made of nothing", CommonStatus{}, CommonStatus{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.status.MigrateRequests()
			if diff := cmp.Diff(test.want, test.status); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMarkedDiverged(t *testing.T) {
	for mark, want := range map[string]bool{AnnotationDiverged: true, annotationDivergedBefore: true, AnnotationScaledAway: false} {
		if got := MarkedDiverged(&metav1.ObjectMeta{Annotations: map[string]string{mark: "true"}}); got != want {
			t.Errorf("a volume with %s: %t, want %t", mark, got, want)
		}
	}
}
