package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// kustomizationGVK is Flux's Kustomization.
var kustomizationGVK = schema.GroupVersionKind{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"}

// Kustomization is what a plan needs of one of Flux's.
type Kustomization struct {
	// Target is the namespace that it moves objects to; empty for none.
	Target string
	// Missing are the objects of its inventory that an input does not have, and that it
	// would delete.
	Missing []*unstructured.Unstructured
	// Notes say why some of them would stay.
	Notes []string
}

// ReadKustomization reads a Kustomization's inventory, and compares it with an input, which
// it moves to the target namespace.
func (p *Planner) ReadKustomization(ctx context.Context, key client.ObjectKey, in *Input) (Kustomization, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kustomizationGVK)
	if err := p.Client.Get(ctx, key, u); err != nil {
		return Kustomization{}, fmt.Errorf("read Kustomization %s: %w", key, err)
	}
	var k Kustomization
	k.Target, _, _ = unstructured.NestedString(u.Object, "spec", "targetNamespace")
	if k.Target != "" {
		in.Override(k.Target)
	}
	prunes, _, _ := unstructured.NestedBool(u.Object, "spec", "prune")
	entries, _, _ := unstructured.NestedSlice(u.Object, "status", "inventory", "entries")
	declared := map[string]bool{}
	for _, o := range in.Objects {
		declared[identify(o.GetKind(), client.ObjectKeyFromObject(o))] = true
	}
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		id, _ := fields["id"].(string)
		object := parseInventory(id)
		if object == nil || declared[identify(object.GetKind(), client.ObjectKeyFromObject(object))] {
			continue
		}
		stays, err := p.explainKept(ctx, object, prunes)
		if err != nil {
			return k, err
		}
		if stays != "" {
			k.Notes = append(k.Notes, fmt.Sprintf("%s is not in the input and stays: %s", identify(object.GetKind(), client.ObjectKeyFromObject(object)), stays))
			continue
		}
		k.Missing = append(k.Missing, object)
	}
	return k, nil
}

// explainKept says why the Kustomization does not delete an object; empty where it does.
func (p *Planner) explainKept(ctx context.Context, u *unstructured.Unstructured, prunes bool) (string, error) {
	if !prunes {
		return "spec.prune of the Kustomization is off", nil
	}
	live, err := p.getLive(ctx, u)
	if err != nil || live == nil {
		return "", err
	}
	for _, values := range []map[string]string{live.GetLabels(), live.GetAnnotations()} {
		if values["kustomize.toolkit.fluxcd.io/prune"] == "disabled" {
			return "it is marked kustomize.toolkit.fluxcd.io/prune: disabled", nil
		}
	}
	return "", nil
}

// parseInventory reads an entry such as shop_orders_holdfast.dev_PostgresCluster; nil for
// one of another kind.
func parseInventory(id string) *unstructured.Unstructured {
	parts := strings.Split(id, "_")
	if len(parts) != 4 || parts[2] != v1alpha1.GroupVersion.Group || !slices.Contains(plannedKinds, parts[3]) {
		return nil
	}
	return named(parts[3], parts[0], parts[1])
}
