package backup

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A run ends when its Backup is gone, and not when a policy refuses a report.
func TestGone(t *testing.T) {
	backups := v1alpha1.GroupVersion.WithResource("backups").GroupResource()
	kind := v1alpha1.GroupVersion.WithKind("Backup").GroupKind()
	invalid := func(path *field.Path) error {
		return apierrors.NewInvalid(kind, "orders-1", field.ErrorList{field.Invalid(path, "x", "no")})
	}
	cases := []struct {
		name string
		err  error
		gone bool
	}{
		{"none", nil, false},
		{"it is not there", apierrors.NewNotFound(backups, "orders-1"), true},
		{"it was made anew in the meantime", apierrors.NewConflict(backups, "orders-1", errors.New("Precondition failed: UID in precondition: 1, UID in object meta: 2")), true},
		{"another one has its name", fmt.Errorf("report: %w", invalid(field.NewPath("metadata", "uid"))), true},
		{"a policy refuses it", invalid(field.NewPath("status", "run")), false},
		{"the right is not there", apierrors.NewForbidden(backups, "orders-1", nil), false},
	}
	for _, tc := range cases {
		if got := isGone(tc.err); got != tc.gone {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
