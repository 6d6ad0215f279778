//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func (f *failover) leaseObject() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: f.name + postgres.lease}}
}

func (f *failover) deleteLease(ctx context.Context) error {
	return env.client.Delete(ctx, f.leaseObject())
}

// emptyLease takes the holder and the annotations out of it.
func (f *failover) emptyLease(ctx context.Context) error {
	const patch = `{"metadata":{"annotations":null},"spec":{"holderIdentity":null,"renewTime":null,"acquireTime":null}}`
	return env.client.Patch(ctx, f.leaseObject(), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// nameHolder edits the Lease by hand: another pod is its holder.
func (f *failover) nameHolder(ctx context.Context, holder types.UID) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"holderIdentity": holder}})
	if err != nil {
		return err
	}
	return env.client.Patch(ctx, f.leaseObject(), client.RawPatch(types.MergePatchType, patch))
}

// leaseEdited: a person names a replica as the holder. The primary stops, the replica
// does not lead by that, and a person has to name one that does.
func leaseEdited(f *failover) time.Duration {
	before, since := f.currentLeadership(), f.history.Now()
	primary, named := f.primaryPod(), f.chooseReplica()
	must(f.t, f.nameHolder(f.t.Context(), named.UID), "edit the Lease")
	f.awaitNoCandidate()
	f.expectNoWrites(2 * leaseDuration)
	f.promote(primary.Name)
	f.awaitTermAfter(before)
	return f.endEvent("Lease edited, and the primary promoted", since, true)
}

// leaseDeletedWhileDead: the Lease is deleted while its holder is cut off. None is
// elected: a person names one, and the holder is back by then.
func leaseDeletedWhileDead(f *failover) time.Duration {
	before, since := f.currentLeadership(), f.history.Now()
	primary := f.primaryPod()
	heal := cutPod(f.t, primary, bothWays)
	must(f.t, f.deleteLease(f.t.Context()), "delete the Lease")
	f.awaitNoCandidate()
	f.expectNoWrites(2 * leaseDuration)
	heal()
	f.promote(primary.Name)
	f.awaitTermAfter(before)
	return f.endEvent("Lease deleted while the primary is cut off, and that promoted", since, true)
}

// awaitNoCandidate waits until the status says that no member may lead.
func (f *failover) awaitNoCandidate() {
	f.t.Helper()
	f.waitCondition(2*failoverTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonNoSafeCandidate)
}

// promote requests that a pod leads with what it has.
func (f *failover) promote(pod string) {
	f.t.Helper()
	id := fmt.Sprintf("e2e-promote-%d", f.history.Now())
	must(f.t, f.annotate(f.t.Context(), v1alpha1.AnnotationPromote, id+"@"+pod), "request the promotion")
}

// awaitTermAfter waits until a member leads on a later timeline, and takes writes.
func (f *failover) awaitTermAfter(before leadership) {
	f.t.Helper()
	f.w.writesOn(f.t, f.cluster.awaitTermAfter(before).timeline)
}

// awaitTermAfter waits until a member leads on a later timeline.
func (c *cluster) awaitTermAfter(before leadership) (now leadership) {
	c.t.Helper()
	eventually(c.t, 2*failoverTimeout, "a member leads on a later timeline", func(ctx context.Context) (err error) {
		_, now, err = c.findPrimary(ctx)
		if err == nil && now.timeline <= before.timeline {
			err = fmt.Errorf("it is %+v, before %+v", now, before)
		}
		return err
	})
	return now
}
