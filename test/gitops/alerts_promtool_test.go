package gitops

import (
	"os"
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
