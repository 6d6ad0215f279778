package gitops

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// evaluation is what an alert's expression yields at a time for series that are scraped
// each minute; nothing for no alert.
type evaluation struct {
	name, alert string
	series      []string
	at          string
	want        []string
}

// checkEvaluations evaluates alerts. Each one whose name has the prefix must be raised by
// one case, and by another one not.
func checkEvaluations(t *testing.T, prefix string, evaluations []evaluation) {
	t.Helper()
	expressions := map[string]string{}
	for _, r := range readAlerts(t) {
		expressions[r.Alert] = strings.Join(strings.Fields(r.Expr), " ")
	}
	raised, silent := map[string]bool{}, map[string]bool{}
	for _, e := range evaluations {
		t.Run(e.alert+" "+e.name, func(t *testing.T) {
			if expressions[e.alert] == "" {
				t.Fatalf("there is no alert %s", e.alert)
			}
			if diff := cmp.Diff(e.want, evaluate(t, expressions[e.alert], e.series, e.at)); diff != "" {
				t.Error(diff)
			}
		})
		raised[e.alert] = raised[e.alert] || len(e.want) > 0
		silent[e.alert] = silent[e.alert] || len(e.want) == 0
	}
	for alert := range expressions {
		if strings.HasPrefix(alert, prefix) && (!raised[alert] || !silent[alert]) {
			t.Errorf("%s: a test raises it: %t; one keeps it silent: %t", alert, raised[alert], silent[alert])
		}
	}
}

// number is a sample of a series, at a time in milliseconds.
type number struct {
	at    int64
	value float64
}

func (n number) T() int64                    { return n.at }
func (number) ST() int64                     { return 0 }
func (n number) F() float64                  { return n.value }
func (number) H() *histogram.Histogram       { return nil }
func (number) FH() *histogram.FloatHistogram { return nil }
func (number) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (n number) Copy() chunks.Sample         { return n }

// series is a set of series in the order of their labels.
type series struct {
	all []storage.Series
	now int
}

func (s *series) Next() bool                             { s.now++; return s.now <= len(s.all) }
func (s *series) At() storage.Series                     { return s.all[s.now-1] }
func (*series) Err() error                               { return nil }
func (*series) Warnings() (none annotations.Annotations) { return none }

// evaluate is what Prometheus makes of an expression. Series are written as in its own
// tests of rules, with a sample each minute.
func evaluate(t *testing.T, expression string, written []string, at string) (result []string) {
	t.Helper()
	var all []storage.Series
	read := parser.NewParser(parser.Options{})
	for _, text := range written {
		name, values, err := read.ParseSeriesDesc(text)
		if err != nil {
			t.Fatal(err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			if !v.Omitted {
				samples = append(samples, number{int64(i) * time.Minute.Milliseconds(), v.Value})
			}
		}
		all = append(all, storage.NewListSeries(name, samples))
	}
	querier := &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &series{}
		for _, s := range all {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }) {
				found.all = append(found.all, s)
			}
		}
		return found
	}}
	after, err := model.ParseDuration(at)
	if err != nil {
		t.Fatal(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 100_000, Timeout: time.Minute, Parser: read})
	query, err := engine.NewInstantQuery(context.Background(), &storage.MockQueryable{MockQuerier: querier}, nil, expression, time.UnixMilli(0).Add(time.Duration(after)))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	answer := query.Exec(context.Background())
	vector, err := answer.Vector()
	if err != nil {
		t.Fatal(err)
	}
	for _, sample := range vector {
		result = append(result, sample.Metric.String()+" "+strconv.FormatFloat(sample.F, 'g', 3, 64))
	}
	return result
}
