package forecast

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// Outcome is how a world came to rest, or why it did not.
type Outcome struct {
	// Steps in the order in which they happen.
	Steps []Step
	// Stalled are what only a person can fix, each with its reason, at the end.
	Stalled []Fact
	// Waiting are what still is under way although nothing moves any more.
	Waiting []Fact
	// Degraded are what serves and is not as it should be.
	Degraded []Fact
	// Ready says that the condition Ready would be true.
	Ready bool
}

// Fact is a fact of the operator's plan.
type Fact struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

const (
	// mostPasses of the operator in one run, and mostAdvances between two of them: a
	// cluster of nine members takes fewer than a hundred.
	mostPasses   = 1000
	mostAdvances = 200
	// longestPause is how far the time moves at once while nothing else does, and
	// patience how often that may be in vain.
	longestPause = time.Minute
	patience     = 6
)

// Settle runs passes until nothing moves, and answers what happened.
func (w *World) Settle() (Outcome, error) {
	w.steps = nil
	idle := 0
	for range mostPasses {
		p := w.PlanNow()
		moved := w.FollowPlan(p)
		for range mostAdvances {
			if !w.Advance(listOrdinals()) {
				break
			}
			moved = true
		}
		w.noteEndings()
		if moved {
			idle, w.Now = 0, w.Now.Add(time.Second)
			continue
		}
		if idle++; idle > patience || p.Recheck == 0 && idle > 1 {
			return w.conclude(p.Facts), nil
		}
		pause := time.Second
		if p.Recheck > 0 {
			pause = min(p.Recheck, longestPause)
		}
		w.Now = w.Now.Add(pause)
		w.answerAgain()
	}
	return Outcome{}, fmt.Errorf("the forecast of %s %s does not come to an end", w.Set().GVK.Kind, w.Cluster.GetName())
}

// noteEndings notes since when the volumes that are to go have had no pod.
func (w *World) noteEndings() {
	if w.Observed.Ended == nil {
		w.Observed.Ended = map[int]time.Time{}
	}
	for _, n := range memberset.ReadMembership(w.Set(), *w.Observed).Surplus {
		if _, known := w.Observed.Ended[n]; !known {
			w.Observed.Ended[n] = w.Now
		}
	}
}

// answerAgain has every member answer a question that is asked now.
func (w *World) answerAgain() {
	for name, m := range w.Observed.Members {
		m.Asked, m.At = w.Now, w.Now
		w.Observed.Members[name] = m
	}
}

// conclude reads the outcome off the facts of the last plan.
func (w *World) conclude(facts []condition.Fact) Outcome {
	out := Outcome{Steps: slices.Clone(w.steps), Ready: conditions.IsTrue(w.Cluster, v1alpha1.ConditionReady)}
	for _, f := range facts {
		if f.Status != metav1.ConditionTrue {
			continue
		}
		fact := Fact{f.Reason, f.Message}
		switch f.Type {
		case v1alpha1.ConditionStalled:
			out.Stalled = addOnce(out.Stalled, fact)
		case v1alpha1.ConditionReconciling:
			out.Waiting = addOnce(out.Waiting, fact)
		case v1alpha1.ConditionDegraded:
			out.Degraded = addOnce(out.Degraded, fact)
		}
	}
	return out
}

// addOnce adds a fact that several members may report alike.
func addOnce(facts []Fact, f Fact) []Fact {
	if slices.Contains(facts, f) {
		return facts
	}
	return append(facts, f)
}
