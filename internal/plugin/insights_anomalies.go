package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// causes of anomalies, as a person reads them.
var causes = map[string]string{
	"RoleChanged":     "the member's role changed",
	"SettingsChanged": "its settings or members changed",
	"ServerStarted":   "its server started",
	"DataCopied":      "its data was copied",
}

// listAnomalies shows what is not as usual, the newest first, and what was not within the
// last day.
func (v view) listAnomalies(m InsightMember) (nodes []node) {
	newest := slices.SortedFunc(slices.Values(m.Anomalies), func(a, b agentapi.Anomaly) int {
		if lasts := a.Until.IsZero(); lasts != b.Until.IsZero() {
			if lasts {
				return -1
			}
			return 1
		}
		return cmp.Or(b.Since.Compare(a.Since), cmp.Compare(a.Signal, b.Signal))
	})
	for _, a := range newest {
		shade := yellow
		if !a.Until.IsZero() {
			shade = dim
		}
		nodes = append(nodes, node{text: v.paintText(shade, m.Member+": "+v.describeAnomaly(a))})
	}
	return nodes
}

// describeAnomaly says what was measured, what is usual, and what a probable cause is.
func (v view) describeAnomaly(a agentapi.Anomaly) string {
	text := fmt.Sprintf("%s %s", a.Title, formatMeasured(a.Observed, a.Unit))
	if a.Until.IsZero() {
		text += fmt.Sprintf(" since %s", v.formatSince(a.Since))
	} else {
		text += fmt.Sprintf(" for %s, until %s ago", describeSpan(a.Until.Sub(a.Since)), v.formatSince(a.Until))
	}
	text += ", usual at this time: " + formatMeasured(a.Expected, a.Unit)
	if cause := causes[a.Cause]; cause != "" {
		text += fmt.Sprintf("; %s before, %s", describeSpan(a.Since.Sub(a.CausedAt)), cause)
	}
	return text
}

func formatMeasured(value float64, unit string) string {
	number := strconv.FormatFloat(value, 'f', -1, 64)
	if unit == "" {
		return number
	}
	return number + " " + unit
}
