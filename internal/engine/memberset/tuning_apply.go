package memberset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// DefaultObserveHours is spec.tuning.observeHours where it is not declared.
const DefaultObserveHours int32 = 24

// Tuning is what is tuned in a pass: it is read from the recorded status alone, so that what
// members get and what the next step is decided by are the same, whatever the pass decides.
type Tuning struct {
	spec  tune.Spec
	state tune.State
	now   time.Time
}

// ReadTuning reads what is recorded of tuned settings, beside those that the spec declares,
// by name. Hash is of what is declared and changes what a trial measures.
func (view *View) ReadTuning(e tune.Engine, declared map[string]string, hash string) Tuning {
	common := view.Cluster.Common()
	spec := tune.Spec{
		Engine: e, Off: common.Tuning.Mode == v1alpha1.TuningOff, Apply: common.Tuning.Mode == v1alpha1.TuningApply, Hash: hash,
		Exclude: common.Tuning.Exclude, Declared: declared,
		Memory: common.Resources.Limits.Memory().Value(), Volume: view.Storage.Size.Value(),
		Resources: readResources(common.Resources),
	}
	spec.ObserveHours = int(ptr.Deref(common.Tuning.ObserveHours, DefaultObserveHours))
	if w := common.Tuning.Window; w != nil {
		spec.Window = tune.ParseWindow(w.Start, w.End, w.TimeZone)
	}
	return Tuning{spec: spec, state: readTuning(view.Cluster.CommonStatus().Tuning), now: view.Now}
}

// Parameters are those that members get: what is tuned, and over it what is declared.
func (t Tuning) Parameters() map[string]string {
	return t.merge(tune.Effective(t.spec, t.state))
}

// EarlierParameters are those that members had before the last step, as far as is known.
func (t Tuning) EarlierParameters() []map[string]string {
	var sets []map[string]string
	for _, tuned := range tune.EarlierValues(t.spec, t.state, t.now) {
		sets = append(sets, t.merge(tuned))
	}
	return sets
}

// NextCheck is when members must have taken up what was rolled back; 0 for never.
func (t Tuning) NextCheck() time.Duration { return tune.RollBackCheck(t.state, t.now) }

func (t Tuning) merge(tuned map[string]string) map[string]string {
	if len(tuned) == 0 {
		return t.spec.Declared
	}
	maps.Copy(tuned, t.spec.Declared)
	return tuned
}

// HashFields is a digest of declared fields, for a trial that ends when others are declared.
// One that is empty is as one that is not there.
func HashFields(fields map[string]string) string {
	declared := maps.Clone(fields)
	maps.DeleteFunc(declared, func(_, value string) bool { return value == "" })
	text, err := json.Marshal(declared)
	if err != nil {
		panic(fmt.Sprintf("fields always marshal: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// findHours says whose measurements mode Apply reads by the hour, and from when on: those of the
// member that a trial is about, and else of the one that leads. It is by what is recorded, so
// that a primary that does not answer for a moment keeps its hours.
func findHours(c v1alpha1.Cluster, now time.Time) (pod string, since time.Time) {
	if c.Common().Tuning.Mode != v1alpha1.TuningApply {
		return "", time.Time{}
	}
	pod, since = c.CommonStatus().Primary, now
	if trial := readTuning(c.CommonStatus().Tuning).Trial; trial != nil {
		pod = trial.Primary
		if trial.Since.Before(now) {
			since = trial.Since
		}
	}
	return pod, since.Add(-tune.HoursRead)
}

// DecideTuning reports what is tuned from the next pass on, and why what is recommended is not
// tried. It returns what changed. Primary is the member that takes writes, empty for none, and
// settled says that no step is to be taken.
func (j *Judgement) DecideTuning(report *engine.Report, t Tuning, primary string, settled bool) []engine.Announcement {
	if j.Cluster.Common().Suspend {
		report.Tuning = j.Cluster.CommonStatus().Tuning
		return nil // members get nothing, so nothing is decided
	}
	e := j.listTuningEvidence(t, primary, settled)
	next, steps := tune.Next(t.spec, e, t.state, j.Now)
	was := readRecommendations(t.spec.Engine, j.Cluster.CommonStatus().Recommendations)
	list := readRecommendations(t.spec.Engine, report.Recommendations)
	for n, r := range tune.ExplainUntried(t.spec, e, next, steps, list, was, j.Now) {
		report.Recommendations[n].Untried = writeUntried(t.spec, r.Untried)
	}
	if j.Cluster.CommonStatus().Tuning != nil || !next.IsEmpty() {
		report.Tuning = writeTuning(next)
	}
	return announceTuning(steps)
}

// listTuningEvidence is what is known of the members.
func (j *Judgement) listTuningEvidence(t Tuning, primary string, settled bool) tune.Evidence {
	e := tune.Evidence{Primary: primary, Config: agentapi.HashConfig(j.Desired.Config), Settled: settled && j.isSettled(), LastKill: j.findLastKill()}
	for n, pod := range j.Observed.Pods {
		m := j.Observed.Member(n)
		if m == nil {
			continue
		}
		e.Refused = e.Refused || t.state.Trial != nil && refusesSetting(m.ConfigError, t.state.Trial.Name)
		if m.VolumeSize > 0 {
			e.Used = max(e.Used, float64(m.VolumeUsed)/float64(m.VolumeSize))
		}
		if pod.Name == primary {
			e.Slots = j.measuredBy(pod)
		}
	}
	return e
}

// isSettled says whether nothing is under way: a load is judged by itself.
func (j *Judgement) isSettled() bool {
	return condition.RolledOut(j.Cluster) && !j.Cluster.Common().Suspend && !slices.ContainsFunc(j.Facts, func(f condition.Fact) bool {
		return f.Type == v1alpha1.ConditionReconciling || f.Type == v1alpha1.ConditionStalled ||
			f.Type == v1alpha1.ConditionAvailable && f.Status != metav1.ConditionTrue
	})
}

// findLastKill is when a member's database ran out of memory last; zero if none did. The
// kubelet reports it of the container, and the agent of single processes in it, too.
func (view *View) findLastKill() (last time.Time) {
	later := func(at time.Time) {
		if at.After(last) {
			last = at
		}
	}
	for _, pod := range view.Observed.Pods {
		for _, status := range pod.Status.ContainerStatuses {
			if status.Name != view.Container {
				continue
			}
			for _, end := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
				if end != nil && end.Reason == "OOMKilled" {
					later(end.FinishedAt.Time)
				}
			}
		}
		if measured := view.Observed.Members[pod.Name].Tuning; measured != nil && measured.Sizing != nil && measured.PodUID == string(pod.UID) {
			later(measured.Sizing.LastKill)
		}
	}
	return last
}

// tuningReasons are the reasons of events for steps; those that changed a setting back are
// warnings.
var tuningReasons = map[tune.StepKind]struct {
	reason  string
	warning bool
}{
	tune.Tried:       {v1alpha1.ReasonTuningTried, false},
	tune.Kept:        {v1alpha1.ReasonTuningKept, false},
	tune.Released:    {v1alpha1.ReasonTuningReleased, false},
	tune.RolledBack:  {v1alpha1.ReasonTuningRolledBack, true},
	tune.Quarantined: {v1alpha1.ReasonTuningQuarantined, true},
}

func announceTuning(steps []tune.Step) []engine.Announcement {
	var list []engine.Announcement
	for _, s := range steps {
		r := tuningReasons[s.Kind]
		list = append(list, engine.Announcement{Reason: r.reason, Action: "Tune", Cause: s.Name + "=" + s.Value, Warning: r.warning, Message: s.Message})
	}
	return list
}

// hasConfig says whether a member runs with what is declared. What differs only by what was
// tuned before the last step is taken up within a minute: it is no repair.
func (view *View) hasConfig(m *agentapi.Status) bool {
	return m.ConfigHash == agentapi.HashConfig(view.Desired.Config) ||
		condition.RolledOut(view.Cluster) && slices.Contains(view.Desired.EarlierConfigs, m.ConfigHash)
}

func readTuning(recorded *v1alpha1.TuningStatus) tune.State {
	var st tune.State
	if recorded == nil {
		return st
	}
	for _, t := range recorded.Settings {
		st.Settings = append(st.Settings, tune.Tuned{Name: t.Name, Value: t.Value, From: t.From, Evidence: t.Evidence, Basis: t.Basis, Since: t.Since.UTC()})
	}
	if t := recorded.Trial; t != nil {
		st.Trial = &tune.Trial{Name: t.Name, Value: t.Value, From: t.From, Evidence: t.Evidence, Primary: t.Primary, SpecHash: t.SpecHash, Since: t.Since.UTC()}
	}
	for _, r := range recorded.Resting {
		st.Resting = append(st.Resting, tune.Resting{Name: r.Name, Value: r.Value, Reason: r.Reason, Quarantined: r.Quarantined, Since: r.Since.UTC(), Until: r.Until.UTC()})
	}
	return st
}

// writeTuning is empty, and not nil, where nothing is remembered any more: what is left out
// stays where another client has written it, too.
func writeTuning(st tune.State) *v1alpha1.TuningStatus {
	status := &v1alpha1.TuningStatus{}
	for _, t := range st.Settings {
		status.Settings = append(status.Settings, v1alpha1.TunedSettingStatus{Name: t.Name, Value: t.Value, From: t.From, Evidence: t.Evidence, Basis: t.Basis, Since: metav1.NewTime(t.Since)})
	}
	if t := st.Trial; t != nil {
		status.Trial = &v1alpha1.TuningTrialStatus{
			Name: t.Name, Value: t.Value, From: t.From, Evidence: t.Evidence, Primary: t.Primary, SpecHash: t.SpecHash, Since: metav1.NewTime(t.Since),
		}
	}
	for _, r := range st.Resting {
		status.Resting = append(status.Resting, v1alpha1.RestingSettingStatus{Name: r.Name, Value: r.Value, Reason: r.Reason, Quarantined: r.Quarantined, Since: metav1.NewTime(r.Since), Until: metav1.NewTime(r.Until)})
	}
	return status
}
