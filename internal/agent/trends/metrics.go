package trends

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
)

// collector offers the forecast.
type collector struct{ *Recorder }

// Describe announces the family.
func (c collector) Describe(into chan<- *prometheus.Desc) {
	metricfamily.Describe(into, metricfamily.VolumeFull)
}

// Collect reports the forecast of a volume that fills.
func (c collector) Collect(into chan<- prometheus.Metric) {
	if f := c.Forecast(); f.Fills {
		metricfamily.SendTo(into)(metricfamily.VolumeFull, f.Left.Seconds())
	}
}

// usageCollector offers what the container uses and needs.
type usageCollector struct{ *UsageRecorder }

// Describe announces the families.
func (c usageCollector) Describe(into chan<- *prometheus.Desc) {
	metricfamily.Describe(into, metricfamily.CPUUsed, metricfamily.CPUNeeded, metricfamily.MemoryUsed, metricfamily.MemoryNeeded)
}

// Collect reports what is known.
func (c usageCollector) Collect(into chan<- prometheus.Metric) {
	send := metricfamily.SendTo(into)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.usage != nil {
		send(metricfamily.CPUUsed, c.usage.CPU/1000)
		send(metricfamily.MemoryUsed, float64(c.usage.Memory))
	}
	if e := c.history.Estimate(time.Now()); e.Measured > 0 {
		send(metricfamily.CPUNeeded, e.CPU/1000)
		send(metricfamily.MemoryNeeded, float64(e.Memory))
	}
}

// ServeMetrics answers with the metrics of a handler, and with those of the Recorder behind
// them.
func (r *Recorder) ServeMetrics(others http.Handler) http.Handler {
	return serveBehind(others, collector{r})
}

// ServeMetrics answers with the metrics of a handler, and with those of the UsageRecorder
// behind them.
func (r *UsageRecorder) ServeMetrics(others http.Handler) http.Handler {
	return serveBehind(others, usageCollector{r})
}

func serveBehind(others http.Handler, c prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	own := promhttp.HandlerFor(registry, promhttp.HandlerOpts{DisableCompression: true})
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		request = request.Clone(request.Context())
		for _, name := range []string{"Accept", "Accept-Encoding"} { // the two are one text
			request.Header.Del(name)
		}
		first := &answered{ResponseWriter: w}
		others.ServeHTTP(first, request)
		if !first.failed {
			own.ServeHTTP(bodyOnly{w}, request)
		}
	})
}

// answered remembers whether a handler refused.
type answered struct {
	http.ResponseWriter
	failed bool
}

func (a *answered) WriteHeader(code int) {
	a.failed = code != http.StatusOK
	a.ResponseWriter.WriteHeader(code)
}

// bodyOnly writes no header: the handler before has.
type bodyOnly struct{ http.ResponseWriter }

func (bodyOnly) WriteHeader(int)     {}
func (bodyOnly) Header() http.Header { return http.Header{} }
