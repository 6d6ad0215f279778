package agentclient

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Measurements are asked for when the member reports other ones, and at no other time.
// That they cannot be had is no failure of the member.
func TestTuningIsAskedForWhenItChanges(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		var asked atomic.Int32
		var answer atomic.Pointer[agentapi.Tuning]
		w.agent.mu.Lock()
		w.agent.tuning = func(out http.ResponseWriter) {
			asked.Add(1)
			if a := answer.Load(); a != nil {
				_ = json.NewEncoder(out).Encode(a)
				return
			}
			http.Error(out, "no", http.StatusNotFound)
		}
		w.agent.mu.Unlock()
		w.watchMembers(nil)
		time.Sleep(10 * time.Minute)
		if asked.Load() != 0 || w.observedMember().Tuning != nil {
			t.Error("measurements are asked of an agent that reports none")
		}
		w.agent.changeStatus(func(s *agentapi.Status) { s.TuningRevision = "a" })
		time.Sleep(time.Minute)
		if o := w.observedMember(); o.Err != "" || o.Status == nil || o.Tuning != nil {
			t.Errorf("%+v", o)
		}
		answer.Store(&agentapi.Tuning{Pod: "orders-0", PodUID: "uid-of-the-pod-before", Revision: "a"})
		time.Sleep(time.Minute)
		if w.observedMember().Tuning != nil {
			t.Error("measurements of another pod are taken")
		}
		w.wasWoken()
		answer.Store(&agentapi.Tuning{Pod: "orders-0", PodUID: "uid-0", Revision: "a", Slots: []agentapi.TuningSlot{{Seconds: 600}}})
		time.Sleep(time.Minute)
		if o := w.observedMember(); o.Tuning == nil || len(o.Tuning.Slots) != 1 || o.Tuning.Slots[0].Seconds != 600 {
			t.Fatalf("%+v", o.Tuning)
		}
		if !w.wasWoken() {
			t.Error("measurements did not wake the loop")
		}
		before := asked.Load()
		time.Sleep(10 * time.Minute)
		if asked.Load() != before || w.wasWoken() {
			t.Errorf("a steady member was asked %d times", asked.Load()-before)
		}
	})
}
