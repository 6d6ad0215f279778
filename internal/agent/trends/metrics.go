package trends

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
)

// Describe announces the family.
func (r *Recorder) Describe(into chan<- *prometheus.Desc) {
	metricfamily.Describe(into, metricfamily.VolumeFull)
}

// Collect reports the forecast of a volume that fills.
func (r *Recorder) Collect(into chan<- prometheus.Metric) {
	if f := r.Forecast(); f.Fills {
		metricfamily.SendTo(into)(metricfamily.VolumeFull, f.Left.Seconds())
	}
}

// Describe announces the families.
func (r *UsageRecorder) Describe(into chan<- *prometheus.Desc) {
	metricfamily.Describe(into, metricfamily.CPUUsed, metricfamily.CPUNeeded, metricfamily.MemoryUsed, metricfamily.MemoryNeeded)
}

// Collect reports what is known.
func (r *UsageRecorder) Collect(into chan<- prometheus.Metric) {
	send := metricfamily.SendTo(into)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.usage != nil {
		send(metricfamily.CPUUsed, r.usage.CPU/1000)
		send(metricfamily.MemoryUsed, float64(r.usage.Memory))
	}
	if e := r.history.Estimate(time.Now()); e.Measured > 0 {
		send(metricfamily.CPUNeeded, e.CPU/1000)
		send(metricfamily.MemoryNeeded, float64(e.Memory))
	}
}
