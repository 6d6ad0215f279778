package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
)

// scrapeLimit bounds what a scrape may take: what etcd has not answered by then
// is missing from it.
const scrapeLimit = 3 * time.Second

// What the agent knows. The rest etcd reports under its own names.
var (
	upMetric          = metricfamily.NewGauge("holdfast_etcd_up", "Whether the member has a vote and a leader, and answers clients.")
	sizeMetric        = metricfamily.NewGauge("holdfast_etcd_data_size_bytes", "Size of the database on the volume.")
	inUseMetric       = metricfamily.NewGauge("holdfast_etcd_data_in_use_bytes", "Part of the database's size that holds data.")
	quotaMetric       = metricfamily.NewGauge("holdfast_etcd_quota_bytes", "Size at which etcd refuses writes.")
	alarmMetric       = metricfamily.NewGauge("holdfast_etcd_alarm", "Alarms that are raised: 1 for each.", "alarm", "member")
	pendingMetric     = metricfamily.NewGauge("holdfast_etcd_settings_pending_restart", "Settings that wait for a restart.")
	configErrorMetric = metricfamily.NewGauge("holdfast_etcd_config_error", "Whether etcd refuses declared parameters.")
)

// collector answers a scrape from what the agent knows.
type collector struct{ *etcdAgent }

// metricsHandler offers the agent's own metrics, and etcd's under their own
// names.
func (a *etcdAgent) metricsHandler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector{a}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	all := prometheus.Gatherers{registry, prometheus.GathererFunc(a.scrapeEtcd)}
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{MaxRequestsInFlight: 2, ErrorHandling: promhttp.ContinueOnError})
}

// Describe announces every metric.
func (c collector) Describe(into chan<- *prometheus.Desc) {
	metricfamily.Describe(into, upMetric, sizeMetric, inUseMetric, quotaMetric, alarmMetric, pendingMetric, configErrorMetric,
		metricfamily.CertificateExpiry, metricfamily.VolumeSize, metricfamily.VolumeFree)
}

// Collect reports the member's status.
func (c collector) Collect(into chan<- prometheus.Metric) {
	s := c.Store.Get()
	send := metricfamily.SendTo(into)
	send(upMetric, metricfamily.BoolValue(s.Serving))
	send(pendingMetric, float64(len(s.PendingRestart)))
	send(configErrorMetric, metricfamily.BoolValue(s.ConfigError != ""))
	own := readGroup(s)
	if own.DataLimit > 0 {
		send(sizeMetric, float64(s.DataSize))
		send(inUseMetric, float64(own.DataInUse))
		send(quotaMetric, float64(own.DataLimit))
	}
	for _, alarm := range own.Alarms {
		name, id, _ := strings.Cut(alarm, ":")
		send(alarmMetric, 1, name, id)
	}
	if !s.CertificateExpiry.IsZero() {
		send(metricfamily.CertificateExpiry, float64(s.CertificateExpiry.Unix()))
	}
	if space := c.guard.space(); space.Total > 0 {
		send(metricfamily.VolumeSize, float64(space.Total))
		send(metricfamily.VolumeFree, float64(space.Free))
	}
}

// scrapeEtcd asks etcd for its own metrics. Those of its process and of Go's
// runtime are left out: under these names the agent reports itself. So is the version that
// a client says it has.
func (a *etcdAgent) scrapeEtcd() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	families, err := a.fetchMetrics(ctx)
	return dropForeignMetrics(families), err
}

// dropForeignMetrics leaves out what the agent reports of itself, and what clients name.
func dropForeignMetrics(families map[string]*dto.MetricFamily) []*dto.MetricFamily {
	var own []*dto.MetricFamily
	for name, family := range families {
		switch {
		case strings.HasPrefix(name, "go_"), strings.HasPrefix(name, "process_"), strings.HasPrefix(name, "promhttp_"):
		case name == clientRequests:
			own = append(own, sumByType(family))
		default:
			own = append(own, family)
		}
	}
	return own
}

// clientRequests are counted by the version that each client says it has. That may be any
// text, and as many as a client likes.
const clientRequests = "etcd_server_client_requests_total"

// sumByType leaves out what clients say of themselves.
func sumByType(family *dto.MetricFamily) *dto.MetricFamily {
	sums := map[string]float64{}
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "type" {
				sums[l.GetValue()] += m.GetCounter().GetValue()
			}
		}
	}
	sum := &dto.MetricFamily{Name: family.Name, Help: family.Help, Type: family.Type}
	for _, kind := range slices.Sorted(maps.Keys(sums)) {
		label := &dto.LabelPair{Name: proto.String("type"), Value: proto.String(kind)}
		sum.Metric = append(sum.Metric, &dto.Metric{Label: []*dto.LabelPair{label}, Counter: &dto.Counter{Value: proto.Float64(sums[kind])}})
	}
	return sum
}

// hasLeader says whether etcd's metrics know of a leader.
func (a *etcdAgent) hasLeader(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	families, _ := a.fetchMetrics(ctx)
	return slices.ContainsFunc(families["etcd_server_has_leader"].GetMetric(), func(m *dto.Metric) bool { return m.GetGauge().GetValue() == 1 })
}

// fetchMetrics asks etcd for its metrics; none while it does not run.
func (a *etcdAgent) fetchMetrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	families, err := readMetrics(ctx, "http://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(a.o.MetricsPort))+"/metrics")
	if dial := (*url.Error)(nil); errors.As(err, &dial) {
		return nil, nil // it does not run
	}
	return families, err
}

func readMetrics(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask etcd for its metrics: %s", response.Status)
	}
	families, err := parseMetrics(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read etcd's metrics: %w", err)
	}
	return families, nil
}

func parseMetrics(from io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(from)
}
