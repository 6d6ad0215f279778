package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

func TestDocumentsAreRead(t *testing.T) {
	const text = `# a comment alone
---
apiVersion: holdfast.dev/v1alpha1
kind: PostgresCluster
metadata: {name: orders}
---
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "holdfast.dev/v1alpha1", "kind": "EtcdCluster", "metadata": {"name": "config", "namespace": "lab"}},
  {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
`
	in, err := ReadDocuments(strings.NewReader(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Place("shop"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range in.Objects {
		got = append(got, u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName())
	}
	if diff := cmp.Diff([]string{"EtcdCluster lab/config", "PostgresCluster shop/orders"}, got); diff != "" || in.Others != 2 {
		t.Errorf("%d others, %s", in.Others, diff)
	}
}

func TestBadDocumentsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"a: [": "document 1", "just text": "no object", "a: 1\na: 2": "already set",
		"apiVersion: holdfast.dev/v1alpha1\nkind: PostgresCluster\n": "no metadata.name",
	} {
		if _, err := ReadDocuments(strings.NewReader(text), "test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	const twice = "apiVersion: holdfast.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: a}\n"
	in, err := ReadDocuments(strings.NewReader(twice+"---\n"+twice), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Place("shop"); err == nil {
		t.Error("one object is declared twice, and that is taken")
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

const head = "apiVersion: holdfast.dev/v1alpha1\nkind: PostgresCluster\n"

// On the client, what the manager applied and the input lacks goes, and what others set
// stays.
func TestMergeOnClient(t *testing.T) {
	live := object(t, head+`
metadata:
  name: orders
  managedFields:
  - {manager: kustomize-controller, operation: Apply, fieldsV1: {"f:spec": {"f:version": {}, "f:parameters": {"f:work_mem": {}, "f:jit": {}}, "f:storage": {"f:size": {}}}}}
  - {manager: autoscaler, operation: Update, fieldsV1: {"f:spec": {"f:replicas": {}}}}
spec: {version: "17", replicas: 5, storage: {size: 1Gi}, parameters: {work_mem: 8MB, jit: "off"}, tolerations: [{key: a}]}
`)
	input := object(t, head+`
metadata: {name: orders}
spec: {version: "17", storage: {size: 2Gi}, parameters: {work_mem: 16MB}, tolerations: [{key: b}]}
`)
	p := &Planner{}
	manager, notes := p.findManager(live)
	if manager != "kustomize-controller" || len(notes) > 0 {
		t.Errorf("the manager is %q, %v", manager, notes)
	}
	got := mergeOnClient(input, live, manager).Object["spec"]
	want := object(t, head+`
metadata: {name: orders}
spec: {version: "17", replicas: 5, storage: {size: 2Gi}, parameters: {work_mem: 16MB}, tolerations: [{key: b}]}
`).Object["spec"]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// A client that does not apply on the server removes what it applied last.
func TestLastAppliedIsRemoved(t *testing.T) {
	live := object(t, head+`
metadata:
  name: orders
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"spec":{"version":"17","suspend":true,"parameters":{"jit":"off","work_mem":"8MB"}}}'}
  managedFields: [{manager: kubectl-client-side-apply, operation: Update, fieldsV1: {"f:spec": {"f:version": {}}}}]
spec: {version: "17", suspend: true, replicas: 5, parameters: {jit: "off", work_mem: 64MB}}
`)
	input := object(t, head+"metadata: {name: orders}\nspec: {version: \"17\"}\n")
	p := &Planner{}
	manager, notes := p.findManager(live)
	if manager != fallbackManager || len(notes) > 0 {
		t.Errorf("the manager is %q, %v", manager, notes)
	}
	got := mergeOnClient(input, live, manager).Object["spec"]
	want := map[string]any{"version": "17", "replicas": int64(5), "parameters": map[string]any{"work_mem": "64MB"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestNoManager(t *testing.T) {
	if _, notes := (&Planner{}).findManager(object(t, head+"metadata: {name: orders}\n")); len(notes) != 1 {
		t.Errorf("notes: %v", notes)
	}
	if manager, _ := (&Planner{FieldManager: "mine"}).findManager(object(t, head+"metadata: {name: orders}\n")); manager != "mine" {
		t.Errorf("the manager is %q", manager)
	}
}

func TestSummarize(t *testing.T) {
	for want, names := range map[string][]string{
		"":                                     nil,
		"orders-0":                             {"orders-0"},
		"orders-0 and orders-1":                {"orders-0", "orders-1"},
		"data-orders-0…2":                      {"data-orders-0", "data-orders-1", "data-orders-2"},
		"orders-0, orders-2, orders-3":         {"orders-0", "orders-2", "orders-3"},
		"Service/a, Service/b, Service/orders": {"Service/a", "Service/b", "Service/orders"},
	} {
		if got := summarize(names); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}

func TestSecretsAreMasked(t *testing.T) {
	for path, want := range map[string]any{
		".spec.parameters.work_mem":                          "8MB",
		".spec.parameters.app.api_token":                     masked,
		".spec.podAnnotations.vault-password":                masked,
		".spec.backup.destination.credentialsSecretRef.name": "8MB",
		".spec.imagePullSecrets":                             "8MB",
		".metadata.annotations[holdfast.dev/switchover]":     "8MB",
	} {
		c := forecast.Change{Path: path, From: "8MB"}
		maskChange(&c)
		if c.From != want || c.To != nil {
			t.Errorf("%s: %v → %v", path, c.From, c.To)
		}
	}
}

func TestInventoryIsParsed(t *testing.T) {
	for id, want := range map[string]string{
		"shop_orders_holdfast.dev_PostgresCluster": "PostgresCluster shop/orders", "shop_x_apps_Deployment": "", "shop_store__Secret": "", "odd": "",
	} {
		got := ""
		if u := parseInventory(id); u != nil {
			got = u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}

// CI jobs decide by the numbers: they never change.
func TestExitCodesAreThoseOfTheDocs(t *testing.T) {
	for name, c := range map[string][2]int{
		"nothing": {ExitNothing, 0}, "changes": {ExitChanges, 1}, "error": {ExitError, 2}, "refused": {ExitRefused, 3}, "data at risk": {ExitAtRisk, 4},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %d, documented as %d", name, c[0], c[1])
		}
	}
}

// A plan goes by the operator's image, also while members have agents of another one.
func TestOperatorImageIsReadFromTheCluster(t *testing.T) {
	set := &appsv1.StatefulSet{}
	set.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "other", Image: "other:v1"}, {Name: objects.InstallerName, Image: "holdfast:v1"}}
	for name, tc := range map[string]struct {
		status *v1alpha1.AgentStatus
		set    *appsv1.StatefulSet
		want   string
	}{
		"agents are behind":                 {&v1alpha1.AgentStatus{Image: "holdfast:v1", Available: "holdfast:v2"}, set, "holdfast:v2"},
		"admission rewrites the template":   {&v1alpha1.AgentStatus{Image: "holdfast:v2"}, set, "holdfast:v2"},
		"an operator that records no agent": {nil, set, "holdfast:v1"},
		"nothing shows it":                  {nil, nil, agentImage},
	} {
		c := &v1alpha1.PostgresCluster{}
		c.Status.Agent = tc.status
		if got := findOperatorImage(c, tc.set); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
