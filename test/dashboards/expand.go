package dashboards

import (
	"fmt"
	"regexp"
	"strings"
)

// Chosen are the values of a dashboard's variables by name.
type Chosen map[string][]string

// PanelQuery is a query as Grafana sends it.
type PanelQuery struct{ Panel, Expr, Legend string }

// variableUse is a use of a variable, such as $namespace or ${datasource}.
var variableUse = regexp.MustCompile(`\$(?:\{(\w+)\}|(\w+))`)

// Expand returns the queries of all panels, with variables replaced as Grafana does: one
// value as it is, several as a group of a regular expression. The variables of time are
// given as durations of Prometheus.
func (d Dashboard) Expand(chosen Chosen, rateInterval, timeRange string) ([]PanelQuery, error) {
	values := map[string]string{"__rate_interval": rateInterval, "__range": timeRange}
	for name, list := range chosen {
		values[name] = joinValues(list)
	}
	var out []PanelQuery
	for _, row := range d.Rows {
		for _, p := range row.Panels {
			for i, q := range p.Queries {
				expr, err := replaceVariables(d.expr(q), values)
				if err != nil {
					return nil, fmt.Errorf("dashboard %s, panel %q: %w", d.File, p.Title, err)
				}
				out = append(out, PanelQuery{fmt.Sprintf("%s / %s / %s / %c", d.File, row.Title, p.Title, 'A'+i), expr, q.Legend})
			}
		}
	}
	return out, nil
}

func replaceVariables(text string, values map[string]string) (string, error) {
	var missing []string
	replaced := variableUse.ReplaceAllStringFunc(text, func(use string) string {
		name := strings.Trim(use, "${}")
		value, known := values[name]
		if !known {
			missing = append(missing, name)
		}
		return value
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("no value for the variables %v of %s", missing, text)
	}
	return replaced, nil
}

func joinValues(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	quoted := make([]string, 0, len(list))
	for _, value := range list {
		quoted = append(quoted, regexp.QuoteMeta(value))
	}
	return "(" + strings.Join(quoted, "|") + ")"
}

// VariableSeries is the selector whose label the values of a variable are, with earlier
// variables replaced.
func (v Variable) VariableSeries(chosen Chosen) (string, error) {
	values := map[string]string{}
	for name, list := range chosen {
		values[name] = joinValues(list)
	}
	return replaceVariables(v.Metric, values)
}
