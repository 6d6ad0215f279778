//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeDrained: the primary's node is cordoned, and the cluster's pods on it are evicted
// as by kubectl drain. Pods of other clusters stay.
func nodeDrained(f *trial) time.Duration {
	pod, before := f.leadingPod(), f.currentTerm()
	node := pod.Spec.NodeName
	uncordon := cordonNodes(f.c.t, node)
	since := f.history.Now()
	f.evict(pod)
	if next := f.awaitSuccessor(before); next.Name == pod.Name {
		f.c.t.Errorf("%s was evicted, and leads again", pod.Name)
	}
	// Earlier drains may have put a replica there, too.
	for _, p := range f.c.listPods() {
		if p.Spec.NodeName == node && p.DeletionTimestamp == nil {
			f.evict(&p)
		}
	}
	eventually(f.c.t, failoverTimeout, node+" is drained", func(context.Context) error {
		for _, p := range f.c.listPods() {
			if p.Spec.NodeName == node {
				return fmt.Errorf("%s runs on %s", p.Name, node)
			}
		}
		return nil
	})
	gap := f.endEvent(eventDrained, since, true)
	uncordon()
	return gap
}

// evict asks for a pod's end as a drain does, until the disruption budget allows it, or
// another pod has the name. The API server counts the eviction of a former pod, too: it
// refuses others for two minutes.
func (f *trial) evict(pod *corev1.Pod) {
	f.c.t.Helper()
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(pod.UID)}},
	}
	eventually(f.c.t, failoverTimeout, pod.Name+" is evicted", func(ctx context.Context) error {
		err := client.IgnoreNotFound(env.client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction.DeepCopy()))
		if apierrors.IsConflict(err) {
			f.c.t.Logf("the eviction of %s: %v", pod.Name, err)
			return nil
		}
		return err
	})
}
