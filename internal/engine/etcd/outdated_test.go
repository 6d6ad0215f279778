package etcd

import (
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// An outdated member that crashed is first its agent's to
// start again.
func TestOutdatedMemberIsFirstItsAgentsToRestart(t *testing.T) {
	for failures, replaced := range map[int]bool{1: false, 2: true} {
		w := settled(t, 3)
		w.o.Pods[2].Annotations[v1alpha1.AnnotationRollout] = "before"
		m := w.status(2)
		m.State, m.Serving, m.Failures = agentapi.StateFailed, false, failures
		m.Time, m.DownSince = now, now.Add(-time.Second)
		w.o.ServicePods[suffixClient]["config-2"] = false
		p := planCluster(w.c, w.o, now)
		if got := p.Step != nil && p.Step.Type == memberset.StepReplaceMember; got != replaced {
			t.Errorf("after %d failures: replaced %v, want %v: %+v", failures, got, replaced, p.Step)
		}
	}
}
