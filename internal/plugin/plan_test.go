package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/plugin/plan"
)

// runOffline runs the command without a cluster.
func runOffline(t *testing.T, args ...string) (string, error) {
	t.Helper()
	root := NewRootCommand("test")
	var out bytes.Buffer
	root.SetArgs(append([]string{"plan"}, args...))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// The plan of a commit that changes several clusters, in every format.
func TestPlanPrints(t *testing.T) {
	for format, name := range map[string]string{"tree": "plan.txt", "markdown": "plan.md", "json": "plan.json"} {
		out, err := runOffline(t, "--from", "testdata/plan/from", "--to", "testdata/plan/to", "-o", format)
		if code, print := ExitCode(err); code != plan.ExitAtRisk || print {
			t.Errorf("%s: exit code %d: %v", format, code, err)
		}
		if strings.Contains(out, "hunter") || strings.Contains(out, "abc") || strings.Contains(out, "def ") {
			t.Errorf("%s shows a secret", format)
		}
		compareGolden(t, name, out)
	}
}

// The plan that the pages show.
func TestPlanOfOneCluster(t *testing.T) {
	out, err := runOffline(t, "--from", "testdata/plan/orders-from", "--to", "testdata/plan/orders-to")
	if code, _ := ExitCode(err); code != plan.ExitChanges {
		t.Errorf("exit code %d: %v", code, err)
	}
	compareGolden(t, "plan-orders.txt", out)
}

// What a commit costs by the example of a price file: one cluster grows, one has a class
// without a price and no requests, one is created and one deleted, whose volumes stay.
func TestPlanPrintsCosts(t *testing.T) {
	for format, name := range map[string]string{"tree": "plan-cost.txt", "markdown": "plan-cost.md", "json": "plan-cost.json"} {
		out, err := runOffline(t, "--from", "testdata/plan/cost-from", "--to", "testdata/plan/cost-to", "--prices", "../../examples/plan/prices.yaml", "-o", format)
		if code, _ := ExitCode(err); code != plan.ExitChanges {
			t.Errorf("%s: exit code %d: %v", format, code, err)
		}
		compareGolden(t, name, out)
	}
}

// The cost that the pages show.
func TestPlanCostOfOneCluster(t *testing.T) {
	out, err := runOffline(t, "--from", "testdata/plan/priced-from", "--to", "testdata/plan/priced-to", "--prices", "../../examples/plan/prices.yaml")
	if code, _ := ExitCode(err); code != plan.ExitChanges {
		t.Errorf("exit code %d: %v", code, err)
	}
	compareGolden(t, "plan-priced.txt", out)
}

// A bad price file is an error of the command, and its message names the file and the field.
func TestPlanRefusesBadPrices(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("currency: EUR\nvcpuHour: free\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{bad: "bad.yaml: vcpuHour: free is no number", filepath.Join(filepath.Dir(bad), "nowhere.yaml"): "--prices: "} {
		out, err := runOffline(t, "--from", "testdata/plan/cost-from", "--to", "testdata/plan/cost-to", "--prices", name)
		if code, _ := ExitCode(err); code != plan.ExitError || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("exit code %d: %v, want %q; printed %q", code, err, want, out)
		}
	}
}

// declare writes a directory with one cluster.
func declare(t *testing.T, spec string) string {
	t.Helper()
	dir := t.TempDir()
	text := "apiVersion: holdfast.dev/v1alpha1\nkind: PostgresCluster\nmetadata: {name: orders, namespace: shop}\nspec: " + spec + "\n"
	if err := os.WriteFile(filepath.Join(dir, "orders.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The exit code says how bad it is.
func TestPlanExitCodes(t *testing.T) {
	const spec = `{version: "15", replicas: 2, storage: {size: 1Gi}, parameters: {work_mem: 8MB}`
	empty := t.TempDir()
	for _, c := range []struct {
		name     string
		from, to string
		args     []string
		want     int
	}{
		{"nothing", declare(t, spec+"}"), declare(t, spec+"}"), nil, plan.ExitNothing},
		{"a default that is written out", declare(t, spec+"}"), declare(t, spec+", deletionPolicy: Retain}"), nil, plan.ExitNothing},
		{"the same size in another unit", declare(t, spec+"}"), declare(t, strings.Replace(spec, "1Gi", "1024Mi", 1)+"}"), nil, plan.ExitNothing},
		{"a change", declare(t, spec+"}"), declare(t, spec+", podLabels: {a: b}}"), nil, plan.ExitChanges},
		{"a change of a suspended cluster", declare(t, spec+"}"), declare(t, spec+", suspend: true, podLabels: {a: b}}"), nil, plan.ExitChanges},
		{"a new cluster", empty, declare(t, spec+"}"), nil, plan.ExitChanges},
		{"a deletion that keeps its volumes", declare(t, spec+"}"), empty, nil, plan.ExitChanges},
		{"no input", empty, filepath.Join(empty, "nowhere"), nil, plan.ExitError},
		{"a refusal", declare(t, spec+"}"), declare(t, strings.Replace(spec, `"15"`, `"16"`, 1)+"}"), nil, plan.ExitRefused},
		{"a refusal that is there already", declare(t, strings.Replace(spec, "8MB", "1kB", 1)+"}"), declare(t, strings.Replace(spec, "8MB", "1kB", 1)+", podLabels: {a: b}}"), nil, plan.ExitChanges},
		{"a value out of bounds", declare(t, spec+"}"), declare(t, strings.Replace(spec, "8MB", "1kB", 1)+"}"), nil, plan.ExitRefused},
		{"a deletion with its data", declare(t, spec+", deletionPolicy: Delete}"), empty, nil, plan.ExitAtRisk},
		{"and that is allowed", declare(t, spec+", deletionPolicy: Delete}"), empty, []string{"--allow-data-loss"}, plan.ExitChanges},
		{"fewer members under Delete", declare(t, spec+", deletionPolicy: Delete}"), declare(t, strings.Replace(spec, "2", "1", 1)+", deletionPolicy: Delete}"), nil, plan.ExitAtRisk},
		{"backups to a store that is removed", declare(t, spec+", backup: {destination: {url: s3://b}}}"), declare(t, spec+", backup: {enabled: false}}"), nil, plan.ExitChanges},
		{"and that are to go on", declare(t, spec+", backup: {destination: {url: s3://b}}}"), declare(t, spec+"}"), nil, plan.ExitRefused},
		{"an invalid date", declare(t, spec+"}"), declare(t, spec+`, backup: {schedule: "0 0 31 2 *"}}`), nil, plan.ExitRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := runOffline(t, append([]string{"--from", c.from, "--to", c.to}, c.args...)...)
			if code, _ := ExitCode(err); code != c.want {
				t.Errorf("exit code %d, want %d: %v\n%s", code, c.want, err, out)
			}
		})
	}
}

func TestPlanRefusesFlagsThatDoNotFit(t *testing.T) {
	for _, args := range [][]string{
		{}, {"--from", "testdata/plan/from"}, {"--from", "testdata/plan/from", "--to", "testdata/plan/to", "-f", "-"},
		{"--from", "testdata/plan/from", "--to", "testdata/plan/to", "--kustomization", "a/b"},
		{"--from", "testdata/plan/from", "--to", "testdata/plan/to", "-o", "xml"},
		{"--from", "testdata/plan/from", "--to", "testdata/plan/to", "orders"},
		{"--no-such-flag"},
	} {
		_, err := runOffline(t, args...)
		if code, _ := ExitCode(err); code != plan.ExitError {
			t.Errorf("%v: exit code %d: %v", args, code, err)
		}
	}
}

// What a manifest says is text: it becomes no mention, no tag and no row of a table.
func TestMarkdownIsEscaped(t *testing.T) {
	got := renderMarkdown(plan.Report{Clusters: []plan.Cluster{{
		Kind: "PostgresCluster", Namespace: "shop", Name: "orders", Action: plan.ActionUpdate,
		OneWay: []string{"@everyone <img src=x> | `x`\n# heading"},
	}}}, "a--b")
	for _, bad := range []string{"@everyone", "<img", "\n# heading", "a--b"} {
		if strings.Contains(got, bad) {
			t.Errorf("%q is in\n%s", bad, got)
		}
	}
	if !strings.HasPrefix(got, "<!-- holdfast-plan: a-b -->\n") {
		t.Errorf("no marker: %s", got)
	}
}
