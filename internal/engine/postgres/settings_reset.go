package postgres

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// describeReset says which parameter was reset, and what it was.
func describeReset(r postgresapi.Reset) string { return "parameter " + r.Parameter + ", was " + r.Was }

// listResets are the settings of ALTER SYSTEM that members have reset, in words.
func (j *judgement) listResets() (all []string) {
	for n := range j.Desired.Count {
		if m := j.Observed.Member(n); m != nil {
			for _, r := range readReplication(m).Resets {
				all = append(all, "ALTER SYSTEM on member "+j.PodName(n)+": "+describeReset(r))
			}
		}
	}
	return all
}

// alterDrifts are the same as drift that was put back, as far as status does not
// have recorded it yet.
func (j *judgement) alterDrifts() (drifts []apply.Drift) {
	for n := range j.Desired.Count {
		m := j.Observed.Member(n)
		if m == nil {
			continue
		}
		for _, r := range readReplication(m).Resets {
			d := apply.Drift{
				Time:   metav1.NewTime(r.Time),
				Object: apply.ObjectID{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: j.Key().Namespace, Name: j.PodName(n)},
				Path:   describeReset(r), Operation: apply.OperationAlterSystem, Action: apply.ActionReverted,
			}
			if !isRecorded(j.c.Status.Drift, d) {
				drifts = append(drifts, d)
			}
		}
	}
	return drifts
}

// isRecorded says whether a reset is recorded, or was before later ones took its
// place there.
func isRecorded(st *v1alpha1.DriftStatus, d apply.Drift) bool {
	return st != nil && slices.ContainsFunc(st.Last, func(r v1alpha1.DriftRecord) bool {
		return r.Operation == d.Operation && r.Object == d.Object.String() && (r.Path == d.Path && !r.Time.Before(&d.Time) || r.Time.After(d.Time.Time))
	})
}
