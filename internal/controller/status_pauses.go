package controller

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentclient"
)

// mergePauses are the newest pauses of each event, by event and the oldest first: those
// that are recorded and those that were measured.
func mergePauses(recorded []v1alpha1.WritePause, measured []agentclient.Pause) []v1alpha1.WritePause {
	all := slices.Clone(recorded)
	for _, m := range measured {
		at := metav1.NewTime(m.At.UTC().Truncate(time.Second))
		known := slices.ContainsFunc(recorded, func(r v1alpha1.WritePause) bool { return r.Event == m.Event && r.Time.Equal(&at) })
		if !known {
			all = append(all, v1alpha1.WritePause{Event: m.Event, Time: at, Duration: metav1.Duration{Duration: m.Duration}})
		}
	}
	slices.SortStableFunc(all, func(a, b v1alpha1.WritePause) int {
		return cmp.Or(cmp.Compare(a.Event, b.Event), a.Time.Compare(b.Time.Time))
	})
	var kept []v1alpha1.WritePause
	for i, one := range all {
		if later := i + v1alpha1.MaxWritePauses; later >= len(all) || all[later].Event != one.Event {
			kept = append(kept, one)
		}
	}
	return kept
}
