//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/controller/clustermetrics"
)

// The metrics of a cluster follow its status in the cache, for every kind, and a scrape
// sends no request.
func TestClusterMetrics(t *testing.T) { eachKind(t, clusterMetrics) }

func clusterMetrics(t *testing.T, w *world) {
	c := w.cluster("orders", 1)
	w.create(c)
	registry := prometheus.NewPedanticRegistry()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	o := w.operate(0, func(mgr ctrl.Manager) {
		gvk, err := apiutil.GVKForObject(c, mgr.GetScheme())
		if err != nil {
			t.Fatal(err)
		}
		collector := clustermetrics.New(clustermetrics.Options{
			Reader: mgr.GetCache(), Scheme: mgr.GetScheme(), Clusters: map[string]client.Object{gvk.Kind: w.kind.cluster(w)}, Elected: mgr.Elected(), Clock: clock,
		})
		if err := collector.Watch(t.Context(), mgr.GetCache()); err != nil {
			t.Fatal(err)
		}
		registry.MustRegister(collector)
	})
	w.awaitReady(c)
	w.awaitSteady(o)
	before := scrapeCluster(t, registry)
	clock.SetTime(clock.Now().Add(10 * time.Second))
	after := scrapeCluster(t, registry)
	for i := range 20 {
		if again := scrapeCluster(t, registry); !maps.Equal(again, after) {
			t.Fatalf("scrape %d: %v; before: %v", i, again, after)
		}
	}
	if seen := o.take(); len(seen) > 0 {
		t.Errorf("scrapes sent %d requests: %v", len(seen), seen)
	}
	for series, want := range map[string]float64{
		"holdfast_cluster_condition type=Ready": 1, "holdfast_cluster_condition type=Available": 1, "holdfast_cluster_condition type=Stalled": 0,
		"holdfast_cluster_info suspended=false": 1,
	} {
		if got, there := after[series]; got != want || !there {
			t.Errorf("%s is %v, %t: %v", series, got, there, after)
		}
	}
	for _, name := range []string{"holdfast_cluster_observed_seconds_total", "holdfast_cluster_available_seconds_total"} {
		if grown := after[name] - before[name]; grown != 10 {
			t.Errorf("%s has grown by %v", name, grown)
		}
	}
	if len(after) > clustermetrics.MaxSeries {
		t.Errorf("%d series: %v", len(after), after)
	}
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Suspend = true })
	apitest.Eventually(t, "suspended", func(context.Context) (bool, string) {
		now := scrapeCluster(t, registry)
		return now["holdfast_cluster_info suspended=true"] == 1, fmt.Sprint(now)
	})
}

// scrapeCluster reads the series of the only cluster, by name and the label that
// distinguishes them.
func scrapeCluster(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				switch label.GetName() {
				case "type", "suspended", "reason":
					name += " " + label.GetName() + "=" + label.GetValue()
				}
			}
			series[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return series
}
