package memberset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/schedule"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// failedStarts is how many starts in a row must fail for a tuned setting to be taken back.
const failedStarts = 3

// tuning is what a pass has to say of settings.
type tuning struct {
	recommendations []v1alpha1.RecommendationStatus
	wait            time.Duration
}

// PlanTuning plans which settings are tuned. In force are only those that were persisted
// before: what is decided now is persisted by this pass, and takes effect in the next one.
func PlanTuning(view *View, d *objects.Desired, e tune.Engine, declared map[string]string) {
	spec, opens := view.specifyTuning(e, declared)
	state := tune.DecodeState(e, view.Observed.Tuning)
	was := readRecommendations(e, view.Cluster.CommonStatus().Recommendations)
	next, advice := tune.Next(spec, view.gatherEvidence(), state, was, view.Now)
	d.Tuning, d.Tuned = next.Encode(), state.Values(spec)
	view.tuning = tuning{recommendations: writeRecommendations(advice)}
	view.tuning.wait = engine.SoonestOf(tune.NextCheck(spec, next, view.Now), opens)
}

// specifyTuning is what is declared, and when the window opens next; 0 for never.
func (view *View) specifyTuning(e tune.Engine, declared map[string]string) (tune.Spec, time.Duration) {
	common := view.Cluster.Common()
	s := tune.Spec{
		Engine: e, Mode: tune.Recommend, Exclude: common.Tuning.Exclude, Declared: declared,
		Memory: common.Resources.Limits.Memory().Value(), Volume: view.Storage.Size.Value(), Times: view.Observed.TuningTimes,
	}
	if s.Times == (tune.Times{}) {
		s.Times = tune.DefaultTimes
	}
	if mode := common.Tuning.Mode; mode != "" {
		s.Mode = tune.Mode(mode)
	}
	window := common.Tuning.Window
	if s.Mode != tune.Apply || window == nil {
		return s, 0
	}
	parsed, err := schedule.Parse(window.Schedule, window.TimeZone)
	if err != nil {
		return s, 0 // it never opens
	}
	s.Open = view.Now.Before(parsed.LastSlot(view.Now).Add(window.Duration.Duration))
	return s, parsed.NextSlot(view.Now).Sub(view.Now)
}

// gatherEvidence is what the members report, of whichever led when.
func (view *View) gatherEvidence() tune.Evidence {
	e := tune.Evidence{Settled: true}
	hashes := map[string]bool{}
	for n := range max(view.Membership.Declared, 1) {
		m := view.Observed.Member(n)
		if m == nil {
			e.Settled = false
			continue
		}
		hashes[m.ConfigHash] = true
		if !m.Serving || len(m.PendingRestart) > 0 {
			e.Settled = false
		}
		if m.ConfigError != "" {
			e.Refused = m.ConfigError
		}
		e.Broken = e.Broken || !m.Serving && m.Failures >= failedStarts
		e.Slots = append(e.Slots, view.measuredBy(view.Observed.Pods[n])...)
	}
	e.Settled = e.Settled && len(hashes) == 1
	slices.SortStableFunc(e.Slots, func(a, b agentapi.TuningSlot) int { return a.Start.Compare(b.Start) })
	return e
}

func (view *View) measuredBy(pod *corev1.Pod) []agentapi.TuningSlot {
	if pod == nil {
		return nil
	}
	measured := view.Observed.Members[pod.Name].Tuning
	if measured == nil || measured.PodUID != string(pod.UID) {
		return nil
	}
	return measured.Slots
}

func readRecommendations(e tune.Engine, recorded []v1alpha1.RecommendationStatus) []tune.Recommendation {
	var list []tune.Recommendation
	for _, r := range recorded {
		for _, name := range tune.Names(e) {
			if tune.Field(e, name) == r.Field {
				list = append(list, tune.Recommendation{
					Name: name, Field: r.Field, Current: r.Current, Value: r.Value, Evidence: r.Evidence, Restart: r.Restart, State: r.State, Since: r.Since.UTC(),
				})
			}
		}
	}
	return list
}

func writeRecommendations(list []tune.Recommendation) []v1alpha1.RecommendationStatus {
	var status []v1alpha1.RecommendationStatus
	for _, r := range list {
		status = append(status, v1alpha1.RecommendationStatus{
			Field: r.Field, State: r.State, Current: r.Current, Value: r.Value, Evidence: r.Evidence, Restart: r.Restart, Since: metav1.NewTime(r.Since),
		})
	}
	return status
}
