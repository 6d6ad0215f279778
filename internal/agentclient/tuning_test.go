package agentclient

import (
	"encoding/json"
	"net/http"
	"strconv"
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

// Measurements of one member are asked for by the hour where a trial needs them, at once, and
// again as before once it does not. What is older than is read is not kept. Five days of them
// fit in an answer.
func TestTuningByTheHour(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		long := agentapi.Tuning{Pod: "orders-0", PodUID: "uid-0"}
		begin := time.Now().UTC()
		for n := range 136 {
			end := begin.Add(time.Duration(n-135) * time.Hour)
			slot := agentapi.TuningSlot{Start: end.Add(-time.Hour), End: end, Seconds: 3600.123456789, Sums: map[string]float64{}, Peaks: map[string]float64{}, Settings: map[string]float64{}}
			for _, values := range []map[string]float64{slot.Sums, slot.Peaks, slot.Settings} {
				for n := range 10 {
					values["a_setting_or_a_counter_"+string(rune('a'+n))] = 12345678901.5
				}
			}
			long.Slots = append(long.Slots, slot)
		}
		w.agent.mu.Lock()
		w.agent.tuning = func(out http.ResponseWriter) {
			w.agent.mu.Lock()
			defer w.agent.mu.Unlock()
			_ = json.NewEncoder(out).Encode(long)
		}
		w.agent.mu.Unlock()
		for i, c := range []struct {
			of        string
			since     time.Duration
			newAnswer bool
			hours     bool
			slots     int
		}{
			{"orders-0", 0, true, true, 136},
			{"", 0, true, false, 136}, // whatever an agent answers then is kept
			{"orders-0", 0, true, true, 136},
			{"orders-1", 0, false, false, 136},
			{"orders-0", 27 * time.Hour, false, true, 28},
		} {
			w.watchMembers(func(to *Target) {
				to.HoursOf = c.of
				if c.since > 0 {
					to.HoursSince = begin.Add(-c.since)
				}
			})
			if c.newAnswer {
				w.agent.mu.Lock()
				long.Revision = strconv.Itoa(i)
				w.agent.mu.Unlock()
				w.agent.changeStatus(func(s *agentapi.Status) { s.TuningRevision = strconv.Itoa(i) })
			}
			time.Sleep(time.Minute)
			w.agent.mu.Lock()
			if got := w.agent.tuningQuery == agentapi.TuningHoursQuery+"=true"; got != c.hours {
				t.Errorf("%d: asked was %q, want by the hour: %v", i, w.agent.tuningQuery, c.hours)
			}
			w.agent.mu.Unlock()
			if o := w.observedMember(); o.Tuning == nil || len(o.Tuning.Slots) != c.slots || cap(o.Tuning.Slots) > 2*c.slots {
				t.Errorf("%d: %d slots are kept, want %d", i, len(o.Tuning.Slots), c.slots)
			}
		}
	})
}
