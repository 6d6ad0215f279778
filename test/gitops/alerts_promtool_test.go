package gitops

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alertCases are the files with promtool's unit tests of the alerts.
const alertCases = "testdata/alerts"

// caseFile is a file of promtool's unit tests, as far as this package reads it.
type caseFile struct {
	Tests []struct {
		Name   string `json:"name"`
		Alerts []struct {
			Alert    string           `json:"alertname"`
			Expected []map[string]any `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	} `json:"tests"`
}

func listAlertCases(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(alertCases + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	return files
}

// Each alert has a case that fires it, and one that keeps it silent, whose names say so.
func TestAlertsHaveCases(t *testing.T) {
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, file := range listAlertCases(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var read caseFile
		if err := yaml.Unmarshal(data, &read); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range read.Tests {
			if len(c.Alerts) == 0 {
				t.Errorf("%s: case %q evaluates no alert", file, c.Name)
			}
			for _, a := range c.Alerts {
				begins := a.Alert + " is silent: "
				if len(a.Expected) > 0 {
					begins = a.Alert + " fires: "
				}
				if !strings.HasPrefix(c.Name, begins) {
					t.Errorf("%s: the name of case %q does not begin with %q", file, c.Name, begins)
				}
				fires[a.Alert] = fires[a.Alert] || len(a.Expected) > 0
				silent[a.Alert] = silent[a.Alert] || len(a.Expected) == 0
			}
		}
	}
	for _, r := range readAlerts(t) {
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: a case fires it: %t; one keeps it silent: %t", r.Alert, fires[r.Alert], silent[r.Alert])
		}
		delete(fires, r.Alert)
	}
	for alert := range fires {
		t.Errorf("there is no alert %s", alert)
	}
}

// promtool accepts the alerts, and finds in each case what the case expects. The cases
// have the alerts' summaries, so that templates are rendered; descriptions are left out.
func TestAlertsWithPromtool(t *testing.T) {
	promtool := buildPromtool(t)
	dir := t.TempDir()
	writePromtoolRules(t, filepath.Join(dir, "rules.yaml"))
	args := []string{"test", "rules"}
	for _, file := range listAlertCases(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, "cases-"+filepath.Base(file))
		if err := os.WriteFile(copied, data, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, copied)
	}
	for _, args := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal", filepath.Join(dir, "rules.yaml")}, args} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args[:2], " "), err, out)
		}
	}
}

// buildPromtool builds the promtool whose version is pinned, without the clients of the
// clouds that Prometheus discovers targets in.
func buildPromtool(t *testing.T) string {
	t.Helper()
	binary, err := filepath.Abs(root + "/bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "remove_all_sd", "-o", binary, "github.com/prometheus/prometheus/cmd/promtool")
	build.Dir = root + "/test/tools/promtool"
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build promtool: %v\n%s", err, out)
	}
	return binary
}

// writePromtoolRules writes the groups of the PrometheusRule as a file of Prometheus.
func writePromtoolRules(t *testing.T, to string) {
	t.Helper()
	data, err := os.ReadFile(root + "/config/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec struct {
			Groups []struct {
				Name  string `json:"name"`
				Rules []rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	for _, group := range object.Spec.Groups {
		for i := range group.Rules {
			group.Rules[i].Annotations = map[string]string{"summary": group.Rules[i].Annotations["summary"]}
		}
	}
	file, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, file, 0o600); err != nil {
		t.Fatal(err)
	}
}
