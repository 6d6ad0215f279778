package etcd

import (
	"context"
	"errors"
	"math"

	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-db/holdfast/internal/agent/anomalies"
)

// signals are the metrics of anomaly.EtcdSignals, in that order.
var signals = []string{
	"etcd_mvcc_put_total", "etcd_mvcc_delete_total", "etcd_mvcc_range_total", "etcd_network_client_grpc_received_bytes_total",
	"etcd_network_client_grpc_sent_bytes_total", "etcd_debugging_mvcc_watcher_total", "etcd_server_proposals_pending",
	"etcd_server_proposals_failed_total", "etcd_server_leader_changes_seen_total", "etcd_disk_wal_fsync_duration_seconds",
	"etcd_disk_backend_commit_duration_seconds", "etcd_server_slow_apply_total",
}

// signalReader measures what is compared with what is usual.
type signalReader struct {
	fetch func(context.Context) (map[string]*dto.MetricFamily, error)
	// copies is how many snapshots clients had asked for.
	copies float64
}

func (r *signalReader) measureSignals(ctx context.Context) (*anomalies.Sample, error) {
	families, err := r.fetch(ctx)
	if err != nil {
		return nil, err
	}
	if len(families) == 0 {
		return nil, errors.New("etcd does not answer")
	}
	s := &anomalies.Sample{Started: sumMetrics(families["process_start_time_seconds"], "")}
	for _, name := range signals {
		s.Values = append(s.Values, sumMetrics(families[name], ""))
	}
	if copies := sumMetrics(families["grpc_server_started_total"], "Snapshot"); !math.IsNaN(copies) {
		s.Copying = copies > r.copies // a copy that is seen first is one that began
		r.copies = copies
	}
	return s, nil
}

// sumMetrics adds up the values of a family, and the seconds of a histogram; those of one
// method of gRPC where it is named. NaN of none.
func sumMetrics(family *dto.MetricFamily, method string) float64 {
	sum, found := 0.0, false
	for _, m := range family.GetMetric() {
		if method != "" && !isOfMethod(m, method) {
			continue
		}
		found = true
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() + m.GetHistogram().GetSampleSum()
	}
	if !found {
		return math.NaN()
	}
	return sum
}

func isOfMethod(m *dto.Metric, method string) bool {
	for _, l := range m.GetLabel() {
		if l.GetName() == "grpc_method" {
			return l.GetValue() == method
		}
	}
	return false
}
