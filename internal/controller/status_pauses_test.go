package controller

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentclient"
)

func TestMergePauses(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	recorded := func(event v1alpha1.WritePauseEvent, minute int) v1alpha1.WritePause {
		return v1alpha1.WritePause{Event: event, Time: metav1.NewTime(at.Add(time.Duration(minute) * time.Minute)), Duration: metav1.Duration{Duration: time.Duration(minute) * time.Second}}
	}
	measured := func(event v1alpha1.WritePauseEvent, minute int) agentclient.Pause {
		return agentclient.Pause{Event: event, At: at.Add(time.Duration(minute)*time.Minute + 300*time.Millisecond), Duration: time.Duration(minute) * time.Second}
	}
	const restart, switchover = v1alpha1.WritePauseRestart, v1alpha1.WritePauseSwitchover
	for name, c := range map[string]struct {
		recorded []v1alpha1.WritePause
		measured []agentclient.Pause
		want     []v1alpha1.WritePause
	}{
		"nothing":              {nil, nil, nil},
		"the first":            {nil, []agentclient.Pause{measured(restart, 1)}, []v1alpha1.WritePause{recorded(restart, 1)}},
		"what is recorded":     {[]v1alpha1.WritePause{recorded(restart, 1)}, []agentclient.Pause{measured(restart, 1)}, []v1alpha1.WritePause{recorded(restart, 1)}},
		"the operator's start": {[]v1alpha1.WritePause{recorded(restart, 1)}, nil, []v1alpha1.WritePause{recorded(restart, 1)}},
		"a fourth": {
			[]v1alpha1.WritePause{recorded(restart, 1), recorded(switchover, 2), recorded(switchover, 3), recorded(switchover, 4)},
			[]agentclient.Pause{measured(switchover, 2), measured(switchover, 5)},
			[]v1alpha1.WritePause{recorded(restart, 1), recorded(switchover, 3), recorded(switchover, 4), recorded(switchover, 5)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := mergePauses(c.recorded, c.measured)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(got, mergePauses(got, c.measured)); diff != "" {
				t.Errorf("a second pass writes again:\n%s", diff)
			}
		})
	}
}
