//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// quiet is how long nothing may happen before a cluster is called steady.
const quiet = time.Second

// awaitSteady waits until an operator sends nothing any more.
func (w *world) awaitSteady(o *operator) {
	w.t.Helper()
	last := time.Now()
	apitest.Eventually(w.t, "steady", func(context.Context) (bool, string) {
		seen := o.take()
		if len(seen) > 0 {
			last = time.Now()
		}
		return time.Since(last) > quiet, fmt.Sprint(seen)
	})
}

// settled is a running cluster with nothing left to do.
func (w *world) settled(replicas int32) (v1alpha1.Cluster, *operator) {
	w.t.Helper()
	c := w.cluster("orders", replicas)
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(o)
	w.get(c)
	return c, o
}

// A pass over a steady cluster sends no request, however often it is made.
func TestSteadyPassSendsNothing(t *testing.T) { eachKind(t, steadyPassSendsNothing) }

func steadyPassSendsNothing(t *testing.T, w *world) {
	c, o := w.settled(w.kind.more)
	for range 50 {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		time.Sleep(100 * time.Millisecond)
	}
	if seen := o.take(); len(seen) > 0 {
		t.Errorf("%d requests: %v", len(seen), seen)
	}
}

// Flux's annotation is answered, without a new generation.
func TestRequestedAtIsAnswered(t *testing.T) { eachKind(t, requestedAtIsAnswered) }

func requestedAtIsAnswered(t *testing.T, w *world) {
	c, _ := w.settled(1)
	generation := c.GetGeneration()
	edit(w, c, func(c v1alpha1.Cluster) {
		c.SetAnnotations(map[string]string{meta.ReconcileRequestAnnotation: "2026-03-01T12:00:00Z"})
	})
	await(w, c, "the answer", func(c v1alpha1.Cluster) bool {
		return c.CommonStatus().LastHandledReconcileAt == "2026-03-01T12:00:00Z"
	})
	if c.GetGeneration() != generation || !ready(c) {
		t.Errorf("generation %d, was %d: %s", c.GetGeneration(), generation, describeDrifts(c))
	}
}

// A suspended cluster is reported on and not written to.
func TestSuspendWritesNothing(t *testing.T) { eachKind(t, suspendWritesNothing) }

func suspendWritesNothing(t *testing.T, w *world) {
	c, o := w.settled(1)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Suspend = true })
	await(w, c, "the suspension is reported", func(c v1alpha1.Cluster) bool {
		return c.CommonStatus().Phase == "Suspended" && c.CommonStatus().ObservedGeneration == c.GetGeneration()
	})
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: "orders" + w.kind.entry}}
	o.take()
	edit(w, service, func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.Ports[0].Port = 12345
	})
	await(w, c, "the drift is reported", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionSynced) == v1alpha1.ReasonDrifted
	})
	w.scale(c, w.kind.several)
	await(w, c, "the generation is observed", func(c v1alpha1.Cluster) bool {
		return c.CommonStatus().ObservedGeneration == c.GetGeneration() && conditions.IsFalse(c, v1alpha1.ConditionReady)
	})
	for _, request := range o.take() {
		if !isRead(request) && !isStatus(request) {
			t.Errorf("written while suspended: %s", request)
		}
	}
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Suspend = false })
	w.awaitReady(c)
	w.wantMembers(c, int(w.kind.several))
	w.get(service)
	if service.Spec.Ports[0].Port != w.kind.port {
		t.Error("the drift stays after the suspension")
	}
}

// Drift of a time without an operator is put back, and whose it was is said.
func TestDriftWhileNoOperatorRuns(t *testing.T) { eachKind(t, driftWhileNoOperatorRuns) }

func driftWhileNoOperatorRuns(t *testing.T, w *world) {
	c, o := w.settled(1)
	o.stop()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: "orders" + w.kind.entry}}
	edit(w, service, func(s *corev1.Service) { s.Spec.Ports[0].Port = 12345 })
	w.operate(0)
	apitest.Eventually(t, "the port is back", func(context.Context) (bool, string) {
		w.get(service)
		return len(service.Spec.Ports) == 1 && service.Spec.Ports[0].Port == w.kind.port, fmt.Sprint(service.Spec.Ports)
	})
	await(w, c, "the drift is recorded", func(c v1alpha1.Cluster) bool {
		return c.CommonStatus().Drift != nil && slices.ContainsFunc(c.CommonStatus().Drift.Last, func(d v1alpha1.DriftRecord) bool {
			return d.Object == "Service/orders"+w.kind.entry && d.Manager == "kubectl-edit" && d.Action == "Reverted"
		})
	})
	w.awaitReady(c)
}

// Another client scales the StatefulSet itself: it is put back, and no volume goes.
func TestForeignScale(t *testing.T) { eachKind(t, foreignScale) }

func foreignScale(t *testing.T, w *world) {
	c, _ := w.settled(w.kind.several)
	several := w.kind.several
	for _, replicas := range []int32{several + 2, 0} {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: c.GetName()}}
		w.get(set)
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		if err := w.person.SubResource("scale").Update(t.Context(), set, client.WithSubResourceBody(scale)); err != nil {
			t.Fatal(err)
		}
		apitest.Eventually(t, "as many members as before", func(context.Context) (bool, string) {
			w.get(set)
			return *set.Spec.Replicas == several && set.Status.ReadyReplicas == several && set.Status.Replicas == several, fmt.Sprint(*set.Spec.Replicas, set.Status)
		})
		w.awaitReady(c)
		await(w, c, "as many pods", func(c v1alpha1.Cluster) bool {
			return len(w.objects(c)["Pod"]) == int(several) && c.CommonStatus().ReadyReplicas == several
		})
	}
	await(w, c, "who it was", func(c v1alpha1.Cluster) bool {
		return c.CommonStatus().Drift != nil && slices.ContainsFunc(c.CommonStatus().Drift.Last, func(d v1alpha1.DriftRecord) bool {
			return d.Object == "StatefulSet/orders" && d.Path == ".spec.replicas" && d.Manager == "kubectl-edit (scale)"
		})
	})
}

// A status that another client wrote is put right at the next pass that writes
// one, and causes neither a deletion nor a bootstrap.
func TestForeignStatus(t *testing.T) { eachKind(t, foreignStatus) }

func foreignStatus(t *testing.T, w *world) {
	c, o := w.settled(w.kind.several)
	before, minted := w.podUIDs(c), w.minted(c)
	forged := c.DeepCopyObject().(v1alpha1.Cluster)
	*forged.CommonStatus() = v1alpha1.CommonStatus{
		Phase: "Forged", Primary: "orders-7", ObservedGeneration: c.GetGeneration(),
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "Forged", LastTransitionTime: metav1.Now()}},
	}
	if err := w.person.Status().Update(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	o.stop()
	w.operate(0)
	await(w, c, "the status is right again", func(c v1alpha1.Cluster) bool {
		return ready(c) && c.CommonStatus().Phase == "Ready" && c.CommonStatus().Primary == w.kind.primary && c.CommonStatus().SystemIdentifier == system
	})
	if diff := cmp.Diff(before, w.podUIDs(c)); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	w.wantSame(c, minted)
	w.wantWhole(c, w.kind.several)
}

// A stranger's object of a needed name is left alone and reported; when it
// goes, the cluster goes on.
func TestNameConflict(t *testing.T) { eachKind(t, nameConflict) }

func nameConflict(t *testing.T, w *world) {
	stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-config"}, Data: map[string]string{"mine": "yes"}}
	w.create(stranger)
	c := w.cluster("orders", 1)
	w.create(c)
	o := w.operate(0)
	await(w, c, "Stalled", func(c v1alpha1.Cluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonNameConflict && kstatus(c) == "Failed"
	})
	w.get(stranger)
	if diff := cmp.Diff(map[string]string{"mine": "yes"}, stranger.Data); diff != "" {
		t.Errorf("the stranger's data (-want +got):\n%s", diff)
	}
	if err := w.person.Delete(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	// Their objects are not watched: a new process need not wait its half minute.
	o.stop()
	w.operate(0)
	w.awaitReady(c)
	w.wantWhole(c, 1)
}

// What remains of a deleted cluster is what its policy says; a cluster of the
// same name takes up what was retained.
func TestDeletion(t *testing.T) { eachKind(t, deletion) }

func deletion(t *testing.T, w *world) {
	kept := map[string][]string{"PersistentVolumeClaim": {"data-orders-0"}, "Secret": {"orders-ca", "orders-internal"}}
	for policy, want := range map[v1alpha1.DeletionPolicy]map[string][]string{v1alpha1.DeletionRetain: kept, v1alpha1.DeletionDelete: {}} {
		t.Run(string(policy), func(t *testing.T) {
			w := newWorld(t, w.kind)
			c := w.cluster("orders", 1)
			c.Common().DeletionPolicy = policy
			w.create(c)
			w.operate(0)
			w.awaitReady(c)
			minted, uid := w.minted(c), w.volumeUID()
			if err := w.person.Delete(t.Context(), c, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
				t.Fatal(err)
			}
			apitest.Eventually(t, "garbage collection", func(context.Context) (bool, string) {
				left := w.objects(c)
				return cmp.Equal(want, left), fmt.Sprint(left)
			})
			again := w.cluster("orders", 1)
			w.create(again)
			w.awaitReady(again)
			if policy == v1alpha1.DeletionRetain {
				w.wantSame(again, minted)
			}
			if same := w.volumeUID() == uid; same != (policy == v1alpha1.DeletionRetain) {
				t.Errorf("the same volume: %t", same)
			}
		})
	}
}

func (w *world) volumeUID() types.UID {
	w.t.Helper()
	v := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "data-orders-0"}}
	w.get(v)
	return v.UID
}
