//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// retainData puts the policy of the component admission-policy in force for the namespace
// of the test alone.
func (w *world) retainData() {
	w.t.Helper()
	data, err := os.ReadFile("../../kustomize/components/admission-policy/retain-data.yaml")
	if err != nil {
		w.t.Fatal(err)
	}
	first, second, found := strings.Cut(string(data), "\n---\n")
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	if !found || yaml.UnmarshalStrict([]byte(first), policy) != nil || yaml.UnmarshalStrict([]byte(second), binding) != nil {
		w.t.Fatal("retain-data.yaml is not a policy and its binding")
	}
	policy.Name, binding.Name, binding.Spec.PolicyName = w.Namespace, w.Namespace, w.Namespace
	binding.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}}}
	for _, obj := range []client.Object{policy, binding} {
		w.create(obj)
		w.t.Cleanup(func() { _ = w.person.Delete(context.Background(), obj) })
	}
}

// recordedPolicy is what a cluster or Database says that deleting it does to its data.
func (w *world) recordedPolicy(obj client.Object) v1alpha1.DeletionPolicy {
	w.t.Helper()
	w.get(obj)
	if d, is := obj.(*v1alpha1.Database); is {
		return d.Status.DeletionPolicy
	}
	return obj.(v1alpha1.Cluster).CommonStatus().DeletionPolicy
}

func (w *world) awaitRecorded(obj client.Object, want v1alpha1.DeletionPolicy) {
	w.t.Helper()
	apitest.Eventually(w.t, "status.deletionPolicy "+string(want), func(context.Context) (bool, string) {
		got := w.recordedPolicy(obj)
		return got == want, string(got)
	})
}

// awaitRefusal waits until the policy is in force for an object whose data goes with it.
func (w *world) awaitRefusal(obj client.Object) {
	w.t.Helper()
	apitest.Eventually(w.t, "the deletion is refused", func(ctx context.Context) (bool, string) {
		err := w.person.Delete(ctx, obj, client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "status.deletionPolicy is still Delete"), fmt.Sprint(err)
	})
}

// While a cluster's data goes with it, Retain is not its last word: it cannot be deleted
// before the operator, which was away, has taken the owner references off.
func TestDeletionWaitsForRetain(t *testing.T) { eachKind(t, deletionWaitsForRetain) }

func deletionWaitsForRetain(t *testing.T, w *world) {
	w.retainData()
	c := w.cluster("orders", 1)
	c.Common().DeletionPolicy = v1alpha1.DeletionDelete
	owned := w.watchOwners(c)
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitOwned(c, true)
	w.awaitSteady(o)
	if got := w.recordedPolicy(c); got != v1alpha1.DeletionDelete {
		t.Errorf("records %q", got)
	}
	if n := owned(); n < 3 {
		t.Errorf("saw %d objects that go with the cluster", n)
	}

	o.stop()
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().DeletionPolicy = v1alpha1.DeletionRetain })
	w.awaitRefusal(c)
	if err := w.person.Delete(t.Context(), c); !apierrors.IsForbidden(err) {
		t.Fatalf("it is deleted: %v", err)
	}
	w.awaitOwned(c, true)

	o = w.operate(0)
	w.awaitRecorded(c, v1alpha1.DeletionRetain)
	w.awaitOwned(c, false)
	w.awaitReady(c)
	w.awaitSteady(o)
	o.stop()
	w.wantDataKept(c, c)
}

// watchOwners judges each version of each volume: one that goes with the cluster must
// find that recorded. It answers how many of the data's objects do.
func (w *world) watchOwners(c v1alpha1.Cluster) (count func() int) {
	w.t.Helper()
	watcher, err := client.NewWithWatch(w.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		w.t.Fatal(err)
	}
	key, kind := client.ObjectKeyFromObject(c), c.DeepCopyObject() // the test reads into c meanwhile
	owned := map[string]bool{}
	done := make(chan struct{}, 2)
	var stops []func()
	names := make(chan string, 100)
	for _, list := range []client.ObjectList{&corev1.PersistentVolumeClaimList{}, &corev1.SecretList{}} {
		watching, err := watcher.Watch(w.t.Context(), list, client.InNamespace(w.Namespace))
		if err != nil {
			w.t.Fatal(err)
		}
		stops = append(stops, watching.Stop)
		go func() {
			defer func() { done <- struct{}{} }()
			for event := range watching.ResultChan() {
				obj, is := event.Object.(client.Object)
				if !is || event.Type == watch.Deleted || !slices.Contains([]string{"data-orders-0", "orders-ca", "orders-internal"}, obj.GetName()) || len(obj.GetOwnerReferences()) == 0 {
					continue
				}
				now := kind.DeepCopyObject().(v1alpha1.Cluster)
				if err := watcher.Get(context.Background(), key, now); err != nil || now.CommonStatus().DeletionPolicy != v1alpha1.DeletionDelete {
					w.t.Errorf("%s goes with the cluster, which records %q (%v)", obj.GetName(), now.CommonStatus().DeletionPolicy, err)
				}
				names <- obj.GetName()
			}
		}()
	}
	return func() int {
		for _, stop := range stops {
			stop()
		}
		<-done
		<-done
		close(names)
		for name := range names {
			owned[name] = true
		}
		return len(owned)
	}
}

// A suspended cluster becomes safe to delete, too, and says so.
func TestSuspendedClusterRecordsItsPolicy(t *testing.T) {
	eachKind(t, suspendedClusterRecordsItsPolicy)
}

func suspendedClusterRecordsItsPolicy(t *testing.T, w *world) {
	c, o := w.settled(1)
	if got := w.recordedPolicy(c); got != v1alpha1.DeletionRetain {
		t.Errorf("a new cluster records %q", got)
	}
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Suspend = true })
	for _, policy := range []v1alpha1.DeletionPolicy{v1alpha1.DeletionDelete, v1alpha1.DeletionRetain} {
		edit(w, c, func(c v1alpha1.Cluster) { c.Common().DeletionPolicy = policy })
		w.awaitRecorded(c, policy)
		w.awaitOwned(c, policy == v1alpha1.DeletionDelete)
		w.awaitSteady(o)
	}
}

// A volume that another client made go with the cluster is reported while it stays so.
func TestForeignOwnerIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c, o := w.settled(1)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Drift.Mode = v1alpha1.DriftReport })
	w.awaitReady(c)
	v := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "data-orders-0"}}
	edit(w, v, func(v *corev1.PersistentVolumeClaim) {
		v.OwnerReferences = []metav1.OwnerReference{{APIVersion: "holdfast.dev/v1alpha1", Kind: "PostgresCluster", Name: "orders", UID: c.GetUID()}}
	})
	w.awaitRecorded(c, v1alpha1.DeletionDelete)
	w.awaitSteady(o)
	edit(w, v, func(v *corev1.PersistentVolumeClaim) { v.OwnerReferences = nil })
	w.awaitRecorded(c, v1alpha1.DeletionRetain)
}

// A cluster that is suspended while its first volume is filled can be made safe to delete.
func TestSuspendedRestoreRecordsItsPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.monday("")
	w.create(w.keys())
	w.simulation.restores.set(func(r *restores) { r.held = true })
	c := w.restoring("orders", 1)
	c.Common().DeletionPolicy = v1alpha1.DeletionDelete
	w.create(c)
	o := w.operate(0)
	await(w, c, "restoring", func(v1alpha1.Cluster) bool { return w.simulation.restores.began() == 1 })
	volume := w.claim("data-orders-0")
	if w.get(volume); len(volume.OwnerReferences) == 0 {
		t.Fatal("the volume does not go with the cluster")
	}
	edit(w, c, func(c v1alpha1.Cluster) {
		c.Common().Suspend, c.Common().DeletionPolicy = true, v1alpha1.DeletionRetain
	})
	w.awaitRecorded(c, v1alpha1.DeletionRetain)
	if w.get(volume); len(volume.OwnerReferences) > 0 {
		t.Errorf("the volume has the owners %v", volume.OwnerReferences)
	}
	w.awaitSteady(o)
}

// refuseClusters keeps all clients from creating clusters in the namespace.
func (w *world) refuseClusters() {
	w.t.Helper()
	name := w.Namespace + "-no-clusters"
	here := &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}}}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"postgresclusters"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "no clusters here"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}, MatchResources: here,
	}}
	for _, obj := range []client.Object{policy, binding} {
		w.create(obj)
		w.t.Cleanup(func() { _ = w.person.Delete(context.Background(), obj) })
	}
}

// A Database whose cluster cannot be made has no data that goes with it, and can be deleted.
func TestDeletionOfADatabaseWithoutCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.retainData()
	w.refuseClusters()
	apitest.Eventually(t, "no cluster can be made", func(ctx context.Context) (bool, string) {
		err := w.person.Create(ctx, w.cluster("probe", 1), client.DryRunAll)
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err), fmt.Sprint(err)
	})
	d := w.database("orders", 1)
	d.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	w.create(d)
	w.operate(0)
	w.awaitRecorded(d, v1alpha1.DeletionDelete)
	edit(w, d, func(d *v1alpha1.Database) { d.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
	w.awaitRecorded(d, v1alpha1.DeletionRetain)
	if err := w.person.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	w.awaitGone(d)
}

// A Database is held to the same: it cannot be deleted before its cluster retains the data,
// since the garbage collector would delete that cluster as it was declared last.
func TestDeletionOfADatabaseWaitsForRetain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.retainData()
	d, o := w.settledDatabase(func(d *v1alpha1.Database) { d.Spec.DeletionPolicy = v1alpha1.DeletionDelete })
	c := w.clusterOf(d)
	w.awaitOwned(c, true)
	if got := w.recordedPolicy(d); got != v1alpha1.DeletionDelete {
		t.Errorf("records %q", got)
	}
	o.stop()
	edit(w, d, func(d *v1alpha1.Database) { d.Spec.DeletionPolicy = v1alpha1.DeletionRetain })
	w.awaitRefusal(d)
	if err := w.person.Delete(t.Context(), d); !apierrors.IsForbidden(err) {
		t.Fatalf("it is deleted: %v", err)
	}

	o = w.operate(0)
	w.awaitRecorded(d, v1alpha1.DeletionRetain)
	if got := w.recordedPolicy(c); got != v1alpha1.DeletionRetain {
		t.Errorf("its cluster records %q", got)
	}
	w.awaitOwned(c, false)
	await(w, d, "Ready", ready)
	w.awaitSteady(o)
	o.stop()
	w.wantDataKept(d, c)
}
