//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/podprocess"
)

// testSynchronous: with a quorum no acknowledged write is lost, however the primary
// goes, and none is acknowledged while too few standbys are there. The mode changes under
// writes, and restarts nothing.
func testSynchronous(t *testing.T) {
	needLocalCluster(t)
	f := newFailover(newCluster(t, failoverMembers))
	f.runPart(t, "TurnedOn", func(f *failover) { f.changeMode(v1alpha1.SynchronousQuorum, v1alpha1.UnavailableBlock) })
	f.runPart(t, "PodForced", func(f *failover) { losesNothing(f, "by force", func() { podForced(&f.trial) }) })
	f.runPart(t, "PrimaryCutOff", func(f *failover) { losesNothing(f, "cut off", func() { primaryCutOff(&f.trial) }) })
	f.runPart(t, "StandbysPaused", standbysPaused)
	f.runPart(t, "Degraded", standbysPausedDegrade)
	f.runPart(t, "TurnedOff", func(f *failover) { f.changeMode(v1alpha1.SynchronousOff, v1alpha1.UnavailableBlock) })
	f.report()
}

// losesNothing checks that an event, after which all writes are compared, lost none.
func losesNothing(f *failover, event string, run func()) {
	f.t.Helper()
	before := f.lost
	run()
	if lost := f.lost - before; lost != 0 {
		f.t.Errorf("primary %s: %d writes are lost that the quorum acknowledged", event, lost)
	}
	f.awaitQuorum(v1alpha1.SynchronousFull, 1)
}

// changeMode changes spec.synchronous of the running cluster.
func (f *failover) changeMode(mode v1alpha1.SynchronousMode, unavailable v1alpha1.UnavailablePolicy) {
	f.t.Helper()
	before, since := f.allIncarnations(), f.history.Now()
	f.editCluster(func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Synchronous = &v1alpha1.PostgresSynchronous{Mode: mode, Number: 1, WhenUnavailable: unavailable}
	})
	names := ""
	if mode == v1alpha1.SynchronousQuorum {
		names = "ANY 1 ("
	}
	f.waitReady()
	if names == "" {
		f.awaitQuorum("", 0)
	} else {
		f.awaitQuorum(v1alpha1.SynchronousFull, 1)
	}
	eventually(f.t, failoverTimeout, "the primary has synchronous_standby_names "+names, func(ctx context.Context) error {
		out, err := runLocalQuery(ctx, f.namespace, f.primaryPod().Name, "app", "select current_setting('synchronous_standby_names')")
		if err == nil && (!strings.HasPrefix(out, names) || names == "" && out != "") {
			err = fmt.Errorf("it has %q", out)
		}
		return err
	})
	f.w.goesOn(f.t)
	if after := f.allIncarnations(); after != before {
		f.t.Errorf("pods were restarted: %s, before %s", after, before)
	}
	f.endEvent("mode "+string(mode)+" "+string(unavailable), since, true)
}

// awaitQuorum waits until the status has a quorum in a state; none for an empty state.
func (f *failover) awaitQuorum(state string, number int32) {
	f.t.Helper()
	f.waitFor(failoverTimeout, "the quorum is "+state, func(obj *v1alpha1.PostgresCluster) error {
		var q *v1alpha1.SynchronousStatus
		if obj.Status.Election != nil {
			q = obj.Status.Election.Synchronous
		}
		if state == "" && q == nil || q != nil && q.State == state && q.Number == number {
			return nil
		}
		return fmt.Errorf("it is %+v", q)
	})
}

// pauseStandbys has every process of both standbys stand still.
func (f *failover) pauseStandbys() (resume func()) {
	f.t.Helper()
	var resumes []func()
	primary := f.primaryPod()
	for _, pod := range f.listPods() {
		if pod.UID != primary.UID {
			resumes = append(resumes, freezePod(f.t, pod.DeepCopy(), podprocess.All))
		}
	}
	return func() {
		for _, resume := range resumes {
			resume()
		}
	}
}

// standbysPaused: commits wait, which the status says with what to do, and go on when
// the standbys do.
func standbysPaused(f *failover) {
	before := f.history.Now()
	resume := f.pauseStandbys()
	since := f.history.Now()
	f.waitFor(failoverTimeout, "it is said that commits wait", func(obj *v1alpha1.PostgresCluster) error {
		degraded := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionDegraded)
		available := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionAvailable)
		if degraded == nil || !strings.Contains(degraded.Message, "commits wait") || available == nil ||
			available.Reason != v1alpha1.ReasonSynchronousDegraded || obj.Status.Election.Synchronous.State != v1alpha1.SynchronousWaiting {
			return fmt.Errorf("Degraded is %+v, Available %+v", degraded, available)
		}
		return nil
	})
	// A standby may have answered for a write that was sent before.
	if _, failed := f.w.countWrites(since); f.w.countSent(since) > 0 || failed == 0 {
		f.t.Errorf("%d writes were acknowledged without a standby, and %d failed", f.w.countSent(since), failed)
	}
	resume()
	losesNothing(f, "with paused standbys", func() { f.endEvent("standbys paused, Block", before, false) })
}

// standbysPausedDegrade: commits go on without the standbys, which the status says.
func standbysPausedDegrade(f *failover) {
	f.changeMode(v1alpha1.SynchronousQuorum, v1alpha1.UnavailableDegrade)
	before := f.history.Now()
	resume := f.pauseStandbys()
	f.awaitQuorum(v1alpha1.SynchronousDegraded, 0)
	f.w.goesOn(f.t)
	f.waitFor(failoverTimeout, "it is said that no standby has the commits", func(obj *v1alpha1.PostgresCluster) error {
		degraded := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionDegraded)
		if degraded == nil || !strings.Contains(degraded.Message, "flushed by no standby") {
			return fmt.Errorf("Degraded is %+v", degraded)
		}
		return nil
	})
	resume()
	losesNothing(f, "with paused standbys", func() { f.endEvent("standbys paused, Degrade", before, false) })
}
