package metrics

import "github.com/prometheus/client_golang/prometheus"

// Family is a metric that the agent offers.
type Family struct {
	Desc *prometheus.Desc
	Kind prometheus.ValueType
}

// Send takes one value of a family.
type Send func(f Family, value float64, labels ...string)

// variable is a variable of the server, or a column of a row, with a family of its own.
type variable struct {
	// name is in lower case.
	name string
	Family
}

// NewGauge returns a family of gauges that only Holdfast has; its name gets a prefix.
func NewGauge(name, help string, labels ...string) Family {
	return newFamily(prometheus.GaugeValue, "holdfast_"+name, help, labels)
}

// NewCounter returns a family of counters that only Holdfast has; its name gets a prefix.
func NewCounter(name, help string, labels ...string) Family {
	return newFamily(prometheus.CounterValue, "holdfast_"+name, help, labels)
}

// newServerGauge returns a family of gauges that mysqld_exporter has as well.
func newServerGauge(name, help string, labels ...string) Family {
	return newFamily(prometheus.GaugeValue, "mysql_"+name, help, labels)
}

// newServerCounter returns a family of counters that mysqld_exporter has as well.
func newServerCounter(name, help string, labels ...string) Family {
	return newFamily(prometheus.CounterValue, "mysql_"+name, help, labels)
}

// newStatus returns the family of a status variable. The exporter does not know which of
// them only grow, and gives all of them without a type.
func newStatus(name, help string) variable {
	return variable{name, newFamily(prometheus.UntypedValue, "mysql_global_status_"+name, help, nil)}
}

// newVariable returns the family of a system variable.
func newVariable(name, help string) variable {
	return variable{name, newFamily(prometheus.GaugeValue, "mysql_global_variables_"+name, help, nil)}
}

func newFamily(kind prometheus.ValueType, name, help string, labels []string) Family {
	return Family{prometheus.NewDesc(name, help, labels, nil), kind}
}

// BoolValue returns 1 for true and 0 for false.
func BoolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
