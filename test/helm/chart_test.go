package helm

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli/values"
	"helm.sh/helm/v4/pkg/getter"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

const (
	root             = "../.."
	chartFolder      = root + "/config/helm/holdfast"
	releaseNamespace = "holdfast-system"
)

// testedKubernetes is a version of Kubernetes that the chart accepts. Helm takes 1.20 in tests.
var testedKubernetes = common.KubeVersion{Version: "v1.36.3", Major: "1", Minor: "36"}

// errNotARelease is of a Helm that answers with another type.
var errNotARelease = errors.New("the answer of Helm is no release of version 1")

// renderRelease renders the chart as helm template does, with lines of --set.
func renderRelease(ctx context.Context, namespace string, settings ...string) (*release.Release, error) {
	chart, err := loader.Load(chartFolder)
	if err != nil {
		return nil, err
	}
	options := values.Options{Values: settings}
	merged, err := options.MergeValues(getter.Providers{})
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(action.NewConfiguration())
	install.KubeVersion = &testedKubernetes
	install.DryRunStrategy, install.ReleaseName, install.Namespace = action.DryRunClient, "holdfast", namespace
	rendered, err := install.RunWithContext(ctx, chart, merged)
	if err != nil {
		return nil, err
	}
	r, is := rendered.(*release.Release)
	if !is {
		return nil, errNotARelease
	}
	return r, nil
}

// renderObjects are the objects of the chart.
func renderObjects(t *testing.T, namespace string, settings ...string) []*unstructured.Unstructured {
	t.Helper()
	r, err := renderRelease(t.Context(), namespace, settings...)
	if err != nil {
		t.Fatalf("render with %v: %v", settings, err)
	}
	return parseObjects(t, r.Manifest)
}

func parseObjects(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, document := range strings.Split("\n"+manifest, "\n---\n") {
		text, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if string(text) == "null" {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

// helm lint says nothing, with the defaults and with all options.
func TestLint(t *testing.T) {
	all := map[string]any{"watchNamespaces": []any{"shop"}}
	for _, option := range []string{"highAvailability", "networkPolicy", "monitoring", "dashboards", "admissionPolicy"} {
		all[option] = map[string]any{"enabled": true}
	}
	for name, vals := range map[string]map[string]any{"default": {}, "all options": all} {
		lint := action.NewLint()
		lint.KubeVersion = &testedKubernetes
		lint.Strict, lint.Namespace = true, releaseNamespace
		result := lint.Run([]string{chartFolder}, vals)
		if result.TotalChartsLinted != 1 || len(result.Errors) > 0 || action.HasWarningsOrErrors(result) {
			t.Errorf("%s: %v %v", name, result.Messages, result.Errors)
		}
	}
}

// The notes name the version, the namespace and what is watched.
func TestNotes(t *testing.T) {
	r, err := renderRelease(t.Context(), "databases", "watchNamespaces={shop,billing}", "image.tag=v9")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Holdfast v9", "-n databases", "watches shop, billing", "kubectl -n shop apply", "/blob/main/docs/README.md"} {
		if !strings.Contains(r.Info.Notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, r.Info.Notes)
		}
	}
	all, err := renderRelease(t.Context(), "databases")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(all.Info.Notes, "<<'END'\n")
	manifest, _, _ := strings.Cut(text, "  END\n")
	cluster := &v1alpha1.PostgresCluster{}
	if err := yaml.UnmarshalStrict([]byte(manifest), cluster); err != nil || cluster.Spec.Version != "17" {
		t.Errorf("the notes show no cluster: %v\n%s", err, manifest)
	}
}

// readChartFile reads a file of the chart.
func readChartFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(chartFolder + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Helm refuses the chart on Kubernetes that OLM refuses the bundle on: what is older than the
// oldest tested version.
func TestChartNeedsTheKubernetesOfTheBundle(t *testing.T) {
	var base struct {
		Spec struct{ MinKubeVersion string }
	}
	text, err := os.ReadFile(root + "/config/olm/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &base); err != nil {
		t.Fatal(err)
	}
	chart, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := chart.Metadata.KubeVersion, ">="+base.Spec.MinKubeVersion+"-0"; got != want {
		t.Fatalf("the chart needs Kubernetes %q, and the bundle for OLM %q", got, want)
	}
	needed, err := semver.NewConstraint(chart.Metadata.KubeVersion)
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]bool{"1.34.9": false, "1.34.9-eks-1": false, "1.35.0": true, "1.35.4-eks-1": true, "1.37.2+k3s1": true} {
		if got := needed.Check(semver.MustParse(version)); got != want {
			t.Errorf("Kubernetes %s is accepted: %t", version, got)
		}
	}
}
