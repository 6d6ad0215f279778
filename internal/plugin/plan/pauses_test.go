package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

func statusWithPauses(event v1alpha1.WritePauseEvent, milliseconds ...int) *v1alpha1.CommonStatus {
	st := &v1alpha1.CommonStatus{}
	for _, ms := range milliseconds {
		st.WritePauses = append(st.WritePauses, v1alpha1.WritePause{Event: event, Duration: metav1.Duration{Duration: time.Duration(ms) * time.Millisecond}})
	}
	return st
}

// A step quotes pauses of its own kind of event, and no others.
func TestStepsQuoteMeasuredPauses(t *testing.T) {
	successor := forecast.Step{Kind: forecast.MemberRestarts, Members: []string{"orders-0"}, WritesPause: true, Successor: true}
	alone := forecast.Step{Kind: forecast.MemberRestarts, Members: []string{"orders-0"}, WritesPause: true}
	for name, c := range map[string]struct {
		status *v1alpha1.CommonStatus
		step   forecast.Step
		want   string
	}{
		"three switchovers":           {statusWithPauses(v1alpha1.WritePauseSwitchover, 3100, 4000, 8700), successor, "writes pause 2–11 s (last: 3.1 4.0 8.7)"},
		"one switchover":              {statusWithPauses(v1alpha1.WritePauseSwitchover, 1200), successor, "writes pause at most 2 s (last: 1.2)"},
		"a short one":                 {statusWithPauses(v1alpha1.WritePauseSwitchover, 0, 400), successor, "writes pause at most 1 s (last: 0.0 0.4)"},
		"whole seconds":               {statusWithPauses(v1alpha1.WritePauseSwitchover, 2000, 3000), successor, "writes pause 1–4 s (last: 2.0 3.0)"},
		"long ones":                   {statusWithPauses(v1alpha1.WritePauseSwitchover, 20000, 8000, 16000), successor, "writes pause 6–25 s (last: 20.0 8.0 16.0)"},
		"restarts of a single member": {statusWithPauses(v1alpha1.WritePauseRestart, 5500, 6100), alone, "writes pause 4–8 s (last: 5.5 6.1)"},
		"only failovers":              {statusWithPauses(v1alpha1.WritePauseFailover, 9000), successor, "writes pause until another member leads (never measured)"},
		"only switchovers":            {statusWithPauses(v1alpha1.WritePauseSwitchover, 1000), alone, "writes pause until it is back (never measured)"},
		"nothing":                     {&v1alpha1.CommonStatus{}, successor, "writes pause until another member leads (never measured)"},
	} {
		t.Run(name, func(t *testing.T) {
			planned := Cluster{Pauses: readPauses(c.status)}
			if _, detail := planned.DescribeStep(c.step); detail != c.want {
				t.Errorf("%q, want %q", detail, c.want)
			}
		})
	}
}
