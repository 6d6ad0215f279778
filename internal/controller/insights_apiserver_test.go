//go:build apiserver

package controller_test

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// What members find in their text logs is recorded once. Counts that grow, and classes
// that are new within ten minutes, write nothing more.
func TestInsightsAreRecorded(t *testing.T) { eachKind(t, insightsAreRecorded) }

func insightsAreRecorded(t *testing.T, w *world) {
	c, o := w.settled(1)
	if c.CommonStatus().Insights != nil {
		t.Errorf("a cluster whose members found nothing has %+v", c.CommonStatus().Insights)
	}
	now := time.Now().UTC().Truncate(time.Hour)
	find := func(classes ...agentapi.Insight) {
		w.simulation.change(func(s *simulation) { s.insights = classes })
	}
	deadlock := agentapi.Insight{Class: "Deadlock", Severity: "Warning", Count: 4, First: now, Last: now}
	find(deadlock, agentapi.Insight{Class: "no class of the list", Severity: "Critical", Count: 1, First: now, Last: now})
	await(w, c, "insights are recorded", func(c v1alpha1.Cluster) bool { return c.CommonStatus().Insights != nil })
	recorded := c.CommonStatus().Insights.DeepCopy()
	if len(recorded.Classes) != 1 || recorded.Classes[0].Class != "Deadlock" || recorded.Classes[0].Count != 4 || recorded.Classes[0].Member == "" {
		t.Errorf("recorded is %+v", recorded)
	}
	if !ready(c) {
		t.Error("insights make a cluster not ready")
	}
	w.awaitSteady(o)
	deadlock.Count = 7
	find(deadlock)
	for range 20 {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		time.Sleep(50 * time.Millisecond)
	}
	deadlock.Count = 4000
	find(deadlock, agentapi.Insight{Class: "DiskFull", Severity: "Critical", Count: 1, First: now, Last: now})
	for range 20 {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		time.Sleep(50 * time.Millisecond)
	}
	if seen := o.take(); len(seen) > 0 {
		t.Errorf("%d requests: %v", len(seen), seen)
	}
	w.get(c)
	if !c.CommonStatus().Insights.Time.Equal(&recorded.Time) {
		t.Errorf("recorded again within ten minutes: %+v", c.CommonStatus().Insights)
	}
}
