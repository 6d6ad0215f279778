package agentclient

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// insightsAgent answers insights beside the status of a fake agent.
type insightsAgent struct {
	*fakeAgent
	asked  atomic.Int32
	answer atomic.Pointer[agentapi.Insights]
}

func answerInsights(w *world) *insightsAgent {
	i := &insightsAgent{fakeAgent: w.agent}
	i.answer.Store(&agentapi.Insights{Pod: "orders-0", PodUID: "uid-0", Revision: "a", Classes: []agentapi.Insight{
		{Class: "ServerStarted", Severity: agentapi.InsightNotice, Count: 1},
		{Class: "Deadlock", Severity: "Warning", Count: 3, SQLStates: []string{"40P01"}, Statements: []agentapi.InsightStatement{{QueryID: 7, Count: 3}}},
	}})
	w.agent.mu.Lock()
	defer w.agent.mu.Unlock()
	w.agent.insights = func(out http.ResponseWriter) {
		i.asked.Add(1)
		if answer := i.answer.Load(); answer != nil {
			_ = json.NewEncoder(out).Encode(answer)
			return
		}
		http.Error(out, "no", http.StatusNotFound)
	}
	return i
}

// Insights are asked for when the member reports other ones, and at no other time.
func TestInsightsAreAskedForWhenTheyChange(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		agent := answerInsights(w)
		w.watchMembers(nil)
		time.Sleep(10 * time.Minute)
		if agent.asked.Load() != 0 || w.observedMember().Insights != nil {
			t.Error("insights are asked of an agent that reports none")
		}
		w.wasWoken()
		agent.changeStatus(func(s *agentapi.Status) { s.InsightsRevision = "a" })
		o := w.observedMember()
		if o.Insights == nil || len(o.Insights.Classes) != 1 || o.Insights.Classes[0].Count != 3 {
			t.Fatalf("%+v", o.Insights)
		}
		if c := o.Insights.Classes[0]; c.Statements != nil || c.SQLStates != nil {
			t.Errorf("what no status reports is kept: %+v", c)
		}
		if !w.wasWoken() {
			t.Error("insights did not wake the loop")
		}
		time.Sleep(10 * time.Minute)
		if agent.asked.Load() != 1 || w.wasWoken() {
			t.Errorf("a steady member was asked for insights %d times", agent.asked.Load())
		}
		if w.net.dialed.Load() != 1 {
			t.Errorf("%d connections were made", w.net.dialed.Load())
		}
	})
}

// Insights that cannot be had are no failure of the member, and are asked for again.
func TestMissingInsightsAreNoFailure(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		agent := answerInsights(w)
		good := agent.answer.Swap(nil)
		agent.changeStatus(func(s *agentapi.Status) { s.InsightsRevision = "a" })
		w.watchMembers(nil)
		time.Sleep(time.Minute)
		if o := w.observedMember(); o.Err != "" || o.Status == nil || o.Insights != nil {
			t.Errorf("%+v", o)
		}
		if n := agent.asked.Load(); n < 1 || n > 10 {
			t.Errorf("asked %d times in a minute", n)
		}
		other := *good
		other.PodUID = "uid-of-the-pod-before"
		agent.answer.Store(&other)
		time.Sleep(time.Minute)
		if w.observedMember().Insights != nil {
			t.Error("insights of another pod are taken")
		}
		agent.answer.Store(good)
		time.Sleep(time.Minute)
		if w.observedMember().Insights == nil {
			t.Error("insights are not asked for again")
		}
	})
}
