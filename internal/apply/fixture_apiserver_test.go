//go:build apiserver

package apply_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/apply"
)

func TestMain(m *testing.M) { apitest.RunTests(m) }

// world is a cluster's objects under an applier.
type world struct {
	*apitest.Cluster
	t       *testing.T
	clock   *testclock.FakePassiveClock
	applier *apply.Applier
	owner   *v1alpha1.PostgresCluster
	req     apply.Request
}

// newWorld has an owner named orders, and objects that are not applied yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Cluster: apitest.New(t), t: t, clock: testclock.NewFakePassiveClock(time.Now())}
	w.owner = &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: w.Namespace},
		Spec: v1alpha1.PostgresClusterSpec{
			Version: "17", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
	if err := w.As(t, "kubectl-create").Create(t.Context(), w.owner); err != nil {
		t.Fatal(err)
	}
	w.req = apply.Request{Owner: w.owner, Drift: v1alpha1.DriftSpec{Mode: v1alpha1.DriftRevert}}
	w.restartOperator()
	return w
}

// restartOperator is what a new operator process knows: nothing.
func (w *world) restartOperator() {
	w.t.Helper()
	applier, err := apply.New(w.Cache, w.Client, apply.Options{Clock: w.clock, Prune: []schema.GroupVersionKind{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "PersistentVolumeClaim"},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.applier = applier
}

// syncOnce is one pass.
func (w *world) syncOnce() (apply.Result, error) {
	w.t.Helper()
	return w.applier.Sync(w.t.Context(), w.req)
}

// settleSyncs syncs until the cache has seen every write, and returns all drifts and
// changes on the way.
func (w *world) settleSyncs() apply.Result {
	w.t.Helper()
	var total apply.Result
	apitest.Eventually(w.t, "settle", func(context.Context) (bool, string) {
		r, err := w.syncOnce()
		if err != nil {
			w.t.Fatal(err)
		}
		total.Drifts = append(total.Drifts, r.Drifts...)
		total.Changed = append(total.Changed, r.Changed...)
		total.Contested, total.Standing, total.Settled, total.RetryAfter = r.Contested, r.Standing, r.Settled, r.RetryAfter
		return r.Settled, "unsettled"
	})
	return total
}

// awaitCache waits until the cache shows what the API server has.
func (w *world) awaitCache(objects ...client.Object) {
	w.t.Helper()
	for _, obj := range objects {
		apitest.Eventually(w.t, "the cache catches up", func(ctx context.Context) (bool, string) {
			live, cached := obj.DeepCopyObject().(client.Object), obj.DeepCopyObject().(client.Object)
			errLive := w.As(w.t, "reader").Get(ctx, client.ObjectKeyFromObject(obj), live)
			errCached := w.Cache.Get(ctx, client.ObjectKeyFromObject(obj), cached)
			if errLive != nil || errCached != nil {
				return client.IgnoreNotFound(errLive) == nil && client.IgnoreNotFound(errCached) == nil &&
					(errLive == nil) == (errCached == nil), "not found"
			}
			return live.GetResourceVersion() == cached.GetResourceVersion(), cached.GetResourceVersion()
		})
	}
}

func (w *world) getObject(obj client.Object) {
	w.t.Helper()
	if err := w.As(w.t, "reader").Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		w.t.Fatal(err)
	}
}

// ownContent is an object as a test compares it before and after: without what
// the API server counts up.
func (w *world) ownContent(obj client.Object) map[string]any {
	w.t.Helper()
	live := obj.DeepCopyObject().(client.Object)
	w.getObject(live)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		w.t.Fatal(err)
	}
	meta := content["metadata"].(map[string]any)
	for _, k := range []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"} {
		delete(meta, k)
	}
	delete(content, "status")
	if spec, isMap := content["spec"].(map[string]any); isMap {
		// A Service that is made again gets another address.
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
	}
	return content
}

// shortDrift is what of a drift is the same in every run.
type shortDrift struct{ Object, Path, Manager, Operation, Subresource, Action string }

func shortenDrifts(drifts []apply.Drift) []shortDrift {
	var out []shortDrift
	for _, d := range drifts {
		out = append(out, shortDrift{d.Object.String(), d.Path, d.Manager, d.Operation, d.Subresource, d.Action})
	}
	return out
}

func (w *world) wantDrifts(got []apply.Drift, want ...shortDrift) {
	w.t.Helper()
	less := func(a, b shortDrift) bool { return a.Object+a.Path < b.Object+b.Path }
	if diff := cmp.Diff(want, shortenDrifts(got), cmpopts.SortSlices(less), cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("drifts (-want +got):\n%s", diff)
	}
}

// ownedFields are the field paths that we hold in an object.
func (w *world) ownedFields(obj client.Object) *fieldpath.Set {
	w.t.Helper()
	w.getObject(obj)
	for _, m := range obj.GetManagedFields() {
		if m.Manager == v1alpha1.FieldManager && m.Operation == metav1.ManagedFieldsOperationApply {
			set := &fieldpath.Set{}
			if err := set.FromJSON(m.FieldsV1.GetRawReader()); err != nil {
				w.t.Fatal(err)
			}
			return set
		}
	}
	return fieldpath.NewSet()
}

func (w *world) objectLabels() map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelCluster: "orders",
		v1alpha1.LabelKind: "postgrescluster", "app.kubernetes.io/name": "postgresql",
	}
}

func (w *world) controllerReference() *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().WithAPIVersion("holdfast.dev/v1alpha1").WithKind("PostgresCluster").
		WithName(w.owner.Name).WithUID(w.owner.UID).WithController(true).WithBlockOwnerDeletion(true)
}

func (w *world) configMap() *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap("orders-config", w.Namespace).WithLabels(w.objectLabels()).WithOwnerReferences(w.controllerReference()).
		WithData(map[string]string{"a.conf": "one", "b.conf": "two"})
}

func (w *world) newSecret() *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret("orders-app", w.Namespace).WithLabels(w.objectLabels()).WithOwnerReferences(w.controllerReference()).
		WithType(corev1.SecretTypeOpaque).WithData(map[string][]byte{"username": []byte("app"), "password": []byte("hunter2")})
}

func (w *world) newService() *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service("orders-rw", w.Namespace).WithLabels(w.objectLabels()).WithOwnerReferences(w.controllerReference()).
		WithSpec(corev1ac.ServiceSpec().WithSelector(map[string]string{v1alpha1.LabelRole: "primary"}).
			WithPorts(corev1ac.ServicePort().WithName("postgres").WithPort(5432).WithTargetPort(intstr.FromString("postgres"))))
}

func (w *world) serviceAccount() *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount("orders", w.Namespace).WithLabels(w.objectLabels()).WithOwnerReferences(w.controllerReference()).
		WithAutomountServiceAccountToken(false)
}

func (w *world) newRole() *rbacv1ac.RoleApplyConfiguration {
	return rbacv1ac.Role("orders", w.Namespace).WithLabels(w.objectLabels()).WithOwnerReferences(w.controllerReference()).
		WithRules(rbacv1ac.PolicyRule().WithAPIGroups("coordination.k8s.io").WithResources("leases").WithVerbs("get", "update"))
}

func (w *world) roleBinding() *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding("orders", w.Namespace).WithLabels(w.objectLabels()).WithOwnerReferences(w.controllerReference()).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName("orders")).
		WithSubjects(rbacv1ac.Subject().WithKind("ServiceAccount").WithName("orders").WithNamespace(w.Namespace))
}

func (w *world) newBudget() *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	return policyv1ac.PodDisruptionBudget("orders", w.Namespace).WithLabels(w.objectLabels()).WithOwnerReferences(w.controllerReference()).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().WithMaxUnavailable(intstr.FromInt32(1)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{v1alpha1.LabelCluster: "orders"})))
}

func (w *world) networkPolicy() *networkingv1ac.NetworkPolicyApplyConfiguration {
	return networkingv1ac.NetworkPolicy("orders", w.Namespace).WithLabels(w.objectLabels()).WithOwnerReferences(w.controllerReference()).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{v1alpha1.LabelCluster: "orders"})).
			WithPolicyTypes("Ingress").
			WithIngress(networkingv1ac.NetworkPolicyIngressRule().
				WithPorts(networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(5432)))))
}

// newVolume is without a controller reference, as volumes outlive their cluster.
func (w *world) newVolume() *corev1ac.PersistentVolumeClaimApplyConfiguration {
	return corev1ac.PersistentVolumeClaim("data-orders-0", w.Namespace).WithLabels(w.objectLabels()).
		WithSpec(corev1ac.PersistentVolumeClaimSpec().WithAccessModes(corev1.ReadWriteOnce).
			WithStorageClassName("none").
			WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{
				corev1.ResourceStorage: resource.MustParse("1024Mi"),
			})))
}

func (w *world) statefulSet() *appsv1ac.StatefulSetApplyConfiguration {
	labels := w.objectLabels()
	return appsv1ac.StatefulSet("orders", w.Namespace).WithLabels(labels).WithOwnerReferences(w.controllerReference()).
		WithSpec(appsv1ac.StatefulSetSpec().WithReplicas(1).WithServiceName("orders-members").
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{v1alpha1.LabelCluster: "orders"})).
			WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).
				WithSpec(corev1ac.PodSpec().
					WithTolerations(corev1ac.Toleration().WithKey("database").WithOperator(corev1.TolerationOpExists)).
					WithContainers(corev1ac.Container().WithName("postgres").WithImage("postgres:17").
						WithArgs("agent", "postgres").
						WithEnv(corev1ac.EnvVar().WithName("PGDATA").WithValue("/data")).
						WithPorts(corev1ac.ContainerPort().WithName("postgres").WithContainerPort(5432)).
						WithResources(corev1ac.ResourceRequirements().WithRequests(corev1.ResourceList{
							corev1.ResourceCPU: resource.MustParse("1000m"),
						})).
						WithVolumeMounts(corev1ac.VolumeMount().WithName("run").WithMountPath("/run/postgresql"))).
					WithVolumes(corev1ac.Volume().WithName("run").WithEmptyDir(corev1ac.EmptyDirVolumeSource())))).
			WithVolumeClaimTemplates(corev1ac.PersistentVolumeClaim("data", "").
				WithSpec(corev1ac.PersistentVolumeClaimSpec().WithAccessModes(corev1.ReadWriteOnce).WithStorageClassName("none").
					WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{
						corev1.ResourceStorage: resource.MustParse("1Gi"),
					})))))
}

// emptyObjectOf is an empty object of a desired one's kind and name.
func (w *world) emptyObjectOf(ac runtime.ApplyConfiguration) client.Object {
	w.t.Helper()
	named := ac.(interface {
		GetKind() *string
		GetAPIVersion() *string
		GetName() *string
	})
	obj, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(*named.GetAPIVersion(), *named.GetKind()))
	if err != nil {
		w.t.Fatal(err)
	}
	out := obj.(client.Object)
	out.SetName(*named.GetName())
	out.SetNamespace(w.Namespace)
	return out
}
