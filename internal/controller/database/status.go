package database

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// applyStatus is one apply of the status of the Database as it was read.
func (r *Reconciler) applyStatus(ctx context.Context, d *v1alpha1.Database, status v1alpha1.DatabaseStatus) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Database", "status": status,
		"metadata": map[string]any{"namespace": d.Namespace, "name": d.Name, "resourceVersion": d.ResourceVersion},
	})
	if err != nil {
		return err
	}
	answer := &v1alpha1.Database{}
	answer.SetNamespace(d.Namespace)
	answer.SetName(d.Name)
	err = r.Client.Status().Patch(ctx, answer, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}
