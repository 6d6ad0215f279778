package memberset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// The newest event of each missing pod counts, while it speaks of now.
func TestUncreated(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := objects.Set{Cluster: &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop"}}}
	event := func(pod, why string, ago time.Duration) corev1.Event {
		return corev1.Event{LastTimestamp: metav1.NewTime(now.Add(-ago)), Message: "Create Pod " + pod + " in StatefulSet orders failed error: " + why}
	}
	events := []corev1.Event{
		event("orders-1", "old", 10*time.Minute), event("orders-1", "new", time.Minute),
		event("orders-2", "long over", time.Hour), event("orders-0", "it is there by now", time.Minute),
		event("orders-3", "of another kind", 0), {LastTimestamp: metav1.NewTime(now), Message: "Create Claim data-orders-2 Pod orders-2 in StatefulSet orders failed"},
	}
	if diff := cmp.Diff(map[int]string{1: "new"}, explainUncreated(s, []int{1, 2}, events, now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
