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

var evaluations = []evaluation{
	{
		name: "a cluster of which one member leads", alert: "HoldfastPostgresNoLeader", at: "10m",
		series: []string{`holdfast_pg_lease_held{namespace="shop",cluster="orders",pod="orders-0"} 0x10`, `holdfast_pg_lease_held{namespace="shop",cluster="orders",pod="orders-1"} 1x10`},
	},
	{
		name: "a cluster without a leader beside one that has one", alert: "HoldfastPostgresNoLeader", at: "10m",
		series: []string{
			`holdfast_pg_lease_held{namespace="shop",cluster="orders",pod="orders-0"} 0x10`, `holdfast_pg_lease_held{namespace="shop",cluster="orders",pod="orders-1"} 1x5 0x5`,
			`holdfast_pg_lease_held{namespace="shop",cluster="carts",pod="carts-0"} 1x10`, `holdfast_pg_lease_held{namespace="other",cluster="orders",pod="orders-0"} 1x10`,
		},
		want: []string{`{cluster="orders", namespace="shop"} 0`},
	},
	{
		name: "fences of before", alert: "HoldfastPostgresFenced", at: "60m",
		series: []string{`holdfast_pg_fences_total{namespace="shop",pod="orders-0"} 0x10 1x50`},
	},
	{
		name: "a fence just now", alert: "HoldfastPostgresFenced", at: "60m",
		series: []string{`holdfast_pg_fences_total{namespace="shop",pod="orders-0"} 0x50 1x10`, `holdfast_pg_fences_total{namespace="shop",pod="orders-1"} 2x60`},
		want:   []string{`{namespace="shop", pod="orders-0"} 1`},
	},
	{
		name: "two changes of the leader, and many before", alert: "HoldfastPostgresLeaderFlapping", at: "60m",
		series: []string{`holdfast_pg_term{namespace="shop",cluster="orders",pod="orders-0"} 0+1x40 40x9 41x4 42x4`},
	},
	{
		name: "three changes, seen by the member that stayed, with terms that were skipped", alert: "HoldfastPostgresLeaderFlapping", at: "60m",
		series: []string{
			`holdfast_pg_term{namespace="shop",cluster="orders",pod="orders-0"} 3x50 4x2 _x3 9x3`,
			`holdfast_pg_term{namespace="shop",cluster="orders",pod="orders-1"} 3x50 4x2 6x3 9x3`,
			`holdfast_pg_term{namespace="shop",cluster="carts",pod="carts-0"} 3x50 9x10`,
		},
		want: []string{`{cluster="orders", namespace="shop"} 3`},
	},
	{
		name: "synchronous standbys that suffice, and a cluster in asynchronous mode", alert: "HoldfastPostgresSynchronousDegraded", at: "10m",
		series: []string{
			`holdfast_pg_synchronous_standbys_streaming{namespace="shop",cluster="orders",pod="orders-0"} 2x10`, `holdfast_pg_synchronous_standbys_wanted{namespace="shop",cluster="orders",pod="orders-0"} 1x10`,
			`holdfast_pg_synchronous_standbys_streaming{namespace="shop",cluster="carts",pod="carts-0"} 0x10`,
		},
	},
	{
		name: "too few synchronous standbys", alert: "HoldfastPostgresSynchronousDegraded", at: "10m",
		series: []string{
			`holdfast_pg_synchronous_standbys_streaming{namespace="shop",cluster="orders",pod="orders-0"} 2x5 1x5`, `holdfast_pg_synchronous_standbys_wanted{namespace="shop",cluster="orders",pod="orders-0"} 2x10`,
		},
		want: []string{`{cluster="orders", namespace="shop", pod="orders-0"} 1`},
	},
	{
		name: "a member that is held by its data, and one with a full volume", alert: "HoldfastPostgresRejoinHeld", at: "10m",
		series: []string{
			`holdfast_pg_held{namespace="shop",pod="orders-0",reason="DataDiverged"} 1x10`, `holdfast_pg_held{namespace="shop",pod="orders-1",reason="VolumeFull"} 1x10`,
		},
		want: []string{`{namespace="shop", pod="orders-0", reason="DataDiverged"} 1`},
	},
}

// Alerts about the leader of PostgreSQL are raised for what they say, and for nothing
// else.
func TestPostgresAlertsAreEvaluated(t *testing.T) {
	expressions := map[string]string{}
	for _, r := range readAlerts(t) {
		expressions[r.Alert] = strings.Join(strings.Fields(r.Expr), " ")
	}
	raised := map[string]bool{}
	for _, e := range evaluations {
		t.Run(e.name, func(t *testing.T) {
			if expressions[e.alert] == "" {
				t.Fatalf("there is no alert %s", e.alert)
			}
			if diff := cmp.Diff(e.want, evaluate(t, expressions[e.alert], e.series, e.at)); diff != "" {
				t.Error(diff)
			}
		})
		raised[e.alert] = raised[e.alert] || len(e.want) > 0
	}
	for alert := range expressions {
		if strings.HasPrefix(alert, "HoldfastPostgres") && !raised[alert] {
			t.Errorf("no test raises %s", alert)
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
