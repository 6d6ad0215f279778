package tune

import (
	"fmt"
	"time"
)

// Reason is why mode Apply does not try a value that is recommended, for programs.
type Reason string

// The reasons.
const (
	// OnlyRecommended is what is never tried: members restart for it.
	OnlyRecommended Reason = "OnlyRecommended"
	// Declared is a setting that the spec has: that is in force.
	Declared Reason = "Declared"
	// MemoryLimit and VolumeSize allow no larger value.
	MemoryLimit Reason = "MemoryLimit"
	VolumeSize  Reason = "VolumeSize"
	// RecentTrial is a setting that was tried, and rests.
	RecentTrial Reason = "RecentTrial"
	// AnotherTrial is under way.
	AnotherTrial Reason = "AnotherTrial"
	// VolumeUsage is too high.
	VolumeUsage Reason = "VolumeUsage"
	// Measuring is what a trial is compared with: it takes a day first, in which what speaks
	// for the value goes on.
	Measuring Reason = "Measuring"
	// WindowClosed is a time at which no trial begins.
	WindowClosed Reason = "WindowClosed"
	// NotSettled is a cluster in which a change is under way, or that does not serve.
	NotSettled Reason = "NotSettled"
	// NoEvidence is what was recommended, and is no longer supported by what is measured.
	NoEvidence Reason = "NoEvidence"
)

// Untried says why a value is not tried.
type Untried struct {
	Reason  Reason
	Message string
	Since   time.Time
}

// leastUntried is how long a reason stays, so that one that comes and goes, as a volume whose
// use goes up and down, has the status written at most once an hour.
const leastUntried = time.Hour

// ExplainUntried adds to recommendations why mode Apply does not try them, by what Next
// returned. What each said before is was.
func ExplainUntried(s Spec, e Evidence, st State, steps []Step, list, was []Recommendation, now time.Time) []Recommendation {
	m := machine{spec: s, evidence: e, now: now.UTC().Truncate(time.Second), next: st, steps: steps}
	var explained []Recommendation
	for _, r := range list {
		r.Untried = nil
		if s.Apply {
			var before *Untried
			if said := findRecommendation(was, r.Name); said != nil {
				before = said.Untried
			}
			r.Untried = m.explainUntried(r, before)
		}
		explained = append(explained, r)
	}
	return explained
}

// explainUntried says why a value is not tried. What is not known for a moment changes nothing.
func (m *machine) explainUntried(r Recommendation, before *Untried) *Untried {
	next, known := m.findObstacle(r)
	switch {
	case !known, before != nil && before.Reason == next.Reason && before.Message == next.Message:
		return before
	case before != nil && isRecent(before.Since, m.now) && !next.isLasting() && !before.isLasting():
		return before
	}
	next.Message, next.Since = shorten(next.Message, longestEvidenceText), m.now
	return next
}

func isRecent(since, now time.Time) bool {
	age := now.Sub(since)
	return age >= 0 && age < leastUntried
}

// isLasting says that a reason follows from the spec or from what is remembered: it does not
// come and go.
func (u Untried) isLasting() bool {
	switch u.Reason {
	case VolumeUsage, Measuring, WindowClosed, NotSettled, NoEvidence:
		return false
	}
	return true
}

// findObstacle is the first thing that keeps a value from being tried. The second result is
// false where that is not known.
func (m *machine) findObstacle(r Recommendation) (*Untried, bool) {
	rule := findTried(m.spec.Engine, r.Name)
	if rule == nil {
		return &Untried{Reason: OnlyRecommended, Message: "members restart for it, so it is only recommended"}, true
	}
	if u := m.findLastingObstacle(*rule, r); u != nil {
		return u, true
	}
	if m.next.Trial != nil || m.evidence.Primary == "" || len(m.evidence.Slots) == 0 {
		return nil, false // it is tried from now on, or no member measures
	}
	if u := m.findPassingObstacle(*rule); u != nil {
		return u, true
	}
	// After another step it may be tried in the next pass.
	return &Untried{Reason: NoEvidence, Message: "what spoke for it is no longer in what the primary measures"}, len(m.steps) == 0
}

func (m *machine) findLastingObstacle(rule rule, r Recommendation) *Untried {
	resting := m.findResting(r.Name)
	switch trial := m.next.Trial; {
	case m.spec.declares(r.Name):
		return &Untried{Reason: Declared, Message: rule.field + " is declared, and what is declared is in force: commit the value"}
	case r.Value == "" && rule.memory && m.spec.Memory <= 0:
		return &Untried{Reason: MemoryLimit, Message: "spec.resources.limits.memory is not declared, so it is not known what a larger value may take"}
	case r.Value == "" && rule.memory:
		return &Untried{Reason: MemoryLimit, Message: fmt.Sprintf("spec.resources.limits.memory allows no larger value: memory settings may take %.0f %% of it together", 100*MemoryShare)}
	case r.Value == "":
		return &Untried{Reason: VolumeSize, Message: "spec.storage.size allows no larger value"}
	case resting != nil:
		return &Untried{Reason: RecentTrial, Message: fmt.Sprintf("%s was tried: %s. It is not tried again before %s", resting.Value, resting.Reason, resting.Until.Format(time.DateOnly))}
	case trial != nil && trial.Name != r.Name:
		return &Untried{Reason: AnotherTrial, Message: fmt.Sprintf("%s is tried at %s: one setting is tried at a time", trial.Name, trial.Value)}
	}
	return nil
}

func (m *machine) findPassingObstacle(rule rule) *Untried {
	e, p := m.evidence, m.spec.period()
	switch {
	case rule.disk && e.Used > mostUsedToTry:
		return &Untried{Reason: VolumeUsage, Message: fmt.Sprintf("more than %.0f %% of a member's volume are in use, and a larger value takes more of it", 100*mostUsedToTry)}
	case !e.isMeasured(m.now) || !rule.trial.isBaseline(listBefore(e.Slots, p), p):
		return &Untried{Reason: Measuring, Message: fmt.Sprintf("a trial is compared with the %d hours before it: they are not measured yet with the settings as they are, or hardly show what the value is to lessen", int(p))}
	case !m.spec.Window.isOpen(m.now):
		return &Untried{Reason: WindowClosed, Message: "no trial begins outside spec.tuning.window"}
	case !e.Settled:
		return &Untried{Reason: NotSettled, Message: "a change is under way, the cluster does not serve, or its spec cannot be followed"}
	}
	return nil
}
