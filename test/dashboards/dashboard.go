package dashboards

import "strings"

// Dashboard is a page of Grafana.
type Dashboard struct {
	// File is its name in config/dashboards, without an ending, and its UID with the
	// prefix holdfast-.
	File, Title, About string
	// Variables can be chosen at the top of the page. The data source is one of each.
	Variables []Variable
	Rows      []Row
	// selectors are what <name> in a query stands for.
	selectors map[string]string
}

// Variable is a choice whose values are those of a label of a metric.
type Variable struct {
	Name, Label string
	// Metric is the series whose label is read, and may read earlier variables.
	Metric, Value string
	// Several allows more than one value, and all.
	Several bool
}

// Row is a heading with panels below it.
type Row struct {
	Title  string
	Panels []Panel
}

// Form is how a panel shows its data.
type Form string

// The forms of panels, by Grafana's names.
const (
	timeSeries    Form = "timeseries"
	stat          Form = "stat"
	table         Form = "table"
	stateTimeline Form = "state-timeline"
)

// Panel shows one or more queries.
type Panel struct {
	Title, About string
	Form         Form
	// Unit is one of Grafana's, such as bytes, s or percentunit.
	Unit string
	// Width and Height are in cells of the grid, which is 24 wide.
	Width, Height int
	// Steps colour values, from the lowest up; none for no colours.
	Steps   []Step
	Queries []Query
	// ShowName shows the names of series in the place of values.
	ShowName bool
	// Alerts on what the panel shows: it links to their runbooks.
	Alerts []string
}

// Step is a colour from a value on. The first one has no value.
type Step struct {
	Colour string
	From   float64
}

// Query is an expression of PromQL, and how its series are named.
type Query struct{ Expr, Legend string }

// expr is a query with selectors in place, and variables as Grafana has them.
func (d Dashboard) expr(q Query) string {
	var pairs []string
	for name, text := range d.selectors {
		pairs = append(pairs, "<"+name+">", text)
	}
	return strings.NewReplacer(pairs...).Replace(q.Expr)
}

// higherIsWorse colours values from warn and from critical on.
func higherIsWorse(warn, critical float64) []Step {
	return []Step{{Colour: "green"}, {Colour: "orange", From: warn}, {Colour: "red", From: critical}}
}

// anyIsBad colours every value from 1 on.
func anyIsBad(colour string) []Step { return []Step{{Colour: "green"}, {Colour: colour, From: 1}} }

// lowerIsWorse colours values below critical, and below warn.
func lowerIsWorse(critical, warn float64) []Step {
	return []Step{{Colour: "red"}, {Colour: "orange", From: critical}, {Colour: "green", From: warn}}
}

// number is a small panel with one value for each series.
func number(title, unit, about string, steps []Step, queries ...Query) Panel {
	return Panel{Title: title, About: about, Form: stat, Unit: unit, Width: 4, Height: 4, Steps: steps, Queries: queries}
}

// chart is a panel of values over time.
func chart(title, unit, about string, queries ...Query) Panel {
	return Panel{Title: title, About: about, Form: timeSeries, Unit: unit, Width: 8, Height: 8, Queries: queries}
}

// of gives a panel another size.
func (p Panel) of(width, height int) Panel {
	p.Width, p.Height = width, height
	return p
}

// named shows the names of the series, and not their values.
func (p Panel) named() Panel {
	p.ShowName = true
	return p
}

// withSteps marks values from which on there is something to do.
func (p Panel) withSteps(steps []Step) Panel {
	p.Steps = steps
	return p
}

// withAlerts links to the runbooks of alerts.
func (p Panel) withAlerts(names ...string) Panel {
	p.Alerts = append(p.Alerts, names...)
	return p
}

// All are the dashboards, in the order of their file names.
func All() []Dashboard {
	return []Dashboard{backups(), drift(), etcd(), mysql(), operator(), postgresql()}
}
