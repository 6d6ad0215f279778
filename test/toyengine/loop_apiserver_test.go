//go:build apiserver

package toyengine

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/controller"
)

//go:embed testdata/crd.yaml
var definition []byte

func TestMain(m *testing.M) {
	if err := AddToScheme(scheme.Scheme); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	apitest.RunTests(m)
}

// world is a toy cluster with simulated members, and the operator that runs it.
type world struct {
	*apitest.Cluster
	t          *testing.T
	user       client.Client
	simulation *simulation
	c          *ToyCluster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, Cluster: apitest.New(t)}
	w.user = w.As(t, "kubectl-edit")
	w.install()
	w.simulation = simulate(t, w.Cluster)
	w.StartOperator(t.Context(), t, controller.CacheOptions([]string{w.Namespace}), nil, func(mgr ctrl.Manager) {
		if err := wireToyCluster(mgr, []string{w.Namespace}, w.simulation, w.simulation); err != nil {
			t.Fatal(err)
		}
	})
	w.c = &ToyCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders"},
		Spec: ToyClusterSpec{
			CommonSpec: v1alpha1.CommonSpec{Replicas: new(int32(1)), Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
			Version:    "1.0", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")}, Greeting: "hello",
		},
	}
	return w
}

// install makes the kind known to the API server.
func (w *world) install() {
	w.t.Helper()
	crd := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(definition, &crd.Object); err != nil {
		w.t.Fatal(err)
	}
	if err := w.user.Create(w.t.Context(), crd); err != nil {
		w.t.Fatal(err)
	}
	apitest.Eventually(w.t, "the kind is served", func(ctx context.Context) (bool, string) {
		err := w.user.List(ctx, &ToyClusterList{}, client.InNamespace(w.Namespace))
		return err == nil, fmt.Sprint(err)
	})
}

// read reads an object of the cluster as the API server has it now.
func (w *world) read(obj client.Object, suffix string) {
	w.t.Helper()
	if err := w.user.Get(w.t.Context(), types.NamespacedName{Namespace: w.Namespace, Name: w.c.Name + suffix}, obj); err != nil {
		w.t.Fatal(err)
	}
}

// edit changes the spec as a user does.
func (w *world) edit(change func(spec *ToyClusterSpec)) {
	w.t.Helper()
	w.read(w.c, "")
	before := w.c.DeepCopy()
	change(&w.c.Spec)
	if err := w.user.Patch(w.t.Context(), w.c, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// await waits until the status of the declared generation is as a condition says.
func (w *world) await(what string, holds func(c *ToyCluster) bool) {
	w.t.Helper()
	apitest.Eventually(w.t, what, func(ctx context.Context) (bool, string) {
		if err := w.user.Get(ctx, client.ObjectKeyFromObject(w.c), w.c); err != nil {
			return false, err.Error()
		}
		text := fmt.Sprintf("generation %d of %d", w.c.Status.ObservedGeneration, w.c.Generation)
		for _, cond := range w.c.Status.Conditions {
			text += fmt.Sprintf("; %s=%s %s: %s", cond.Type, cond.Status, cond.Reason, cond.Message)
		}
		if w.c.Status.Drift != nil {
			text += fmt.Sprintf("; drift %+v", w.c.Status.Drift.Last)
		}
		return w.c.Status.ObservedGeneration == w.c.Generation && holds(w.c), text
	})
}

func (w *world) awaitReady(members int32) {
	w.t.Helper()
	w.await(fmt.Sprintf("Ready with %d members", members), func(c *ToyCluster) bool {
		return isReady(c) && c.Status.ReadyReplicas == members && c.Status.Replicas == members
	})
}

func isReady(c *ToyCluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady)
}

// reasonOf a condition that is true; empty where it is not.
func reasonOf(c *ToyCluster, condition string) string {
	if cond := meta.FindStatusCondition(c.Status.Conditions, condition); cond != nil && cond.Status == metav1.ConditionTrue {
		return cond.Reason
	}
	return ""
}

// The loop drives an engine of another module and another API group, from the
// cluster's creation to its deletion. No generic package is changed for it.
func TestLoopDrivesAnEngineOfAnotherModule(t *testing.T) {
	w := newWorld(t)
	if err := w.user.Create(t.Context(), w.c); err != nil {
		t.Fatal(err)
	}
	w.awaitReady(1)
	w.checkGreeting("hello")
	w.checkOwners()

	w.edit(func(spec *ToyClusterSpec) { spec.Replicas = new(int32(3)) })
	w.awaitReady(3)
	w.checkGreeting("hello")

	w.checkDrift()
	w.checkSuspend()
	w.checkBlocked()
	w.checkDeletion()
}

// checkGreeting checks that each member greets so, by a step of the engine's own.
func (w *world) checkGreeting(want string) {
	w.t.Helper()
	reports := w.simulation.Get(client.ObjectKeyFromObject(w.c))
	for _, m := range w.c.Status.Members {
		if status := reports[m.Name].Status; status == nil || status.Details[DetailGreeting] != want {
			w.t.Errorf("member %s: %+v, want the greeting %q", m.Name, status, want)
		}
	}
}

// checkOwners checks what takes the objects along when their cluster is deleted,
// and what keeps its data.
func (w *world) checkOwners() {
	w.t.Helper()
	want := metav1.OwnerReference{
		APIVersion: GroupVersion.String(), Kind: clusterKind, Name: w.c.Name, UID: w.c.UID,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}
	for suffix, obj := range map[string]client.Object{"": &appsv1.StatefulSet{}, suffixClient: &corev1.Service{}, "-config": &corev1.ConfigMap{}} {
		w.read(obj, suffix)
		if owner := metav1.GetControllerOf(obj); owner == nil || owner.String() != want.String() {
			w.t.Errorf("%T %s belongs to %v, want %v", obj, obj.GetName(), owner, want)
		}
	}
	volume := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "data-orders-0"}}
	if err := w.user.Get(w.t.Context(), client.ObjectKeyFromObject(volume), volume); err != nil || len(volume.OwnerReferences) > 0 {
		w.t.Errorf("%v: volume %s goes with its cluster: %v", err, volume.Name, volume.OwnerReferences)
	}
}

// editService changes an owned object as another client does, and returns what
// was there.
func (w *world) editService() (before, after string) {
	w.t.Helper()
	service := &corev1.Service{}
	w.read(service, suffixClient)
	changed := service.DeepCopy()
	changed.Spec.Selector[v1alpha1.LabelRole] = "nothing"
	if err := w.user.Patch(w.t.Context(), changed, client.MergeFrom(service)); err != nil {
		w.t.Fatal(err)
	}
	return service.Spec.Selector[v1alpha1.LabelRole], "nothing"
}

func (w *world) serviceRole() string {
	w.t.Helper()
	service := &corev1.Service{}
	w.read(service, suffixClient)
	return service.Spec.Selector[v1alpha1.LabelRole]
}

// checkDrift checks that drift is reverted, and reported with its manager.
func (w *world) checkDrift() {
	w.t.Helper()
	before, _ := w.editService()
	w.await("the drift is reported", func(c *ToyCluster) bool {
		return c.Status.Drift != nil && slices.ContainsFunc(c.Status.Drift.Last, func(d v1alpha1.DriftRecord) bool {
			return d.Manager == "kubectl-edit" && strings.HasPrefix(d.Path, ".spec.selector")
		})
	})
	if role := w.serviceRole(); role != before {
		w.t.Errorf("the Service selects role %q, want %q again", role, before)
	}
	w.awaitReady(3)
}

// checkSuspend checks that nothing is written in a suspended cluster, and that a
// change of it waits.
func (w *world) checkSuspend() {
	w.t.Helper()
	w.edit(func(spec *ToyClusterSpec) { spec.Suspend, spec.Replicas = true, new(int32(1)) })
	w.await("Suspended", func(c *ToyCluster) bool { return !isReady(c) && c.Status.Phase == "Suspended" })
	before, after := w.editService()
	w.await("the drift is seen", func(c *ToyCluster) bool {
		return !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionSynced)
	})
	set := &appsv1.StatefulSet{}
	w.read(set, "")
	if role := w.serviceRole(); role != after || *set.Spec.Replicas != 3 {
		w.t.Errorf("the operator writes in a suspended cluster: role %q, %d members", role, *set.Spec.Replicas)
	}
	w.edit(func(spec *ToyClusterSpec) { spec.Suspend = false })
	w.awaitReady(1)
	if role := w.serviceRole(); role != before {
		w.t.Errorf("after the suspension, the Service selects role %q, want %q", role, before)
	}
}

// checkBlocked checks that what only a person can fix is reported with its
// remedy, and that the loop goes on once it is fixed.
func (w *world) checkBlocked() {
	w.t.Helper()
	w.edit(func(spec *ToyClusterSpec) { spec.Greeting = refusedGreeting })
	w.await("Stalled", func(c *ToyCluster) bool {
		return reasonOf(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonInvalidParameter && !isReady(c)
	})
	if message := meta.FindStatusCondition(w.c.Status.Conditions, v1alpha1.ConditionStalled).Message; !strings.Contains(message, "spec.greeting") {
		w.t.Errorf("Stalled says %q, and names no field", message)
	}
	w.edit(func(spec *ToyClusterSpec) { spec.Greeting = "welcome" })
	w.awaitReady(1)
	w.checkGreeting("welcome")
	if reason := reasonOf(w.c, v1alpha1.ConditionStalled); reason != "" {
		w.t.Errorf("still Stalled/%s", reason)
	}
}

// checkDeletion checks that a cluster that is deleted says so while it exists, and
// that the operator forgets it afterwards.
func (w *world) checkDeletion() {
	w.t.Helper()
	const finalizer = "toy.example.com/test"
	setFinalizers := func(finalizers ...string) {
		w.t.Helper()
		w.read(w.c, "")
		before := w.c.DeepCopy()
		w.c.Finalizers = finalizers
		if err := w.user.Patch(w.t.Context(), w.c, client.MergeFrom(before)); err != nil {
			w.t.Fatal(err)
		}
	}
	setFinalizers(finalizer)
	if err := w.user.Delete(w.t.Context(), w.c); err != nil {
		w.t.Fatal(err)
	}
	w.await("Deleting", func(c *ToyCluster) bool { return c.Status.Phase == "Deleting" && !isReady(c) })
	setFinalizers()
	apitest.Eventually(w.t, "the cluster is forgotten", func(ctx context.Context) (bool, string) {
		err := w.user.Get(ctx, client.ObjectKeyFromObject(w.c), &ToyCluster{})
		w.simulation.mu.Lock()
		defer w.simulation.mu.Unlock()
		return apierrors.IsNotFound(err) && w.simulation.forgotten[client.ObjectKeyFromObject(w.c)], fmt.Sprint(err)
	})
}
