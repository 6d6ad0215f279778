package etcd

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// What clients say of themselves names no series.
func TestClientsNameNoSeries(t *testing.T) {
	const head = "# HELP etcd_server_client_requests_total Requests.\n# TYPE etcd_server_client_requests_total counter\n"
	families, err := parseMetrics(bytes.NewBufferString(head +
		"etcd_server_client_requests_total{client_api_version=\"3.6\",type=\"unary\"} 2\n" +
		"etcd_server_client_requests_total{client_api_version=\"Xq7canary\",type=\"unary\"} 3\n" +
		"etcd_server_client_requests_total{client_api_version=\"3.6\",type=\"stream\"} 7\n"))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, f := range dropForeignMetrics(families) {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	want := head + "etcd_server_client_requests_total{type=\"stream\"} 7\netcd_server_client_requests_total{type=\"unary\"} 5\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Error(diff)
	}
	if own := dropForeignMetrics(map[string]*dto.MetricFamily{"go_goroutines": {}, "process_cpu_seconds_total": {}}); len(own) != 0 {
		t.Errorf("of etcd's process: %v", own)
	}
}
