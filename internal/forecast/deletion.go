package forecast

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Delete is what becomes of a cluster whose object is deleted. Volumes go with it exactly
// if they have its owner reference now, whatever the spec says.
func (w *World) Delete() Outcome {
	w.steps = nil
	pods := w.podsNamed(slices.Collect(maps.Keys(w.Observed.Pods)))
	w.record(Step{Kind: ClusterDeleted, Members: pods, WritesPause: len(pods) > 0})
	var kept, gone []string
	sort := func(v *corev1.PersistentVolumeClaim) {
		owned := slices.ContainsFunc(v.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == w.Cluster.GetUID() })
		if owned || v.DeletionTimestamp != nil {
			gone = append(gone, v.Name)
			return
		}
		kept = append(kept, v.Name)
	}
	for _, n := range slices.Sorted(maps.Keys(w.Observed.Volumes)) {
		sort(w.Observed.Volumes[n])
	}
	if v := w.Observed.BackupVolume; v != nil {
		sort(v)
	}
	if len(kept) > 0 {
		w.record(Step{Kind: VolumeKept, Volumes: kept})
	}
	if len(gone) > 0 {
		w.record(Step{Kind: VolumeDeleted, Volumes: gone, Message: "they belong to the cluster's object", OneWay: "deleted data comes back from a backup only", DataAtRisk: true})
	}
	return Outcome{Steps: slices.Clone(w.steps)}
}
