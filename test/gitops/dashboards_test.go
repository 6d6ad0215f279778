package gitops

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// dashboardLabel is that by which Grafana's sidecar finds dashboards.
const dashboardLabel = "grafana_dashboard"

// largestAnnotation is what kubectl apply can record of an object, in bytes.
const largestAnnotation = 256 << 10

// The component has a ConfigMap for each dashboard, which Grafana's sidecar finds.
func TestDashboardsComponent(t *testing.T) {
	files, err := filepath.Glob(root + "/config/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	have := map[string]string{}
	for _, o := range withComponents(t, "dashboards") {
		if o.GetLabels()[dashboardLabel] == "" {
			continue
		}
		if o.GetLabels()[dashboardLabel] != "1" || o.GetNamespace() != "holdfast-system" {
			t.Errorf("%s has the labels %v", o.GetName(), o.GetLabels())
		}
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		if err != nil || len(data) != 1 {
			t.Errorf("%s has %d files: %v", o.GetName(), len(data), err)
		}
		for name, text := range data {
			have[name] = text
			if len(text) > largestAnnotation*9/10 {
				t.Errorf("%s is too large for kubectl apply: %d bytes", name, len(text))
			}
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := "holdfast-" + filepath.Base(file)
		if have[name] != string(text) {
			t.Errorf("no ConfigMap has %s as %s: list it in config/dashboards/kustomization.yaml", file, name)
		}
		delete(have, name)
	}
	for name := range have {
		t.Errorf("%s is no dashboard", name)
	}
}
