package memberset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/internal/engine"
)

// Who is behind a Service shows in endpoint slices as the cache holds them.
func TestServing(t *testing.T) {
	slice := func(service string, endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
		s := discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: service}}, Endpoints: endpoints,
		}
		if _, err := engine.Lean(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	endpoint := func(kind, name string, ready *bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: kind, Name: name}, Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	}
	slices := []discoveryv1.EndpointSlice{
		slice("orders-rw", endpoint("Pod", "orders-0", new(true)), endpoint("Pod", "orders-1", new(false)), endpoint("Node", "orders-2", new(true)), discoveryv1.Endpoint{}),
		slice("orders-rw", endpoint("Pod", "orders-3", nil)),
		slice("orders-ro", endpoint("Pod", "orders-4", new(true))),
	}
	if diff := cmp.Diff(map[string]bool{"orders-0": true, "orders-3": true}, serving(slices, "orders-rw")); diff != "" {
		t.Errorf("behind orders-rw (-want +got):\n%s", diff)
	}
}
