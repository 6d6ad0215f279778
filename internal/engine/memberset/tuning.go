package memberset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// RecommendSettings is what the members' measurements speak for, of resources and of settings,
// beside the settings that are declared or tuned. What is recorded stays while it holds: a cluster with a steady load
// writes nothing.
func (view *View) RecommendSettings(t Tuning) []v1alpha1.RecommendationStatus {
	spec := t.spec
	spec.Declared = t.Parameters()
	if spec.Apply {
		spec.Exclude = slices.Concat(spec.Exclude, tune.Unproposed(t.state))
	}
	was, slots := readRecommendations(spec.Engine, view.Cluster.CommonStatus().Recommendations), view.listMeasured()
	lacking, spare := tune.RecommendResources(spec, view.listSized(), slots, was, view.Now)
	return writeRecommendations(spec, slices.Concat(lacking, tune.Recommend(spec, slots, was, view.Now), spare))
}

// readResources are the declared resources that may be recommended otherwise.
func readResources(declared corev1.ResourceRequirements) tune.Resources {
	amount := func(list corev1.ResourceList, name corev1.ResourceName) tune.Amount {
		quantity, is := list[name]
		if !is {
			return tune.Amount{}
		}
		value := quantity.Value()
		if name == corev1.ResourceCPU {
			value = quantity.MilliValue()
		}
		return tune.Amount{Value: value, Text: quantity.String()}
	}
	return tune.Resources{
		RequestCPU: amount(declared.Requests, corev1.ResourceCPU), LimitCPU: amount(declared.Limits, corev1.ResourceCPU),
		RequestMemory: amount(declared.Requests, corev1.ResourceMemory), LimitMemory: amount(declared.Limits, corev1.ResourceMemory),
	}
}

// listSized is what each member measured of its container. One that has no pod now, or has not
// reported since the operator started, has measured nothing that is known.
func (view *View) listSized() []tune.Member {
	var members []tune.Member
	for n := range view.Cluster.Common().DesiredReplicas() {
		m := tune.Member{Name: view.PodName(n)}
		measured := view.Observed.Members[m.Name].Tuning
		if pod := view.Observed.Pods[n]; pod != nil && measured != nil && measured.PodUID == string(pod.UID) {
			m.Sizing = measured.Sizing
		}
		members = append(members, m)
	}
	return members
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
	names := map[string]string{}
	for _, name := range tune.Names(e) {
		names[tune.Field(e, name)] = name
	}
	for _, name := range tune.ResourceNames() {
		names[tune.ResourceField(name)] = name
	}
	var list []tune.Recommendation
	for _, r := range recorded {
		if name := names[r.Field]; name != "" {
			list = append(list, tune.Recommendation{
				Name: name, Field: r.Field, Current: r.Current, Value: r.Value, Evidence: r.Evidence, Restart: r.Restart, Since: r.Since.UTC(),
				Untried: readUntried(r.Untried),
			})
		}
	}
	return list
}

func writeRecommendations(spec tune.Spec, list []tune.Recommendation) []v1alpha1.RecommendationStatus {
	var status []v1alpha1.RecommendationStatus
	for _, r := range list {
		status = append(status, v1alpha1.RecommendationStatus{
			Field: r.Field, Current: r.Current, Value: r.Value, Evidence: r.Evidence, Restart: r.Restart, Since: metav1.NewTime(r.Since),
			Computed: tune.ListComputed(spec, r.Name), Untried: writeUntried(spec, r.Untried),
		})
	}
	return status
}

func readUntried(recorded *v1alpha1.UntriedStatus) *tune.Untried {
	if recorded == nil {
		return nil
	}
	return &tune.Untried{Reason: tune.Reason(recorded.Reason), Message: recorded.Message, Since: recorded.Since.UTC()}
}

// writeUntried writes nothing where nothing would be tried: what is recorded is of another mode.
func writeUntried(spec tune.Spec, u *tune.Untried) *v1alpha1.UntriedStatus {
	if u == nil || !spec.Apply {
		return nil
	}
	return &v1alpha1.UntriedStatus{Reason: string(u.Reason), Message: u.Message, Since: metav1.NewTime(u.Since)}
}
