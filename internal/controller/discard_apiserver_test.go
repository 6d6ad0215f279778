//go:build apiserver

package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// lose has the member in the pod of a UID no longer serve; every member that does is one
// that may lead.
func (w *world) lose(lost types.UID) {
	w.simulation.change(func(s *simulation) {
		s.also = func(m *agentapi.Status) {
			m.Engine = postgresapi.ReplicationStatus{Election: &postgresapi.ElectionState{
				Volume: "volume-of-" + m.Pod, MayLead: []string{"volume-of-orders-0", "volume-of-orders-1"},
			}}
			if m.PodUID == string(lost) {
				m.Serving, m.State = false, agentapi.StateDisconnected
			}
		}
	})
}

// claimOf and podOf are those of a member of orders as the API server has them now.
func (w *world) claimOf(ordinal int) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	v := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("data-orders-%d", ordinal)}}
	w.get(v)
	return v
}

func (w *world) podOf(ordinal int) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("orders-%d", ordinal)}}
	w.get(pod)
	return pod
}

// discard requests that the volume of orders-1 is discarded.
func (w *world) discard(c v1alpha1.Cluster, id string, volume types.UID) {
	w.t.Helper()
	edit(w, c, func(c v1alpha1.Cluster) {
		annotations := c.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationDiscardVolume] = id + "@" + string(volume)
		c.SetAnnotations(annotations)
	})
}

// resultOf is what became of a request; empty while it is under way.
func resultOf(c v1alpha1.Cluster, id string) string {
	i := slices.IndexFunc(c.CommonStatus().Requests, func(r v1alpha1.RequestStatus) bool { return r.ID == id })
	if i < 0 {
		return ""
	}
	return c.CommonStatus().Requests[i].Result
}

// The volume of a member that serves, and that of the primary, are not discarded, and a
// request that was refused is not carried out later.
func TestVolumeThatServesIsNotDiscarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.lose("")
	c, o := w.settled(2)
	for ordinal, want := range []string{"refused: orders-0 leads by the Lease", "refused: orders-1 serves"} {
		pod, volume := w.podOf(ordinal), w.claimOf(ordinal)
		id := fmt.Sprintf("go-%d", ordinal)
		w.discard(c, id, volume.UID)
		await(w, c, "an answer", func(c v1alpha1.Cluster) bool { return resultOf(c, id) != "" })
		if got := resultOf(c, id); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
		w.awaitSteady(o)
		if now := w.claimOf(ordinal); now.UID != volume.UID || now.DeletionTimestamp != nil || w.podOf(ordinal).UID != pod.UID {
			t.Errorf("the volume or the pod of orders-%d is deleted", ordinal)
		}
	}
	pod, volume := w.podOf(1), w.claimOf(1)
	w.lose(pod.UID)
	time.Sleep(7 * time.Second) // longer than a step of a discard takes
	w.awaitSteady(o)
	if w.claimOf(1).UID != volume.UID || w.podOf(1).UID != pod.UID {
		t.Error("a request that was refused is carried out")
	}
}

// The operator dies in the Nth write while a volume is discarded, for every N, and
// another one goes on: the volume that was named goes, and no other does.
func TestCrashWhileDiscarding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	w.lose("")
	c, settled := w.settled(2)
	primary, kept := w.podOf(0), w.claimOf(0)
	crashed := 0
	for n := 1; n < mostWrites; n++ {
		settled.stop()
		pod, volume, id := w.podOf(1), w.claimOf(1), fmt.Sprintf("go-%d", n)
		w.lose(pod.UID)
		first := w.operate(n)
		w.discard(c, id, volume.UID)
		died := w.awaitEnd(first, c, func(c v1alpha1.Cluster) bool { return strings.HasSuffix(resultOf(c, id), "on a new one") && ready(c) })
		settled = w.operate(0)
		await(w, c, "the volume is gone", func(c v1alpha1.Cluster) bool { return strings.HasSuffix(resultOf(c, id), "on a new one") })
		w.awaitReady(c)
		w.awaitSteady(settled)
		if now := w.claimOf(1); now.UID == volume.UID || now.DeletionTimestamp != nil || w.podOf(1).UID == pod.UID {
			t.Errorf("write %d: claim %s was %s, and pod %s was %s", n, now.UID, volume.UID, w.podOf(1).UID, pod.UID)
		}
		if now := w.claimOf(0); now.UID != kept.UID || now.DeletionTimestamp != nil || w.podOf(0).UID != primary.UID {
			t.Fatalf("write %d: the primary lost its volume or its pod", n)
		}
		w.wantWhole(c, 2)
		if !died {
			break
		}
		crashed = n
	}
	if crashed < 4 {
		t.Errorf("a discard of %d writes is fewer than its steps", crashed)
	}
}
