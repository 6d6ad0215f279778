package apply

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What cannot change is named, and no difference of Go values is shown.
func TestRefusalsAreInWords(t *testing.T) {
	immutable := "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n" +
		"  core.PersistentVolumeClaimSpec{\n  \t... // 2 identical fields\n  \tResources:        {Requests: {s\"storage\": {i: {...}, s: \"1Gi\", Format: \"BinarySI\"}}},\n" +
		"  \tVolumeName:       \"pvc-1\",\n- \tStorageClassName: &\"standard\",\n+ \tStorageClassName: nil,\n  \tVolumeMode:       &\"Filesystem\",\n  }\n"
	refused := apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolumeClaim"}, "data-orders-2",
		field.ErrorList{field.Forbidden(field.NewPath("spec"), immutable), field.Invalid(field.NewPath("metadata", "name"), "x", "is bad")})
	got := inWords(fmt.Errorf("apply: %w", refused))
	want := `PersistentVolumeClaim "data-orders-2" is invalid: spec: spec.storageClassName cannot change on an object that exists`
	if !strings.HasPrefix(got.Error(), want) || strings.Contains(got.Error(), "\n") || strings.Contains(got.Error(), "core.") || !strings.Contains(got.Error(), "metadata.name: ") {
		t.Errorf("says %q", got)
	}
	if !apierrors.IsInvalid(got) {
		t.Error("it is no refusal any more")
	}
	for _, other := range []error{apierrors.NewConflict(schema.GroupResource{}, "x", nil), fmt.Errorf("a\nb")} {
		if got := inWords(other); !errors.Is(got, other) {
			t.Errorf("%v became %v", other, got)
		}
	}
}
