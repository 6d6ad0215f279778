package plugin

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// describeForecast says when a volume is full, and what shows it.
func describeForecast(f agentapi.VolumeForecast) string {
	left, shown := time.Duration(f.Seconds)*time.Second, time.Duration(f.ShownSeconds)*time.Second
	source := "by the last " + describeSpan(shown)
	if f.Trend {
		source = "by the trend of " + describeSpan(shown)
	}
	perDay := resource.NewQuantity(f.BytesPerDay>>20<<20, resource.BinarySI)
	return fmt.Sprintf("its volume is full in %s %s, +%s a day", describeSpan(left), source, perDay)
}

// describeSpan writes a time in the unit that people think in.
func describeSpan(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.0f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f minutes", d.Minutes())
}
