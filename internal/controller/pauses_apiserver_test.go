//go:build apiserver

package controller_test

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentclient"
)

// A pause of writes is recorded once, the last three of each event, and an operator that
// starts anew keeps them.
func TestPausesAreRecorded(t *testing.T) { eachKind(t, pausesAreRecorded) }

func pausesAreRecorded(t *testing.T, w *world) {
	c, o := w.settled(1)
	at := time.Now().UTC().Truncate(time.Second).Add(-time.Hour)
	var all []agentclient.Pause
	for i := range 4 {
		all = append(all, agentclient.Pause{Event: v1alpha1.WritePauseSwitchover, At: at.Add(time.Duration(i) * time.Minute), Duration: time.Duration(i)*time.Second + 300*time.Millisecond})
	}
	w.simulation.change(func(s *simulation) { s.pauses = all })
	w.simulation.Wake(client.ObjectKeyFromObject(c))
	await(w, c, "the last three pauses are recorded", func(c v1alpha1.Cluster) bool { return len(c.CommonStatus().WritePauses) == 3 })
	if first := c.CommonStatus().WritePauses[0]; !first.Time.Time.Equal(at.Add(time.Minute)) || first.Duration.Duration != 1300*time.Millisecond {
		t.Errorf("the first is %+v", first)
	}
	w.awaitSteady(o)
	w.simulation.change(func(s *simulation) { s.pauses = nil }) // as after a start of the operator
	for range 20 {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		time.Sleep(50 * time.Millisecond)
	}
	if seen := o.take(); len(seen) > 0 {
		t.Errorf("%d requests: %v", len(seen), seen)
	}
	w.get(c)
	if n := len(c.CommonStatus().WritePauses); n != 3 {
		t.Errorf("%d pauses are left", n)
	}
}
