//go:build e2e

package e2e

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// badInputRefused: what can be known from the manifest alone is refused at
// once, with a message that names the field.
func badInputRefused(t *testing.T, k *kind) {
	namespace := newNamespace(t, "")
	for _, test := range append([]badManifest{
		{"no replicas", orders, `replicas: 0`, "spec.replicas"},
		{"negative replicas", orders, `replicas: -1`, "spec.replicas"},
		{"replicas in words", orders, `replicas: three`, "spec.replicas"},
		{"no version", orders, `version: null`, "spec.version"},
		{"no storage", orders, `storage: null`, "spec.storage"},
		{"a volume of nothing", orders, `storage: {size: "0"}`, "spec.storage.size"},
		{"a size in a wrong unit", orders, `storage: {size: 10Gb}`, "spec.storage.size"},
		{"a long name", strings.Repeat("o", 41), ``, "metadata.name"},
		{"a name with dots", "orders.eu", ``, "metadata.name"},
		{"a name that starts with a digit", "1orders", ``, "metadata.name"},
		{"a label that is Holdfast's", orders, `podLabels: {holdfast.dev/role: primary}`, "spec.podLabels"},
		{"an ignore rule without a rule", orders, `drift: {ignore: [{kind: Service}]}`, "spec.drift.ignore"},
		{"a field that does not exist", orders, `replica: 3`, "spec.replica"},
	}, k.refused...) {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			err := createStrictly(t, k.newManifest(t, namespace, test.object, test.spec))
			switch {
			case err == nil:
				t.Fatal("it is accepted")
			case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
				t.Fatalf("it is refused for another reason: %v", err)
			}
			field := strings.TrimPrefix(test.field, "metadata.")
			if test.object == orders {
				field = test.field
			}
			if !strings.Contains(err.Error(), field) {
				t.Errorf("%s is not named: %v", test.field, err)
			}
		})
	}
}
