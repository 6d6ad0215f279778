package gitops

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	_ "sigs.k8s.io/controller-runtime" // registers the metrics of controllers
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/controller/backup"
)

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func readAlerts(t *testing.T) []rule {
	t.Helper()
	data, err := os.ReadFile(root + "/config/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Spec struct {
			Groups []struct {
				Rules []rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	var out []rule
	for _, g := range file.Spec.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) == 0 {
		t.Fatal("no alerts")
	}
	return out
}

// fromTarget are labels that Prometheus adds to what it scrapes.
var fromTarget = []string{"namespace", "pod", "container", "job", "instance", "endpoint"}

var (
	description = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	declared    = regexp.MustCompile(`\b[nN]ew(Gauge|Counter|ServerGauge|ServerCounter|Status|Variable)\("([a-z_]+)",\s+"[^"]*"((?:,\s+"[a-z_]+")*)\)`)
	reference   = regexp.MustCompile(`\$labels\.([a-z_]+)`)
)

// prefixes are what the functions that agents declare metrics with add to the names.
var prefixes = map[string]string{
	"Gauge": "holdfast_", "Counter": "holdfast_", "ServerGauge": "mysql_", "ServerCounter": "mysql_",
	"Status": "mysql_global_status_", "Variable": "mysql_global_variables_",
}

// agentSources is the source of the members' agents. It is read as text: their
// packages would bring the driver of every store into these tests.
func agentSources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(root+"/internal/agent", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// exportedMetrics are the metrics of the operator and of members, with the labels by
// which alerts distinguish them: members by their pods.
func exportedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	if _, err := apply.New(nil, fake.NewClientBuilder().Build(), apply.Options{Registerer: metrics.Registry}); err != nil {
		t.Fatal(err)
	}
	metrics.Registry.MustRegister(backup.Collector{})
	registry, ok := metrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatalf("%T describes nothing", metrics.Registry)
	}
	descriptions := make(chan *prometheus.Desc, 1024)
	registry.Describe(descriptions)
	close(descriptions)
	out := map[string][]string{}
	for d := range descriptions {
		if m := description.FindStringSubmatch(d.String()); m != nil {
			out[m[1]] = strings.Split(m[2], ",")
		}
	}
	for _, m := range declared.FindAllStringSubmatch(agentSources(t), -1) {
		out[prefixes[m[1]]+m[2]] = append([]string{"namespace", "pod", "cluster"}, regexp.MustCompile("[a-z_]+").FindAllString(m[3], -1)...)
	}
	return out
}

// Prometheus understands every alert, the operator or an agent exports every metric in it with
// the labels that are asked for, and texts name labels that are there.
func TestAlerts(t *testing.T) {
	have := exportedMetrics(t)
	for _, r := range readAlerts(t) {
		t.Run(r.Alert, func(t *testing.T) {
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			if r.For != "" {
				if d, err := model.ParseDuration(r.For); err != nil || time.Duration(d) == 0 {
					t.Errorf("for: %s: %v", r.For, err)
				}
			}
			selectors := 0
			parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
				selector, ok := node.(*parser.VectorSelector)
				if !ok {
					return nil
				}
				selectors++
				known, ok := have[selector.Name]
				if !ok {
					t.Errorf("no component exports %s", selector.Name)
				}
				for _, m := range selector.LabelMatchers {
					if m.Name != model.MetricNameLabel && !slices.Contains(known, m.Name) && !slices.Contains(fromTarget, m.Name) {
						t.Errorf("%s has no label %s", selector.Name, m.Name)
					}
				}
				return nil
			})
			if selectors == 0 {
				t.Error("it reads no metric")
			}
			result := resultingLabels(expr, have)
			for _, text := range r.Annotations {
				for _, m := range reference.FindAllStringSubmatch(text, -1) {
					if !slices.Contains(result, m[1]) {
						t.Errorf("%q names label %s; the alert has %v", text, m[1], result)
					}
				}
			}
			if link := r.Annotations["runbook_url"]; link != "" {
				checkRunbook(t, link)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Error("an alert needs a summary, a description and a severity")
			}
		})
	}
}

// documentation is where the pages of this tree are published.
const documentation = "https://github.com/holdfast-db/holdfast/blob/main/"

// checkRunbook fails unless a link leads to a heading of a page of this tree.
func checkRunbook(t *testing.T, link string) {
	t.Helper()
	path, heading, _ := strings.Cut(strings.TrimPrefix(link, documentation), "#")
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Errorf("%s: %v", link, err)
	}
	for line := range strings.Lines(string(data)) {
		if title, is := strings.CutPrefix(strings.TrimLeft(strings.TrimSpace(line), "#"), " "); is && strings.HasPrefix(line, "#") && strings.ReplaceAll(strings.ToLower(title), " ", "-") == heading {
			return
		}
	}
	t.Errorf("%s: no such heading", link)
}

// resultingLabels are the labels of what an alert's expression yields: those that it
// is grouped by, which must be labels of the metrics below.
func resultingLabels(expr parser.Expr, have map[string][]string) []string {
	var out []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if aggregate, ok := node.(*parser.AggregateExpr); ok && !aggregate.Without {
			parser.Inspect(aggregate.Expr, func(below parser.Node, _ []parser.Node) error {
				if selector, ok := below.(*parser.VectorSelector); ok {
					for _, name := range aggregate.Grouping {
						if slices.Contains(have[selector.Name], name) {
							out = append(out, name)
						}
					}
				}
				return nil
			})
		}
		return nil
	})
	return out
}
