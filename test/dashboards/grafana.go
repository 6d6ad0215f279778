package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
)

const (
	// schemaVersion is the version of the model, as Grafana 10 wrote it. Later ones
	// migrate it when they read it.
	schemaVersion = 39
	// columns are the width of the grid.
	columns = 24
	// rowHeight is that of a heading.
	rowHeight = 1
)

// object is a JSON object.
type object map[string]any

// prometheusSource is the data source that is chosen at the top of the page.
var prometheusSource = object{"type": "prometheus", "uid": "${datasource}"}

// JSON is the dashboard as Grafana imports it. Runbooks are the pages of alerts by their
// names; an alert that has none is an error.
func (d Dashboard) JSON(runbooks map[string]string) ([]byte, error) {
	panels, err := d.layOut(runbooks)
	if err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.File, err)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err = encoder.Encode(object{
		"annotations":   object{"list": []object{}},
		"description":   d.About,
		"editable":      true,
		"graphTooltip":  1, // the cursor is shown in all panels
		"id":            nil,
		"links":         []object{{"title": "Holdfast", "type": "dashboards", "tags": []string{"holdfast"}, "asDropdown": true, "keepTime": true, "includeVars": false, "targetBlank": false, "icon": "external link", "tooltip": "", "url": ""}},
		"panels":        panels,
		"refresh":       "30s",
		"schemaVersion": schemaVersion,
		"tags":          []string{"holdfast"},
		"templating":    object{"list": d.variables()},
		"time":          object{"from": "now-3h", "to": "now"},
		"timepicker":    object{},
		"timezone":      "",
		"title":         d.Title,
		"uid":           "holdfast-" + d.File,
		"version":       1,
		"weekStart":     "",
	})
	return text.Bytes(), err
}

// variables are the data source and the choices of the dashboard.
func (d Dashboard) variables() []object {
	list := []object{{
		"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
		"current": object{}, "hide": 0, "includeAll": false, "multi": false, "options": []object{}, "refresh": 1, "regex": "", "skipUrlSync": false,
	}}
	for _, v := range d.Variables {
		query := v.query()
		list = append(list, object{
			"name": v.Name, "label": v.Label, "type": "query", "datasource": prometheusSource,
			"definition": query, "query": object{"query": query, "refId": "variable-" + v.Name},
			"current": object{}, "hide": 0, "includeAll": v.Several, "multi": v.Several, "options": []object{},
			"refresh": 2, // when the time range changes
			"regex":   "", "skipUrlSync": false, "sort": 1,
		})
	}
	return list
}

// query lists the values of a variable.
func (v Variable) query() string { return fmt.Sprintf("label_values(%s, %s)", v.Metric, v.Value) }

// layOut gives headings and panels their places, from left to right and from top to bottom,
// and IDs in that order.
func (d Dashboard) layOut(runbooks map[string]string) ([]object, error) {
	var list []object
	id, y := 0, 0
	place := func(p object, x, width, height int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": width, "h": height}
		list = append(list, p)
	}
	for _, row := range d.Rows {
		place(object{"type": "row", "title": row.Title, "collapsed": false, "panels": []object{}}, 0, columns, rowHeight)
		y += rowHeight
		x, tallest := 0, 0
		for _, p := range row.Panels {
			if x+p.Width > columns {
				x, y, tallest = 0, y+tallest, 0
			}
			rendered, err := d.panel(p, runbooks)
			if err != nil {
				return nil, err
			}
			place(rendered, x, p.Width, p.Height)
			x, tallest = x+p.Width, max(tallest, p.Height)
		}
		y += tallest
	}
	return list, nil
}

func (d Dashboard) panel(p Panel, runbooks map[string]string) (object, error) {
	targets := make([]object, 0, len(p.Queries))
	for i, q := range p.Queries {
		target := object{
			"refId": string(rune('A' + i)), "datasource": prometheusSource, "editorMode": "code",
			"expr": d.expr(q), "legendFormat": q.Legend, "range": !p.isInstant(), "instant": p.isInstant(),
		}
		if p.Form == table {
			target["format"] = "table"
		}
		targets = append(targets, target)
	}
	links := []object{}
	for _, alert := range p.Alerts {
		page, known := runbooks[alert]
		if !known {
			return nil, fmt.Errorf("panel %q: there is no alert %s", p.Title, alert)
		}
		links = append(links, object{"title": "Runbook: " + alert, "url": page, "targetBlank": true})
	}
	defaults := object{"unit": p.Unit, "color": object{"mode": p.colourMode()}, "custom": p.custom(), "mappings": p.mappings()}
	if len(p.Steps) > 0 {
		defaults["thresholds"] = object{"mode": "absolute", "steps": renderSteps(p.Steps)}
	}
	rendered := object{
		"type": string(p.Form), "title": p.Title, "description": p.About, "datasource": prometheusSource,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
		"options":     p.options(), "targets": targets, "links": links,
	}
	if p.Form == table {
		rendered["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true}, "indexByName": object{}, "renameByName": object{}}}}
	}
	return rendered, nil
}

// isInstant says whether the panel shows the last values alone.
func (p Panel) isInstant() bool { return p.Form == stat || p.Form == table }

func (p Panel) colourMode() string {
	if p.Form == timeSeries || len(p.Steps) == 0 {
		return "palette-classic"
	}
	return "thresholds"
}

// custom are the settings of a form's fields.
func (p Panel) custom() object {
	switch p.Form {
	case timeSeries:
		lines := "off"
		if len(p.Steps) > 0 {
			lines = "line"
		}
		return object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false, "axisSoftMin": 0, "thresholdsStyle": object{"mode": lines}}
	case stateTimeline:
		return object{"fillOpacity": 70, "lineWidth": 0}
	}
	return object{}
}

// mappings give the values of conditions words.
func (p Panel) mappings() []object {
	if p.Form != stateTimeline {
		return []object{}
	}
	return []object{{"type": "value", "options": object{"0": object{"index": 0, "text": "False"}, "1": object{"index": 1, "text": "True"}}}}
}

func (p Panel) options() object {
	legend := object{"displayMode": "list", "placement": "bottom", "showLegend": true}
	switch p.Form {
	case stat:
		shown := "auto"
		if p.ShowName {
			shown = "name"
		}
		return object{
			"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": shown,
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	case table:
		return object{"showHeader": true, "cellHeight": "sm"}
	case stateTimeline:
		return object{"legend": legend, "mergeValues": true, "rowHeight": 0.9, "showValue": "auto", "tooltip": object{"mode": "single"}}
	}
	return object{"legend": legend, "tooltip": object{"mode": "multi", "sort": "desc"}}
}

func renderSteps(steps []Step) []object {
	list := make([]object, 0, len(steps))
	for i, s := range steps {
		step := object{"color": s.Colour, "value": s.From}
		if i == 0 {
			step["value"] = nil // from the lowest value on
		}
		list = append(list, step)
	}
	return list
}
