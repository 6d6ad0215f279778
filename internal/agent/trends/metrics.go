package trends

import (
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
