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
	"github.com/holdfast-db/holdfast/internal/controller/clustermetrics"
)

type rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
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
	declared    = regexp.MustCompile(`\b(New|new)(Gauge|Counter|Status|Variable)\("([a-z_]+)",\s+"[^"]*"((?:,\s+"[a-z_]+")*)\)`)
	reference   = regexp.MustCompile(`\$labels\.([a-z_]+)`)
)

// prefixes are what functions that declare metrics add to the names. Others take whole
// names.
var prefixes = map[string]string{"Status": "mysql_global_status_", "Variable": "mysql_global_variables_"}

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

// etcdRow is a metric of etcd on the page of metrics.
var etcdRow = regexp.MustCompile("(?m)^\\| `(etcd_[a-z_]+)` \\| (\\w+) \\| ([^|]*) \\|")

// etcdMetrics are those of etcd itself that the page of metrics lists, with their labels.
// The test of the agent with real programs finds each of them in a scrape.
func etcdMetrics(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, m := range etcdRow.FindAllStringSubmatch(string(page), -1) {
		labels := regexp.MustCompile("[a-z_]+").FindAllString(m[3], -1)
		if m[2] != "histogram" {
			out[m[1]] = labels
			continue
		}
		out[m[1]+"_bucket"], out[m[1]+"_count"], out[m[1]+"_sum"] = append(labels, "le"), labels, labels
	}
	if len(out) == 0 {
		t.Fatal("the page of metrics lists none of etcd")
	}
	return out
}

// exportedMetrics are the metrics of the operator and of members, with the labels by
// which alerts distinguish them: members by their pods.
func exportedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	if _, err := apply.New(nil, fake.NewClientBuilder().Build(), apply.Options{Registerer: metrics.Registry}); err != nil {
		t.Fatal(err)
	}
	metrics.Registry.MustRegister(backup.Collector{}, clustermetrics.New(clustermetrics.Options{}))
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
	ofMembers := []string{"namespace", "pod", "holdfast_cluster"}
	for _, m := range declared.FindAllStringSubmatch(agentSources(t), -1) {
		out[prefixes[m[2]]+m[3]] = slices.Concat(ofMembers, regexp.MustCompile("[a-z_]+").FindAllString(m[4], -1))
	}
	for name, labels := range etcdMetrics(t) {
		out[name] = slices.Concat(ofMembers, labels)
	}
	// The agents' own processes, and what Prometheus says of its targets.
	out["process_start_time_seconds"], out["up"] = ofMembers, ofMembers
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
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Error("an alert needs a summary, a description and a severity")
			}
		})
	}
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
						if slices.Contains(have[selector.Name], name) || slices.Contains(fromTarget, name) {
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
