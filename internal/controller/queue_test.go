package controller

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// What happens to clusters that were begun comes before the first passes of new ones.
func TestNewClustersWait(t *testing.T) {
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	first := handler.Funcs{CreateFunc: enqueueNew}
	for _, name := range []string{"new-1", "new-2"} {
		first.Create(t.Context(), event.CreateEvent{Object: &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}}, q)
	}
	service := func(cluster, version string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Labels: map[string]string{v1alpha1.LabelCluster: cluster, v1alpha1.LabelKind: "postgrescluster"}}}
	}
	owned := handler.EnqueueRequestsFromMapFunc(mapByLabel(v1alpha1.GroupVersion.WithKind("PostgresCluster")))
	for _, name := range []string{"old", "new-2"} {
		owned.Update(t.Context(), event.UpdateEvent{ObjectOld: service(name, "1"), ObjectNew: service(name, "2")}, q)
	}

	var order []string
	for range 3 {
		request, priority, _ := q.GetWithPriority()
		order = append(order, request.Name)
		if late := priority == handler.LowPriority; late != (len(order) > 2) {
			t.Errorf("%s has the priority %d", request.Name, priority)
		}
		q.Done(request)
	}
	if want := []string{"old", "new-2", "new-1"}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
}
