package tune

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// quarantine is how long a value that was tried and is no better is not tried again,
	// nor any other of the setting.
	quarantine = 30 * 24 * time.Hour
	// afterUndecided and afterAborted are how long a setting rests whose trial said nothing.
	afterUndecided = 7 * 24 * time.Hour
	afterAborted   = 24 * time.Hour
	// longestTakeUp is what members may take to run with a value, and to measure with it.
	longestTakeUp = 2 * time.Hour
	// mostUsed is the share of a volume from which on nothing tuned may take more of it, and
	// mostUsedToTry that up to which a larger value is tried: what it takes at most fits between.
	mostUsed, mostUsedToTry = 0.85, 0.7
)

// What the API server takes of a text. Numbers of a member that reports nonsense may be long,
// and a status that is refused is refused as a whole.
const longestEvidenceText, longestReason = 256, 512

// shorten cuts a text off after so many bytes.
func shorten(text string, most int) string { return text[:min(len(text), most)] }

// Evidence is what is known of the members, beside the spec.
type Evidence struct {
	// Slots of the last days that the member that leads measured, by the hour, the oldest
	// first.
	Slots []agentapi.TuningSlot
	// Primary is the member that leads; empty while none is known to.
	Primary string
	// Config is the hash of the configuration that members should have.
	Config string
	// Settled says that no change, no repair and no request is under way.
	Settled bool
	// LastKill is when a member ran out of memory last; zero if none did.
	LastKill time.Time
	// Used is the largest share of a member's volume that is in use; 0 while none is known.
	Used float64
	// Refused says that a member does not take the value of the trial. That it does not take
	// another setting keeps the cluster from being settled.
	Refused bool
}

// StepKind is what became of a setting.
type StepKind string

// The kinds of steps.
const (
	Tried       StepKind = "Tried"
	Kept        StepKind = "Kept"
	RolledBack  StepKind = "RolledBack"
	Quarantined StepKind = "Quarantined"
	Released    StepKind = "Released"
)

// Step is one change of the state, for people.
type Step struct {
	Kind StepKind
	// Name of the setting, and Value that it is about.
	Name, Value string
	Message     string
}

// Next is what is remembered from now on, and what changed. One setting is tried at a time.
// It decides nothing before the state that it returned last is recorded.
func Next(s Spec, e Evidence, was State, now time.Time) (State, []Step) {
	m := machine{spec: s, evidence: e, now: now.UTC().Truncate(time.Second)}
	m.followSpec(was)
	switch {
	case !s.Apply, m.rollBackFull():
	case m.next.Trial != nil:
		m.judgeTrial(*m.next.Trial)
	case m.rollBackExcess():
	default:
		m.startTrial()
	}
	return m.next, m.steps
}

// machine is one pass over a state.
type machine struct {
	spec     Spec
	evidence Evidence
	now      time.Time
	next     State
	steps    []Step
}

func (m *machine) addStep(kind StepKind, name, value, format string, args ...any) {
	m.steps = append(m.steps, Step{Kind: kind, Name: name, Value: value, Message: fmt.Sprintf(format, args...)})
}

// followSpec begins with what was remembered, as far as the spec still allows it.
func (m *machine) followSpec(was State) {
	for _, r := range was.Resting {
		if most := m.now.Add(quarantine); r.Until.After(most) {
			r.Until = most // another client wrote it, or the clock was wrong
		}
		if findTried(m.spec.Engine, r.Name) != nil && m.now.Before(r.Until) && m.findResting(r.Name) == nil {
			m.next.Resting = append(m.next.Resting, r)
		}
	}
	for _, t := range was.Settings {
		why := m.spec.explainRelease(t)
		switch {
		case slices.ContainsFunc(m.next.Settings, func(o Tuned) bool { return o.Name == t.Name }):
		case m.spec.declares(t.Name):
			m.addStep(Released, t.Name, t.Value, "%s is no longer tuned to %s: %s", t.Name, t.Value, why)
		case why != "":
			m.addStep(RolledBack, t.Name, t.Value, "%s is no longer tuned to %s: %s", t.Name, t.Value, why)
		default:
			m.next.Settings = append(m.next.Settings, t)
		}
	}
	if was.Trial == nil {
		return
	}
	trial := *was.Trial
	m.next.Trial = &trial
	if why := m.spec.explainEnd(trial); why != "" {
		m.abort(why)
	}
}

// abort ends a trial that shows nothing: the value before is in force again.
func (m *machine) abort(why string) { m.endTrial(RolledBack, afterAborted, why) }

// endTrial ends a trial whose value does not stay.
func (m *machine) endTrial(kind StepKind, rest time.Duration, why string) {
	t := *m.next.Trial
	m.next.Trial = nil
	until := m.now.Add(rest)
	switch {
	case findTried(m.spec.Engine, t.Name) == nil:
		return // it was never in force
	case m.spec.declares(t.Name):
		m.addStep(Released, t.Name, t.Value, "the trial of %s=%s ends: %s", t.Name, t.Value, why)
		return
	}
	before := t.From
	if slices.ContainsFunc(m.steps, func(s Step) bool { return s.Name == t.Name }) {
		before = "what members compute" // the kept value before it goes in the same step
	}
	m.rest(Resting{Name: t.Name, Value: t.Value, Reason: why, Quarantined: kind == Quarantined, Since: m.now, Until: until})
	m.addStep(kind, t.Name, t.Value, "%s is %s again, after a trial of %s: %s. It is not tried again before %s", t.Name, before, t.Value, why, until.Format(time.DateOnly))
}

// rest has a setting not tried for a time.
func (m *machine) rest(r Resting) {
	r.Reason = shorten(r.Reason, longestReason)
	m.next.Resting = slices.DeleteFunc(slices.Clone(m.next.Resting), func(o Resting) bool { return o.Name == r.Name })
	m.next.Resting = append(m.next.Resting, r)
}

func (m *machine) findResting(name string) *Resting {
	for i := range m.next.Resting {
		if m.next.Resting[i].Name == name {
			return &m.next.Resting[i]
		}
	}
	return nil
}

// judgeTrial decides how a trial goes on; first match wins.
func (m *machine) judgeTrial(t Trial) {
	e, r, p := m.evidence, findTried(m.spec.Engine, t.Name), m.spec.period()
	base, tried := r.splitTrial(e.Slots, t, p)
	age := m.now.Sub(t.Since)
	switch {
	case e.Refused:
		m.endTrial(Quarantined, quarantine, "the server does not take it")
	case r.memory && e.LastKill.After(t.Since):
		m.endTrial(Quarantined, quarantine, "a member ran out of memory")
	case age < 0:
		m.abort("it begins in the future, so a clock was wrong")
	case e.Primary != "" && e.Primary != t.Primary:
		m.abort(e.Primary + " leads, and no longer " + t.Primary)
	case len(e.Slots) == 0: // an operator that has just started
		m.endLate(age)
	case len(tried) == 0 && age > longestTakeUp:
		m.abort("the primary has measured nothing with it")
	case len(tried) == 0:
	case !p.covers(base):
		m.abort("the primary has lost what it measured before")
	case m.exceedsMemory(t.Name, e.Slots):
		m.endTrial(Quarantined, quarantine, m.describeExcess())
	default:
		m.judgeMeasured(t, *r.trial, r.trial.compare(base, tried, p), p.covers(tried))
	}
}

// judgeMeasured decides by what was measured; complete says that the whole period was. While
// a change is under way, it decides nothing: what that takes is no load of clients.
func (m *machine) judgeMeasured(t Trial, q measure, c comparison, complete bool) {
	switch {
	case !m.evidence.Settled:
		m.endLate(m.now.Sub(t.Since))
	case c.isMuchWorse(q), complete && c.isComparable() && !(c.cost <= mostCost): // also where it is no number
		m.endTrial(Quarantined, quarantine, "it is worse: "+q.describe(c))
	case !complete || !c.isComparable():
		m.endLate(m.now.Sub(t.Since))
	case c.left <= mostLeft:
		m.keep(t, q.describe(c))
	default:
		m.endTrial(Quarantined, quarantine, "it is no better: "+q.describe(c))
	}
}

// endLate ends a trial that has taken too long for a judgement.
func (m *machine) endLate(age time.Duration) {
	if age > m.spec.period().longest() {
		m.endTrial(RolledBack, afterUndecided, "the load was not like that before, so the two cannot be compared")
	}
}

func (m *machine) keep(t Trial, evidence string) {
	evidence = shorten(evidence, longestEvidenceText)
	m.next.Trial = nil
	m.next.Settings = slices.DeleteFunc(slices.Clone(m.next.Settings), func(o Tuned) bool { return o.Name == t.Name })
	m.next.Settings = append(m.next.Settings, Tuned{Name: t.Name, Value: t.Value, From: t.From, Evidence: evidence, Basis: m.spec.Basis(), Since: m.now})
	m.addStep(Kept, t.Name, t.Value, "%s stays at %s, and was %s: %s. Commit spec.parameters.%s to keep it in Git", t.Name, t.Value, t.From, evidence, t.Name)
}

// rollBackFull takes back what takes more of the volume, while one is nearly full: first the
// value that is tried, then the one that was kept.
func (m *machine) rollBackFull() bool {
	const why = "a volume is nearly full"
	if m.evidence.Used <= mostUsed {
		return false
	}
	if t := m.next.Trial; t != nil && findTried(m.spec.Engine, t.Name).disk {
		m.abort(why)
		return true
	}
	for i, t := range m.next.Settings {
		if findTried(m.spec.Engine, t.Name).disk {
			m.rollBack(i, RolledBack, afterUndecided, why)
			return true
		}
	}
	return false
}

// rollBack takes a value back that was kept.
func (m *machine) rollBack(i int, kind StepKind, rest time.Duration, why string) {
	t := m.next.Settings[i]
	m.next.Settings = slices.Delete(slices.Clone(m.next.Settings), i, i+1)
	until := m.now.Add(rest)
	m.rest(Resting{Name: t.Name, Value: t.Value, Reason: why, Quarantined: kind == Quarantined, Since: m.now, Until: until})
	m.addStep(kind, t.Name, t.Value, "%s is no longer tuned to %s: %s. It is not tried again before %s", t.Name, t.Value, why, until.Format(time.DateOnly))
}

// rollBackExcess takes a tuned memory setting back when a member ran out of memory with it, or
// when all of them together may by now take more than the envelope: there are more
// connections than when it was tried. Those of a replica are not measured: only a kill tells.
func (m *machine) rollBackExcess() bool {
	for i, t := range m.next.Settings {
		why := m.describeExcess()
		switch {
		case findTried(m.spec.Engine, t.Name).memory && m.evidence.LastKill.After(t.Since):
			why = "a member ran out of memory"
		case !m.exceedsMemory(t.Name, m.evidence.Slots):
			continue
		}
		m.rollBack(i, Quarantined, quarantine, why)
		return true
	}
	return false
}

func (m *machine) describeExcess() string {
	return fmt.Sprintf("memory settings may take more than %.0f %% of the limit", 100*MemoryShare)
}

// exceedsMemory says whether a memory setting takes what all may take out of the envelope,
// by the connections that were measured while it was in force.
func (m *machine) exceedsMemory(name string, slots []agentapi.TuningSlot) bool {
	r := findTried(m.spec.Engine, name)
	if r == nil || !r.memory || len(slots) == 0 {
		return false
	}
	o := observeSetting(slots, name)
	if value, known := r.parse(Effective(m.spec, m.next)[name]); !known || !r.isClose(o.settings[name], value) {
		return false // it is not in force yet
	}
	return memoryUse(m.spec.Engine, o.settings, o.peaks) > MemoryShare*float64(m.spec.Memory)
}

// isMeasured says whether the primary measures now, with the settings that it should have, and
// not with those that were in force before.
func (e Evidence) isMeasured(now time.Time) bool {
	if len(e.Slots) == 0 {
		return false
	}
	last := e.Slots[len(e.Slots)-1]
	return now.Sub(last.End) <= longestTakeUp && last.ConfigHash == e.Config
}

// startTrial tries what is recommended most urgently, of what may be tried.
func (m *machine) startTrial() {
	e := m.evidence
	if !e.Settled || e.Primary == "" || !e.isMeasured(m.now) || !m.spec.Window.isOpen(m.now) {
		return
	}
	s := m.spec
	s.Declared = s.mergeTuned(m.next)
	for _, advice := range Recommend(s, e.Slots, nil, m.now) {
		r := findTried(s.Engine, advice.Name)
		if r == nil || m.findLastingObstacle(*r, advice) != nil || m.findPassingObstacle(*r) != nil {
			continue
		}
		m.next.Trial = &Trial{
			Name: advice.Name, From: advice.Current, Value: advice.Value, Evidence: shorten(advice.Evidence, longestEvidenceText),
			Primary: e.Primary, SpecHash: s.Hash, Since: m.now,
		}
		m.addStep(Tried, advice.Name, advice.Value, "%s is tried at %s, and was %s: %s", advice.Name, advice.Value, advice.Current, advice.Evidence)
		return
	}
}
