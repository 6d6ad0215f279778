//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// badInputRefused: what can be told from the manifest alone is refused at
// once, with a message that names the field.
func badInputRefused(t *testing.T) {
	namespace := newNamespace(t, "")
	const good = `version: "17", storage: {size: 1Gi}`
	for _, test := range []struct{ name, object, spec, field string }{
		{"no replicas", orders, good + `, replicas: 0`, "spec.replicas"},
		{"negative replicas", orders, good + `, replicas: -1`, "spec.replicas"},
		{"too many replicas", orders, good + `, replicas: 10`, "spec.replicas"},
		{"replicas in words", orders, good + `, replicas: three`, "spec.replicas"},
		{"no version", orders, `storage: {size: 1Gi}`, "spec.version"},
		{"a version that is none", orders, `version: abc, storage: {size: 1Gi}`, "spec.version"},
		{"a version that is too old", orders, `version: "9.6", storage: {size: 1Gi}`, "spec.version"},
		{"a version as a number", orders, `version: 17, storage: {size: 1Gi}`, "spec.version"},
		{"no storage", orders, `version: "17"`, "spec.storage"},
		{"a volume of nothing", orders, `version: "17", storage: {size: "0"}`, "spec.storage.size"},
		{"a size in a wrong unit", orders, `version: "17", storage: {size: 10Gb}`, "spec.storage.size"},
		{"a long name", strings.Repeat("o", 41), good, "metadata.name"},
		{"a name with dots", "orders.eu", good, "metadata.name"},
		{"a name that starts with a digit", "1orders", good, "metadata.name"},
		{"a setting that is Holdfast's", orders, good + `, parameters: {port: "5433"}`, "spec.parameters"},
		{"a setting in capitals", orders, good + `, parameters: {Work_Mem: 1MB}`, "spec.parameters"},
		{"an owner that exists already", orders, good + `, bootstrap: {owner: postgres}`, "spec.bootstrap.owner"},
		{"a label that is Holdfast's", orders, good + `, podLabels: {holdfast.dev/role: primary}`, "spec.podLabels"},
		{"an ignore rule without a rule", orders, good + `, drift: {ignore: [{kind: Service}]}`, "spec.drift.ignore"},
		{"a field that does not exist", orders, good + `, replica: 3`, "spec.replica"},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			manifest := fmt.Sprintf("apiVersion: %s\nkind: PostgresCluster\nmetadata: {name: %q, namespace: %s}\nspec: {%s}",
				v1alpha1.GroupVersion, test.object, namespace, test.spec)
			obj := &unstructured.Unstructured{}
			must(t, yaml.Unmarshal([]byte(manifest), &obj.Object), "read the manifest")
			err := createStrictly(t, obj)
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
