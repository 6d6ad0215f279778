//go:build apiserver

package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func TestDriftThatOwnershipDoesNotTell(t *testing.T) {
	const data = `.data["a.conf"]`
	testDrifts(t, func(w *world) runtime.ApplyConfiguration { return w.configMap() }, "v1",
		newChange{"an update under our own name", updateAs("holdfast", `{"data":{"a.conf":"mine"}}`),
			[]shortDrift{{Path: data, Manager: "holdfast", Operation: "Update"}}},
		newChange{"an apply of another value under our own name", ownApply,
			[]shortDrift{{Path: data, Operation: "unattributed", Manager: "-"}}},
		newChange{"a value is changed and its ownership forged back", forgeManagers,
			[]shortDrift{{Path: data, Operation: "unattributed", Manager: "-"}}},
		newChange{"more than ten updaters", elevenUpdaters,
			[]shortDrift{{Path: data, Manager: "ancient-changes", Operation: "Update"}}},
		newChange{"the same value is taken with force", forceApply("v1", "ConfigMap", `"data":{"a.conf":"one"}`), nil},
	)
}

// updateAs is a merge patch under a field manager's name.
func updateAs(manager, patch string) func(context.Context, client.Client, client.Object) error {
	return func(ctx context.Context, c client.Client, obj client.Object) error {
		return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner(manager))
	}
}

// ownApply repeats what we applied but for one value, under our name.
func ownApply(ctx context.Context, c client.Client, obj client.Object) error {
	live := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), live); err != nil {
		return err
	}
	live.Data["a.conf"] = "mine"
	patch := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": live.Data,
		"metadata": map[string]any{"labels": live.Labels, "annotations": live.Annotations, "ownerReferences": live.OwnerReferences},
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return c.Patch(ctx, obj, client.RawPatch(types.ApplyPatchType, data), client.ForceOwnership, client.FieldOwner(v1alpha1.FieldManager))
}

// forgeManagers changes a value and writes managedFields as they were.
func forgeManagers(ctx context.Context, c client.Client, obj client.Object) error {
	live := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), live); err != nil {
		return err
	}
	fields := live.ManagedFields
	live.Data["a.conf"] = "mine"
	if err := c.Update(ctx, live); err != nil {
		return err
	}
	live.ManagedFields = fields
	return c.Update(ctx, live)
}

// elevenUpdaters each touch the same value and one annotation, so that the API
// server merges the oldest entries.
func elevenUpdaters(ctx context.Context, c client.Client, obj client.Object) error {
	if err := updateAs("first", `{"data":{"a.conf":"mine"}}`)(ctx, c, obj); err != nil {
		return err
	}
	for i := range 12 {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/%d":"x"}}}`, i)
		if err := updateAs(fmt.Sprintf("updater-%d", i), patch)(ctx, c, obj); err != nil {
			return err
		}
	}
	// Annotations of others stay, and are not what this is about.
	return updateObject(func(content map[string]any) {
		annotations := content["metadata"].(map[string]any)["annotations"].(map[string]any)
		for i := range 12 {
			delete(annotations, fmt.Sprintf("example.com/%d", i))
		}
	})(ctx, c, obj)
}

func TestReplacingAnUndefaultedManifestOnlyMovesOwnership(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.statefulSet()}
	w.settleSyncs()
	obj := w.emptyObjectOf(w.statefulSet())
	before := w.ownedFields(w.emptyObjectOf(w.statefulSet()))
	// What kubectl replace sends: what we would send, and nothing defaulted.
	manifest := w.statefulSet()
	live := w.emptyObjectOf(manifest)
	w.getObject(live)
	manifest.WithAnnotations(live.GetAnnotations())
	data, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error { // the controller of StatefulSets writes, too
		replacement := obj.DeepCopyObject().(client.Object)
		if err := json.Unmarshal(data, replacement); err != nil {
			return err
		}
		w.getObject(live)
		replacement.SetResourceVersion(live.GetResourceVersion())
		return w.As(t, "kubectl-replace").Update(t.Context(), replacement)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.awaitCache(w.emptyObjectOf(manifest))
	r := w.settleSyncs()
	w.wantDrifts(r.Drifts)
	if after := w.ownedFields(w.emptyObjectOf(manifest)); !after.Equals(before) {
		t.Errorf("lost %s", before.Difference(after))
	}
}

func TestClearedManagedFieldsLeaveNoCoOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.settleSyncs()
	w.intrudeWith(w.configMap(), mergePatch(`{"metadata":{"managedFields":[{}]}}`))
	w.wantDrifts(w.settleSyncs().Drifts)
	live := w.emptyObjectOf(w.configMap())
	w.getObject(live)
	for _, m := range live.GetManagedFields() {
		if m.Manager != v1alpha1.FieldManager || m.Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("%s of %s is left in managedFields", m.Operation, m.Manager)
		}
	}
	// A key that is no longer declared goes, which a co-owner would prevent.
	less := w.configMap()
	delete(less.Data, "b.conf")
	w.req.Objects = []runtime.ApplyConfiguration{less}
	w.settleSyncs()
	if w.ownedFields(live).Has(fieldpath.MakePathOrDie("data", "b.conf")) || live.(*corev1.ConfigMap).Data["b.conf"] != "" {
		t.Error("b.conf is still there")
	}
}

func TestOthersLabelsAndAnnotationsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.statefulSet()}
	w.settleSyncs()
	w.intrudeWith(w.statefulSet(), mergePatch(`{"metadata":{"labels":{"team":"a"},"annotations":{"note":"b"}},
		"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`))
	w.wantDrifts(w.settleSyncs().Drifts)
	live := w.emptyObjectOf(w.statefulSet())
	w.getObject(live)
	if live.GetLabels()["team"] != "a" || live.GetAnnotations()["note"] != "b" {
		t.Errorf("labels %v, annotations %v", live.GetLabels(), live.GetAnnotations())
	}
}
