package memberset

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// lists answers with volumes of the names, and nothing else.
type lists struct {
	client.Client
	names []string
}

func (l *lists) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	for _, name := range l.names {
		claims := into.(*corev1.PersistentVolumeClaimList)
		claims.Items = append(claims.Items, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return nil
}

// What a cache that lags shows of volumes is not believed while no record knows of
// a bootstrap; afterwards nothing is read.
func TestListVolumes(t *testing.T) {
	c := &v1alpha1.EtcdCluster{}
	s := objects.Set{Cluster: c}
	members := &MemberEngine{Reader: &lists{names: []string{"gone", "there"}}, Writer: &lists{names: []string{"there", "new"}}}
	for system, want := range map[string][]string{"": {"there", "new"}, "7": {"gone", "there"}} {
		c.Status.SystemIdentifier = system
		volumes, err := members.listVolumes(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range volumes {
			got = append(got, v.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("born as %q (-want +got):\n%s", system, diff)
		}
	}
}

// Who is behind a Service shows in endpoint slices as the cache holds them.
func TestServing(t *testing.T) {
	slice := func(service string, endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
		s := discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: service}}, Endpoints: endpoints,
		}
		if _, err := engine.LeanObject(&s); err != nil {
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
	if diff := cmp.Diff(map[string]bool{"orders-0": true, "orders-3": true}, listServicePods(slices, "orders-rw")); diff != "" {
		t.Errorf("behind orders-rw (-want +got):\n%s", diff)
	}
}
