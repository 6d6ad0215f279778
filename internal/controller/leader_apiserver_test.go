//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// leadBy has a member lead from now on, by the Lease in a term.
func (w *world) leadBy(pod string, term int64) {
	leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pod}}
	w.get(leader)
	w.simulation.change(func(s *simulation) {
		s.also = func(m *agentapi.Status) {
			m.Role, m.State = v1alpha1.RoleReplica, agentapi.StateStreaming
			if m.Pod == pod {
				m.Role, m.State = v1alpha1.RolePrimary, agentapi.StateRunning
			}
			agentapi.ChangeEngineStatus(m, func(r *postgresapi.ReplicationStatus) {
				r.Lease = &postgresapi.LeaseState{HolderUID: string(leader.UID), HolderPod: pod, Term: term}
			})
		}
	})
}

// A leader beyond spec.replicas keeps its pod and its volume, also under Delete,
// until another member leads.
func TestPostgresLeaderBeyondReplicasIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c, _ := w.settled(3)
	all := volumes(c, 3)
	led := func(by string) func(c v1alpha1.Cluster) bool {
		return func(c v1alpha1.Cluster) bool { return ready(c) && c.CommonStatus().Primary == by }
	}
	w.leadBy("orders-2", 2)
	await(w, c, "led by orders-2", led("orders-2"))
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().DeletionPolicy = v1alpha1.DeletionDelete })
	w.awaitOwned(c, true)
	leader := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-2"}}
	w.get(leader)
	uid := leader.UID

	w.scale(c, 2)
	await(w, c, "the leader is kept", func(c v1alpha1.Cluster) bool {
		return strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionReconciling), "member orders-2 leads and is beyond spec.replicas 2: it is kept") &&
			conditions.IsTrue(c, v1alpha1.ConditionAvailable) && c.CommonStatus().Primary == "orders-2"
	})
	w.get(leader)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: all[2]}}
	w.get(claim)
	if leader.UID != uid || leader.DeletionTimestamp != nil || claim.Labels[v1alpha1.LabelMember] != "2" || claim.Annotations[v1alpha1.AnnotationScaledAway] != "" {
		t.Errorf("pod %s, deleted at %v; its volume has %v and %v", leader.UID, leader.DeletionTimestamp, claim.Labels, claim.Annotations)
	}

	w.leadBy("orders-1", 3)
	apitest.Eventually(t, "the volume goes", func(context.Context) (bool, string) {
		left := w.objects(c)["PersistentVolumeClaim"]
		return cmp.Equal(left, all[:2]), fmt.Sprint(left)
	})
	await(w, c, "led by orders-1", led("orders-1"))
}
