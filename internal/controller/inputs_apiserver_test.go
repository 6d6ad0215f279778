//go:build apiserver

package controller_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// badInput is a row of testdata/inputs.yaml.
type badInput struct {
	Name, Kind, How, Field, Says string
	Metadata, Spec               map[string]any
}

// rightSpecs are what a row's spec is merged into.
var rightSpecs = map[string]string{
	"PostgresCluster": `{"version":"17","storage":{"size":"1Gi"}}`,
	"EtcdCluster":     `{"version":"3.6","storage":{"size":"1Gi"}}`,
	"MySQLCluster":    `{"version":"9.7","storage":{"size":"1Gi"}}`,
	"Database":        `{"engine":"postgres","version":"17"}`,
	"Backup":          `{"clusterRef":{"kind":"PostgresCluster","name":"orders"}}`,
}

// leaks are what no message shows: Go's types and errors, the API server's own
// machinery, and rules that failed instead of saying no.
var leaks = regexp.MustCompile(`valueUnstructured|map\[string\]|v1alpha1\.|resource\.Quantity|Go struct|unmarshal|rule evaluation|no such (key|overload)|StatusError|%!`)

// judgeMessage checks what every message has to say, wherever it comes from.
func judgeMessage(t *testing.T, message, field, says string) {
	t.Helper()
	switch {
	case !strings.Contains(message, field):
		t.Errorf("the field %s is not named: %s", field, message)
	case !strings.Contains(message, says):
		t.Errorf("it does not say %q: %s", says, message)
	}
	if leak := leaks.FindString(message); leak != "" {
		t.Errorf("it shows %q: %s", leak, message)
	}
	if pattern := strings.Contains(message, "should match '"); pattern && strings.Count(message, "spec.") < 2 {
		t.Errorf("a regular expression alone: %s", message)
	}
}

// What people write wrong is refused with the field as they wrote it, what is
// allowed, or the remedy.
func TestBadInputIsNamed(t *testing.T) {
	t.Parallel()
	rows := readInputs(t, "inputs.yaml")
	if len(rows) < 80 {
		t.Errorf("%d rows", len(rows))
	}
	w := &world{Cluster: apitest.New(t), t: t}
	person := w.As(t, "kubectl")
	for _, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			obj := row.manifest(t, w.Namespace)
			if err := declare(t, person, obj, row.How); err == nil {
				t.Error("accepted")
			} else {
				judgeMessage(t, err.Error(), row.Field, row.Says)
			}
		})
	}
}

// readInputs reads rows of bad input, each of a name of its own.
func readInputs(t *testing.T, file string) []badInput {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var rows []badInput
	if err := yaml.UnmarshalStrict(data, &rows); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, row := range rows {
		if slices.Contains(names, row.Name) {
			t.Errorf("two rows are called %q", row.Name)
		}
		names = append(names, row.Name)
	}
	return rows
}

// Where a value has a wrong YAML type, the API server speaks in its own words
// before any rule is asked: the troubleshooting page lists them with the remedy.
func TestWrongTypesAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: apitest.New(t), t: t}
	person := w.As(t, "kubectl")
	for _, row := range readInputs(t, "types.yaml") {
		t.Run(row.Name, func(t *testing.T) {
			err := declare(t, person, row.manifest(t, w.Namespace), "apply")
			if err == nil || !strings.Contains(err.Error(), row.Field) || !strings.Contains(err.Error(), row.Says) {
				t.Errorf("the API server does not say of %s %q: %v", row.Field, row.Says, err)
			}
			documented := slices.ContainsFunc(strings.Split(string(page), "\n"), func(line string) bool {
				return strings.HasPrefix(line, "| ") && strings.Contains(line, row.Field) && strings.Contains(line, row.Says)
			})
			if !documented {
				t.Errorf("docs/guides/troubleshooting.md has no line for %s: %s", row.Field, row.Says)
			}
		})
	}
}

// A whole number without quotes is taken up as its digits: by the schema, the
// operator, and what members are configured with.
func TestWholeNumbersMeanTheirDigits(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, w *world) {
		obj := badInput{Kind: w.kind.name, Spec: map[string]any{
			"backup": map[string]any{"enabled": false}, "parameters": map[string]any{w.kind.setting: 8192},
		}}.manifest(t, w.Namespace)
		version := map[*kind]string{postgresKind: "17", etcdKind: "3.6", mysqlKind: "9.7"}[w.kind]
		if w.kind == postgresKind {
			obj.Object["spec"].(map[string]any)["version"] = 17
		}
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.person.Patch(t.Context(), obj, client.RawPatch(types.ApplyPatchType, data), strictly, client.FieldOwner("kubectl")); err != nil {
			t.Fatal(err)
		}
		o := w.operate(0)
		c := w.cluster("orders", 1)
		w.awaitReady(c)
		w.awaitSteady(o)
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-config"}}
		w.get(config)
		var received agentapi.ClusterConfig
		if err := json.Unmarshal([]byte(config.Data[agentapi.ConfigKey]), &received); err != nil || received.Parameters[w.kind.setting] != "8192" {
			t.Errorf("members have %v, %v", received.Parameters, err)
		}
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders"}}
		w.get(set)
		if asked := set.Spec.Template.Annotations[v1alpha1.AnnotationImage]; !strings.Contains(asked, ":"+version) && !strings.Contains(asked, ":v"+version) {
			t.Errorf("members are made from %q", asked)
		}
	})
}

// declare hands a manifest in without changing anything, as kubectl create or
// kubectl apply --server-side do.
func declare(t *testing.T, person client.Client, obj *unstructured.Unstructured, how string) error {
	t.Helper()
	if how != "apply" {
		return person.Create(t.Context(), obj, client.DryRunAll, strictly)
	}
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return person.Patch(t.Context(), obj, client.RawPatch(types.ApplyPatchType, data), client.DryRunAll, strictly, client.FieldOwner("kubectl"))
}

// manifest is the row's object.
func (b badInput) manifest(t *testing.T, namespace string) *unstructured.Unstructured {
	t.Helper()
	var spec map[string]any
	if err := json.Unmarshal([]byte(rightSpecs[b.Kind]), &spec); err != nil {
		t.Fatal(err)
	}
	metadata := map[string]any{"name": "orders", "namespace": namespace}
	mergeInto(metadata, b.Metadata)
	mergeInto(spec, b.Spec)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": b.Kind,
		"metadata": metadata, "spec": spec,
	}}
}

// mergeInto changes a mapping as a merge patch does: null removes.
func mergeInto(into, change map[string]any) {
	for key, value := range change {
		below, isMap := value.(map[string]any)
		has, hasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && hasMap:
			mergeInto(has, below)
		default:
			into[key] = value
		}
	}
}
