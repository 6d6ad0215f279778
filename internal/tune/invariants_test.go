package tune

import (
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// randomState is what another client may have written.
func randomState(r *rand.Rand) State {
	names := append([]string{"max_wal_size", "work_mem", "shared_buffers", "MAX_WAL_SIZE", "", "max_connections"}, durability...)
	values := []string{"8MB", "16MB", "off", "", "1GB", "9000TB", "-1", "8mb", "4096", "1.5MB", "NaNMB", "InfkB", "0kB", "256MB' fsync='off"}
	pick := func(list []string) string {
		if r.IntN(3) == 0 {
			return list[r.IntN(2)]
		}
		return list[r.IntN(len(list))]
	}
	var st State
	for range r.IntN(4) {
		st.Settings = append(st.Settings, Tuned{Name: pick(names), Value: pick(values), From: pick(values)})
		st.Resting = append(st.Resting, Resting{Name: pick(names), Value: pick(values), Until: monday.Add(time.Duration(r.IntN(100)) * time.Hour)})
	}
	if r.IntN(2) == 0 {
		st.Trial = &Trial{Name: pick(names), Value: pick(values), From: pick(values), Primary: "orders-0", SpecHash: pick([]string{"a", "b"})}
		st.Trial.Since = monday.Add(time.Duration(r.IntN(150)-145) * time.Hour)
	}
	return st
}

// randomTrial is a trial that is under way, as it is recorded: where rules say so, with a kept value
// before it.
func randomTrial(r *rand.Rand, spec Spec) State {
	name := []string{"max_wal_size", "work_mem"}[r.IntN(2)]
	rule := findRule(PostgreSQL, name)
	from := float64(int64(1)<<r.IntN(5)) * 4 * mebibyte
	st := State{Trial: &Trial{
		Name: name, From: rule.format(from), Value: rule.format(from * (1.5 + 0.5*float64(r.IntN(2)))), Evidence: "x", Primary: "orders-0", SpecHash: "a",
		Since: monday.Add(-time.Duration(r.IntN(60)) * time.Hour),
	}}
	if r.IntN(2) == 0 {
		st.Settings = []Tuned{{Name: name, Value: rule.format(from), From: "1MB", Basis: spec.Basis(), Since: monday.AddDate(0, 0, -4)}}
	}
	return st
}

// randomHours are slots up to now, with whatever agents may report in them: those with the
// values of a state, in which some are missing, cut, added up, or of other settings.
func randomHours(r *rand.Rand, e Engine, st State) []agentapi.TuningSlot {
	settings := randomSettings(r, e)
	tried := map[string]float64{}
	since := monday.Add(-time.Duration(r.IntN(60)) * time.Hour)
	if t := st.Trial; t != nil {
		if rule := findRule(e, t.Name); rule != nil {
			from, _ := rule.parse(t.From)
			settings[t.Name] = from
			tried[t.Name], _ = rule.parse(t.Value)
			since = t.Since.Add(time.Duration(r.IntN(2)) * time.Hour)
		}
	}
	most := []float64{1, 100, 1e6, 1e12, 1e307}[r.IntN(5)]
	level := map[string]float64{}
	names := []string{
		agentapi.TuningBlocksRead, agentapi.TuningBlocksHit, agentapi.TuningTempFiles, agentapi.TuningTempBytes, agentapi.TuningCheckpointsRequested,
		agentapi.TuningCheckpointsAsked, agentapi.TuningCheckpointsTimed, agentapi.TuningWALBytes, agentapi.TuningTransactions,
	}
	for _, name := range names {
		level[name] = float64(r.IntN(4)) * most
	}
	after := []float64{0, 0.3, 1, 3}[r.IntN(4)]
	var slots []agentapi.TuningSlot
	for h := range 70 {
		at := monday.Add(time.Duration(h-70) * time.Hour)
		now := maps.Clone(settings)
		if !at.Before(since) {
			maps.Copy(now, tried)
		}
		slot := hour(at, now, nil)
		for _, name := range names {
			slot.Sums[name] = level[name] * (0.8 + 0.4*r.Float64())
		}
		if !at.Before(since) {
			for _, name := range []string{agentapi.TuningCheckpointsRequested, agentapi.TuningTempBytes} {
				slot.Sums[name] *= after
			}
		}
		switch r.IntN(60) {
		case 0:
			continue
		case 1:
			slot.Seconds = r.Float64() * 3600
		case 2:
			slot.Sums = nil
		case 3:
			slot.Settings = randomSettings(r, e)
		case 4:
			slot.Start = slot.Start.Add(-time.Hour)
		case 5:
			slot.Peaks[agentapi.TuningConnections] = float64(r.IntN(500))
		}
		slots = append(slots, slot)
	}
	return slots[r.IntN(1+r.IntN(len(slots))):]
}

func randomEvidence(r *rand.Rand, e Engine, st State) Evidence {
	seldom := func() bool { return r.IntN(12) == 0 }
	evidence := Evidence{Primary: "orders-0", Settled: !seldom(), Refused: seldom()}
	if r.IntN(4) > 0 {
		evidence.Slots = randomHours(r, e, st)
	}
	if seldom() {
		evidence.Primary = []string{"", "orders-1"}[r.IntN(2)]
	}
	if seldom() {
		evidence.Used = r.Float64()
	}
	if seldom() {
		evidence.LastKill = monday.Add(-time.Duration(r.IntN(100)) * time.Hour)
	}
	return evidence
}

// Whatever stands in the status, and whatever members report: what is in force beside the spec
// is a value of a rule that takes no restart, within its limits, and never one that is
// declared, excluded or durable. Each step is explained, and fits in the status.
func TestTunedInvariants(t *testing.T) {
	tuned, kinds := 0, map[StepKind]int{}
	for seed := range uint64(30000) {
		r := rand.New(rand.NewPCG(seed, 11))
		spec := Spec{Engine: []Engine{PostgreSQL, MySQL, Etcd}[r.IntN(8)/6], Apply: r.IntN(8) > 0, Hash: "a", ObserveHours: r.IntN(30), Memory: int64(r.IntN(3)) * gibibyte, Volume: int64(1+r.IntN(10)) * gibibyte}
		if r.IntN(3) == 0 {
			spec.Declared = map[string]string{"work_mem": "4MB"}
		}
		if r.IntN(3) == 0 {
			spec.Exclude = []string{"max_wal_size"}
		}
		if r.IntN(12) == 0 {
			spec.Window = ParseWindow("01:00", "02:00", "") // it is closed
		}
		st := randomState(r)
		for n := range st.Settings {
			if r.IntN(4) > 0 {
				st.Settings[n].Basis = spec.Basis()
			}
		}
		switch r.IntN(4) {
		case 0, 1:
			st = randomTrial(r, spec)
		case 2:
			st.Trial = nil
		}
		e := randomEvidence(r, spec.Engine, st)
		next, steps := Next(spec, e, st, monday)
		tuned += len(Effective(spec, st)) + len(Effective(spec, next))
		for _, s := range steps {
			kinds[s.Kind]++
		}
		if why := explainBadStep(spec, e, st, next, steps, monday); why != "" {
			t.Fatalf("seed %d: %s: by %+v from %+v to %+v", seed, why, steps, st, next)
		}
		if why := explainUnsteady(spec, e, next, steps, monday); why != "" {
			t.Fatalf("seed %d: after %+v %s", seed, steps, why)
		}
	}
	t.Logf("%d tuned settings, steps: %v", tuned, kinds)
	for _, kind := range []StepKind{Tried, Kept, RolledBack, Quarantined, Released} {
		if kinds[kind] < 50 || tuned < 2000 {
			t.Errorf("%d settings are tuned, and %d %s: the test shows nothing", tuned, kinds[kind], kind)
		}
	}
}

// explainBadStep says which invariant a step breaks; empty for none.
func explainBadStep(s Spec, e Evidence, was, next State, steps []Step, now time.Time) string {
	before, after := Effective(s, was), Effective(s, next)
	for _, effective := range []map[string]string{before, after} {
		for name, text := range effective {
			rule := findRule(s.Engine, name)
			if rule == nil || rule.restart || rule.trial == nil || slices.Contains(durability, name) || s.declares(name) || slices.Contains(s.Exclude, name) || !s.Apply {
				return name + "=" + text + " is in force"
			}
			if value, is := rule.parse(text); !is || value > rule.most(s) || math.IsNaN(value) || rule.format(value) != text {
				return name + "=" + text + " is in force, and no value of it"
			}
		}
	}
	changed := 0
	for _, name := range Names(s.Engine) {
		if before[name] != after[name] {
			changed++
			if !slices.ContainsFunc(steps, func(step Step) bool { return step.Name == name }) {
				return name + " changes, and no step says so"
			}
		}
	}
	if changed > 1 {
		return "more than one setting changes"
	}
	period := s.period()
	switch begins := next.Trial != nil && !reflect.DeepEqual(was.Trial, next.Trial); {
	case begins:
		return explainBadTrial(s, e, next, now)
	case next.Trial != nil && now.Sub(next.Trial.Since) > period.longest():
		return "a trial goes on for ever"
	}
	for _, step := range steps {
		if step.Kind == Kept && (was.Trial == nil || !e.Settled || e.Refused || before[step.Name] != step.Value) {
			return step.Name + " is kept without a trial of a settled cluster"
		}
	}
	return explainOverlong(next)
}

// explainBadTrial says why a trial should not have begun.
func explainBadTrial(s Spec, e Evidence, next State, now time.Time) string {
	trial := *next.Trial
	if !e.Settled || e.Primary != trial.Primary || e.Primary == "" || len(e.Slots) == 0 || !s.Window.isOpen(now) {
		return "a trial begins in a bad moment"
	}
	rule, last := findRule(s.Engine, trial.Name), e.Slots[len(e.Slots)-1]
	from, _ := rule.parse(trial.From)
	value, _ := rule.parse(trial.Value)
	if !rule.isClose(last.Settings[trial.Name], from) || value <= from || value > MostStep*from {
		return "a trial is not of a larger value"
	}
	if rule.disk && e.Used > mostUsedToTry {
		return "a volume that fills up gets more WAL"
	}
	with := maps.Clone(last.Settings)
	with[trial.Name] = value
	if use := memoryUse(s.Engine, with, last.Peaks); rule.memory && use > MemoryShare*float64(s.Memory)+1 {
		return "a trial takes more memory than there is"
	}
	if slices.ContainsFunc(next.Resting, func(r Resting) bool { return r.Name == trial.Name }) {
		return "what rests is tried"
	}
	return explainOverlong(next)
}

// explainOverlong says what the API server would refuse: the whole status is not written then.
func explainOverlong(st State) string {
	var texts []string
	for _, t := range st.Settings {
		texts = append(texts, t.Evidence)
	}
	for _, r := range st.Resting {
		texts = append(texts, r.Value, r.Reason[:len(r.Reason)/2])
	}
	if t := st.Trial; t != nil {
		texts = append(texts, t.Evidence)
	}
	for _, text := range texts {
		if len(text) > 256 {
			return "the API server refuses " + text
		}
	}
	return ""
}

// explainUnsteady says what is decided by the same evidence again; empty for nothing. What is
// kept may be tried further, and several kept settings may be more than memory allows.
func explainUnsteady(s Spec, e Evidence, st State, steps []Step, now time.Time) string {
	for range 4 {
		next, again := Next(s, e, st, now)
		if len(again) == 0 {
			if !reflect.DeepEqual(withoutEmpty(st), withoutEmpty(next)) {
				return "what is remembered changes without a step"
			}
			return ""
		}
		for _, step := range again {
			if step.Kind == Tried && slices.ContainsFunc(steps, func(o Step) bool { return o.Name == step.Name && (o.Kind == Quarantined || o.Kind == RolledBack) }) {
				return step.Name + " is tried again at once"
			}
			if step.Kind == Kept || step.Kind == Released {
				return "more is decided: " + step.Message
			}
		}
		steps, st = append(steps, again...), next
	}
	return "it decides again and again"
}

// withoutEmpty has no lists without an entry: they are recorded as none.
func withoutEmpty(st State) State {
	if len(st.Settings) == 0 {
		st.Settings = nil
	}
	if len(st.Resting) == 0 {
		st.Resting = nil
	}
	return st
}

// walk is a database to which things happen, with the hours of each member.
type walk struct {
	*database
	r       *rand.Rand
	members map[string][]agentapi.TuningSlot
	// busy is the load, and idle, away and late are hours to go: without a decision, without
	// the operator, and without taking up what is in force.
	busy, helps      float64
	idle, away, late int
}

// newWalk has a load that larger values help, or not.
func newWalk(r *rand.Rand) *walk {
	w := &walk{r: r, members: map[string][]agentapi.TuningSlot{}, busy: 1, helps: []float64{0, 1}[r.IntN(2)]}
	w.database = newDatabase(nil)
	w.spec.ObserveHours = 1 + r.IntN(12)
	return w
}

func (w *walk) hourOfLoad() map[string]float64 {
	grown := func(name string) float64 { return math.Pow(w.settings[name]/postgresSettings()[name], w.helps) }
	noise := 0.9 + 0.2*w.r.Float64()
	return map[string]float64{
		agentapi.TuningCheckpointsTimed: 0, agentapi.TuningTransactions: 1e5 * w.busy * noise, agentapi.TuningWALBytes: 2 * gibibyte * w.busy * noise,
		agentapi.TuningCheckpointsRequested: 32 * w.busy * noise / grown("max_wal_size"),
		agentapi.TuningTempFiles:            200 * w.busy / grown("work_mem"), agentapi.TuningTempBytes: 800 * mebibyte * w.busy * noise / grown("work_mem"),
	}
}

// happen has something happen, or nothing.
func (w *walk) happen() {
	e := &w.evidence
	e.Settled, e.Refused = true, false
	switch w.r.IntN(300) {
	case 0:
		e.Primary = map[string]string{"orders-0": "orders-1", "orders-1": "orders-0", "": "orders-0"}[e.Primary]
	case 1:
		w.members[e.Primary] = nil // its agent begins anew
	case 2, 3, 4:
		e.Settled = false
	case 5:
		w.away = w.r.IntN(40)
	case 6:
		e.LastKill = w.now
	case 7:
		e.Refused = true
	case 8:
		w.spec.Memory, w.spec.Hash = int64(1+w.r.IntN(4))*gibibyte, w.spec.Hash+"m"
	case 9, 17, 18, 19, 20:
		w.spec.Declared = []map[string]string{nil, {"work_mem": "4MB"}, {"max_wal_size": "256MB"}}[w.r.IntN(3)]
		w.spec.Hash += "d"
	case 10:
		w.spec.Exclude = [][]string{nil, {"work_mem"}, {"max_wal_size"}}[w.r.IntN(3)]
	case 11:
		w.spec.Apply = !w.spec.Apply
	case 12:
		w.busy *= 0.5 + w.r.Float64()
	case 13:
		w.idle = w.r.IntN(10)
	case 14:
		w.late = w.r.IntN(4)
	case 16:
		e.Used = w.r.Float64()
	case 15:
		w.spec.Volume = int64(1+w.r.IntN(20)) * gibibyte
		w.spec.Hash += "v"
	}
	if !w.spec.Apply && w.r.IntN(5) == 0 {
		w.spec.Apply = true
	}
}

// pass lets an hour pass, and says which invariant it breaks.
func (w *walk) pass() string {
	w.happen()
	if w.late--; w.late < 0 {
		w.takeUp()
	}
	if lead := w.evidence.Primary; lead != "" && w.r.IntN(100) > 0 {
		slot := hour(w.now, maps.Clone(w.settings), w.hourOfLoad())
		if w.r.IntN(300) == 0 {
			slot.Peaks[agentapi.TuningConnections] = 400
		}
		w.members[lead] = append(w.members[lead], slot)
		if n := len(w.members[lead]); n > 122 {
			w.members[lead] = w.members[lead][n-122:]
		}
	}
	w.now = w.now.Add(time.Hour)
	w.idle, w.away = w.idle-1, w.away-1
	if w.idle >= 0 || w.away >= 0 {
		return ""
	}
	w.evidence.Slots = w.members[w.evidence.Primary]
	if w.r.IntN(100) == 0 {
		w.evidence.Slots = nil // the operator has just started
	}
	was := w.state
	steps := w.decide()
	if why := explainBadStep(w.spec, w.evidence, was, w.state, steps, w.now); why != "" {
		return why
	}
	if why := w.explainWrongWords(was, steps); why != "" {
		return why
	}
	return explainUnsteady(w.spec, w.evidence, w.state, steps, w.now)
}

// explainWrongWords says where a message names a value that is not in force again.
func (w *walk) explainWrongWords(was State, steps []Step) string {
	if was.Trial == nil || w.state.Trial != nil {
		return ""
	}
	name, kept := was.Trial.Name, slices.ContainsFunc(was.Settings, func(t Tuned) bool { return t.Name == was.Trial.Name })
	_, stays := Effective(w.spec, w.state)[name]
	for _, step := range steps {
		if kept && !stays && strings.Contains(step.Message, was.Trial.From+" again") {
			return "it is not in force again: " + step.Message
		}
	}
	return ""
}

// Whatever happens to a database for months, in whichever order, each step keeps the
// invariants, and each kind of step is taken.
func TestTrialsInAnyOrderOfEvents(t *testing.T) {
	kinds := map[StepKind]int{}
	for seed := range uint64(30) {
		w := newWalk(rand.New(rand.NewPCG(seed, 17)))
		for h := range 24 * 60 {
			was := w.state
			if why := w.pass(); why != "" {
				t.Fatalf("seed %d, hour %d: %s: from %+v to %+v by %+v", seed, h, why, was, w.state, w.evidence.Settled)
			}
		}
		for _, kind := range w.kinds() {
			kinds[kind]++
		}
	}
	t.Logf("steps: %v", kinds)
	for _, kind := range []StepKind{Tried, Kept, RolledBack, Quarantined, Released} {
		if kinds[kind] < 10 {
			t.Errorf("%d are %s: the test shows nothing", kinds[kind], kind)
		}
	}
}
