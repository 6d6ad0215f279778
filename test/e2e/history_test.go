//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// history is every status that a cluster had, as a watch shows it. Whatever
// holds of all of them at all times is checked on the way.
type history struct {
	mu       sync.Mutex
	statuses []v1alpha1.Cluster
	// rolledOut are the generations that were Ready once, by the cluster's UID.
	rolledOut map[string]bool
	changed   chan struct{}
}

// followName watches one name in a namespace until the test ends.
func followName(t *testing.T, k *kind, namespace, name string) *history {
	t.Helper()
	h := &history{changed: make(chan struct{}, 1), rolledOut: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.watchName(ctx, t, k, namespace, name)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return h
}

func (h *history) watchName(ctx context.Context, t *testing.T, k *kind, namespace, name string) {
	for ctx.Err() == nil {
		w, err := env.client.Watch(ctx, k.list(), &client.ListOptions{
			Namespace: namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", name),
		})
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("watch the cluster: %v", err)
			}
			return
		}
		for event := range w.ResultChan() {
			c, ok := event.Object.(v1alpha1.Cluster)
			if !ok {
				break
			}
			if err := checkHonest(c); err != nil {
				t.Errorf("at resourceVersion %s, phase %s: %v", c.GetResourceVersion(), c.CommonStatus().Phase, err)
			}
			if err := h.checkRepaired(c); err != nil {
				t.Errorf("at resourceVersion %s, phase %s: %v", c.GetResourceVersion(), c.CommonStatus().Phase, err)
			}
			h.addStatus(c)
		}
		w.Stop()
	}
}

// checkRepaired says what is wrong with calling a repair a change: a generation that
// was Ready once is rolled out, whatever breaks then.
func (h *history) checkRepaired(c v1alpha1.Cluster) error {
	conditions, observed := c.GetConditions(), c.CommonStatus().ObservedGeneration
	of := fmt.Sprintf("%s/%d", c.GetUID(), observed)
	if meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReady) {
		h.rolledOut[of] = true
	}
	if !h.rolledOut[of] {
		return nil
	}
	if cond := meta.FindStatusCondition(conditions, v1alpha1.ConditionReconciling); cond != nil && cond.Reason != v1alpha1.ReasonRecovering {
		return fmt.Errorf("generation %d was Ready, and is Reconciling/%s: %s", observed, cond.Reason, cond.Message)
	}
	if cond := meta.FindStatusCondition(conditions, v1alpha1.ConditionStalled); cond != nil && cond.Reason == v1alpha1.ReasonProgressDeadline {
		return fmt.Errorf("generation %d was Ready, and is Stalled/%s: %s", observed, cond.Reason, cond.Message)
	}
	return nil
}

func (h *history) addStatus(c v1alpha1.Cluster) {
	h.mu.Lock()
	h.statuses = append(h.statuses, c)
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// markPlace is a place in the history, to read what came after it.
func (h *history) markPlace() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.statuses)
}

func (h *history) sinceMark(mark int) []v1alpha1.Cluster {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.statuses[mark:])
}

// phasesSince are the phases that came after a place, without repetition.
func (h *history) phasesSince(mark int) []string {
	var phases []string
	for _, c := range h.sinceMark(mark) {
		if phase := c.CommonStatus().Phase; len(phases) == 0 || phases[len(phases)-1] != phase {
			phases = append(phases, phase)
		}
	}
	return phases
}

// checkHonest says what a status may never say, whatever goes on.
func checkHonest(c v1alpha1.Cluster) error {
	result, err := computeStatus(c)
	if err != nil {
		return err
	}
	conditions, observed := c.GetConditions(), c.CommonStatus().ObservedGeneration
	reconciling := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionReconciling)
	stalled := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled)
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	isReady := ready != nil && ready.Status == metav1.ConditionTrue
	var errs []error
	report := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	report(observed > c.GetGeneration(), "observedGeneration %d is ahead of generation %d", observed, c.GetGeneration())
	report(reconciling && stalled, "Reconciling and Stalled together")
	report(isReady && (reconciling || stalled), "Ready with Reconciling=%t, Stalled=%t", reconciling, stalled)
	if result.Status == status.CurrentStatus {
		report(!isReady, "kstatus says Current and Ready is not True")
		report(observed != c.GetGeneration(), "kstatus says Current of generation %d, observed is %d", c.GetGeneration(), observed)
	}
	if isReady && observed == c.GetGeneration() && c.GetDeletionTimestamp() == nil {
		report(result.Status != status.CurrentStatus, "Ready, and kstatus says %s: %s", result.Status, result.Message)
	}
	for _, cond := range conditions {
		report(cond.ObservedGeneration != observed, "%s speaks of generation %d, the status of %d", cond.Type, cond.ObservedGeneration, observed)
		report(cond.Message == "", "%s/%s says nothing to people", cond.Type, cond.Reason)
	}
	for _, absent := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled, v1alpha1.ConditionDegraded} {
		cond := meta.FindStatusCondition(conditions, absent)
		report(cond != nil && cond.Status != metav1.ConditionTrue, "%s is there and not True", absent)
	}
	return errors.Join(errs...)
}

// holdsAll says which words a text lacks.
func holdsAll(text string, words ...string) error {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return fmt.Errorf("%q is not in %q", word, text)
		}
	}
	return nil
}
