package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

// neverMeasured stands where a duration would, of an event that the cluster had none of
// while an operator measured.
const neverMeasured = "never measured"

// Pause is how long writes paused in the last events of a kind, and how long the next one
// may be expected to take.
type Pause struct {
	Event v1alpha1.WritePauseEvent `json:"event"`
	// Seconds of those that were measured, the newest last.
	Seconds []float64 `json:"seconds"`
	// Least and Most are whole seconds between which the next one is expected.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

const (
	// resolution is how exactly pauses are measured, in seconds: each end of one is noticed
	// by the next answer of a member.
	resolution = 0.5
	// spread is by which part pauses differ from those before for no reason that a plan
	// knows, such as load.
	spread = 0.25
)

// readPauses reads what a status says of pauses.
func readPauses(st *v1alpha1.CommonStatus) []Pause {
	var read []Pause
	for _, event := range v1alpha1.WritePauseEvents {
		p := Pause{Event: event}
		for _, one := range st.WritePauses {
			if one.Event == event {
				p.Seconds = append(p.Seconds, one.Duration.Seconds())
			}
		}
		if len(p.Seconds) > 0 {
			p.expect()
			read = append(read, p)
		}
	}
	return read
}

// pauseEvent is the event by which a step pauses writes.
func pauseEvent(s forecast.Step) v1alpha1.WritePauseEvent {
	if s.Successor {
		return v1alpha1.WritePauseSwitchover
	}
	return v1alpha1.WritePauseRestart
}

// describePause is what clients that write notice of a step: the expected range, and
// what it is taken from.
func (c *Cluster) describePause(s forecast.Step) string {
	event := pauseEvent(s)
	for _, p := range c.Pauses {
		if p.Event == event {
			return fmt.Sprintf("writes pause %s (last: %s)", p.describeRange(), p.describeSeconds())
		}
	}
	until := "until it is back"
	if s.Successor {
		until = "until another member leads"
	}
	return fmt.Sprintf("writes pause %s (%s)", until, neverMeasured)
}

// expect sets the range of the next pause: from the shortest to the longest that was
// measured, wider at both ends by what they are not exact to, in whole seconds.
func (p *Pause) expect() {
	shortest, longest := slices.Min(p.Seconds), slices.Max(p.Seconds)
	p.Least = max(0, math.Floor(shortest-max(resolution, spread*shortest)))
	p.Most = math.Ceil(longest + max(resolution, spread*longest))
}

func (p Pause) describeRange() string {
	if p.Least == 0 {
		return fmt.Sprintf("at most %.0f s", p.Most)
	}
	return fmt.Sprintf("%.0f–%.0f s", p.Least, p.Most)
}

func (p Pause) describeSeconds() string {
	texts := make([]string, len(p.Seconds))
	for i, s := range p.Seconds {
		texts[i] = fmt.Sprintf("%.1f", s)
	}
	return strings.Join(texts, " ")
}
