package condition

import (
	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// ResolveBackup sets every condition of a backup from the one fact that its
// state is: Ready, Reconciling or Stalled.
func ResolveBackup(b *v1alpha1.Backup, f Fact) {
	put := func(conditionType string, status metav1.ConditionStatus) {
		conditions.Set(b, &metav1.Condition{
			Type: conditionType, Status: status, Reason: f.Reason, Message: cut(f.Message), ObservedGeneration: b.GetGeneration(),
		})
	}
	for _, abnormal := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if f.Type == abnormal {
			put(abnormal, metav1.ConditionTrue)
		} else {
			conditions.Delete(b, abnormal)
		}
	}
	ready := metav1.ConditionFalse
	if f.Type == v1alpha1.ConditionReady {
		ready = f.Status
	}
	put(v1alpha1.ConditionReady, ready)
}
