package gitops

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// refersTo says of a field of our kinds what kind of object it names, by how the
// field is called. None is for what no build can rename.
var refersTo = []struct{ path, kind string }{
	{`SecretRef\.name$`, "Secret"},
	{`^imagePullSecrets\[\]\.name$`, "Secret"},
	{`(^|\.)storageClass(Name)?$`, "StorageClass"},
	{`(^|\.)priorityClassName$`, "PriorityClass"},
	{`^restore\.backup$`, "Backup"},
	{`^clusterRef\.name$`, "PostgresCluster"},
	// What is in a store keeps its name; so does what a database calls by one.
	{`^restore\.source\.(backup|cluster|namespace|clusterUID)$`, ""},
	{`^restore\.target\.name$`, ""},
	{`^clusterRef\.kind$`, ""},
	// A rule about objects that Holdfast names.
	{`^drift\.ignore\[\]\.(name|kind)$`, ""},
	// Claims of devices are made for a pod by its own name for them.
	{`resources\.claims\[\]\.`, ""},
}

// namesSomething says of a field by its name alone whether it could name an
// object: a developer who adds such a field says above what it refers to.
var namesSomething = regexp.MustCompile(`(^|\.)(name|backup|cluster|namespace)$|(Name|Ref|Class|Secret|Account|ConfigMap|Backup|Cluster)$`)

// fieldNames are the fields of a kind's spec that could name an object, with lists as [].
func fieldNames(schema map[string]any, path string) []string {
	var found []string
	properties, _ := schema["properties"].(map[string]any)
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		below, _ := properties[key].(map[string]any)
		at := strings.TrimPrefix(path+"."+key, ".")
		if below["type"] == "string" && namesSomething.MatchString(at) {
			found = append(found, at)
		}
		if at == "affinity" || at == "topologySpreadConstraints" {
			continue // labels and keys of nodes
		}
		found = append(found, fieldNames(below, at)...)
		if items, isList := below["items"].(map[string]any); isList {
			found = append(found, fieldNames(items, at+"[]")...)
		}
	}
	return found
}

// Every field that names an object follows when kustomize renames the object: of
// every kind, and of fields that are yet to come.
func TestEveryReferenceFollowsItsObject(t *testing.T) {
	files, err := filepath.Glob(root + "/config/crd/holdfast.dev_*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		kind, fields := specFields(t, file)
		t.Run(kind, func(t *testing.T) {
			followed := 0
			for _, path := range fields {
				to, known := referredKind(path)
				if !known {
					t.Errorf("spec.%s could name an object: say in refersTo which kind it does, and teach kustomize/configurations to follow it", path)
				}
				if to != "" {
					followed++
					followsReference(t, kind, path, to)
				}
			}
			if followed == 0 {
				t.Error("no field names an object")
			}
		})
	}
}

func referredKind(path string) (kind string, known bool) {
	for _, r := range refersTo {
		if regexp.MustCompile(r.path).MatchString(path) {
			return r.kind, true
		}
	}
	return "", false
}

// specFields reads a CRD.
func specFields(t *testing.T, file string) (kind string, fields []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &crd.Object); err != nil {
		t.Fatal(err)
	}
	kind, _, _ = unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version, _ := versions[0].(map[string]any)
	spec, _, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec")
	if err != nil {
		t.Fatal(err)
	}
	return kind, fieldNames(spec, "")
}

// followsReference builds an object that names another one, which is renamed.
func followsReference(t *testing.T, kind, path, to string) {
	t.Helper()
	spec := any("thing")
	keys := strings.Split(path, ".")
	for _, key := range slices.Backward(keys) {
		name, isList := strings.CutSuffix(key, "[]")
		if isList {
			spec = []any{spec}
		}
		spec = map[string]any{name: spec}
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "holdfast.dev/v1alpha1", "kind": kind, "metadata": map[string]any{"name": "referring"}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]string{"Secret": "v1", "StorageClass": "storage.k8s.io/v1", "PriorityClass": "scheduling.k8s.io/v1"}
	targets := []string{to}
	if path == "clusterRef.name" {
		targets = []string{"PostgresCluster", "EtcdCluster", "MySQLCluster", "Database"}
	}
	for _, target := range targets {
		group := groups[target]
		if group == "" {
			group = "holdfast.dev/v1alpha1"
		}
		built := buildOverlay(t, "namePrefix: blue-\nresources: [objects.yaml]\ncomponents: [{root}/kustomize/configurations]\n", "objects.yaml",
			fmt.Sprintf("%s---\napiVersion: %s\nkind: %s\nmetadata: {name: thing}\n", text, group, target))
		if got := valueAt(built.findObject(t, kind, "blue-referring").Object["spec"], keys); got != "blue-thing" {
			t.Errorf("spec.%s of a %s is %v when the %s is renamed", path, kind, got, target)
		}
	}
}

// valueAt is the value at a path; of lists, in the first item.
func valueAt(value any, keys []string) any {
	for _, key := range keys {
		mapping, _ := value.(map[string]any)
		name, isList := strings.CutSuffix(key, "[]")
		value = mapping[name]
		if list, _ := value.([]any); isList && len(list) > 0 {
			value = list[0]
		}
	}
	return value
}
