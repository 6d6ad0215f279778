//go:build apiserver

package apply_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A new operator applies nothing to objects that are as the one before it left them, and looks
// up only claims, whose identity counts. Each is applied once within the next day.
func TestRestartAppliesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects, w.req.Complete = w.allObjects(), true
	w.settleSyncs()
	for _, obj := range w.req.Objects {
		w.awaitCache(w.emptyObjectOf(obj))
	}
	w.Requests.TakeRequests()
	w.restartOperator()
	r := w.settleSyncs()
	w.wantDrifts(r.Drifts)
	requests := w.Requests.TakeRequests()
	if len(r.Changed) > 0 || len(requests) != 1 || !strings.HasPrefix(requests[0], "GET") || !strings.Contains(requests[0], "persistentvolumeclaims") {
		t.Errorf("changed %v, requests %q", r.Changed, requests)
	}
	if r.RetryAfter == 0 || r.RetryAfter > 24*time.Hour {
		t.Errorf("the next apply is due in %s", r.RetryAfter)
	}
	w.clock.SetTime(w.clock.Now().Add(24 * time.Hour))
	w.settleSyncs()
	if real, dry := countApplies(w.Requests.TakeRequests()); real != len(w.req.Objects) || dry != 0 {
		t.Errorf("%d applies and %d dry runs a day later", real, dry)
	}
}

// A new operator applies what another version renders differently, and nothing else.
func TestRestartAppliesWhatDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = w.allObjects()
	w.settleSyncs()
	for _, obj := range w.req.Objects {
		w.awaitCache(w.emptyObjectOf(obj))
	}
	service := w.newService()
	service.Spec.WithPublishNotReadyAddresses(true)
	i := slices.IndexFunc(w.req.Objects, func(obj runtime.ApplyConfiguration) bool { return *obj.(named).GetKind() == "Service" })
	w.req.Objects[i] = service
	w.Requests.TakeRequests()
	w.restartOperator()
	r := w.settleSyncs()
	w.wantDrifts(r.Drifts)
	if real, dry := countApplies(w.Requests.TakeRequests()); real != 1 || dry != 0 || len(r.Changed) != 1 || r.Changed[0].Object.GVK.Kind != "Service" {
		t.Errorf("%d applies, %d dry runs, changed %v", real, dry, r.Changed)
	}
}

// An operator that died between an apply and what follows it leaves an entry that holds the
// same fields. The next one removes it: a field that is no longer declared would stay.
func TestRestartEndsWhatAnApplyBegan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.settleSyncs()
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: w.Namespace}}
	w.intrudeWith(w.configMap(), mergePatch(`{"metadata":{"managedFields":[{}]}}`))
	w.getObject(live)
	again := w.configMap().WithAnnotations(live.Annotations)
	if err := w.Client.Apply(t.Context(), again, client.ForceOwnership, client.FieldOwner(v1alpha1.FieldManager)); err != nil {
		t.Fatal(err)
	}
	managers := func() (names []string) {
		w.getObject(live)
		for _, m := range live.ManagedFields {
			names = append(names, m.Manager)
		}
		return names
	}
	if got := managers(); !slices.Contains(got, "before-first-apply") {
		t.Fatalf("managers are %q", got)
	}
	w.awaitCache(w.emptyObjectOf(w.configMap()))
	w.restartOperator()
	w.wantDrifts(w.settleSyncs().Drifts)
	if got := managers(); !slices.Equal(got, []string{v1alpha1.FieldManager}) {
		t.Errorf("managers are %q", got)
	}
}

type named interface{ GetKind() *string }
