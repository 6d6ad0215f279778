//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// mirror is the registry that the policies have images pulled from. Of the
	// names of one image a runtime reports the first: this one sorts last.
	mirror = "registry.example/"
	// sidecar is an image that the nodes have, and that does nothing.
	sidecar = "localhost/holdfast/pause:1"
	// admitted is the label that the policies set.
	admitted = "admitted"
	// meshStatus is an annotation as meshes set it.
	meshStatus = "mesh.example/status"
)

// admissionRule is a mutating policy of a namespace.
type admissionRule struct {
	name, group, resource string
	operations            []admissionv1.OperationType
	// only is an expression that objects must meet, if any.
	only string
	// patches are expressions, each of a list of JSON patches.
	patches []string
	// probe is an object that the rule changes, and changed says whether it did.
	probe   func(namespace string) client.Object
	changed func(client.Object) bool
}

// restrictedContainer is an expression for a container of the sidecar's image
// that the restricted Pod Security Standard admits.
func restrictedContainer(kind, name string) string {
	return fmt.Sprintf(`%s{name: %q, image: %q, securityContext: %s.securityContext{allowPrivilegeEscalation: false, capabilities: %s.securityContext.capabilities{drop: ["ALL"]}}}`,
		kind, name, sidecar, kind, kind)
}

// labelPatches are patches of the metadata.
const labelPatches = `[JSONPatch{op: "add", path: "/metadata/labels/` + admitted + `", value: "yes"},
	JSONPatch{op: "add", path: "/metadata/annotations/mesh.example~1status", value: "injected"}]`

func hasLabel(obj client.Object) bool { return obj.GetLabels()[admitted] == "yes" }

// raisedMemory is the limit of a member's memory that the policies set.
func (k *kind) raisedMemory() string {
	limit := resource.MustParse(k.memory)
	limit.Add(resource.MustParse("256Mi"))
	return limit.String()
}

// admissionRules are what a mesh, a registry mirror and labelling policies do.
func admissionRules(k *kind) []admissionRule {
	made := []admissionv1.OperationType{admissionv1.Create}
	written := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	return []admissionRule{
		{
			name: "pods", resource: "pods", operations: made, probe: func(namespace string) client.Object { return probePod(namespace) }, changed: hasLabel,
			patches: []string{
				labelPatches,
				`[JSONPatch{op: "add", path: "/spec/containers/-", value: ` + restrictedContainer("Object.spec.containers", "mesh") + `}]`,
				`[JSONPatch{op: "add", path: "/spec/containers/0/env/-", value: Object.spec.containers.env{name: "PROXY", value: "mesh.example"}}]`,
				`[JSONPatch{op: "add", path: "/spec/tolerations/-", value: Object.spec.tolerations{key: "databases", operator: "Exists"}}]`,
				`[JSONPatch{op: "add", path: "/spec/containers/0/resources/limits", value: {"memory": "` + k.raisedMemory() + `", "cpu": "2"}}]`,
			},
		},
		{
			name: "images", resource: "pods", operations: made, probe: func(namespace string) client.Object { return probePod(namespace) },
			only: `object.metadata.name.startsWith("` + orders + `-")`,
			patches: []string{
				`[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "` + mirror + `" + object.spec.containers[0].image}]`,
				`[JSONPatch{op: "replace", path: "/spec/initContainers/0/image", value: "` + mirror + `" + object.spec.initContainers[0].image}]`,
			},
			changed: func(obj client.Object) bool {
				pod, isPod := obj.(*corev1.Pod)
				return isPod && strings.HasPrefix(pod.Spec.Containers[0].Image, mirror)
			},
		},
		{
			name: "statefulsets", group: "apps", resource: "statefulsets", operations: written, probe: probeStatefulSet, changed: hasLabel,
			patches: []string{
				labelPatches,
				`object.spec.template.spec.containers.exists(c, c.name == "logs") ? [] : [JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: ` +
					restrictedContainer("Object.spec.template.spec.containers", "logs") + `}]`,
			},
		},
		{name: "services", resource: "services", operations: written, probe: probeService, changed: hasLabel, patches: []string{labelPatches}},
	}
}

func probeMeta(namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: orders + "-probe", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}
}

func probePod(namespace string) *corev1.Pod {
	restricted := &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	return &corev1.Pod{ObjectMeta: probeMeta(namespace), Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		InitContainers:  []corev1.Container{{Name: "install", Image: sidecar, SecurityContext: restricted}},
		Containers:      []corev1.Container{{Name: "main", Image: sidecar, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}, SecurityContext: restricted}},
	}}
}

func probeStatefulSet(namespace string) client.Object {
	return &appsv1.StatefulSet{ObjectMeta: probeMeta(namespace), Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: sidecar}}},
		},
	}}
}

func probeService(namespace string) client.Object {
	return &corev1.Service{ObjectMeta: probeMeta(namespace), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"a": "b"}}}
}

// policyObjects are the policy and its binding, for one namespace alone.
func (r admissionRule) policyObjects(namespace string) []client.Object {
	name := namespace + "-" + r.name
	var mutations []admissionv1.Mutation
	for _, patch := range r.patches {
		mutations = append(mutations, admissionv1.Mutation{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: patch}})
	}
	var conditions []admissionv1.MatchCondition
	if r.only != "" {
		conditions = append(conditions, admissionv1.MatchCondition{Name: "only", Expression: r.only})
	}
	return []client.Object{
		&admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy, Mutations: mutations, MatchConditions: conditions,
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: r.operations,
					Rule:       admissionv1.Rule{APIGroups: []string{r.group}, APIVersions: []string{"v1"}, Resources: []string{r.resource}},
				}}},
			},
		}},
		&admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}},
	}
}

// inForce asks the API server what it makes of the probe, by a dry run.
func (r admissionRule) inForce(ctx context.Context, namespace string) (bool, error) {
	probe := r.probe(namespace)
	err := env.client.Create(ctx, probe, client.DryRunAll)
	return r.changed(probe), err
}

// installRules puts the rules, and a LimitRange, in force for a namespace, and returns
// what takes them back: after it, and after the test, the API server changes
// nothing any more.
func installRules(t *testing.T, k *kind, namespace string) (lift func(*testing.T)) {
	t.Helper()
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type:           corev1.LimitTypeContainer,
		Default:        corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi"), corev1.ResourceCPU: resource.MustParse("5m")},
	}}}}
	objects := []client.Object{limits}
	for _, rule := range admissionRules(k) {
		objects = append(objects, rule.policyObjects(namespace)...)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		for _, obj := range objects {
			if err := env.client.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete %T %s: %v", obj, obj.GetName(), err)
			}
		}
	})
	for _, obj := range objects {
		must(t, env.client.Create(t.Context(), obj), fmt.Sprintf("create %T", obj))
	}
	awaitAdmission(t, k, namespace, true)
	return func(t *testing.T) {
		t.Helper()
		for _, obj := range objects {
			must(t, env.client.Delete(t.Context(), obj), fmt.Sprintf("delete %T", obj))
		}
		awaitAdmission(t, k, namespace, false)
	}
}

// awaitAdmission waits until the API server applies all of the rules, or none.
func awaitAdmission(t *testing.T, k *kind, namespace string, want bool) {
	t.Helper()
	eventually(t, revertTimeout, fmt.Sprintf("the policies are in force: %v", want), func(ctx context.Context) error {
		var errs []error
		for _, rule := range admissionRules(k) {
			if have, err := rule.inForce(ctx, namespace); err != nil || have != want {
				errs = append(errs, fmt.Errorf("policy %s: in force %v: %w", rule.name, have, err))
			}
		}
		pod := probePod(namespace)
		err := env.client.Create(ctx, pod, client.DryRunAll)
		if limited := len(pod.Spec.InitContainers[0].Resources.Limits) > 0; err != nil || limited != want {
			errs = append(errs, fmt.Errorf("limits are in force: %v: %w", limited, err))
		}
		return errors.Join(errs...)
	})
}

// mirrorImages gives the nodes the images of a kind, and the operator's, by the
// mirror's name, as if they had been pulled from there.
func mirrorImages(t *testing.T, k *kind) {
	t.Helper()
	images := []string{env.operatorImage}
	for _, i := range env.images {
		if i.Engine == k.engine && i.Line == k.line {
			images = append(images, i.Refs...)
		}
	}
	for _, ref := range images {
		tagOnNodes(t, ref, mirror+ref)
	}
}
