package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
)

// variable is a variable of the server, or a column of a row, with a family of its own.
type variable struct {
	// name is in lower case.
	name string
	metricfamily.Family
}

// newStatus returns the family of a status variable. The exporter does not know which of
// them only grow, and gives all of them without a type.
func newStatus(name, help string) variable {
	return variable{name, metricfamily.New(prometheus.UntypedValue, "mysql_global_status_"+name, help)}
}

// newVariable returns the family of a system variable.
func newVariable(name, help string) variable {
	return variable{name, metricfamily.NewGauge("mysql_global_variables_"+name, help)}
}
