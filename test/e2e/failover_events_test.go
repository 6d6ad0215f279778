//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/podprocess"
)

// triesAfterFailover is how many writes of a client in the former primary's pod have to
// fail after its successor took writes: it still tries.
const triesAfterFailover = 10

// podDeleted: the primary's pod is deleted as by kubectl delete. Another member leads,
// and nothing is lost.
func podDeleted(f *trial) time.Duration {
	pod, before, since := f.leadingPod(), f.currentTerm(), f.history.Now()
	deletePod(f.c.t, pod, false)
	if next := f.awaitSuccessor(before); next.Name == pod.Name {
		f.c.t.Errorf("%s stopped in order, and leads again", pod.Name)
	}
	return f.endEvent(eventPodDeleted, since, true)
}

// postmasterKilled: the same pod leads again, and nothing is lost.
func postmasterKilled(f *trial) time.Duration {
	pod, before, since := f.leadingPod(), f.currentTerm(), f.history.Now()
	killInPod(f.c.t, pod, podprocess.Postmaster)
	gap := f.endEvent(eventCrashed, since, true)
	now := f.currentTerm()
	if now.holder != before.holder || now.term < before.term {
		f.c.t.Errorf("term %d of %s leads, before term %d of %s", now.term, now.holder, before.term, before.holder)
	}
	return gap
}

// podForced: the primary's pod is deleted by force. Another pod leads: it may have the
// same name, as the volume may have the most WAL.
func podForced(f *trial) time.Duration {
	pod, before, since := f.leadingPod(), f.currentTerm(), f.history.Now()
	deletePod(f.c.t, pod, true)
	next := f.awaitSuccessor(before)
	f.c.t.Logf("%s leads after %s", next.Name, pod.Name)
	return f.endEvent(eventForced, since, false)
}

// primaryCutOff: the primary's pod is cut off from everything. Another one leads, and
// once it may, no client in the former primary's pod commits anything.
func primaryCutOff(f *trial) time.Duration {
	pod := f.leadingPod()
	return f.replaceUnreachable("primary cut off", pod, func() func() { return cutPod(f.c.t, pod, bothWays) })
}

// primaryFrozen: every process in the primary's pod stands still, its guard included.
// When they go on, the former primary acknowledges nothing.
func primaryFrozen(f *trial) time.Duration {
	pod := f.leadingPod()
	return f.replaceUnreachable("primary frozen", pod, func() func() { return freezePod(f.c.t, pod, podprocess.All) })
}

// nodeCutOff: the same for the cable of its node.
func nodeCutOff(f *trial) time.Duration {
	pod := f.leadingPod()
	moveOperatorAway(f.c.t, pod.Spec.NodeName)
	f.w.enterNode(f.c.t, f.c.otherNode(pod.Spec.NodeName))
	f.w.goesOn(f.c.t)
	return f.replaceUnreachable(eventNodeCut, pod, func() func() { return cutNode(f.c.t, pod.Spec.NodeName) })
}

// replaceUnreachable cuts a primary off under a client that reaches it still, and goes on
// trying when the former primary is back. That follows its successor then.
func (f *trial) replaceUnreachable(event string, pod *corev1.Pod, cut func() (heal func())) time.Duration {
	f.c.t.Helper()
	inside := f.startWriterInside(pod)
	defer inside.stop()
	before, since := f.currentTerm(), f.history.Now()
	heal := cut()
	cutOff := f.history.Now()
	next := f.awaitSuccessor(before)
	if next.Name == pod.Name {
		f.c.t.Errorf("%s leads, which is cut off", pod.Name)
	}
	if f.startOperator == nil {
		f.awaitStatusPrimary(next.Name)
		f.awaitDegraded(pod.Name)
	}
	f.awaitRefusedWrites(inside)
	heal()
	f.awaitRefusedWrites(inside)
	inside.stop()
	if acknowledged := inside.countSent(cutOff); f.db.losesNothing() && acknowledged > 0 {
		f.c.t.Errorf("%s: %d writes are acknowledged to a client inside, that were sent after the cut", event, acknowledged)
	}
	return f.endEvent(event, since, false)
}

// awaitRefusedWrites waits until a client that still tries has failed so often. What it
// committed meanwhile is judged with all other writes.
func (f *trial) awaitRefusedWrites(inside *rowWriter) {
	f.c.t.Helper()
	since := f.history.Now()
	eventually(f.c.t, failoverTimeout, inside.client+" is refused", func(context.Context) error {
		if _, failed := inside.countWrites(since); failed < triesAfterFailover {
			return fmt.Errorf("%d writes failed", failed)
		}
		return nil
	})
}

// awaitStatusPrimary waits until the status names a pod as the primary.
func (f *trial) awaitStatusPrimary(pod string) {
	f.c.t.Helper()
	f.c.waitFor(failoverTimeout, "status.primary is "+pod, func(obj v1alpha1.Cluster) error {
		if obj.CommonStatus().Primary != pod {
			return fmt.Errorf("it is %q", obj.CommonStatus().Primary)
		}
		return nil
	})
}

// awaitDegraded waits until the status names a member as what is broken, while another
// one serves.
func (f *trial) awaitDegraded(member string) {
	f.c.t.Helper()
	f.c.waitFor(failoverTimeout, "the cluster is Degraded by "+member, func(obj v1alpha1.Cluster) error {
		degraded := meta.FindStatusCondition(obj.GetConditions(), v1alpha1.ConditionDegraded)
		if degraded == nil || degraded.Status != metav1.ConditionTrue {
			return fmt.Errorf("Degraded is %+v, phase %s", degraded, obj.CommonStatus().Phase)
		}
		return holdsAll(degraded.Message, member)
	})
}

// switchover: a person requests that a certain member leads. The request has a result,
// and nothing is lost.
func switchover(f *trial) time.Duration {
	target, before := f.chooseReplica(), f.currentTerm()
	id, since := fmt.Sprintf("e2e-%d", f.history.Now()), f.history.Now()
	f.c.requestSwitchover(id, target.Name)
	if next := f.awaitSuccessor(before); next.UID != target.UID {
		f.c.t.Errorf("%s leads, and the switchover was to %s", next.Name, target.Name)
	}
	f.c.waitFor(failoverTimeout, "the request has a result", func(obj v1alpha1.Cluster) error {
		for _, r := range obj.CommonStatus().Requests {
			if r.ID == id && r.Result != "" {
				f.c.t.Logf("switchover to %s: %s", target.Name, r.Result)
				return nil
			}
		}
		return fmt.Errorf("the requests are %+v", obj.CommonStatus().Requests)
	})
	return f.endEvent(eventSwitchover, since, true)
}

// apiServerUnreachable: no member reaches the API server, and all reach each other. The
// primary goes on.
func apiServerUnreachable(f *failover) time.Duration {
	before, since := f.currentLeadership(), f.history.Now()
	return f.servesThrough("API server not reached by members", before, since, outagePeriod, f.cutAllFromAPIServer())
}

// apiServerStopped: the API server stands still for all.
func apiServerStopped(f *trial) time.Duration {
	before, since := f.currentTerm(), f.history.Now()
	return f.servesThrough(eventAPIStopped, before, since, outagePeriod, []func(){pauseAPIServer(f.c.t)})
}

// outagePeriod is longer than all deadlines of the Lease together.
const outagePeriod = 60 * time.Second

// servesThrough lets an outage of the API server be. No write fails, and the primary is
// the same one afterwards.
func (f *trial) servesThrough(event string, before leadership, since, period time.Duration, heals []func()) time.Duration {
	f.c.t.Helper()
	time.Sleep(period) // the observation itself: writes go on meanwhile
	acknowledged, failed := f.w.countWrites(since)
	if failed > 0 || acknowledged == 0 {
		f.c.t.Errorf("%s: %d writes failed and %d were acknowledged, the last error is %v", event, failed, acknowledged, f.w.readError())
	}
	for _, heal := range heals {
		heal()
	}
	eventually(f.c.t, failoverTimeout, "the same primary leads", func(ctx context.Context) error {
		now, err := f.db.readLeadership(ctx, f.c)
		if err == nil && now != before {
			err = fmt.Errorf("it is %+v, before %+v", now, before)
		}
		return err
	})
	return f.endEvent(event, since, true)
}

// operatorAway: without the operator another member is elected all the same.
func operatorAway(f *trial) time.Duration { return whileOperatorAway(podForced)(f) }

// withoutOperatorSuffix is what the name of such an event ends with.
const withoutOperatorSuffix = " without the operator"

// whileOperatorAway has an event happen without the operator, which is started again when
// the event's times are noted.
func whileOperatorAway(run func(*trial) time.Duration) func(*trial) time.Duration {
	return func(f *trial) time.Duration {
		installed.restoreReplicas(f.c.t)
		replicas := installedReplicas(f.c.t)
		installed.scaleTo(f.c.t, 0)
		f.startOperator = func() { installed.scaleTo(f.c.t, replicas) }
		return run(f)
	}
}

func installedReplicas(t *testing.T) int32 {
	t.Helper()
	d, err := installed.getDeployment(t.Context())
	must(t, err, "read the operator's Deployment")
	if d.Spec.Replicas == nil || *d.Spec.Replicas == 0 {
		must(t, errors.New("it has no replicas"), "the operator's Deployment")
	}
	return *d.Spec.Replicas
}
