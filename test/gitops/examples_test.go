package gitops

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/test/kustomization"
)

// decodeDocuments reads the documents of a YAML file of the repository.
func decodeDocuments(t *testing.T, file string) objects {
	t.Helper()
	var all objects
	for text := range strings.SplitSeq(readFile(t, filepath.Join(root, file)), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, o)
	}
	return all
}

// The examples can be applied in one namespace: a PostgresCluster and a MySQLCluster of one
// name would have the same objects.
func TestExamplesHaveNamesOfTheirOwn(t *testing.T) {
	files, err := filepath.Glob(root + "/examples/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%v: %v", files, err)
	}
	named := map[string]string{}
	for _, file := range files {
		o := decodeDocuments(t, filepath.Join("examples", filepath.Base(file)))[0]
		if other := named[o.GetName()]; other != "" {
			t.Errorf("%s and %s are both named %s", filepath.Base(file), other, o.GetName())
		}
		named[o.GetName()] = filepath.Base(file)
		if list := readFile(t, root+"/examples/README.md"); !strings.Contains(list, "`"+o.GetName()+"`") || !strings.Contains(list, "("+filepath.Base(file)+")") {
			t.Errorf("examples/README.md does not list %s with its name %s", filepath.Base(file), o.GetName())
		}
	}
}

// The examples that install the operator name one version, of the repository or of the chart:
// that of the image in the tree. Each names it once, so that an upgrade is one change.
func TestExamplesPinTheOperator(t *testing.T) {
	version := regexp.MustCompile(`\bv?[0-9]+\.[0-9]+\.[0-9]+\b`)
	versions := map[string][]string{}
	for file, want := range map[string]int{"flux/sources.yaml": 1, "flux/operator.yaml": 0, "flux-helm/operator.yaml": 1, "argocd/operator.yaml": 1} {
		var found []string
		for line := range strings.Lines(readFile(t, root+"/examples/"+file)) {
			if match := version.FindString(line); match != "" && !strings.HasPrefix(line, "#") {
				found = append(found, strings.TrimPrefix(match, "v"))
			}
		}
		if len(found) != want {
			t.Errorf("examples/%s names %d versions and not %d: %q", file, len(found), want, found)
		}
		for _, v := range found {
			versions[v] = append(versions[v], file)
		}
	}
	image, _ := listContainers(buildKustomization(t, install).findObject(t, "Deployment", "holdfast"))[0]["image"].(string)
	installed, isRelease := strings.CutPrefix(image, kustomization.OperatorImage+":v")
	if !isRelease {
		t.Errorf("config/default names %s, want a version of %s", image, kustomization.OperatorImage)
	}
	versions[installed] = append(versions[installed], "config/default")
	if len(versions) != 1 {
		t.Errorf("the examples name different versions of the operator: %v", versions)
	}
}

// Argo CD's example keeps definitions and the namespace from being pruned, and applies
// definitions first, with the patches that it declares.
func TestArgoCDExampleKeepsDefinitions(t *testing.T) {
	application := decodeDocuments(t, "examples/argocd/operator.yaml")[0]
	options, _ := fieldAt(application, "spec", "syncPolicy", "syncOptions").([]any)
	if !slices.Contains(options, any("ServerSideApply=true")) {
		t.Errorf("definitions are too large for a client-side apply: %v", options)
	}
	if path := fieldAt(application, "spec", "source", "path"); path != "config/default" {
		t.Fatalf("the example installs %v: build the same here", path)
	}
	patches, err := yaml.Marshal(map[string]any{"patches": fieldAt(application, "spec", "source", "kustomize", "patches")})
	if err != nil {
		t.Fatal(err)
	}
	built := buildOverlay(t, "resources: [{root}/config/default]\n"+string(patches))
	definitions := 0
	for _, o := range built {
		annotations := o.GetAnnotations()
		switch kept := annotations["argocd.argoproj.io/sync-options"] == "Prune=false"; o.GetKind() {
		case "CustomResourceDefinition":
			definitions++
			if !kept || annotations["argocd.argoproj.io/sync-wave"] != "-1" {
				t.Errorf("%s has %v", objectID(o), annotations)
			}
		case "Namespace":
			if !kept {
				t.Errorf("%s has %v", objectID(o), annotations)
			}
		default:
			if kept {
				t.Errorf("%s is never pruned", objectID(o))
			}
		}
	}
	if definitions < 5 {
		t.Errorf("only %d definitions", definitions)
	}
}

// The pages on Flux and Argo CD show an entry under images for an image of one's own. It
// replaces what the tree names.
func TestPagesNameTheImageToReplace(t *testing.T) {
	for page, entry := range map[string]*regexp.Regexp{
		"flux.md":   regexp.MustCompile(`(?m)^ +- name: (\S*holdfast)\n +newName: registry\.example\.com/holdfast\n +newTag: main\n`),
		"argocd.md": regexp.MustCompile(`(?m)^ +- (\S*holdfast)=registry\.example\.com/holdfast:main\n`),
	} {
		found := entry.FindStringSubmatch(readFile(t, root+"/docs/guides/"+page))
		if found == nil || found[1] != kustomization.OperatorImage {
			t.Errorf("%s shows no entry that replaces %s: %q", page, kustomization.OperatorImage, found)
		}
	}
}

// The page on monitoring shows how PodMonitors and rules get the label by which
// kube-prometheus-stack selects.
func TestMonitoringPageLabelsMonitors(t *testing.T) {
	_, after, _ := strings.Cut(readFile(t, root+"/docs/guides/monitoring.md"), "**No targets?**")
	_, after, _ = strings.Cut(after, "```yaml\n")
	patches, _, _ := strings.Cut(after, "```\n")
	built := buildOverlay(t, "resources: [{root}/config/default]\ncomponents: [{root}/kustomize/components/monitoring]\n"+patches)
	labeled := map[string]int{}
	for _, o := range built {
		if o.GetLabels()["release"] == "kube-prometheus-stack" {
			labeled[o.GetKind()]++
		}
	}
	if labeled["PodMonitor"] != 2 || labeled["PrometheusRule"] == 0 || len(labeled) != 2 {
		t.Errorf("labeled are %v", labeled)
	}
}

// The pod of the page on connections is one that the API knows, and its client verifies the
// server with the CA that is mounted.
func TestConnectPageVerifiesTheServer(t *testing.T) {
	_, after, _ := strings.Cut(readFile(t, root+"/docs/guides/connect.md"), "   ```yaml\n   apiVersion: v1\n")
	text, _, _ := strings.Cut(after, "   ```\n")
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte("apiVersion: v1\n"+regexp.MustCompile(`(?m)^   `).ReplaceAllString(text, "")), pod); err != nil {
		t.Fatal(err)
	}
	client := pod.Spec.Containers[0]
	environment := map[string]string{}
	for _, variable := range client.Env {
		environment[variable.Name] = variable.Value
		if from := variable.ValueFrom; from != nil && from.SecretKeyRef.Name != "orders-app" {
			t.Errorf("%s is of Secret %s", variable.Name, from.SecretKeyRef.Name)
		}
	}
	mounted, secret := client.VolumeMounts[0], pod.Spec.Volumes[0].Secret
	if environment["PGSSLMODE"] != "verify-full" || environment["PGSSLROOTCERT"] != mounted.MountPath+"/"+secret.Items[0].Path || secret.Items[0].Key != "ca.crt" {
		t.Errorf("the client verifies by %v, with %+v of %+v", environment, mounted, secret)
	}
}
