package etcd

import (
	"context"
	"math"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/holdfast-db/holdfast/internal/anomaly"
)

// Signals are read of what etcd offers, in their order. One that it lacks is missing, and a
// client that begins to copy the data is noticed once.
func TestMeasureSignals(t *testing.T) {
	if len(signals) != len(anomaly.EtcdSignals) {
		t.Fatalf("%d signals of %d", len(signals), len(anomaly.EtcdSignals))
	}
	text := `process_start_time_seconds 1000
etcd_mvcc_put_total 7
etcd_server_proposals_pending 3
# TYPE etcd_disk_wal_fsync_duration_seconds histogram
etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 4
etcd_disk_wal_fsync_duration_seconds_sum 0.25
etcd_disk_wal_fsync_duration_seconds_count 4
grpc_server_started_total{grpc_method="Range"} 900
`
	r := &signalReader{fetch: func(context.Context) (map[string]*dto.MetricFamily, error) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		return parser.TextToMetricFamilies(strings.NewReader(text))
	}}
	measure := func() (values []float64, copying bool) {
		s, err := r.measureSignals(t.Context())
		if err != nil || s.Started != 1000 {
			t.Fatal(s, err)
		}
		return s.Values, s.Copying
	}
	values, copying := measure()
	for i, want := range map[int]float64{0: 7, 6: 3, 9: 0.25} {
		if values[i] != want {
			t.Errorf("%s is %g", anomaly.EtcdSignals[i].Name, values[i])
		}
	}
	if len(values) != len(signals) || !math.IsNaN(values[1]) || copying {
		t.Errorf("%v %t", values, copying)
	}
	text += "grpc_server_started_total{grpc_method=\"Snapshot\"} 1\n"
	if _, copying = measure(); !copying {
		t.Error("a copy is not noticed")
	}
	if _, copying = measure(); copying {
		t.Error("a copy is noticed twice")
	}
	text = ""
	if s, err := r.measureSignals(t.Context()); err == nil {
		t.Errorf("measured of nothing: %+v", s)
	}
}
