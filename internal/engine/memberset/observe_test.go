package memberset

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// claims are volumes as the API server has them. It answers nothing else.
type claims struct {
	client.Client
	there map[string]*corev1.PersistentVolumeClaim
	asked []string
}

func (c *claims) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	c.asked = append(c.asked, key.Name)
	found, ok := c.there[key.Name]
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), key.Name)
	}
	*into.(*corev1.PersistentVolumeClaim) = *found
	return nil
}

// What a cache that lags shows of an earlier cluster's volumes is not believed
// while nobody knows of a birth.
func TestObserveInherited(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	before := metav1.NewTime(created.Add(-time.Hour))
	c := &v1alpha1.EtcdCluster{}
	c.Name, c.CreationTimestamp = "orders", created
	s := Set{Kind: Kind{GVK: v1alpha1.GroupVersion.WithKind("EtcdCluster")}, Cluster: c}
	claim := func(name, uid string, made metav1.Time) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), CreationTimestamp: made}}
	}
	cached := func() map[int]*corev1.PersistentVolumeClaim {
		return map[int]*corev1.PersistentVolumeClaim{
			0: claim("gone", "a", before), 1: claim("made-again", "b", before), 2: claim("leaves", "c", before), 3: claim("own", "d", created),
		}
	}
	leaving := claim("leaves", "c", before)
	leaving.DeletionTimestamp = &created
	server := &claims{there: map[string]*corev1.PersistentVolumeClaim{"made-again": claim("made-again", "e", created), "leaves": leaving}}
	keeper := &Keeper{Writer: server}

	got := cached()
	if err := keeper.observeInherited(t.Context(), s, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]*corev1.PersistentVolumeClaim{2: leaving, 3: claim("own", "d", created)}, got); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if len(server.asked) != 3 {
		t.Errorf("asked for %v", server.asked)
	}
	c.Status.SystemIdentifier = "7"
	got = cached()
	if err := keeper.observeInherited(t.Context(), s, got); err != nil || len(server.asked) != 3 || len(got) != 4 {
		t.Errorf("a cluster that was born asked for %v, err %v", server.asked, err)
	}
}

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
