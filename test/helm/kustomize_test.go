package helm

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-db/holdfast/test/kustomization"
)

// sameImage has both name one image. The overlay of a mirror names its repository itself.
const sameImage = "images: [{name: " + kustomization.OperatorImage + ", newName: registry.example.com/holdfast}, {name: registry.example.com/holdfast, newTag: v9}]\n"

// plain is the kustomization of the plain installation.
const plain = "resources: [\"{root}/config/default\"]\n" + sameImage

// withComponent is the plain installation with a component.
func withComponent(name string) string {
	return plain + "components: [\"{root}/kustomize/components/" + name + "\"]\n"
}

// generator is a ConfigMap of an overlay.
func generator(name, literals string) string {
	return "configMapGenerator: [{name: " + name + ", namespace: holdfast-system, literals: [" + literals + "]}]\n"
}

// options of the chart, each with the kustomization that says the same. A
// Namespace stands in the chart only where namespace.create says so.
var options = map[string]struct {
	values        []string
	kustomization string
}{
	"default":            {nil, plain},
	"namespace":          {[]string{"namespace.create=true"}, plain},
	"high availability":  {[]string{"highAvailability.enabled=true"}, withComponent("high-availability")},
	"network policy":     {[]string{"networkPolicy.enabled=true"}, withComponent("network-policy")},
	"monitoring":         {[]string{"monitoring.enabled=true"}, withComponent("monitoring")},
	"dashboards":         {[]string{"dashboards.enabled=true"}, withComponent("dashboards")},
	"admission policies": {[]string{"admissionPolicy.enabled=true"}, withComponent("admission-policy")},
	"restricted namespaces": {
		[]string{"namespace.create=true", "namespace.restricted=true"}, withComponent("restricted-namespaces"),
	},
	"image mirror": {
		[]string{"databaseImages.postgres=mirror.example/postgres", "databaseImages.mysql=mirror.example/mysql", "databaseImages.etcd=mirror.example/etcd"},
		withComponent("image-mirror") + generator("holdfast-image-mirror", "postgres=mirror.example/postgres, mysql=mirror.example/mysql, etcd=mirror.example/etcd"),
	},
	"overlay cluster-wide": {nil, overlay("cluster-wide")},
	"overlay production":   {[]string{"highAvailability.enabled=true", "monitoring.enabled=true"}, overlay("production")},
	"overlay namespaced":   {[]string{"watchNamespaces={databases}"}, overlay("namespaced")},
	"overlay mirror": {
		[]string{
			"databaseImages.postgres=registry.example.com/library/postgres", "databaseImages.mysql=registry.example.com/mysql",
			"databaseImages.etcd=registry.example.com/coreos/etcd", "imagePullSecrets[0].name=registry",
		}, overlay("mirror"),
	},
	"everything": {
		[]string{
			"namespace.create=true", "namespace.restricted=true", "highAvailability.enabled=true", "networkPolicy.enabled=true", "monitoring.enabled=true",
			"dashboards.enabled=true", "admissionPolicy.enabled=true", "watchNamespaces={databases}", "databaseImages.postgres=mirror.example/postgres", "databaseImages.mysql=mirror.example/mysql",
			"databaseImages.etcd=mirror.example/etcd",
		},
		overlay("namespaced") + "components: [" + componentList("high-availability", "network-policy", "monitoring", "dashboards", "admission-policy", "image-mirror", "restricted-namespaces") + "]\n" +
			generator("holdfast-image-mirror", "postgres=mirror.example/postgres, mysql=mirror.example/mysql, etcd=mirror.example/etcd"),
	},
}

// overlay of the tree, with the image of the tests.
func overlay(name string) string {
	return "resources: [\"{root}/kustomize/overlays/" + name + "\"]\n" + sameImage
}

func componentList(names ...string) string {
	var list []string
	for _, name := range names {
		list = append(list, "\"{root}/kustomize/components/"+name+"\"")
	}
	return strings.Join(list, ", ")
}

// The chart renders the objects of the kustomizations, field by field.
func TestSameObjectsAsKustomize(t *testing.T) {
	for name, option := range options {
		t.Run(name, func(t *testing.T) {
			settings := append([]string{"image.repository=registry.example.com/holdfast", "image.tag=v9"}, option.values...)
			built, err := kustomization.BuildObjects(root, option.kustomization)
			if err != nil {
				t.Fatal(err)
			}
			want := normalize(t, resolveSettings(t, built))
			got := normalize(t, renderObjects(t, releaseNamespace, settings...))
			if !slices.Contains(option.values, "namespace.create=true") {
				delete(want, "Namespace /holdfast-system") // helm install needs it before
			}
			if len(want) < 10 {
				t.Fatalf("kustomize built only %d objects", len(want))
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
				t.Fatalf("objects (-kustomize +chart):\n%s", diff)
			}
			for id := range want {
				if diff := cmp.Diff(want[id], got[id]); diff != "" {
					t.Errorf("%s (-kustomize +chart):\n%s", id, diff)
				}
			}
		})
	}
}

// Every component and every overlay is compared above, but for the one that installs two
// operators: a release of the chart is one.
func TestOptionsAreComplete(t *testing.T) {
	compared := ""
	for _, option := range options {
		compared += option.kustomization
	}
	for _, folder := range []string{"overlays", "components"} {
		for _, name := range listFolders(t, root+"/kustomize/"+folder) {
			if name == "sharded" {
				continue
			}
			if folder == "overlays" {
				content, err := os.ReadFile(root + "/kustomize/overlays/" + name + "/kustomization.yaml")
				if err != nil {
					t.Fatal(err)
				}
				compared += strings.ReplaceAll(string(content), "../../components/", "kustomize/components/")
			}
			if !strings.Contains(compared, "kustomize/"+folder+"/"+name) {
				t.Errorf("kustomize/%s/%s is compared with no option of the chart", folder, name)
			}
		}
	}
}

// normalize indexes objects. Only the chart's wish to keep an object is no part of
// the comparison, and the order of the operator's flags.
func normalize(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	byID := map[string]any{}
	for _, object := range objects {
		annotations := object.GetAnnotations()
		delete(annotations, "helm.sh/resource-policy")
		if len(annotations) == 0 {
			annotations = nil
		}
		object.SetAnnotations(annotations)
		if object.GetKind() == "Deployment" {
			sortArgs(t, object)
		}
		id := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		if byID[id] != nil {
			t.Errorf("%s is there twice", id)
		}
		byID[id] = object.Object
	}
	return byID
}

// sortArgs sorts the operator's flags, after its verb.
func sortArgs(t *testing.T, deployment *unstructured.Unstructured) {
	t.Helper()
	manager := managerOf(t, deployment)
	args, _, err := unstructured.NestedStringSlice(manager, "args")
	if err != nil || len(args) < 2 {
		t.Fatalf("arguments %v: %v", args, err)
	}
	slices.Sort(args[1:])
	if err := unstructured.SetNestedStringSlice(manager, args, "args"); err != nil {
		t.Fatal(err)
	}
}

// managerOf is the operator's container.
func managerOf(t *testing.T, deployment *unstructured.Unstructured) map[string]any {
	t.Helper()
	containers, _, err := unstructured.NestedFieldNoCopy(deployment.Object, "spec", "template", "spec", "containers")
	list, isList := containers.([]any)
	if err != nil || !isList || len(list) != 1 {
		t.Fatalf("containers %v: %v", containers, err)
	}
	manager, isMap := list[0].(map[string]any)
	if !isMap {
		t.Fatalf("container %v", list[0])
	}
	return manager
}

// resolveSettings puts what a ConfigMap of an overlay says into the operator's
// flags: kustomize has no other way to them, and the chart writes them at once.
func resolveSettings(t *testing.T, objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	configured := map[string]map[string]string{}
	var rest []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() != "ConfigMap" || object.GetLabels()["grafana_dashboard"] != "" {
			rest = append(rest, object)
			continue
		}
		data, _, err := unstructured.NestedStringMap(object.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		configured[object.GetName()] = data
	}
	for _, object := range rest {
		if object.GetKind() != "Deployment" {
			continue
		}
		manager := managerOf(t, object)
		environment, _, err := unstructured.NestedSlice(manager, "env")
		if err != nil {
			t.Fatal(err)
		}
		args := fmt.Sprint(manager["args"])
		var kept []any
		for _, entry := range environment {
			variable, isMap := entry.(map[string]any)
			reference, isConfigured, err := unstructured.NestedStringMap(variable, "valueFrom", "configMapKeyRef")
			if !isMap || err != nil {
				t.Fatal(err)
			}
			if !isConfigured {
				kept = append(kept, entry)
				continue
			}
			value, exists := configured[reference["name"]][reference["key"]]
			if !exists {
				t.Fatalf("no ConfigMap has %v", reference)
			}
			args = strings.ReplaceAll(args, fmt.Sprintf("$(%s)", variable["name"]), value)
		}
		manager["env"] = kept
		var list []any
		for _, arg := range strings.Fields(strings.Trim(args, "[]")) {
			list = append(list, arg)
		}
		manager["args"] = list
	}
	return rest
}
