//go:build apiserver

package apply_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// change is what somebody does to an object, and the drift that it is. Object,
// Manager and Action have defaults: the object, intruder, Reverted.
type change struct {
	name string
	do   func(ctx context.Context, c client.Client, obj client.Object) error
	want []shortDrift
}

const intruder = "intruder"

func merge(patch string) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

func jsonPatch(patch string) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		return c.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, []byte(patch)))
	}
}

// force applies a partial object under another manager, with force.
func force(apiVersion, kind, body string) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		patch := `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `",` + body + `}`
		return c.Patch(ctx, obj, client.RawPatch(types.ApplyPatchType, []byte(patch)), client.ForceOwnership)
	}
}

func remove(pointers ...string) func(context.Context, client.Client, client.Object) error {
	patch := "["
	for i, p := range pointers {
		if i > 0 {
			patch += ","
		}
		patch += `{"op":"remove","path":"` + p + `"}`
	}
	return jsonPatch(patch + "]")
}

// update is what an editor does: what it read goes back changed, and once more
// where another write came between.
func update(edit func(obj map[string]any)) func(context.Context, client.Client, client.Object) error {
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

func set(value any, fields ...string) func(map[string]any) {
	return func(content map[string]any) {
		at := content
		for _, f := range fields[:len(fields)-1] {
			at = at[f].(map[string]any)
		}
		at[fields[len(fields)-1]] = value
	}
}

func at(path, operation string) shortDrift { return shortDrift{Path: path, Operation: operation} }

// everyKind holds for objects of all kinds.
func everyKind() []change {
	const label = `.metadata.labels["app.kubernetes.io/name"]`
	return []change{
		{"an owned label is edited", update(set("other", "metadata", "labels", "app.kubernetes.io/name")),
			[]shortDrift{at(label, "Update")}},
		{"an owned label is merge patched", merge(`{"metadata":{"labels":{"app.kubernetes.io/name":"other"}}}`),
			[]shortDrift{at(label, "Update")}},
		{"an owned label is removed", remove("/metadata/labels/app.kubernetes.io~1name"),
			[]shortDrift{{Path: label, Operation: "removed", Manager: "-"}}},
		{"the annotation of the hash is edited", merge(`{"metadata":{"annotations":{"holdfast.dev/applied-hash":"0"}}}`),
			[]shortDrift{at(`.metadata.annotations["holdfast.dev/applied-hash"]`, "Update")}},
		{"managedFields are cleared", merge(`{"metadata":{"managedFields":[{}]}}`), nil},
		{"a value is changed and managedFields are cleared",
			merge(`{"metadata":{"managedFields":[{}],"labels":{"app.kubernetes.io/name":"other"}}}`),
			[]shortDrift{{Path: label, Operation: "unattributed", Manager: "-"}}},
		{"the object is deleted", func(ctx context.Context, c client.Client, obj client.Object) error {
			return c.Delete(ctx, obj)
		}, []shortDrift{{Operation: "deleted", Manager: "-"}}},
	}
}

// drifts goes through changes of one kind, each from a settled state.
func drifts(t *testing.T, object func(w *world) runtime.ApplyConfiguration, apiVersion string, extra ...change) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{object(w)}
	obj := w.typed(object(w))
	kind := *object(w).(interface{ GetKind() *string }).GetKind()
	w.wantDrifts(w.settle().Drifts)
	changes := append(everyKind(), extra...)
	changes = append(changes, change{
		"an owned label is taken by an apply with force",
		force(apiVersion, kind, `"metadata":{"labels":{"app.kubernetes.io/name":"other"}}`),
		[]shortDrift{at(`.metadata.labels["app.kubernetes.io/name"]`, "Apply")},
	})
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			sub := *w
			sub.t = t
			sub.oneChange(c, object(w), obj.DeepCopyObject().(client.Object))
		})
	}
}

func (w *world) oneChange(c change, ac runtime.ApplyConfiguration, obj client.Object) {
	w.t.Helper()
	// One change is a day apart from the next: together they are no contest.
	w.clock.SetTime(w.clock.Now().Add(24 * 3600e9))
	w.req.Objects = []runtime.ApplyConfiguration{ac}
	w.settle()
	before, ownedBefore := w.ownContent(obj), w.owned(w.typed(ac))
	if err := c.do(w.t.Context(), w.As(w.t, intruder), obj); err != nil {
		w.t.Fatal(err)
	}
	w.awaitCache(w.typed(ac))
	result := w.settle()
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
	if diff := cmp.Diff(before, w.ownContent(w.typed(ac))); diff != "" {
		w.t.Errorf("content after the revert (-before +after):\n%s", diff)
	}
	if owned := w.owned(w.typed(ac)); !owned.Equals(ownedBefore) {
		w.t.Errorf("owned fields differ: lost %s, new %s", ownedBefore.Difference(owned), owned.Difference(ownedBefore))
	}
	w.Requests.Take()
	w.settle()
	if diff := cmp.Diff([]string(nil), w.Requests.Take()); diff != "" {
		w.t.Errorf("requests once all is well (-want +got):\n%s", diff)
	}
}

func TestDriftOfServiceAccounts(t *testing.T) {
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.serviceAccount() }, "v1",
		change{"token mounting is switched on", merge(`{"automountServiceAccountToken":true}`),
			[]shortDrift{at(".automountServiceAccountToken", "Update")}},
	)
}

func TestDriftOfRoles(t *testing.T) {
	const more = `[{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["get","update"]},{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}]`
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.role() }, "rbac.authorization.k8s.io/v1",
		change{"a rule is added", merge(`{"rules":` + more + `}`), []shortDrift{at(".rules", "Update")}},
		// The API server stores rules as null then, which has an owner.
		change{"the rules are removed", remove("/rules"), []shortDrift{at(".rules", "Update")}},
		change{"the rules are taken with force", force("rbac.authorization.k8s.io/v1", "Role", `"rules":`+more),
			[]shortDrift{at(".rules", "Apply")}},
	)
}

func TestDriftOfRoleBindings(t *testing.T) {
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.roleBinding() }, "rbac.authorization.k8s.io/v1",
		change{"a subject is added", jsonPatch(`[{"op":"add","path":"/subjects/-","value":{"kind":"ServiceAccount","name":"other","namespace":"default"}}]`),
			[]shortDrift{at(".subjects", "Update")}},
		change{"the subjects are removed", remove("/subjects"), []shortDrift{{Path: ".subjects", Operation: "removed", Manager: "-"}}},
	)
}

func TestDriftOfSecrets(t *testing.T) {
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.secret() }, "v1",
		change{"a value is edited through stringData", merge(`{"stringData":{"password":"mine"}}`),
			[]shortDrift{at(".data.password", "Update")}},
		change{"a value is edited", merge(`{"data":{"password":"bWluZQ=="}}`), []shortDrift{at(".data.password", "Update")}},
		change{"a key is added", merge(`{"data":{"extra":"bWluZQ=="}}`), []shortDrift{at(".data.extra", "Update")}},
		change{"a key is removed", remove("/data/password"),
			[]shortDrift{{Path: ".data.password", Operation: "removed", Manager: "-"}}},
		change{"a value is taken with force", force("v1", "Secret", `"data":{"password":"bWluZQ=="}`),
			[]shortDrift{at(".data.password", "Apply")}},
		change{"a key is added by an apply", force("v1", "Secret", `"data":{"extra":"bWluZQ=="}`),
			[]shortDrift{at(".data.extra", "Apply")}},
		change{"the same value is applied by somebody else", force("v1", "Secret", `"data":{"username":"YXBw"}`), nil},
	)
}

func TestDriftOfConfigMaps(t *testing.T) {
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.configMap() }, "v1",
		change{"a key is edited", merge(`{"data":{"a.conf":"mine"}}`), []shortDrift{at(`.data["a.conf"]`, "Update")}},
		change{"a key is added", merge(`{"data":{"c.conf":"mine"}}`), []shortDrift{at(`.data["c.conf"]`, "Update")}},
		change{"binary data is added", merge(`{"binaryData":{"c.bin":"bWluZQ=="}}`), []shortDrift{at(`.binaryData`, "Update")}},
		change{"a key is removed", remove("/data/a.conf"), []shortDrift{{Path: `.data["a.conf"]`, Operation: "removed", Manager: "-"}}},
		change{"all keys are removed", remove("/data"), []shortDrift{{Path: `.data`, Operation: "removed", Manager: "-"}}},
		change{"a key is taken with force", force("v1", "ConfigMap", `"data":{"a.conf":"mine"}`),
			[]shortDrift{at(`.data["a.conf"]`, "Apply")}},
	)
}

func TestDriftOfServices(t *testing.T) {
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.service() }, "v1",
		change{"the selector is edited", merge(`{"spec":{"selector":{"app":"other"}}}`), []shortDrift{at(".spec.selector", "Update")}},
		change{"a port's target is edited", jsonPatch(`[{"op":"replace","path":"/spec/ports/0/targetPort","value":1}]`),
			[]shortDrift{at(`.spec.ports[name="postgres"].targetPort`, "Update")}},
		change{"a port's number is edited", jsonPatch(`[{"op":"replace","path":"/spec/ports/0/port","value":5433}]`),
			[]shortDrift{at(`.spec.ports[name="postgres"].port`, "Update")}},
		change{"a port is added", jsonPatch(`[{"op":"add","path":"/spec/ports/-","value":{"name":"extra","port":1,"protocol":"TCP"}}]`),
			[]shortDrift{at(`.spec.ports[name="extra"]`, "Update")}},
		change{"a port is added by an apply", force("v1", "Service", `"spec":{"ports":[{"name":"extra","port":1,"protocol":"TCP"}]}`),
			[]shortDrift{at(`.spec.ports[name="extra"]`, "Apply")}},
		change{"session affinity is added", merge(`{"spec":{"sessionAffinity":"ClientIP"}}`),
			[]shortDrift{at(`.spec.sessionAffinity`, "Update"), at(`.spec.sessionAffinityConfig`, "Update")}},
		change{"a default is spelled out by an apply", force("v1", "Service", `"spec":{"type":"ClusterIP"}`), nil},
	)
}

func TestDriftOfStatefulSets(t *testing.T) {
	const container = "/spec/template/spec/containers/0"
	const shown = `.spec.template.spec.containers[name="postgres"]`
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.statefulSet() }, "apps/v1",
		change{"it is scaled", scale(3), []shortDrift{{Path: ".spec.replicas", Operation: "Update", Subresource: "scale"}}},
		change{"it is scaled to zero", scale(0), []shortDrift{{Path: ".spec.replicas", Operation: "unattributed", Manager: "-"}}},
		change{"replicas are edited", update(set(int64(3), "spec", "replicas")), []shortDrift{at(".spec.replicas", "Update")}},
		change{"the image is edited", jsonPatch(`[{"op":"replace","path":"` + container + `/image","value":"other"}]`),
			[]shortDrift{at(shown+".image", "Update")}},
		change{"a container is added", jsonPatch(`[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"sidecar","image":"s"}}]`),
			[]shortDrift{at(`.spec.template.spec.containers[name="sidecar"]`, "Update")}},
		change{"a container is added by an apply",
			force("apps/v1", "StatefulSet", `"spec":{"template":{"spec":{"containers":[{"name":"sidecar","image":"s"}]}}}`),
			[]shortDrift{at(`.spec.template.spec.containers[name="sidecar"]`, "Apply")}},
		change{"an init container is added", merge(`{"spec":{"template":{"spec":{"initContainers":[{"name":"init","image":"i"}]}}}}`),
			[]shortDrift{at(`.spec.template.spec.initContainers`, "Update")}},
		change{"an environment variable is added", jsonPatch(`[{"op":"add","path":"` + container + `/env/-","value":{"name":"X","value":"1"}}]`),
			[]shortDrift{at(shown+`.env[name="X"]`, "Update")}},
		change{"an environment variable is edited", jsonPatch(`[{"op":"replace","path":"` + container + `/env/0/value","value":"/x"}]`),
			[]shortDrift{at(shown+`.env[name="PGDATA"].value`, "Update")}},
		change{"the environment is removed", remove(container + "/env"),
			[]shortDrift{{Path: shown + `.env`, Operation: "removed", Manager: "-"}}},
		change{"a volume and its mount are added", jsonPatch(`[{"op":"add","path":"/spec/template/spec/volumes/-","value":{"name":"x","emptyDir":{}}},
			{"op":"add","path":"` + container + `/volumeMounts/-","value":{"name":"x","mountPath":"/x"}}]`),
			[]shortDrift{at(`.spec.template.spec.volumes[name="x"]`, "Update"), at(shown+`.volumeMounts[name="x"]`, "Update")}},
		change{"an atomic list is edited", merge(`{"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`),
			[]shortDrift{at(".spec.template.spec.tolerations", "Update")}},
		change{"arguments are edited", jsonPatch(`[{"op":"add","path":"` + container + `/args/-","value":"-x"}]`),
			[]shortDrift{at(shown+".args", "Update")}},
		change{"a probe is added", jsonPatch(`[{"op":"add","path":"` + container + `/livenessProbe","value":{"exec":{"command":["false"]}}}]`),
			[]shortDrift{at(shown+".livenessProbe", "Update")}},
		change{"a request is edited", jsonPatch(`[{"op":"replace","path":"` + container + `/resources/requests/cpu","value":"2"}]`),
			[]shortDrift{at(shown+".resources.requests.cpu", "Update")}},
		change{"the image and replicas are taken with force",
			force("apps/v1", "StatefulSet", `"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"postgres","image":"other"}]}}}`),
			[]shortDrift{at(".spec.replicas", "Apply"), at(shown+".image", "Apply")}},
	)
}

func TestDriftOfPersistentVolumeClaims(t *testing.T) {
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.volume() }, "v1",
		change{"the label of the cluster is edited", merge(`{"metadata":{"labels":{"holdfast.dev/cluster":"other"}}}`),
			[]shortDrift{at(`.metadata.labels["holdfast.dev/cluster"]`, "Update")}},
		change{"a member's is said to be a former member's", merge(`{"metadata":{"annotations":{"holdfast.dev/scaled-away":"Retain"}}}`),
			[]shortDrift{at(`.metadata.annotations["holdfast.dev/scaled-away"]`, "Update")}},
	)
}

func TestDriftOfPodDisruptionBudgets(t *testing.T) {
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.budget() }, "policy/v1",
		change{"the limit is edited", merge(`{"spec":{"maxUnavailable":3}}`), []shortDrift{at(".spec.maxUnavailable", "Update")}},
		change{"an eviction policy is added", merge(`{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`),
			[]shortDrift{at(".spec.unhealthyPodEvictionPolicy", "Update")}},
		change{"the limit is removed", remove("/spec/maxUnavailable"),
			[]shortDrift{{Path: ".spec.maxUnavailable", Operation: "removed", Manager: "-"}}},
	)
}

func TestDriftOfNetworkPolicies(t *testing.T) {
	drifts(t, func(w *world) runtime.ApplyConfiguration { return w.networkPolicy() }, "networking.k8s.io/v1",
		change{"an ingress rule is added", jsonPatch(`[{"op":"add","path":"/spec/ingress/-","value":{}}]`),
			[]shortDrift{at(".spec.ingress", "Update")}},
		change{"an egress rule is added", merge(`{"spec":{"egress":[{}]}}`), []shortDrift{at(".spec.egress", "Update")}},
		change{"the ingress rules are removed", remove("/spec/ingress"),
			[]shortDrift{{Path: ".spec.ingress", Operation: "removed", Manager: "-"}}},
		change{"policy types are edited", merge(`{"spec":{"policyTypes":["Ingress","Egress"]}}`),
			[]shortDrift{at(".spec.policyTypes", "Update")}},
	)
}

// scale changes replicas through the scale subresource, as kubectl scale does.
func scale(replicas int32) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return err
		}
		s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		return c.SubResource("scale").Update(ctx, obj, client.WithSubResourceBody(s), client.FieldOwner(intruder))
	}
}
