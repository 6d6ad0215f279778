package memberset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// RecommendSettings is what the members' measurements speak for, beside the settings that
// are declared or tuned. What is recorded stays while it holds: a cluster with a steady load
// writes nothing.
func (view *View) RecommendSettings(t Tuning) []v1alpha1.RecommendationStatus {
	spec := t.spec
	spec.Declared = t.Parameters()
	if spec.Apply {
		spec.Exclude = slices.Concat(spec.Exclude, tune.Unproposed(t.state))
	}
	was := readRecommendations(spec.Engine, view.Cluster.CommonStatus().Recommendations)
	return writeRecommendations(tune.Recommend(spec, view.listMeasured(), was, view.Now))
}

// listMeasured is what the members measured, of whichever led when, the oldest first.
func (view *View) listMeasured() []agentapi.TuningSlot {
	var slots []agentapi.TuningSlot
	for _, pod := range view.Observed.Pods {
		slots = append(slots, view.measuredBy(pod)...)
	}
	slices.SortStableFunc(slots, func(a, b agentapi.TuningSlot) int { return a.End.Compare(b.End) })
	return slots
}

func (view *View) measuredBy(pod *corev1.Pod) []agentapi.TuningSlot {
	measured := view.Observed.Members[pod.Name].Tuning
	if measured == nil || measured.PodUID != string(pod.UID) {
		return nil
	}
	return measured.Slots
}

// readRecommendations reads what was recorded. Fields that are none of a rule's, as of
// another version, are dropped.
func readRecommendations(e tune.Engine, recorded []v1alpha1.RecommendationStatus) []tune.Recommendation {
	var list []tune.Recommendation
	for _, name := range tune.Names(e) {
		for _, r := range recorded {
			if tune.Field(e, name) == r.Field {
				list = append(list, tune.Recommendation{
					Name: name, Field: r.Field, Current: r.Current, Value: r.Value, Evidence: r.Evidence, Restart: r.Restart, Since: r.Since.UTC(),
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
			Field: r.Field, Current: r.Current, Value: r.Value, Evidence: r.Evidence, Restart: r.Restart, Since: metav1.NewTime(r.Since),
		})
	}
	return status
}
