package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Family is a metric that the agent offers.
type Family struct {
	Desc *prometheus.Desc
	Kind prometheus.ValueType
}

// NewGauge returns a family of gauges; its name gets the prefix of all metrics.
func NewGauge(name, help string, labels ...string) Family {
	return Family{prometheus.NewDesc("holdfast_"+name, help, labels, nil), prometheus.GaugeValue}
}

// NewCounter returns a family of counters; its name gets the prefix of all metrics.
func NewCounter(name, help string, labels ...string) Family {
	return Family{prometheus.NewDesc("holdfast_"+name, help, labels, nil), prometheus.CounterValue}
}

// BoolValue returns 1 for true and 0 for false.
func BoolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
