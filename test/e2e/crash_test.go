//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// killer kills the operator the first time that it is seen at a moment of a
// cluster's life: a reason of Reconciling, or a kind of step.
type killer struct {
	c *subject
	// killed are the moments at which it was killed.
	killed map[string]bool
}

// currentMoment is where the operator has brought the cluster; empty before it
// has begun with what the spec says.
func (k *killer) currentMoment(ctx context.Context) (string, error) {
	obj := k.c.kind.empty()
	if err := env.client.Get(ctx, k.c.nameOf(""), obj); err != nil {
		return "", err
	}
	if obj.CommonStatus().ObservedGeneration != obj.GetGeneration() {
		return "", nil
	}
	moment := fmt.Sprintf("replicas %d", obj.Common().DesiredReplicas())
	if cond := meta.FindStatusCondition(obj.GetConditions(), v1alpha1.ConditionReconciling); cond != nil {
		moment += " " + cond.Reason
	}
	var events eventsv1.EventList
	if err := env.client.List(ctx, &events, client.InNamespace(k.c.namespace)); err != nil {
		return "", err
	}
	var steps []string
	for _, e := range events.Items {
		if e.Reason == v1alpha1.ReasonStepStarted && e.Regarding.Name == k.c.name {
			steps = append(steps, e.Action)
		}
	}
	slices.Sort(steps)
	if last := len(slices.Compact(steps)); last > 0 {
		moment += fmt.Sprintf(" after %d kinds of steps", last)
	}
	return moment, nil
}

// killUntilRolledOut starts the operator, kills it on the way, and waits until the
// cluster is rolled out. Where a change is short, the caller has stopped the operator
// before: one that is killed goes on for a second or two, in which it could bring the
// change to its end.
func (k *killer) killUntilRolledOut(change string) {
	k.c.t.Helper()
	must(k.c.t, k.c.operator.setReplicas(k.c.t.Context(), 1), "start the operator")
	kills := 0
	deadline := time.Now().Add(crashTimeout)
	for ; time.Now().Before(deadline); time.Sleep(truthInterval) {
		if rolledOut(k.c.getCluster()) == nil {
			if kills == 0 {
				k.c.t.Errorf("%s: the operator was not killed on the way", change)
			}
			return
		}
		moment, err := k.currentMoment(k.c.t.Context())
		must(k.c.t, err, "read the cluster")
		if moment == "" || k.killed[moment] {
			continue
		}
		must(k.c.t, k.c.operator.killPods(k.c.t.Context()), "kill the operator")
		k.killed[moment] = true
		kills++
		k.c.t.Logf("%s: killed at: %s", change, moment)
		k.c.operator.waitForLeader(k.c.t)
	}
	k.c.t.Fatalf("%s: the cluster does not get ready: %v", change, rolledOut(k.c.getCluster()))
}

// readIdentity reads the identity of what there must be only one of, for all of a cluster's life. An
// entry appears when its object does and never changes.
func readIdentity(ctx context.Context, c *subject) (map[string]string, error) {
	out := map[string]string{}
	var secrets corev1.SecretList
	var volumes corev1.PersistentVolumeClaimList
	var sets appsv1.StatefulSetList
	for _, list := range []client.ObjectList{&secrets, &volumes, &sets} {
		if err := env.client.List(ctx, list, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelCluster: c.name}); err != nil {
			return nil, err
		}
	}
	for _, s := range secrets.Items {
		out["secret "+s.Name] = string(s.UID)
		for _, key := range []string{"ca.crt", "app-password", "password"} {
			if value, there := s.Data[key]; there {
				out["secret "+s.Name+" "+key] = string(value)
			}
		}
	}
	for _, v := range volumes.Items {
		out["volume "+v.Name] = string(v.UID)
	}
	for _, s := range sets.Items {
		out["StatefulSet"] += string(s.UID)
	}
	return out, nil
}

// watchIdentity checks all the time whether anything is made twice.
func watchIdentity(c *subject) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	known := map[string]string{}
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(pollInterval) {
			now, err := readIdentity(ctx, c)
			if err != nil && ctx.Err() == nil {
				c.t.Errorf("read the cluster's objects: %v", err)
			}
			for what, id := range now {
				if before, recorded := known[what]; recorded && before != id {
					c.t.Errorf("%s was made twice", what)
				}
				known[what] = id
			}
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// crashAtEachStep kills the operator at every moment of creation and scaling.
func crashAtEachStep(t *testing.T, kind *kind) {
	c := newOperated(t, kind, 1)
	watchIdentity(c)
	k := &killer{c: c, killed: map[string]bool{}}
	k.killUntilRolledOut("creation")
	kind.keepValue(c, "1")
	first := c.podIncarnation(0)
	for _, members := range []int32{kind.several, 1} {
		c.operator.scaleTo(t, 0)
		c.scaleTo(members)
		k.killUntilRolledOut(fmt.Sprintf("%d members", members))
		c.waitReady()
		kind.awaitUnited(c, int(members))
	}
	if now := c.podIncarnation(0); now != first {
		t.Errorf("the operator's crashes touched the first member: %s, before %s", now, first)
	}
	if kept := kind.keptValue(c); kept != "1" {
		t.Errorf("what was kept is %q", kept)
	}
	eventually(t, operatorTimeout, "the operator is back", func(ctx context.Context) error { return c.operator.checkReplicas(ctx, 1) })
}

// standbyTakesOver: of two operators one leads, and the other goes on when it
// is killed.
func standbyTakesOver(t *testing.T) {
	c := newOperated(t, postgres, 1)
	c.waitReady()
	primary, own := c.podIncarnation(0), c.operator
	own.scaleTo(t, 2)
	own.waitForLeader(t)
	first, err := own.findLeader(t.Context())
	must(t, err, "who leads")
	leader, standby := first.UID, types.UID("")
	mark := c.markPlace()
	pods, err := own.listPods(t.Context())
	must(t, err, "the operators")
	for i := range pods {
		if pods[i].UID == leader {
			must(t, env.client.Delete(t.Context(), &pods[i], client.GracePeriodSeconds(0)), "kill the leader")
		} else {
			standby = pods[i].UID
		}
	}
	// Without a successor to the one that was killed, who could lead as well.
	must(t, own.setReplicas(t.Context(), 1), "scale the operator")
	eventually(t, leaderTimeout, "the standby leads", func(ctx context.Context) error {
		pod, err := own.findLeader(ctx)
		if err == nil && pod.UID != standby {
			err = errors.New("another one leads")
		}
		return err
	})
	c.awaitHandled()
	for _, obj := range c.sinceMark(mark) {
		if !meta.IsStatusConditionTrue(obj.GetConditions(), v1alpha1.ConditionReady) {
			t.Errorf("while operators changed, the cluster was called %s: %v", obj.CommonStatus().Phase, obj.GetConditions())
		}
	}
	// The metric is asked of the new leader: it was the one that put it back.
	drift{"takeover", &corev1.Service{}, "-rw", updateObject(func(s *corev1.Service) {
		s.Spec.Selector = map[string]string{"app": "another-client"}
	}), []trace{{path: ".spec.selector", operation: "Update"}}}.makeAndAwaitReverted(t, c)
	c.waitReady()
	if now := c.podIncarnation(0); now != primary {
		t.Errorf("the primary was touched: %s, before %s", now, primary)
	}
}
