//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
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
func podDeleted(f *failover) time.Duration {
	pod, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	deletePod(f.t, pod, false)
	if next := f.awaitSuccessor(before); next.Name == pod.Name {
		f.t.Errorf("%s released the Lease in order, and leads again", pod.Name)
	}
	return f.endEvent(eventPodDeleted, since, true)
}

// postmasterKilled: the same pod leads again, and nothing is lost.
func postmasterKilled(f *failover) time.Duration {
	pod, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	killInPod(f.t, pod, podprocess.Postmaster)
	gap := f.endEvent(eventCrashed, since, true)
	now := f.currentLeadership()
	if now.holder != before.holder || now.term < before.term {
		f.t.Errorf("term %d of %s leads, before term %d of %s", now.term, now.holder, before.term, before.holder)
	}
	return gap
}

// podForced: the primary's pod is deleted by force. Another pod leads: it may have the
// same name, as the volume may have the most WAL.
func podForced(f *failover) time.Duration {
	pod, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	deletePod(f.t, pod, true)
	next := f.awaitSuccessor(before)
	f.t.Logf("%s leads after %s", next.Name, pod.Name)
	return f.endEvent(eventForced, since, false)
}

// primaryCutOff: the primary's pod is cut off from everything. Another one leads, and
// once it may, no client in the former primary's pod commits anything.
func primaryCutOff(f *failover) time.Duration {
	pod := f.primaryPod()
	return f.replaceUnreachable("primary cut off", pod, func() func() { return cutPod(f.t, pod, bothWays) })
}

// primaryFrozen: every process in the primary's pod stands still, its guard included.
// When they go on, the former primary acknowledges nothing.
func primaryFrozen(f *failover) time.Duration {
	pod := f.primaryPod()
	return f.replaceUnreachable("primary frozen", pod, func() func() { return freezePod(f.t, pod, podprocess.All) })
}

// nodeCutOff: the same for the cable of its node.
func nodeCutOff(f *failover) time.Duration {
	pod := f.primaryPod()
	moveOperatorAway(f.t, pod.Spec.NodeName)
	f.w.enterNode(f.t, f.otherNode(pod.Spec.NodeName))
	f.w.goesOn(f.t)
	return f.replaceUnreachable(eventNodeCut, pod, func() func() { return cutNode(f.t, pod.Spec.NodeName) })
}

// replaceUnreachable cuts a primary off under a client that reaches it still, and goes on
// trying when the former primary is back. That follows its successor then.
func (f *failover) replaceUnreachable(event string, pod *corev1.Pod, cut func() (heal func())) time.Duration {
	f.t.Helper()
	inside := f.startWriterInside(pod)
	defer inside.stop()
	before, since := f.currentLeadership(), f.history.Now()
	heal := cut()
	next := f.awaitSuccessor(before)
	if next.Name == pod.Name {
		f.t.Errorf("%s leads, which is cut off", pod.Name)
	}
	f.awaitStatusPrimary(next.Name)
	f.awaitDegraded(pod.Name)
	f.awaitRefusedWrites(inside)
	heal()
	f.awaitRefusedWrites(inside)
	inside.stop()
	return f.endEvent(event, since, false)
}

// awaitRefusedWrites waits until a client that still tries has failed so often. What it
// committed meanwhile is judged with all other writes.
func (f *failover) awaitRefusedWrites(inside *failoverWriter) {
	f.t.Helper()
	since := f.history.Now()
	eventually(f.t, failoverTimeout, inside.client+" is refused", func(context.Context) error {
		if _, failed := inside.countWrites(since); failed < triesAfterFailover {
			return fmt.Errorf("%d writes failed", failed)
		}
		return nil
	})
}

// awaitStatusPrimary waits until the status names a pod as the primary.
func (f *failover) awaitStatusPrimary(pod string) {
	f.t.Helper()
	f.waitFor(failoverTimeout, "status.primary is "+pod, func(obj *v1alpha1.PostgresCluster) error {
		if obj.Status.Primary != pod {
			return fmt.Errorf("it is %q", obj.Status.Primary)
		}
		return nil
	})
}

// awaitDegraded waits until the status names a member as what is broken, while another
// one serves.
func (f *failover) awaitDegraded(member string) {
	f.t.Helper()
	f.waitFor(failoverTimeout, "the cluster is Degraded by "+member, func(obj *v1alpha1.PostgresCluster) error {
		degraded := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionDegraded)
		if degraded == nil || degraded.Status != metav1.ConditionTrue {
			return fmt.Errorf("Degraded is %+v, phase %s", degraded, obj.Status.Phase)
		}
		return holdsAll(degraded.Message, member)
	})
}

// switchover: a person requests that a certain member leads. The request has a result,
// and nothing is lost.
func switchover(f *failover) time.Duration {
	target, before := f.chooseReplica(), f.currentLeadership()
	id, since := fmt.Sprintf("e2e-%d", before.term), f.history.Now()
	f.requestSwitchover(id, target.Name)
	if next := f.awaitSuccessor(before); next.UID != target.UID {
		f.t.Errorf("%s leads, and the switchover was to %s", next.Name, target.Name)
	}
	f.waitFor(failoverTimeout, "the request has a result", func(obj *v1alpha1.PostgresCluster) error {
		for _, r := range obj.Status.Requests {
			if r.ID == id && r.Result != "" {
				f.t.Logf("switchover to %s: %s", target.Name, r.Result)
				return nil
			}
		}
		return fmt.Errorf("the requests are %+v", obj.Status.Requests)
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
func apiServerStopped(f *failover) time.Duration {
	before, since := f.currentLeadership(), f.history.Now()
	return f.servesThrough(eventAPIStopped, before, since, outagePeriod, []func(){pauseAPIServer(f.t)})
}

// outagePeriod is longer than all deadlines of the Lease together.
const outagePeriod = 60 * time.Second

// servesThrough lets an outage of the API server be. No write fails, and the primary is
// the same one afterwards.
func (f *failover) servesThrough(event string, before leadership, since, period time.Duration, heals []func()) time.Duration {
	f.t.Helper()
	time.Sleep(period) // the observation itself: writes go on meanwhile
	acknowledged, failed := f.w.countWrites(since)
	if failed > 0 || acknowledged == 0 {
		f.t.Errorf("%s: %d writes failed and %d were acknowledged, the last error is %v", event, failed, acknowledged, f.w.readError())
	}
	for _, heal := range heals {
		heal()
	}
	eventually(f.t, failoverTimeout, "the Lease is renewed by the same primary", func(ctx context.Context) error {
		now, err := readLeadership(ctx, f.namespace, f.name)
		if err == nil && now != before {
			err = fmt.Errorf("it is %+v, before %+v", now, before)
		}
		return err
	})
	return f.endEvent(event, since, true)
}

// operatorAway: without the operator another member is elected all the same. The
// operator is started again when writes go on.
func operatorAway(f *failover) time.Duration {
	installed.restoreReplicas(f.t)
	replicas := installedReplicas(f)
	installed.scaleTo(f.t, 0)
	pod, before, since := f.primaryPod(), f.currentLeadership(), f.history.Now()
	deletePod(f.t, pod, true)
	f.awaitSuccessor(before)
	f.w.goesOn(f.t)
	installed.scaleTo(f.t, replicas)
	return f.endEvent(eventNoOperator, since, false)
}

func installedReplicas(f *failover) int32 {
	f.t.Helper()
	d, err := installed.getDeployment(f.t.Context())
	must(f.t, err, "read the operator's Deployment")
	if d.Spec.Replicas == nil || *d.Spec.Replicas == 0 {
		must(f.t, errors.New("it has no replicas"), "the operator's Deployment")
	}
	return *d.Spec.Replicas
}
