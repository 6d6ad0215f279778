package dashboards

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
)

// answers are those of a Prometheus, by expression.
type answers map[string]model.Vector

func (a answers) Query(_ context.Context, expr string) (model.Vector, error) {
	found, known := a[expr]
	if !known {
		return nil, errors.New("not asked for")
	}
	return found, nil
}

func series(value float64, labels ...string) *model.Sample {
	metric := model.Metric{}
	for i := 0; i < len(labels); i += 2 {
		metric[model.LabelName(labels[i])] = model.LabelValue(labels[i+1])
	}
	return &model.Sample{Metric: metric, Value: model.SampleValue(value)}
}

// A query needs a number, and the labels that its legend shows.
func TestCheckData(t *testing.T) {
	from := answers{
		"good": {series(0, "pod", "a-0")}, "none": {}, "nan": {series(math.NaN(), "pod", "a-0")}, "unlabelled": {series(1)}, "vector(0)": {series(0)},
	}
	for expr, want := range map[string]string{
		"good": "", "vector(0)": "", "none": "0 series, none with a number", "nan": "1 series, none with a number",
		"unlabelled": "the legend shows pod", "unknown": "not asked for",
	} {
		err := CheckData(t.Context(), from, []PanelQuery{{Panel: "p", Expr: expr, Legend: "{{pod}}"}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

// Where something is wrong, what is 0 otherwise is not.
func TestCheckTrouble(t *testing.T) {
	from := answers{"vector(0) + a": {series(0)}, "vector(0) + b": {series(2)}, "vector(0) + c": {series(0, "kind", "x"), series(0)}}
	for expr, good := range map[string]bool{"vector(0) + a": false, "vector(0) + b": true, "vector(0) + c": true, "not guarded": true} {
		if err := CheckTrouble(t.Context(), from, []PanelQuery{{Panel: "p", Expr: expr}}); (err == nil) != good {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

// Variables take what is preferred, or all that is on offer, and later ones depend on them.
func TestChoose(t *testing.T) {
	d := Dashboard{File: "d", Variables: []Variable{
		{Name: "namespace", Metric: "m", Value: "namespace"},
		{Name: "member", Metric: `m{namespace="$namespace"}`, Value: "pod", Several: true},
	}}
	from := answers{
		"group by (namespace) (m)":             {series(1, "namespace", "shop"), series(1, "namespace", "desk")},
		`group by (pod) (m{namespace="shop"})`: {series(1, "pod", "a-1"), series(1, "pod", "a-0")},
		`group by (pod) (m{namespace="desk"})`: {},
	}
	chosen, err := d.Choose(t.Context(), from, Chosen{"namespace": {"shop"}})
	if diff := cmp.Diff(Chosen{"namespace": {"shop"}, "member": {"a-0", "a-1"}}, chosen); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := d.Choose(t.Context(), from, Chosen{"namespace": {"away"}}); err == nil {
		t.Error("a value that is not on offer is chosen")
	}
	if _, err := d.Choose(t.Context(), from, nil); err == nil || !strings.Contains(err.Error(), "no values for the variable member") {
		t.Error(err)
	}
}

// Several values are a group of a regular expression, and a variable without a value is an
// error.
func TestExpand(t *testing.T) {
	d := Dashboard{File: "d", selectors: map[string]string{"member": `pod=~"$member"`}, Rows: []Row{{"Row", []Panel{
		number("Panel", "", "", nil, Query{`rate(m{<member>}[$__rate_interval])`, "{{pod}}"}),
	}}}}
	for _, c := range []struct {
		values []string
		want   string
	}{{[]string{"a-0"}, `rate(m{pod=~"a-0"}[1m])`}, {[]string{"a-0", "a.1"}, `rate(m{pod=~"(a-0|a\.1)"}[1m])`}} {
		queries, err := d.Expand(Chosen{"member": c.values}, "1m", "1h")
		if diff := cmp.Diff([]PanelQuery{{"d / Row / Panel / A", c.want, "{{pod}}"}}, queries); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if _, err := d.Expand(nil, "1m", "1h"); err == nil || !strings.Contains(err.Error(), "no value for the variables [member]") {
		t.Error(err)
	}
}

// A recording keeps what dashboards may read.
func TestTrimScrape(t *testing.T) {
	const text = "# HELP pg_up Help.\n# TYPE pg_up gauge\npg_up 1\n# TYPE go_goroutines gauge\ngo_goroutines 9\ngo_info{version=\"1\"} 1\n" +
		"etcd_debugging_lease 1\netcd_server_has_leader 1\ngrpc_server_handled_total{grpc_method=\"Put\"} 0\ngrpc_server_handled_total{grpc_method=\"Range\"} 10\n"
	const want = "# TYPE pg_up gauge\npg_up 1\n# TYPE go_goroutines gauge\ngo_goroutines 9\netcd_server_has_leader 1\ngrpc_server_handled_total{grpc_method=\"Range\"} 10\n"
	if diff := cmp.Diff(want, TrimScrape(text)); diff != "" {
		t.Error(diff)
	}
}
