package dashboards

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// page is a dashboard as Grafana reads it, as far as these tests do.
type page struct {
	UID           string      `json:"uid"`
	Title         string      `json:"title"`
	Description   string      `json:"description"`
	SchemaVersion int         `json:"schemaVersion"`
	Panels        []pagePanel `json:"panels"`
	Templating    struct {
		List []pageVariable `json:"list"`
	} `json:"templating"`
}

type pagePanel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	Grid        grid `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit       string `json:"unit"`
			Thresholds *struct {
				Steps []struct {
					Value *float64 `json:"value"`
				} `json:"steps"`
			} `json:"thresholds"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
	Links []struct {
		Title string `json:"title"`
		URL   string `json:"url"`
	} `json:"links"`
}

type grid struct{ X, Y, W, H int }

type pageVariable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
}

func readPages(t *testing.T) map[string]page {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, Folder, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	pages := map[string]page{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p page
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		pages[filepath.Base(file)] = p
	}
	return pages
}

// eachPage runs a part of a test for each dashboard.
func eachPage(t *testing.T, check func(*testing.T, page)) {
	t.Helper()
	for name, p := range readPages(t) {
		t.Run(name, func(t *testing.T) { check(t, p) })
	}
}

// The files are what the generator writes.
func TestFilesAreGenerated(t *testing.T) {
	want, err := Files(root)
	if err != nil {
		t.Fatal(err)
	}
	if have := readPages(t); len(have) != len(want) {
		t.Errorf("%d files of %d dashboards", len(have), len(want))
	}
	for name, text := range want {
		if have, err := os.ReadFile(filepath.Join(root, Folder, name)); err != nil || string(have) != string(text) {
			t.Errorf("%s is stale (%v): run make generate and commit", name, err)
		}
	}
}

// Each dashboard and each panel has an ID of its own, as Grafana needs it, and words.
func TestIDsAreUnique(t *testing.T) {
	uids := map[string]bool{}
	eachPage(t, func(t *testing.T, p page) {
		if uids[p.UID] || p.UID == "" || len(p.UID) > 40 || p.Title == "" || p.Description == "" || p.SchemaVersion != schemaVersion {
			t.Errorf("UID %q, title %q, description %q, version %d", p.UID, p.Title, p.Description, p.SchemaVersion)
		}
		uids[p.UID] = true
		ids, titles := map[int]bool{}, map[string]bool{}
		for _, panel := range p.Panels {
			if ids[panel.ID] || panel.ID < 1 || titles[panel.Type+panel.Title] || panel.Title == "" {
				t.Errorf("panel %d %q: the ID or the title is there already", panel.ID, panel.Title)
			}
			ids[panel.ID], titles[panel.Type+panel.Title] = true, true
			if panel.Type == "row" {
				continue
			}
			if panel.Description == "" || panel.Datasource.UID != "${datasource}" || len(panel.Targets) == 0 {
				t.Errorf("panel %q needs a description, the chosen data source and a query", panel.Title)
			}
			refs := map[string]bool{}
			for _, target := range panel.Targets {
				if refs[target.RefID] || target.RefID == "" {
					t.Errorf("panel %q: query %q is there twice", panel.Title, target.RefID)
				}
				refs[target.RefID] = true
			}
		}
	})
}

// No panel lies on another one or beside the grid, and none is above the heading of its row.
func TestGridHasNoOverlap(t *testing.T) {
	eachPage(t, func(t *testing.T, p page) {
		if len(p.Panels) < 5 {
			t.Errorf("%d panels", len(p.Panels))
		}
		for i, a := range p.Panels {
			if g := a.Grid; g.X < 0 || g.Y < 0 || g.W < 1 || g.H < 1 || g.X+g.W > columns {
				t.Errorf("panel %q is not on the grid: %+v", a.Title, g)
			}
			for _, b := range p.Panels[i+1:] {
				if overlaps(a.Grid, b.Grid) {
					t.Errorf("panels %q and %q overlap: %+v, %+v", a.Title, b.Title, a.Grid, b.Grid)
				}
				if a.Type == "row" && b.Grid.Y <= a.Grid.Y {
					t.Errorf("panel %q is not below the heading %q", b.Title, a.Title)
				}
			}
		}
	})
}

func overlaps(a, b grid) bool {
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

// units that panels use, of those that Grafana has.
var units = []string{"", "short", "bytes", "Bps", "s", "ms", "ops", "reqps", "percentunit", "dateTimeAsIso"}

// Units are Grafana's, and steps rise from one that has no value.
func TestUnitsAndSteps(t *testing.T) {
	eachPage(t, func(t *testing.T, p page) {
		for _, panel := range p.Panels {
			if unit := panel.FieldConfig.Defaults.Unit; !slices.Contains(units, unit) {
				t.Errorf("panel %q has the unit %q", panel.Title, unit)
			}
			if panel.FieldConfig.Defaults.Thresholds == nil {
				continue
			}
			steps := panel.FieldConfig.Defaults.Thresholds.Steps
			for i, step := range steps {
				if (i == 0) != (step.Value == nil) || i > 1 && *step.Value <= *steps[i-1].Value {
					t.Errorf("panel %q: step %d does not rise", panel.Title, i)
				}
			}
		}
	})
}

// Every variable is declared before it is used, and used.
func TestVariablesAreUsed(t *testing.T) {
	eachPage(t, func(t *testing.T, p page) {
		declared, used := map[string]bool{}, map[string]bool{"datasource": true}
		use := func(where, text string) {
			for _, m := range variableUse.FindAllStringSubmatch(text, -1) {
				name := m[1] + m[2]
				used[name] = true
				if !declared[name] && !strings.HasPrefix(name, "__") {
					t.Errorf("%s uses $%s, which is not declared", where, name)
				}
			}
		}
		for _, v := range p.Templating.List {
			use("variable "+v.Name, v.Definition)
			declared[v.Name] = true
		}
		for _, panel := range p.Panels {
			for _, target := range panel.Targets {
				use("panel "+panel.Title, target.Expr)
			}
		}
		for name := range declared {
			if !used[name] {
				t.Errorf("the variable %s is not used", name)
			}
		}
		if first := p.Templating.List[0]; first.Type != "datasource" || len(p.Templating.List) < 3 {
			t.Errorf("the variables are %+v", p.Templating.List)
		}
	})
}

// referenceRow is a metric on the page of metrics; families are those of libraries that it
// names by their beginning.
var (
	referenceRow    = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\w+) \\|")
	referenceFamily = regexp.MustCompile("`([a-z_]+_)\\*`")
)

// knownMetrics are the series that the page of metrics promises.
func knownMetrics(t *testing.T) (names map[string]bool, families []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	names = map[string]bool{"up": true} // Prometheus' own
	for _, m := range referenceRow.FindAllStringSubmatch(string(text), -1) {
		if m[2] != "histogram" {
			names[m[1]] = true
			continue
		}
		names[m[1]+"_bucket"], names[m[1]+"_count"], names[m[1]+"_sum"] = true, true, true
	}
	for _, m := range referenceFamily.FindAllStringSubmatch(string(text), -1) {
		if m[1] != "pg_" && m[1] != "mysql_" && m[1] != "holdfast_" && m[1] != "etcd_" {
			families = append(families, m[1])
		}
	}
	if len(names) < 100 || len(families) < 4 {
		t.Fatalf("%d metrics, families %v", len(names), families)
	}
	return names, families
}

// chosen are values for every variable, as a person would choose them.
var chosen = Chosen{
	"namespace": {"shop"}, "holdfast_cluster": {"orders"}, "member": {"orders-0", "orders-1"},
	"object_kind": {"Service", "ConfigMap"}, "manager": {"kubectl-edit"},
}

// Each query is PromQL once variables are replaced, and reads metrics of the reference.
func TestQueriesReadMetricsOfTheReference(t *testing.T) {
	names, families := knownMetrics(t)
	for _, d := range All() {
		queries, err := d.Expand(chosen, "1m", "3h")
		if err != nil {
			t.Error(err)
		}
		for _, v := range d.Variables {
			series, err := v.VariableSeries(chosen)
			if err != nil {
				t.Error(err)
			}
			queries = append(queries, PanelQuery{Panel: d.File + " / variable " + v.Name, Expr: series})
		}
		for _, q := range queries {
			read, err := SelectedMetrics(q.Expr)
			if err != nil {
				t.Errorf("%s: %v", q.Panel, err)
			}
			if len(read) == 0 {
				t.Errorf("%s reads no metric", q.Panel)
			}
			for _, name := range read {
				if !names[name] && !slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(name, f) }) {
					t.Errorf("%s reads %s, which docs/reference/metrics.md does not list", q.Panel, name)
				}
			}
		}
	}
}

// Each alert's runbook is linked from a panel that shows what the alert is about: they
// have a metric in common.
func TestEveryAlertIsLinked(t *testing.T) {
	rules := readAlertRules(t)
	linked := map[string]bool{}
	eachPage(t, func(t *testing.T, p page) {
		for _, panel := range p.Panels {
			var shown []string
			for _, target := range panel.Targets {
				expr, err := replaceVariables(target.Expr, map[string]string{"__rate_interval": "1m", "__range": "1h", "namespace": "a", "holdfast_cluster": "b", "member": "c", "object_kind": "d", "manager": "e"})
				if err != nil {
					t.Fatal(err)
				}
				read, err := SelectedMetrics(expr)
				if err != nil {
					t.Fatal(err)
				}
				shown = append(shown, read...)
			}
			for _, link := range panel.Links {
				alert := strings.TrimPrefix(link.Title, "Runbook: ")
				rule, known := rules[alert]
				if !known || link.URL != rule.runbook {
					t.Errorf("panel %q links %s to %s", panel.Title, alert, link.URL)
				}
				if !slices.ContainsFunc(rule.reads, func(name string) bool { return slices.Contains(shown, name) }) {
					t.Errorf("panel %q shows none of what %s is about: %v", panel.Title, alert, rule.reads)
				}
				linked[alert] = true
			}
		}
	})
	for alert := range rules {
		if !linked[alert] {
			t.Errorf("no panel links to the runbook of %s", alert)
		}
	}
}

type alertRule struct {
	runbook string
	reads   []string
}

func readAlertRules(t *testing.T) map[string]alertRule {
	t.Helper()
	rules, err := readRules(root)
	if err != nil || len(rules) < 50 {
		t.Fatalf("%d alerts: %v", len(rules), err)
	}
	out := map[string]alertRule{}
	for _, r := range rules {
		reads, err := SelectedMetrics(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		out[r.Alert] = alertRule{r.Annotations["runbook_url"], reads}
	}
	return out
}
