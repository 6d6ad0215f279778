package apply

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// However many names clients choose, the metric has few series, loses no drift,
// and what is reported keeps the true names.
func TestManagersInTheMetricAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := newMetrics()
	if err := m.registerMetrics(registry); err != nil {
		t.Fatal(err)
	}
	p := &pass{Applier: &Applier{metrics: m, clock: clock.RealClock{}}}
	id := ObjectID{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Name: "orders-rw"}
	const names = 3 * mostManagers
	for range 2 {
		for n := range names {
			p.reportFindings(id, []finding{{holder: &entry{manager: fmt.Sprintf("client-%d", n)}}}, ActionReverted)
		}
		p.reportFindings(id, []finding{{operation: OperationDeleted}}, ActionReverted)
	}
	for n, d := range p.result.Drifts {
		want := fmt.Sprintf("client-%d", n%(names+1))
		if n%(names+1) == names {
			want = ""
		}
		if d.Manager != want {
			t.Fatalf("drift %d is reported of %q, want %q", n, d.Manager, want)
		}
	}

	series := byManager(t, registry)
	want := map[string]float64{unknownManager: 2, otherManagers: 2 * (names - mostManagers)}
	for n := range mostManagers {
		want[fmt.Sprintf("client-%d", n)] = 2
	}
	if len(series) != len(want) {
		t.Errorf("%d series, want %d", len(series), len(want))
	}
	for manager, count := range want {
		if series[manager] != count {
			t.Errorf("%q has %v drifts, want %v", manager, series[manager], count)
		}
	}
}

func byManager(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "holdfast_drift_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, l := range metric.GetLabel() {
				if l.GetName() == "manager" {
					counts[l.GetValue()] += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return counts
}
