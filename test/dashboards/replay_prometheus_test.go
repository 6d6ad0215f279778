//go:build prometheus

package dashboards

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/holdfast-db/holdfast/test/prometheus"
)

// recorded are scrapes of real members and of a real operator, by the file in
// testdata/scrapes, with the labels that the PodMonitors give them.
var recorded = map[string]map[string]string{
	"operator.txt": {"namespace": "holdfast-system", "pod": "holdfast-0"},
	"orders-0.txt": memberLabels("orders", "orders-0"),
	"orders-1.txt": memberLabels("orders", "orders-1"),
	"carts-0.txt":  memberLabels("carts", "carts-0"),
	"carts-1.txt":  memberLabels("carts", "carts-1"),
	"locks-0.txt":  memberLabels("locks", "locks-0"),
	"locks-1.txt":  memberLabels("locks", "locks-1"),
}

func memberLabels(cluster, pod string) map[string]string {
	return map[string]string{"namespace": "shop", "holdfast_cluster": cluster, "pod": pod}
}

// preferredClusters are those that the scrapes are of, by dashboard.
var preferredClusters = map[string]string{"postgresql": "orders", "mysql": "carts", "etcd": "locks"}

// Every panel of every dashboard shows numbers in a real Prometheus that scrapes what real
// members and a real operator have exported. Panels that show 0 while nothing is wrong show
// more once something is.
func TestPanelsHaveData(t *testing.T) {
	programs := os.Getenv("HOLDFAST_PROMETHEUS")
	if programs == "" {
		t.Fatal("set HOLDFAST_PROMETHEUS to the folder that `cluster programs prometheus` prints")
	}
	server := prometheus.Start(t, prometheus.Options{Programs: programs, Interval: 3 * time.Second})
	var targets []prometheus.Target
	for file, labels := range recorded {
		targets = append(targets, prometheus.Target{Address: replay(t, file), Labels: labels})
	}
	if err := server.SetTargets(targets); err != nil {
		t.Fatal(err)
	}
	awaitScrapes(t, server, len(targets))
	for _, d := range All() {
		t.Run(d.File, func(t *testing.T) {
			if err := CheckData(t.Context(), server, chosenQueries(t, server, d)); err != nil {
				t.Error(err)
			}
		})
	}

	targets = append(targets, prometheus.Target{Address: replay(t, "faults.txt")})
	for _, cluster := range preferredClusters {
		targets = append(targets, prometheus.Target{Address: "127.0.0.1:1", Labels: memberLabels(cluster, cluster+"-2")})
	}
	if err := server.SetTargets(targets); err != nil {
		t.Fatal(err)
	}
	awaitScrapes(t, server, len(targets))
	for _, d := range All() {
		t.Run("trouble "+d.File, func(t *testing.T) {
			if err := CheckTrouble(t.Context(), server, chosenQueries(t, server, d)); err != nil {
				t.Error(err)
			}
		})
	}
}

func chosenQueries(t *testing.T, server *prometheus.Server, d Dashboard) []PanelQuery {
	t.Helper()
	preferred := Chosen{}
	if cluster, is := preferredClusters[d.File]; is {
		preferred["holdfast_cluster"] = []string{cluster}
	}
	chosen, err := d.Choose(t.Context(), server, preferred)
	if err != nil {
		t.Fatal(err)
	}
	queries, err := d.Expand(chosen, "1m", "1h")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d queries with %v", len(queries), chosen)
	return queries
}

// awaitScrapes waits until each target was scraped three times, or was not there as often:
// functions of a range need two scrapes.
func awaitScrapes(t *testing.T, server *prometheus.Server, targets int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		found, err := server.Query(ctx, "sum_over_time(up[10m]) >= 3 or count_over_time(up[10m]) - sum_over_time(up[10m]) >= 3")
		if err == nil && len(found) == targets {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d targets were scraped three times: %v", len(found), targets, err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// replay serves a recorded scrape, whose counters grow with each one that is served: the
// n-th has n times the values.
func replay(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata/scrapes", file))
	if err != nil {
		t.Fatal(err)
	}
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := float64(served.Add(1))
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(strings.ReplaceAll(string(text), " NOW\n", fmt.Sprintf(" %d\n", time.Now().Unix()))))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, family := range families {
			growCounters(family, n)
			if _, err := expfmt.MetricFamilyToText(w, family); err != nil {
				return // Prometheus did not wait
			}
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// growCounters multiplies what counts. The variables of MySQL's status are untyped.
func growCounters(family *dto.MetricFamily, by float64) {
	for _, m := range family.GetMetric() {
		switch {
		case m.Counter != nil:
			m.Counter.Value = new(m.Counter.GetValue() * by)
		case m.Untyped != nil:
			m.Untyped.Value = new(m.Untyped.GetValue() * by)
		case m.Histogram != nil:
			m.Histogram.SampleCount = new(m.Histogram.GetSampleCount() * uint64(by))
			m.Histogram.SampleSum = new(m.Histogram.GetSampleSum() * by)
			for _, bucket := range m.Histogram.GetBucket() {
				bucket.CumulativeCount = new(bucket.GetCumulativeCount() * uint64(by))
			}
		}
	}
}
