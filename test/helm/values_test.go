package helm

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Bad values are refused, and the message names the key.
func TestBadValues(t *testing.T) {
	for setting, key := range map[string]string{
		"images.tag=v1":                                "images",
		"image.version=v1":                             "version",
		"image.repository=":                            "/image/repository",
		"image.repository=https://registry.example":    "/image/repository",
		"image.tag=a:b":                                "/image/tag",
		"image.digest=abc":                             "/image/digest",
		"image.pullPolicy=Sometimes":                   "/image/pullPolicy",
		"imagePullSecrets={registry}":                  "/imagePullSecrets/0",
		"crds.install=maybe":                           "/crds/install",
		"crds.keep=false":                              "keep",
		"watchNamespaces=shop":                         "/watchNamespaces",
		"watchNamespaces={Shop}":                       "/watchNamespaces/0",
		"watchNamespaces={shop,shop}":                  "/watchNamespaces",
		"highAvailability=true":                        "/highAvailability",
		"highAvailability.replicas=3":                  "replicas",
		"networkPolicy.enabled=1":                      "/networkPolicy/enabled",
		"networkPolicy.apiServerPorts={0}":             "/networkPolicy/apiServerPorts/0",
		"monitoring.interval=10s":                      "interval",
		"admissionPolicy.enabled=on":                   "/admissionPolicy/enabled",
		"databaseImages.postgresql=mirror.example/x":   "postgresql",
		"databaseImages.etcd=https://registry.example": "/databaseImages/etcd",
		"namespace.restricted=true":                    "/namespace/create",
		"extraArgs={log-level=debug}":                  "/extraArgs/0",
		"extraEnv[0].name=1X":                          "/extraEnv/0/name",
		"extraEnv[0].value=x":                          "name",
		"resources.limits.memory=lots":                 "/resources/limits/memory",
		"resources.limit.memory=1Gi":                   "limit",
		"podLabels.team=1":                             "/podLabels/team",
		"tolerations[0].efect=NoSchedule":              "efect",
		"affinity.nodes=x":                             "nodes",
		"priorityClassName=High Priority":              "/priorityClassName",
	} {
		_, err := renderRelease(t.Context(), releaseNamespace, setting)
		if err == nil {
			t.Errorf("--set %s is accepted", setting)
		} else if !strings.Contains(err.Error(), "'"+key+"'") {
			t.Errorf("--set %s: the message does not name %s: %v", setting, key, err)
		}
	}
}

// The schema knows each value of values.yaml, and no other.
func TestSchemaIsComplete(t *testing.T) {
	var schema, defaults map[string]any
	if err := json.Unmarshal(readChartFile(t, "values.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(readChartFile(t, "values.yaml"), &defaults); err != nil {
		t.Fatal(err)
	}
	compareProperties(t, "", schema, schema, defaults)
}

// open are maps and lists whose content belongs to Kubernetes.
var open = []string{"resources", "affinity"}

func compareProperties(t *testing.T, path string, schema, at map[string]any, defaults map[string]any) {
	t.Helper()
	if reference, is := at["$ref"].(string); is {
		definitions, _ := schema["$defs"].(map[string]any)
		at, _ = definitions[strings.TrimPrefix(reference, "#/$defs/")].(map[string]any)
	}
	properties, _ := at["properties"].(map[string]any)
	known := slices.Sorted(maps.Keys(properties))
	if path == "" {
		known = slices.DeleteFunc(known, func(name string) bool { return name == "global" }) // Helm's own
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(defaults)), known); diff != "" {
		t.Errorf("values under %q (-values.yaml +schema):\n%s", path, diff)
	}
	for name, value := range defaults {
		below, isMap := value.(map[string]any)
		property, _ := properties[name].(map[string]any)
		if isMap && len(below) > 0 && !slices.Contains(open, name) {
			compareProperties(t, path+"."+name, schema, property, below)
		}
	}
}

// Values for the pods arrive where they belong.
func TestPodValues(t *testing.T) {
	objects := renderObjects(t, releaseNamespace, "image.digest=sha256:"+strings.Repeat("a", 64), "image.tag=v9", "extraArgs={--log-level=debug}",
		"extraEnv[0].name=OTEL_SERVICE_NAME", "extraEnv[0].value=databases",
		"podLabels.team=storage", "podAnnotations.note=x", "serviceAccountAnnotations.role=y", "nodeSelector.disk=fast", "tolerations[0].key=infra",
		"tolerations[0].operator=Exists", "priorityClassName=system-cluster-critical", "resources.limits.memory=1Gi", "imagePullSecrets[0].name=registry",
		"affinity.nodeAffinity.x=1", "highAvailability.enabled=true")
	deployment := findObject(t, objects, "Deployment", "holdfast")
	manager := managerOf(t, deployment)
	pod, _, err := unstructured.NestedMap(deployment.Object, "spec", "template", "spec")
	if err != nil {
		t.Fatal(err)
	}
	for what, values := range map[string][2]any{
		"image":     {manager["image"], "ghcr.io/holdfast-db/holdfast:v9@sha256:" + strings.Repeat("a", 64)},
		"argument":  {manager["args"], []any{"manager", "--enable-leader-election", "--log-level=debug"}},
		"variable":  {lastOf(manager["env"]), map[string]any{"name": "OTEL_SERVICE_NAME", "value": "databases"}},
		"resources": {manager["resources"], map[string]any{"requests": map[string]any{"cpu": "50m", "memory": "64Mi"}, "limits": map[string]any{"memory": "1Gi"}}},
		"labels":    {fieldOf(deployment, "spec", "template", "metadata", "labels"), map[string]any{"app.kubernetes.io/name": "holdfast", "team": "storage"}},
		"annotations": {
			fieldOf(deployment, "spec", "template", "metadata", "annotations"), map[string]any{"kubectl.kubernetes.io/default-container": "manager", "note": "x"},
		},
		"nodes":       {pod["nodeSelector"], map[string]any{"disk": "fast"}},
		"tolerations": {pod["tolerations"], []any{map[string]any{"key": "infra", "operator": "Exists"}}},
		"priority":    {pod["priorityClassName"], "system-cluster-critical"},
		"affinity":    {pod["affinity"], map[string]any{"nodeAffinity": map[string]any{"x": int64(1)}}},
		"account":     {findObject(t, objects, "ServiceAccount", "holdfast").GetAnnotations(), map[string]string{"role": "y"}},
		"pull secret": {fieldOf(findObject(t, objects, "ServiceAccount", "holdfast"), "imagePullSecrets"), []any{map[string]any{"name": "registry"}}},
	} {
		if diff := cmp.Diff(values[1], values[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// lastOf is the last element of a list; nil of what has none.
func lastOf(list any) any {
	elements, _ := list.([]any)
	if len(elements) == 0 {
		return nil
	}
	return elements[len(elements)-1]
}

// Another namespace, and other ports, are named everywhere.
func TestNamespaceAndPorts(t *testing.T) {
	settings := []string{"networkPolicy.enabled=true", "networkPolicy.apiServerPorts={16443}", "monitoring.enabled=true", "admissionPolicy.enabled=true", "highAvailability.enabled=true"}
	for _, scope := range [][]string{nil, {"watchNamespaces={shop,billing}"}} {
		r, err := renderRelease(t.Context(), "databases", append(scope, settings...)...)
		if err != nil {
			t.Fatal(err)
		}
		var rest []string
		bound := map[string]bool{}
		for _, object := range parseObjects(t, r.Manifest) {
			if object.GetKind() == "CustomResourceDefinition" {
				continue
			}
			text, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			rest = append(rest, string(text))
			if object.GetKind() == "RoleBinding" && object.GetName() == "holdfast-manager" {
				bound[object.GetNamespace()] = true
			} else if namespace := object.GetNamespace(); namespace != "" && namespace != "databases" {
				t.Errorf("%s %s is in namespace %s", object.GetKind(), object.GetName(), namespace)
			}
		}
		text := strings.Join(rest, "\n")
		if strings.Contains(text, "holdfast-system") || strings.Contains(text, "6443,") && !strings.Contains(text, "16443,") || !strings.Contains(text, `"port":16443`) {
			t.Errorf("another namespace or port is named:\n%s", text)
		}
		if want := (map[string]bool{"shop": true, "billing": true}); scope != nil && !maps.Equal(bound, want) {
			t.Errorf("rights in %v, want %v", bound, want)
		}
	}
}

// Templates of alerts reach Prometheus as they are.
func TestAlertsKeepTheirTemplates(t *testing.T) {
	rules := fieldOf(findObject(t, renderObjects(t, releaseNamespace, "monitoring.enabled=true"), "PrometheusRule", "holdfast"), "spec")
	text, err := yaml.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(root + "/config/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	templates := regexp.MustCompile(`\{\{[^}]*\}\}`)
	// Lines are wrapped in other places.
	unwrap := func(text []byte) string { return strings.Join(strings.Fields(string(text)), " ") }
	want, got := templates.FindAllString(unwrap(source), -1), templates.FindAllString(unwrap(text), -1)
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("templates (-rules.yaml +chart):\n%s", diff)
	}
}

func findObject(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Fatalf("the chart has no %s %s", kind, name)
	return nil
}

// fieldOf is the value at a path.
func fieldOf(object *unstructured.Unstructured, path ...string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
	return value
}

func listFolders(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%s: %v", folder, err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
