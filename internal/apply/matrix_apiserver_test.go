//go:build apiserver

package apply_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newChange is what a client does to an object, and the drift that it is. Object,
// Manager and Action have defaults: the object, intruder, Reverted.
type newChange struct {
	name string
	do   func(ctx context.Context, c client.Client, obj client.Object) error
	want []shortDrift
}

// remembered are changes that only an operator which saw the object before can find: a new
// one makes what is missing, and leaves alone what belongs to another cluster.
var remembered = []string{"the object is deleted", "the label of the cluster is edited"}

const intruder = "intruder"

func mergePatch(patch string) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

func jsonPatch(patch string) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		return c.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, []byte(patch)))
	}
}

// forceApply applies a partial object under another manager, with force.
func forceApply(apiVersion, kind, body string) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		patch := `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `",` + body + `}`
		return c.Patch(ctx, obj, client.RawPatch(types.ApplyPatchType, []byte(patch)), client.ForceOwnership)
	}
}

func removePointers(pointers ...string) func(context.Context, client.Client, client.Object) error {
	patch := "["
	for i, p := range pointers {
		if i > 0 {
			patch += ","
		}
		patch += `{"op":"remove","path":"` + p + `"}`
	}
	return jsonPatch(patch + "]")
}

// updateObject is what an editor does: what it read goes back changed, and once more
// where another write came between.
func updateObject(edit func(obj map[string]any)) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				return err
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			if err != nil {
				return err
			}
			edit(content)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj); err != nil {
				return err
			}
			return c.Update(ctx, obj)
		})
	}
}

func setField(value any, fields ...string) func(map[string]any) {
	return func(content map[string]any) {
		at := content
		for _, f := range fields[:len(fields)-1] {
			at = at[f].(map[string]any)
		}
		at[fields[len(fields)-1]] = value
	}
}

func driftAt(path, operation string) shortDrift { return shortDrift{Path: path, Operation: operation} }

// everyKind holds for objects of all kinds.
func everyKind() []newChange {
	const label = `.metadata.labels["app.kubernetes.io/name"]`
	return []newChange{
		{"an owned label is edited", updateObject(setField("other", "metadata", "labels", "app.kubernetes.io/name")),
			[]shortDrift{driftAt(label, "Update")}},
		{"an owned label is merge patched", mergePatch(`{"metadata":{"labels":{"app.kubernetes.io/name":"other"}}}`),
			[]shortDrift{driftAt(label, "Update")}},
		{"an owned label is removed", removePointers("/metadata/labels/app.kubernetes.io~1name"),
			[]shortDrift{{Path: label, Operation: "removed", Manager: "-"}}},
		{"the annotation of the hash is edited", mergePatch(`{"metadata":{"annotations":{"holdfast.dev/applied-hash":"0"}}}`),
			[]shortDrift{driftAt(`.metadata.annotations["holdfast.dev/applied-hash"]`, "Update")}},
		{"managedFields are cleared", mergePatch(`{"metadata":{"managedFields":[{}]}}`), nil},
		{"a value is changed and managedFields are cleared",
			mergePatch(`{"metadata":{"managedFields":[{}],"labels":{"app.kubernetes.io/name":"other"}}}`),
			[]shortDrift{{Path: label, Operation: "unattributed", Manager: "-"}}},
		{"the object is deleted", func(ctx context.Context, c client.Client, obj client.Object) error {
			return c.Delete(ctx, obj)
		}, []shortDrift{{Operation: "deleted", Manager: "-"}}},
	}
}

// testDrifts goes through changes of one kind, each from a settled state.
func testDrifts(t *testing.T, object func(w *world) runtime.ApplyConfiguration, apiVersion string, extra ...newChange) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{object(w)}
	obj := w.emptyObjectOf(object(w))
	kind := *object(w).(interface{ GetKind() *string }).GetKind()
	w.wantDrifts(w.settleSyncs().Drifts)
	changes := append(everyKind(), extra...)
	changes = append(changes, newChange{
		"an owned label is taken by an apply with force",
		forceApply(apiVersion, kind, `"metadata":{"labels":{"app.kubernetes.io/name":"other"}}`),
		[]shortDrift{driftAt(`.metadata.labels["app.kubernetes.io/name"]`, "Apply")},
	})
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			sub := *w
			sub.t = t
			sub.oneChange(c, object(w), obj.DeepCopyObject().(client.Object), func() {})
		})
		if slices.Contains(remembered, c.name) {
			continue
		}
		t.Run(c.name+" while no operator runs", func(t *testing.T) {
			sub := *w
			sub.t = t
			sub.oneChange(c, object(w), obj.DeepCopyObject().(client.Object), sub.restartOperator)
		})
	}
}

// oneChange makes a change, and lets an operator find it that something else may
// happen to before.
func (w *world) oneChange(c newChange, ac runtime.ApplyConfiguration, obj client.Object, before func()) {
	w.t.Helper()
	// One change is a day apart from the next: together they are no contest.
	w.clock.SetTime(w.clock.Now().Add(24 * 3600e9))
	w.req.Objects = []runtime.ApplyConfiguration{ac}
	w.settleSyncs()
	content, ownedBefore := w.ownContent(obj), w.ownedFields(w.emptyObjectOf(ac))
	if err := c.do(w.t.Context(), w.As(w.t, intruder), obj); err != nil {
		w.t.Fatal(err)
	}
	w.awaitCache(w.emptyObjectOf(ac))
	before()
	result := w.settleSyncs()
	var want []shortDrift
	for _, d := range c.want {
		kind := *ac.(interface{ GetKind() *string }).GetKind()
		d.Object, d.Action = kind+"/"+obj.GetName(), "Reverted"
		switch d.Manager {
		case "":
			d.Manager = intruder
		case "-":
			d.Manager = ""
		}
		want = append(want, d)
	}
	w.wantDrifts(result.Drifts, want...)
	if diff := cmp.Diff(content, w.ownContent(w.emptyObjectOf(ac))); diff != "" {
		w.t.Errorf("content after the revert (-before +after):\n%s", diff)
	}
	if owned := w.ownedFields(w.emptyObjectOf(ac)); !owned.Equals(ownedBefore) {
		w.t.Errorf("owned fields differ: lost %s, new %s", ownedBefore.Difference(owned), owned.Difference(ownedBefore))
	}
	w.Requests.TakeRequests()
	w.settleSyncs()
	if diff := cmp.Diff([]string(nil), w.Requests.TakeRequests()); diff != "" {
		w.t.Errorf("requests once all is well (-want +got):\n%s", diff)
	}
}

func TestDriftOfServiceAccounts(t *testing.T) {
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.serviceAccount() }, "v1",
		newChange{"token mounting is switched on", mergePatch(`{"automountServiceAccountToken":true}`),
			[]shortDrift{driftAt(".automountServiceAccountToken", "Update")}},
	)
}

func TestDriftOfRoles(t *testing.T) {
	const more = `[{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["get","update"]},{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}]`
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.newRole() }, "rbac.authorization.k8s.io/v1",
		newChange{"a rule is added", mergePatch(`{"rules":` + more + `}`), []shortDrift{driftAt(".rules", "Update")}},
		// The API server stores rules as null then, which has an owner.
		newChange{"the rules are removed", removePointers("/rules"), []shortDrift{driftAt(".rules", "Update")}},
		newChange{"the rules are taken with force", forceApply("rbac.authorization.k8s.io/v1", "Role", `"rules":`+more),
			[]shortDrift{driftAt(".rules", "Apply")}},
	)
}

func TestDriftOfRoleBindings(t *testing.T) {
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.roleBinding() }, "rbac.authorization.k8s.io/v1",
		newChange{"a subject is added", jsonPatch(`[{"op":"add","path":"/subjects/-","value":{"kind":"ServiceAccount","name":"other","namespace":"default"}}]`),
			[]shortDrift{driftAt(".subjects", "Update")}},
		newChange{"the subjects are removed", removePointers("/subjects"), []shortDrift{{Path: ".subjects", Operation: "removed", Manager: "-"}}},
	)
}

func TestDriftOfSecrets(t *testing.T) {
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.newSecret() }, "v1",
		newChange{"a value is edited through stringData", mergePatch(`{"stringData":{"password":"mine"}}`),
			[]shortDrift{driftAt(".data.password", "Update")}},
		newChange{"a value is edited", mergePatch(`{"data":{"password":"bWluZQ=="}}`), []shortDrift{driftAt(".data.password", "Update")}},
		newChange{"a key is added", mergePatch(`{"data":{"extra":"bWluZQ=="}}`), []shortDrift{driftAt(".data.extra", "Update")}},
		newChange{"a key is removed", removePointers("/data/password"),
			[]shortDrift{{Path: ".data.password", Operation: "removed", Manager: "-"}}},
		newChange{"a value is taken with force", forceApply("v1", "Secret", `"data":{"password":"bWluZQ=="}`),
			[]shortDrift{driftAt(".data.password", "Apply")}},
		newChange{"a key is added by an apply", forceApply("v1", "Secret", `"data":{"extra":"bWluZQ=="}`),
			[]shortDrift{driftAt(".data.extra", "Apply")}},
		newChange{"the same value is applied by another manager", forceApply("v1", "Secret", `"data":{"username":"YXBw"}`), nil},
	)
}

func TestDriftOfConfigMaps(t *testing.T) {
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.configMap() }, "v1",
		newChange{"a key is edited", mergePatch(`{"data":{"a.conf":"mine"}}`), []shortDrift{driftAt(`.data["a.conf"]`, "Update")}},
		newChange{"a key is added", mergePatch(`{"data":{"c.conf":"mine"}}`), []shortDrift{driftAt(`.data["c.conf"]`, "Update")}},
		newChange{"binary data is added", mergePatch(`{"binaryData":{"c.bin":"bWluZQ=="}}`), []shortDrift{driftAt(`.binaryData`, "Update")}},
		newChange{"a key is removed", removePointers("/data/a.conf"), []shortDrift{{Path: `.data["a.conf"]`, Operation: "removed", Manager: "-"}}},
		newChange{"all keys are removed", removePointers("/data"), []shortDrift{{Path: `.data`, Operation: "removed", Manager: "-"}}},
		newChange{"a key is taken with force", forceApply("v1", "ConfigMap", `"data":{"a.conf":"mine"}`),
			[]shortDrift{driftAt(`.data["a.conf"]`, "Apply")}},
	)
}

func TestDriftOfServices(t *testing.T) {
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.newService() }, "v1",
		newChange{"the selector is edited", mergePatch(`{"spec":{"selector":{"app":"other"}}}`), []shortDrift{driftAt(".spec.selector", "Update")}},
		newChange{"a port's target is edited", jsonPatch(`[{"op":"replace","path":"/spec/ports/0/targetPort","value":1}]`),
			[]shortDrift{driftAt(`.spec.ports[name="postgres"].targetPort`, "Update")}},
		newChange{"a port's number is edited", jsonPatch(`[{"op":"replace","path":"/spec/ports/0/port","value":5433}]`),
			[]shortDrift{driftAt(`.spec.ports[name="postgres"].port`, "Update")}},
		newChange{"a port is added", jsonPatch(`[{"op":"add","path":"/spec/ports/-","value":{"name":"extra","port":1,"protocol":"TCP"}}]`),
			[]shortDrift{driftAt(`.spec.ports[name="extra"]`, "Update")}},
		newChange{"a port is added by an apply", forceApply("v1", "Service", `"spec":{"ports":[{"name":"extra","port":1,"protocol":"TCP"}]}`),
			[]shortDrift{driftAt(`.spec.ports[name="extra"]`, "Apply")}},
		newChange{"session affinity is added", mergePatch(`{"spec":{"sessionAffinity":"ClientIP"}}`),
			[]shortDrift{driftAt(`.spec.sessionAffinity`, "Update"), driftAt(`.spec.sessionAffinityConfig`, "Update")}},
		newChange{"a default is spelled out by an apply", forceApply("v1", "Service", `"spec":{"type":"ClusterIP"}`), nil},
	)
}

func TestDriftOfStatefulSets(t *testing.T) {
	const container = "/spec/template/spec/containers/0"
	const shown = `.spec.template.spec.containers[name="postgres"]`
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.statefulSet() }, "apps/v1",
		newChange{"it is scaled", scaleReplicas(3), []shortDrift{{Path: ".spec.replicas", Operation: "Update", Subresource: "scale"}}},
		newChange{"it is scaled to zero", scaleReplicas(0), []shortDrift{{Path: ".spec.replicas", Operation: "unattributed", Manager: "-"}}},
		newChange{"replicas are edited", updateObject(setField(int64(3), "spec", "replicas")), []shortDrift{driftAt(".spec.replicas", "Update")}},
		newChange{"the image is edited", jsonPatch(`[{"op":"replace","path":"` + container + `/image","value":"other"}]`),
			[]shortDrift{driftAt(shown+".image", "Update")}},
		newChange{"a container is added", jsonPatch(`[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"sidecar","image":"s"}}]`),
			[]shortDrift{driftAt(`.spec.template.spec.containers[name="sidecar"]`, "Update")}},
		newChange{"a container is added by an apply",
			forceApply("apps/v1", "StatefulSet", `"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"s"}]}}}`),
			[]shortDrift{driftAt(`.spec.template.spec.containers[name="sidecar"]`, "Apply")}},
		newChange{"an init container is added", mergePatch(`{"spec":{"template":{"spec":{"initContainers":[{"name":"init","image":"i"}]}}}}`),
			[]shortDrift{driftAt(`.spec.template.spec.initContainers`, "Update")}},
		newChange{"an environment variable is added", jsonPatch(`[{"op":"add","path":"` + container + `/env/-","value":{"name":"X","value":"1"}}]`),
			[]shortDrift{driftAt(shown+`.env[name="X"]`, "Update")}},
		newChange{"an environment variable is edited", jsonPatch(`[{"op":"replace","path":"` + container + `/env/0/value","value":"/x"}]`),
			[]shortDrift{driftAt(shown+`.env[name="PGDATA"].value`, "Update")}},
		newChange{"the environment is removed", removePointers(container + "/env"),
			[]shortDrift{{Path: shown + `.env`, Operation: "removed", Manager: "-"}}},
		newChange{"a volume and its mount are added", jsonPatch(`[{"op":"add","path":"/spec/template/spec/volumes/-","value":{"name":"x","emptyDir":{}}},
			{"op":"add","path":"` + container + `/volumeMounts/-","value":{"name":"x","mountPath":"/x"}}]`),
			[]shortDrift{driftAt(`.spec.template.spec.volumes[name="x"]`, "Update"), driftAt(shown+`.volumeMounts[name="x"]`, "Update")}},
		newChange{"an atomic list is edited", mergePatch(`{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`),
			[]shortDrift{driftAt(".spec.template.spec.tolerations", "Update")}},
		newChange{"arguments are edited", jsonPatch(`[{"op":"add","path":"` + container + `/args/-","value":"-x"}]`),
			[]shortDrift{driftAt(shown+".args", "Update")}},
		newChange{"a probe is added", jsonPatch(`[{"op":"add","path":"` + container + `/livenessProbe","value":{"exec":{"command":["false"]}}}]`),
			[]shortDrift{driftAt(shown+".livenessProbe", "Update")}},
		newChange{"a request is edited", jsonPatch(`[{"op":"replace","path":"` + container + `/resources/requests/cpu","value":"2"}]`),
			[]shortDrift{driftAt(shown+".resources.requests.cpu", "Update")}},
		newChange{"the image and replicas are taken with force",
			forceApply("apps/v1", "StatefulSet", `"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"postgres","image":"other"}]}}}`),
			[]shortDrift{driftAt(".spec.replicas", "Apply"), driftAt(shown+".image", "Apply")}},
	)
}

func TestDriftOfPersistentVolumeClaims(t *testing.T) {
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.newVolume() }, "v1",
		newChange{"the label of the cluster is edited", mergePatch(`{"metadata":{"labels":{"holdfast.dev/cluster":"other"}}}`),
			[]shortDrift{driftAt(`.metadata.labels["holdfast.dev/cluster"]`, "Update")}},
		newChange{"a member's is said to be a former member's", mergePatch(`{"metadata":{"annotations":{"holdfast.dev/scaled-away":"Retain"}}}`),
			[]shortDrift{driftAt(`.metadata.annotations["holdfast.dev/scaled-away"]`, "Update")}},
	)
}

func TestDriftOfPodDisruptionBudgets(t *testing.T) {
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.newBudget() }, "policy/v1",
		newChange{"the limit is edited", mergePatch(`{"spec":{"maxUnavailable":3}}`), []shortDrift{driftAt(".spec.maxUnavailable", "Update")}},
		newChange{"an eviction policy is added", mergePatch(`{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`),
			[]shortDrift{driftAt(".spec.unhealthyPodEvictionPolicy", "Update")}},
		newChange{"the limit is removed", removePointers("/spec/maxUnavailable"),
			[]shortDrift{{Path: ".spec.maxUnavailable", Operation: "removed", Manager: "-"}}},
	)
}

func TestDriftOfNetworkPolicies(t *testing.T) {
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.networkPolicy() }, "networking.k8s.io/v1",
		newChange{"an ingress rule is added", jsonPatch(`[{"op":"add","path":"/spec/ingress/-","value":{}}]`),
			[]shortDrift{driftAt(".spec.ingress", "Update")}},
		newChange{"an egress rule is added", mergePatch(`{"spec":{"egress":[{}]}}`), []shortDrift{driftAt(".spec.egress", "Update")}},
		newChange{"the ingress rules are removed", removePointers("/spec/ingress"),
			[]shortDrift{{Path: ".spec.ingress", Operation: "removed", Manager: "-"}}},
		newChange{"policy types are edited", mergePatch(`{"spec":{"policyTypes":["Ingress","Egress"]}}`),
			[]shortDrift{driftAt(".spec.policyTypes", "Update")}},
	)
}

// scaleReplicas changes replicas through the scale subresource, as kubectl scale does.
func scaleReplicas(replicas int32) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		return c.SubResource("scale").Update(ctx, obj, client.WithSubResourceBody(s), client.FieldOwner(intruder))
	}
}
