package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/plugin/gitops"
)

// fallbackManager applies where no field manager applies a cluster yet.
const fallbackManager = "kubectl-holdfast-plan"

// lastApplied is where clients that do not apply on the server keep what they applied.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// declared is an object as it will be declared.
type declared struct {
	object *unstructured.Unstructured
	// refusal says why the API server takes it not; empty where it does.
	refusal string
	// notes say what is not known of it.
	notes []string
}

// askServer has the API server say what an object will be: a dry run of a forced apply by the
// Git tool's own field manager. Defaults, validation and admission take part.
func (p *Planner) askServer(ctx context.Context, u, live *unstructured.Unstructured) (declared, error) {
	manager, notes := p.findManager(live)
	asked := u.DeepCopy()
	asked.SetManagedFields(nil)
	unstructured.RemoveNestedField(asked.Object, "status")
	data, err := json.Marshal(asked.Object)
	if err != nil {
		return declared{}, err
	}
	result := &unstructured.Unstructured{}
	result.SetGroupVersionKind(u.GroupVersionKind())
	result.SetNamespace(u.GetNamespace())
	result.SetName(u.GetName())
	err = p.Client.Patch(ctx, result, client.RawPatch(types.ApplyPatchType, data),
		client.DryRunAll, client.ForceOwnership, client.FieldOwner(manager), client.FieldValidation(metav1.FieldValidationStrict))
	switch {
	case err == nil:
	case isRightMissing(err):
		return declared{}, fmt.Errorf("%s: %w; a plan needs the right to patch it, for a dry run: or use --read-only", identify(u.GetKind(), client.ObjectKeyFromObject(u)), err)
	case apierrors.IsNotFound(err) && live == nil:
		merged := mergeOnClient(u, nil, "")
		notes = append(notes, fmt.Sprintf("namespace %s does not exist: admission was not asked", u.GetNamespace()))
		return declared{object: merged, notes: notes}, nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsForbidden(err), isSchemaError(err):
		return declared{object: mergeOnClient(u, live, manager), refusal: describeRefusal(err), notes: notes}, nil
	default:
		return declared{}, fmt.Errorf("ask the API server what %s will be: %w", identify(u.GetKind(), client.ObjectKeyFromObject(u)), err)
	}
	return declared{object: dropRemoved(result, u, live), notes: notes}, nil
}

// findManager is the field manager that applies an object, and what to say where there is
// none.
func (p *Planner) findManager(live *unstructured.Unstructured) (string, []string) {
	if p.FieldManager != "" {
		return p.FieldManager, nil
	}
	if live == nil {
		return fallbackManager, nil
	}
	if manager := gitops.FindApplier(live); manager != "" {
		return manager, nil
	}
	if live.GetAnnotations()[lastApplied] != "" {
		return fallbackManager, nil
	}
	return fallbackManager, []string{"no field manager applies it: fields that the input does not have any more are taken to stay; name its manager with --field-manager"}
}

// isRightMissing says whether an error is the caller's lack of a right, and no refusal of
// admission.
func isRightMissing(err error) bool {
	if apierrors.IsUnauthorized(err) {
		return true
	}
	text := err.Error()
	return apierrors.IsForbidden(err) && (strings.Contains(text, "cannot patch resource") || strings.Contains(text, "cannot create resource"))
}

// isSchemaError says whether the API server does not know a field, which an apply reports
// as an error of its own.
func isSchemaError(err error) bool {
	return strings.Contains(err.Error(), "field not declared in schema") || strings.Contains(err.Error(), "unknown field") || apierrors.IsUnsupportedMediaType(err)
}

// describeRefusal is why the API server refuses an object.
func describeRefusal(err error) string {
	if apierrors.IsForbidden(err) {
		return engine.DescribeForbidden(err.Error())
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && len(status.Status().Details.Causes) > 0 {
		return engine.DescribeInvalid(err)
	}
	return err.Error()
}

// mergeOnClient is what an object will be as far as a client can tell: what the input
// declares over what there is, without what the manager declared before and the input does
// not.
func mergeOnClient(u, live *unstructured.Unstructured, manager string) *unstructured.Unstructured {
	if live == nil {
		return u.DeepCopy()
	}
	merged := live.DeepCopy()
	for _, entry := range live.GetManagedFields() {
		if entry.Manager != manager || entry.Operation != metav1.ManagedFieldsOperationApply || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		var owned map[string]any
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) == nil {
			dropOwned(merged.Object, u.Object, owned)
		}
	}
	overlay(merged.Object, u.Object)
	return dropRemoved(merged, u, live)
}

// dropOwned removes what a manager owns and the input does not declare. Lists are left as
// they are: the input replaces them.
func dropOwned(object, input, owned map[string]any) {
	for field, below := range owned {
		name, is := strings.CutPrefix(field, "f:")
		if !is {
			continue
		}
		there, exists := object[name]
		if !exists {
			continue
		}
		declares, declared := input[name]
		deeper, _ := below.(map[string]any)
		inner, isMap := there.(map[string]any)
		switch {
		case isMap && len(deeper) > 0:
			wanted, _ := declares.(map[string]any)
			dropOwned(inner, wanted, deeper)
		case !declared:
			delete(object, name)
		}
	}
}

// overlay puts what the input declares over an object.
func overlay(object, input map[string]any) {
	for name, value := range input {
		if name == "status" || name == "managedFields" {
			continue
		}
		inner, isMap := value.(map[string]any)
		there, exists := object[name].(map[string]any)
		if isMap && exists {
			overlay(there, inner)
			continue
		}
		object[name] = runtime.DeepCopyJSONValue(value)
	}
}

// dropRemoved removes from a result what a client without server-side apply declared before
// and the input does not, if it still has that value.
func dropRemoved(result, u, live *unstructured.Unstructured) *unstructured.Unstructured {
	if live == nil || gitops.FindApplier(live) != "" {
		return result
	}
	var before map[string]any
	if text := live.GetAnnotations()[lastApplied]; text == "" || json.Unmarshal([]byte(text), &before) != nil {
		return result
	}
	was, _ := before["spec"].(map[string]any)
	is, _ := u.Object["spec"].(map[string]any)
	spec, _ := result.Object["spec"].(map[string]any)
	dropUndeclared(spec, was, is)
	return result
}

func dropUndeclared(object, was, is map[string]any) {
	for name, value := range was {
		there, exists := object[name]
		declares, declared := is[name]
		inner, isMap := value.(map[string]any)
		below, areMaps := there.(map[string]any)
		switch {
		case !exists:
		case isMap && areMaps:
			wanted, _ := declares.(map[string]any)
			dropUndeclared(below, inner, wanted)
		case !declared && reflect.DeepEqual(there, value):
			delete(object, name)
		}
	}
}
