//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// container is the name of the database's container.
func (k *kind) container() string { return strings.ToLower(strings.TrimSuffix(k.name, "Cluster")) }

// policy is an admission policy of one namespace, by the JSON patches that it
// makes of what is written.
type policy struct {
	group, resource string
	operations      []admissionv1.OperationType
	patches         []string
}

// admit installs a policy, and returns what deletes it. Probe is an object that
// is changed once the policy is in force.
func (w *world) admit(p policy, probe client.Object) func() {
	w.t.Helper()
	name := w.Namespace + "-" + p.resource
	var mutations []admissionv1.Mutation
	for _, patch := range p.patches {
		mutations = append(mutations, admissionv1.Mutation{
			PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: "[" + patch + "]"},
		})
	}
	objects := []client.Object{
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}},
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy, Mutations: mutations,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: p.operations,
					Rule:       admissionv1.Rule{APIGroups: []string{p.group}, APIVersions: []string{"v1"}, Resources: []string{p.resource}},
				}}},
			},
		}},
	}
	drop := func() {
		for _, obj := range objects {
			if err := client.IgnoreNotFound(w.person.Delete(context.Background(), obj)); err != nil {
				w.t.Error(err)
			}
		}
	}
	w.t.Cleanup(drop)
	for _, obj := range objects {
		w.create(obj)
	}
	apitest.Eventually(w.t, "the policy is in force", func(ctx context.Context) (bool, string) {
		made := probe.DeepCopyObject().(client.Object)
		if err := w.person.Create(ctx, made, client.DryRunAll); err != nil {
			return false, err.Error()
		}
		return made.GetLabels()["policy"] == "yes", fmt.Sprint(made.GetLabels())
	})
	return drop
}

// probePod has what the policies of the tests change.
func (w *world) probePod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "install", Image: "busybox"}},
		Containers:     []corev1.Container{{Name: "main", Image: "busybox", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}}},
		Volumes:        []corev1.Volume{{Name: "a"}},
	}}
}

const addLabel = `JSONPatch{op: "add", path: "/metadata/labels/policy", value: "yes"}`

// unmoved makes sure that an operator does nothing for a while, whatever wakes
// it, and that the pods stay.
func (w *world) unmoved(c v1alpha1.Cluster, o *operator, pods map[string]string) {
	w.t.Helper()
	before := c.DeepCopyObject().(v1alpha1.Cluster)
	w.get(before)
	o.take()
	for range 20 {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		time.Sleep(100 * time.Millisecond)
	}
	if seen := o.take(); len(seen) > 0 {
		w.t.Errorf("%d requests with nothing to do: %v", len(seen), seen)
	}
	if diff := cmp.Diff(pods, w.podUIDs(c)); diff != "" {
		w.t.Errorf("pods were replaced (-want +got):\n%s", diff)
	}
	w.get(c)
	if diff := cmp.Diff(before.CommonStatus(), c.CommonStatus()); diff != "" {
		w.t.Errorf("the status changed with nothing to do:\n%s", diff)
	}
}

// unmovedByAnother makes sure that an operator that starts over leaves what its
// predecessor left, and says the same of it.
func (w *world) unmovedByAnother(c v1alpha1.Cluster, o *operator, pods map[string]string) {
	w.t.Helper()
	w.get(c)
	said := conditions.GetMessage(c, v1alpha1.ConditionSynced)
	o.stop()
	another := w.operate(0)
	// It looks up the claims of members, and nothing else that is as it should be.
	apitest.Eventually(w.t, "the first pass of the other operator", func(context.Context) (bool, string) {
		seen := another.take()
		return slices.ContainsFunc(seen, func(request string) bool {
			return strings.HasPrefix(request, http.MethodGet) && strings.Contains(request, "/persistentvolumeclaims/")
		}), fmt.Sprint(seen)
	})
	w.awaitSteady(another)
	w.awaitReady(c)
	w.awaitSynced(c, metav1.ConditionTrue, v1alpha1.ReasonSynced, said)
	w.unmoved(c, another, pods)
}

func (w *world) awaitSynced(c v1alpha1.Cluster, status metav1.ConditionStatus, reason string, words ...string) {
	w.t.Helper()
	await(w, c, fmt.Sprintf("Synced=%s/%s that says %q", status, reason, words), func(c v1alpha1.Cluster) bool {
		synced := conditions.Get(c, v1alpha1.ConditionSynced)
		return synced != nil && synced.Status == status && synced.Reason == reason &&
			!slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(synced.Message, word) })
	})
}

// What admission does to pods is reported, and no pod is replaced for it.
func TestAdmissionOfPodsIsReported(t *testing.T) { eachKind(t, admissionOfPodsIsReported) }

func admissionOfPodsIsReported(t *testing.T, w *world) {
	database := fmt.Sprintf(".spec.containers[name=%q]", w.kind.container())
	for _, tc := range []struct {
		name, patch string
		words       []string
	}{
		{"images", `JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "mirror.example/db:1"},
			JSONPatch{op: "replace", path: "/spec/initContainers/0/image", value: "mirror.example/agent:1"}`,
			[]string{database + ".image (changed to mirror.example/db:1)", `.spec.initContainers[name="install"].image (changed)`}},
		{"a sidecar and more", `JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "mesh", image: "mesh:1"}},
			JSONPatch{op: "add", path: "/spec/initContainers/-", value: Object.spec.initContainers{name: "mesh-init", image: "mesh:1"}},
			JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{name: "mesh"}},
			JSONPatch{op: "add", path: "/spec/containers/0/env/-", value: Object.spec.containers.env{name: "PROXY", value: "p"}},
			JSONPatch{op: "add", path: "/spec/tolerations/-", value: Object.spec.tolerations{key: "db", operator: "Exists"}},
			JSONPatch{op: "add", path: "/metadata/annotations/mesh.example~1status", value: "injected"}`,
			[]string{`.spec.containers[name="mesh"] (added)`, `.spec.initContainers[name="mesh-init"] (added)`, `.spec.volumes[name="mesh"] (added)`,
				database + `.env[name="PROXY"] (added)`, ".spec.tolerations (added)", `.metadata.annotations["mesh.example/status"] (added)`}},
		{"a security context", `JSONPatch{op: "add", path: "/spec/containers/0/securityContext", value: Object.spec.containers.securityContext{runAsUser: 12345}}`,
			[]string{database + ".securityContext"}},
		{"the annotation of the roll-out", `JSONPatch{op: "add", path: "/metadata/annotations/holdfast.dev~1rollout", value: "other"}`,
			[]string{`.metadata.annotations["holdfast.dev/rollout"] (changed)`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, w.kind)
			w.admit(policy{resource: "pods", operations: []admissionv1.OperationType{"CREATE"}, patches: []string{addLabel, tc.patch}}, w.probePod())
			c, o := w.settled(1)
			w.awaitSynced(c, metav1.ConditionTrue, v1alpha1.ReasonSynced, append(tc.words, "Pod/orders-0", ".metadata.labels.policy (added)")...)
			w.unmoved(c, o, w.podUIDs(c))
		})
	}
}

// A pod whose StatefulSet declares another template by now, since the tag of its
// image was resolved, is compared with the template that it was made of.
func TestAdmissionOfPinnedPods(t *testing.T) { eachKind(t, admissionOfPinnedPods) }

func admissionOfPinnedPods(t *testing.T, w *world) {
	w.admit(policy{resource: "pods", operations: []admissionv1.OperationType{"CREATE"}, patches: []string{addLabel,
		`JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "mesh", image: "mesh:1"}}`}}, w.probePod())
	c, o := w.settled(1)
	pods := w.podUIDs(c)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-0"}}
	w.get(pod)
	running := pod.DeepCopy()
	for i := range running.Status.ContainerStatuses {
		running.Status.ContainerStatuses[i].ImageID = w.kind.repository + "@sha256:" + strings.Repeat("4", 64)
	}
	if err := w.person.Status().Patch(t.Context(), running, client.MergeFrom(pod)); err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the image is pinned", func(ctx context.Context) (bool, string) {
		var set appsv1.StatefulSet
		if err := w.person.Get(ctx, client.ObjectKeyFromObject(c), &set); err != nil {
			return false, err.Error()
		}
		image := set.Spec.Template.Spec.Containers[0].Image
		return strings.Contains(image, "@sha256:"), image
	})
	w.awaitSteady(o)
	w.awaitReady(c)
	w.awaitSynced(c, metav1.ConditionTrue, v1alpha1.ReasonSynced, `Pod/orders-0 .spec.containers[name="mesh"] (added), .metadata.labels.policy (added)`)
	if message := conditions.GetMessage(c, v1alpha1.ConditionSynced); strings.Contains(message, ".image") {
		t.Errorf("the image that the tag stands for is reported as a change: %s", message)
	}
	w.unmoved(c, o, pods)
	w.unmovedByAnother(c, o, pods)
}

// The zone and the region of its node, which the API server copies to a pod, are
// no client's change.
func TestZoneOfPodIsNoDifference(t *testing.T) { eachKind(t, zoneOfPodIsNoDifference) }

func zoneOfPodIsNoDifference(t *testing.T, w *world) {
	c, o := w.settled(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-0"}}
	w.get(pod)
	if pod.Labels[corev1.LabelTopologyZone] != nodeZone || pod.Labels[corev1.LabelTopologyRegion] == "" {
		t.Fatalf("the API server copied no zone: %v", pod.Labels)
	}
	await(w, c, "Synced tells of no difference", func(c v1alpha1.Cluster) bool {
		return conditions.GetMessage(c, v1alpha1.ConditionSynced) == "every owned object is as declared"
	})
	w.unmoved(c, o, w.podUIDs(c))
}

// A LimitRange gives containers resources that no user declared.
func TestLimitRangeIsReported(t *testing.T) { eachKind(t, limitRangeIsReported) }

func limitRangeIsReported(t *testing.T, w *world) {
	w.create(&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "limits"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}},
	}})
	apitest.Eventually(t, "the limits are in force", func(ctx context.Context) (bool, string) {
		made := w.probePod()
		if err := w.person.Create(ctx, made, client.DryRunAll); err != nil {
			return false, err.Error()
		}
		return len(made.Spec.Containers[0].Resources.Limits) > 0, fmt.Sprint(made.Spec.Containers[0].Resources)
	})
	c, o := w.settled(1)
	w.awaitSynced(c, metav1.ConditionTrue, v1alpha1.ReasonSynced, fmt.Sprintf(".spec.containers[name=%q].resources (added)", w.kind.container()))
	w.unmoved(c, o, w.podUIDs(c))
}

// What a person sets on a pod is put back by a new pod, once.
func TestImageSetOnPod(t *testing.T) { eachKind(t, imageSetOnPod) }

func imageSetOnPod(t *testing.T, w *world) {
	c, o := w.settled(1)
	before := w.podUIDs(c)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-0"}}
	edit(w, pod, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "somebody/else:1" })
	apitest.Eventually(t, "the pod is replaced", func(context.Context) (bool, string) {
		pods := w.podUIDs(c)
		return len(pods) == 1 && pods["orders-0"] != before["orders-0"], fmt.Sprint(pods)
	})
	w.awaitReady(c)
	w.awaitSteady(o)
	w.awaitSynced(c, metav1.ConditionTrue, v1alpha1.ReasonSynced)
	w.unmoved(c, o, w.podUIDs(c))
}

// A controller that sets the image of each new pod is not raced: the second
// replacement waits.
func TestImageSetOnEachPod(t *testing.T) { eachKind(t, imageSetOnEachPod) }

func imageSetOnEachPod(t *testing.T, w *world) {
	c, _ := w.settled(1)
	made := map[string]bool{w.podUIDs(c)["orders-0"]: true}
	set := func() {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-0"}}
		if w.person.Get(t.Context(), client.ObjectKeyFromObject(pod), pod) != nil || pod.DeletionTimestamp != nil {
			return
		}
		made[string(pod.UID)] = true
		changed := pod.DeepCopy()
		changed.Spec.Containers[0].Image = "somebody/else:1"
		_ = w.person.Patch(t.Context(), changed, client.MergeFrom(pod)) // it may have gone meanwhile
	}
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		set()
	}
	if len(made) > 2 {
		t.Errorf("%d pods in 12 s, want one replacement and a pause", len(made))
	}
	await(w, c, "the pause is reported", func(c v1alpha1.Cluster) bool {
		return strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionDegraded), "to somebody/else:1 by kubectl-edit")
	})
}

// What a policy adds to owned objects stays and is reported; what it changes of them
// is contested, and no pod is replaced for it.
func TestAdmissionOfOwnedObjects(t *testing.T) { eachKind(t, admissionOfOwnedObjects) }

func admissionOfOwnedObjects(t *testing.T, w *world) {
	written := []admissionv1.OperationType{"CREATE", "UPDATE"}
	w.admit(policy{resource: "services", operations: written, patches: []string{addLabel}}, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe", Labels: map[string]string{"a": "b"}},
		Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"a": "b"}}})
	probe := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe", Labels: map[string]string{"a": "b"}}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, Template: corev1.PodTemplateSpec{ObjectMeta: w.probePod().ObjectMeta, Spec: w.probePod().Spec}}}
	probe.Spec.Template.Namespace, probe.Spec.Template.Name = "", ""
	drop := w.admit(policy{group: "apps", resource: "statefulsets", operations: written, patches: []string{addLabel,
		`JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: "mirror.example/db:1"}`,
		`!object.spec.template.spec.containers.exists(c, c.name == "mesh") ? JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: Object.spec.template.spec.containers{name: "mesh", image: "mesh:1"}} : JSONPatch{op: "test", path: "/spec/template/spec/containers/0/image", value: "mirror.example/db:1"}`,
	}}, probe)
	c, o := w.settled(1)
	path := fmt.Sprintf(".spec.template.spec.containers[name=%q].image", w.kind.container())
	w.awaitSynced(c, metav1.ConditionFalse, v1alpha1.ReasonContested, "StatefulSet/orders "+path+" by an admission policy or webhook")
	pods := w.podUIDs(c)
	o.take()
	for range 20 {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		time.Sleep(100 * time.Millisecond)
	}
	if seen := o.take(); len(seen) > 3 {
		t.Errorf("%d requests in two seconds of a contest: %v", len(seen), seen)
	}
	if diff := cmp.Diff(pods, w.podUIDs(c)); diff != "" {
		t.Errorf("pods were replaced (-want +got):\n%s", diff)
	}
	drop()
	w.awaitSynced(c, metav1.ConditionTrue, v1alpha1.ReasonSynced,
		"Service/orders"+w.kind.services[len(w.kind.services)-1]+" .metadata.labels.policy (added)", `StatefulSet/orders .metadata.labels.policy (added), .spec.template.spec.containers[name="mesh"] (added)`)
	w.awaitSteady(o)
	w.unmoved(c, o, pods)
	w.unmovedByAnother(c, o, pods)
}
