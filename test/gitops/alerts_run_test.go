//go:build promtool

package gitops

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

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

// The rules of the guide to autoscaling yield the members that are wanted.
func TestAutoscalingRulesWithPromtool(t *testing.T) {
	promtool, dir := buildPromtool(t), t.TempDir()
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	data, err := os.ReadFile(root + "/examples/autoscaling/rules.yaml")
	if err == nil {
		err = yaml.Unmarshal(data, &object)
	}
	if err != nil {
		t.Fatal(err)
	}
	rules, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("testdata/autoscaling.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"rules.yaml": rules, "cases.yaml": cases} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", filepath.Join(dir, "cases.yaml")).CombinedOutput(); err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
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
