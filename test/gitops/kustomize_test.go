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

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/holdfast-db/holdfast/test/kustomization"
)

const install = root + "/config/default"

// components of the operator's installation, each with what an overlay that
// lists it must add.
var components = map[string]string{
	"admission-policy":      "",
	"dashboards":            "",
	"high-availability":     "",
	"image-mirror":          "{name: holdfast-image-mirror, namespace: holdfast-system, literals: [postgres=mirror.example/postgres, mysql=mirror.example/mysql, etcd=mirror.example/etcd]}",
	"monitoring":            "",
	"namespaced":            "{name: holdfast-namespaces, namespace: holdfast-system, literals: [namespaces=shop]}",
	"network-policy":        "",
	"restricted-namespaces": "",
}

// Every overlay, as it differs from the plain install.
func TestOverlays(t *testing.T) {
	plain := buildKustomization(t, install)
	compareGolden(t, "default", describeDifference(t, nil, plain))
	overlays, err := filepath.Glob(root + "/kustomize/overlays/*")
	if err != nil || len(overlays) < 4 {
		t.Fatalf("overlays: %v %v", overlays, err)
	}
	for _, dir := range overlays {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) { compareGolden(t, name, describeDifference(t, plain, buildKustomization(t, dir))) })
	}
	for _, stage := range []string{"base", "staging", "production"} {
		t.Run("example "+stage, func(t *testing.T) {
			compareGolden(t, "example-"+stage, describeDifference(t, nil, buildKustomization(t, root+"/examples/overlays/"+stage)))
		})
	}
}

// Every component by itself, as it differs from the plain install.
func TestComponents(t *testing.T) {
	dirs, err := filepath.Glob(root + "/kustomize/components/*")
	if err != nil || len(dirs) != len(components) {
		t.Fatalf("components: %v %v", dirs, err)
	}
	plain := buildKustomization(t, install)
	for _, dir := range dirs {
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			compareGolden(t, "component-"+name, describeDifference(t, plain, withComponents(t, name)))
		})
	}
}

// withComponents is the plain install with components, in the order given.
func withComponents(t *testing.T, names ...string) objects {
	t.Helper()
	var list, generators strings.Builder
	for _, name := range names {
		fmt.Fprintf(&list, "  - {root}/kustomize/components/%s\n", name)
		if generator := components[name]; generator != "" {
			fmt.Fprintf(&generators, "  - %s\n", generator)
		}
	}
	text := "resources:\n  - {root}/config/default\n"
	if len(names) > 0 {
		text += "components:\n" + list.String()
	}
	if generators.Len() > 0 {
		text += "configMapGenerator:\n" + generators.String()
	}
	return buildOverlay(t, text)
}

// Components do not get into each other's way: each pair in both orders, and all
// together, are what each adds alone.
func TestComponentsCombine(t *testing.T) {
	names := slices.Sorted(maps.Keys(components))
	none := countFacts(withComponents(t))
	alone := map[string]map[string]int{}
	for _, name := range names {
		alone[name] = countFacts(withComponents(t, name))
	}
	backwards := slices.Clone(names)
	slices.Reverse(backwards)
	sets := [][]string{names, backwards}
	for i, a := range names {
		for _, b := range names[i+1:] {
			sets = append(sets, []string{a, b}, []string{b, a})
		}
	}
	for _, set := range sets {
		want := maps.Clone(none)
		for _, name := range set {
			changed := maps.Clone(alone[name])
			for fact, count := range none {
				changed[fact] -= count
			}
			for fact, count := range changed {
				want[fact] += count
			}
		}
		maps.DeleteFunc(want, func(_ string, count int) bool { return count == 0 })
		if diff := cmp.Diff(want, countFacts(withComponents(t, set...))); diff != "" {
			t.Errorf("%v (-want +got):\n%s", set, diff)
		}
	}
}

// countFacts are what a combination must keep of each component: its objects, the
// operator's containers with their arguments and environment, labels.
func countFacts(built objects) map[string]int {
	out := map[string]int{}
	for _, o := range built {
		out[objectID(o)]++
		for key, value := range o.GetLabels() {
			out[objectID(o)+" label "+key+"="+value]++
		}
	}
	for _, o := range built {
		if o.GetKind() != "Deployment" {
			continue
		}
		out[fmt.Sprint("replicas ", fieldAt(o, "spec", "replicas"))]++
		for _, c := range listContainers(o) {
			out[fmt.Sprint("container ", c["name"], " ", c["image"], " ", c["ports"], c["securityContext"])]++
			for _, key := range []string{"args", "env"} {
				list, _ := c[key].([]any)
				for _, item := range list {
					out[fmt.Sprint(key, " ", item)]++
				}
			}
		}
	}
	return out
}

func listContainers(deployment *unstructured.Unstructured) []map[string]any {
	list, _ := fieldAt(deployment, "spec", "template", "spec", "containers").([]any)
	var out []map[string]any
	for _, item := range list {
		c, _ := item.(map[string]any)
		out = append(out, c)
	}
	return out
}

// Several operators are monitored as the page on operators says: each has its own
// PodMonitor, and members and alerts are there once.
func TestShardsAreMonitoredOnce(t *testing.T) {
	shard := func(name, monitoring string) objects {
		return buildOverlay(t, "namespace: holdfast-shard-"+name+"\nnameSuffix: -"+name+"\n"+monitoring)
	}
	built := slices.Concat(
		shard("a", "components: [{root}/kustomize/components/monitoring]\n"),
		shard("b", "resources: [{root}/config/prometheus/operator]\n"))
	var got []string
	for _, o := range built {
		got = append(got, objectID(o))
	}
	slices.Sort(got)
	want := []string{
		"PodMonitor holdfast-shard-a/holdfast-a", "PodMonitor holdfast-shard-a/holdfast-members-a",
		"PodMonitor holdfast-shard-b/holdfast-b", "PrometheusRule holdfast-shard-a/holdfast-a",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("monitoring of two shards (-want +got):\n%s", diff)
	}
	operator := buildKustomization(t, install).findObject(t, "Deployment", "holdfast")
	for _, o := range built {
		if o.GetKind() != "PodMonitor" || strings.HasPrefix(o.GetName(), "holdfast-members") {
			continue
		}
		if diff := cmp.Diff(fieldAt(operator, "spec", "selector"), fieldAt(o, "spec", "selector")); diff != "" || fieldAt(o, "spec", "namespaceSelector") != nil {
			t.Errorf("%s selects other pods than those of the operator in its namespace:\n%s", objectID(o), diff)
		}
	}
}

// One entry under images is enough: the image stands nowhere else.
func TestImagesEntryIsEnough(t *testing.T) {
	const name, mine = kustomization.OperatorImage, "registry.example/platform/holdfast:v9"
	for _, dir := range []string{"config/default", "kustomize/overlays/cluster-wide", "kustomize/overlays/namespaced", "kustomize/overlays/sharded", "kustomize/overlays/production"} {
		built := buildOverlay(t, "resources: [{root}/"+dir+"]\nimages: [{name: "+name+", newName: registry.example/platform/holdfast, newTag: v9}]\n")
		for _, o := range built {
			if o.GetKind() == "CustomResourceDefinition" {
				continue
			}
			text := fmt.Sprint(o.Object)
			if strings.Contains(text, name+":") {
				t.Errorf("%s: %s still names the old image", dir, objectID(o))
			}
			if o.GetKind() == "Deployment" && strings.Count(text, mine) != 1 {
				t.Errorf("%s: the new image stands %d times in %s", dir, strings.Count(text, mine), objectID(o))
			}
		}
	}
}

// A user's patch of the Deployment merges by container name.
func TestDeploymentPatchesMergeByName(t *testing.T) {
	built := buildOverlay(t, `
resources: [{root}/config/default]
components: [{root}/kustomize/configurations]
patches:
  - patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: holdfast, namespace: holdfast-system}
      spec:
        template:
          spec:
            containers:
              - {name: proxy, image: "proxy:1"}
              - name: manager
                env: [{name: GOGC, value: "100"}]
                resources: {limits: {memory: 1Gi}}
`)
	list := listContainers(built.findObject(t, "Deployment", "holdfast"))
	if len(list) != 2 {
		t.Fatalf("%d containers, want manager and proxy", len(list))
	}
	for _, c := range list {
		if c["name"] != "manager" {
			continue
		}
		if image, _ := c["image"].(string); !strings.HasPrefix(image, kustomization.OperatorImage+":v") {
			t.Errorf("the manager lost its image: %v", c["image"])
		}
		if env, _ := c["env"].([]any); len(env) != 3 {
			t.Errorf("environment %v, want the two of the base and GOGC", env)
		}
	}
}

// The image mirror names a repository for each kind of database that the
// operator resolves images for.
func TestMirrorCoversEveryKind(t *testing.T) {
	source, err := os.ReadFile(root + "/main.go")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`"([a-z]+-image-repository)"`).FindAllSubmatch(source, -1)
	if len(flags) == 0 {
		t.Fatal("the operator has no flag for a repository")
	}
	args := fmt.Sprint(listContainers(withComponents(t, "image-mirror").findObject(t, "Deployment", "holdfast"))[0]["args"])
	for _, flag := range flags {
		if !strings.Contains(args, "--"+string(flag[1])+"=") {
			t.Errorf("the mirror leaves --%s out: %s", flag[1], args)
		}
	}
}
