package clustermetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-db/holdfast/internal/agentclient"
)

// Pauses counts how long writes paused. It has no label for the cluster, whose status says
// it of the last three: a thousand clusters have as many series as one.
type Pauses struct{ durations *prometheus.HistogramVec }

// NewPauses registers what is reported of pauses.
func NewPauses(r prometheus.Registerer) Pauses {
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "holdfast_cluster_write_pause_seconds", Help: "How long no member of a cluster took writes, by the event that paused them: Restart, Switchover or Failover.",
		Buckets: []float64{0.25, 0.5, 1, 2, 5, 10, 20, 60, 300},
	}, []string{"kind", "event"})
	r.MustRegister(durations)
	return Pauses{durations}
}

// Kind is what records the pauses of clusters of a kind.
func (p Pauses) Kind(kind string) func(agentclient.Pause) {
	return func(over agentclient.Pause) {
		p.durations.WithLabelValues(kind, string(over.Event)).Observe(over.Duration.Seconds())
	}
}
