package memberset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Only the member that a trial is about, or that leads, is asked by the hour, and only from
// a day before the trial on.
func TestHoursAreOfOneMember(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	trial := func(age time.Duration) *v1alpha1.TuningStatus {
		return &v1alpha1.TuningStatus{Trial: &v1alpha1.TuningTrialStatus{Name: "work_mem", Primary: "orders-0", Since: metav1.NewTime(now.Add(-age))}}
	}
	for name, c := range map[string]struct {
		mode    v1alpha1.TuningMode
		primary string
		tuning  *v1alpha1.TuningStatus
		pod     string
		back    time.Duration
	}{
		"mode Recommend":                {v1alpha1.TuningRecommend, "orders-0", nil, "", 0},
		"no trial":                      {v1alpha1.TuningApply, "orders-1", nil, "orders-1", 27 * time.Hour},
		"a trial":                       {v1alpha1.TuningApply, "orders-0", trial(20 * time.Hour), "orders-0", 47 * time.Hour},
		"another member leads":          {v1alpha1.TuningApply, "orders-1", trial(20 * time.Hour), "orders-0", 47 * time.Hour},
		"a trial, and no primary known": {v1alpha1.TuningApply, "", trial(time.Hour), "orders-0", 28 * time.Hour},
		"a trial that is to begin":      {v1alpha1.TuningApply, "orders-0", trial(-time.Hour), "orders-0", 27 * time.Hour},
		"nothing is known":              {v1alpha1.TuningApply, "", nil, "", 27 * time.Hour},
	} {
		cluster := &v1alpha1.PostgresCluster{}
		cluster.Spec.Tuning.Mode = c.mode
		cluster.Status.Primary, cluster.Status.Tuning = c.primary, c.tuning
		pod, since := findHours(cluster, now)
		if pod != c.pod || c.back > 0 && !since.Equal(now.Add(-c.back)) {
			t.Errorf("%s: asked is %q from %s on", name, pod, since)
		}
	}
}
