package dashboards

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// Querier evaluates PromQL, as Grafana's data source does.
type Querier interface {
	Query(ctx context.Context, expr string) (model.Vector, error)
}

// Choose gives every variable of the dashboard a value: what is preferred by name, which
// must be on offer, or else all that is.
func (d Dashboard) Choose(ctx context.Context, from Querier, preferred Chosen) (Chosen, error) {
	values := Chosen{}
	for _, v := range d.Variables {
		series, err := v.VariableSeries(values)
		if err != nil {
			return nil, err
		}
		found, err := from.Query(ctx, fmt.Sprintf("group by (%s) (%s)", v.Value, series))
		if err != nil {
			return nil, err
		}
		var offered []string
		for _, sample := range found {
			offered = append(offered, string(sample.Metric[model.LabelName(v.Value)]))
		}
		slices.Sort(offered)
		if len(offered) == 0 {
			return nil, fmt.Errorf("dashboard %s: %s has no values for the variable %s", d.File, series, v.Name)
		}
		wanted, given := preferred[v.Name]
		for _, value := range wanted {
			if !slices.Contains(offered, value) {
				return nil, fmt.Errorf("dashboard %s: the variable %s offers %v, and not %s", d.File, v.Name, offered, value)
			}
		}
		if !given {
			wanted = offered
		}
		if len(wanted) > 1 && !v.Several {
			wanted = wanted[:1]
		}
		values[v.Name] = wanted
	}
	return values, nil
}

// legendLabel is a label that the name of a series shows.
var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// CheckData says which queries yield no number, or lack a label that their legend shows.
func CheckData(ctx context.Context, from Querier, queries []PanelQuery) error {
	var errs []error
	for _, q := range queries {
		found, err := from.Query(ctx, q.Expr)
		if err == nil {
			err = q.checkSeries(found)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", q.Panel, err))
		}
	}
	return errors.Join(errs...)
}

func (q PanelQuery) checkSeries(found model.Vector) error {
	numbers := slices.DeleteFunc(slices.Clone(found), func(s *model.Sample) bool { return math.IsNaN(float64(s.Value)) })
	if len(numbers) == 0 {
		return fmt.Errorf("%d series, none with a number: %s", len(found), q.Expr)
	}
	if q.IsGuarded() {
		return nil // where nothing is wrong, the series is the number 0 without labels
	}
	for _, label := range legendLabel.FindAllStringSubmatch(q.Legend, -1) {
		if numbers[0].Metric[model.LabelName(label[1])] == "" {
			return fmt.Errorf("the legend shows %s, which %s lacks", label[1], numbers[0].Metric)
		}
	}
	return nil
}

// IsGuarded says whether the query yields 0 where its metrics have no series.
func (q PanelQuery) IsGuarded() bool { return strings.Contains(q.Expr, "vector(0)") }

// CheckTrouble says which guarded queries are still 0.
func CheckTrouble(ctx context.Context, from Querier, queries []PanelQuery) error {
	var errs []error
	for _, q := range queries {
		if !q.IsGuarded() {
			continue
		}
		found, err := from.Query(ctx, q.Expr)
		if err == nil && !slices.ContainsFunc(found, func(s *model.Sample) bool { return s.Value > 0 || len(s.Metric) > 0 }) {
			err = fmt.Errorf("is 0: %s", q.Expr)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", q.Panel, err))
		}
	}
	return errors.Join(errs...)
}

// SelectedMetrics are the names of the metrics that an expression reads.
func SelectedMetrics(expr string) ([]string, error) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	var names []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			for _, m := range selector.LabelMatchers {
				if m.Name == model.MetricNameLabel {
					names = append(names, m.Value)
				}
			}
		}
		return nil
	})
	slices.Sort(names)
	return slices.Compact(names), nil
}
