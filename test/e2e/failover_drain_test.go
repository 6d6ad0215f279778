//go:build e2e || soak

package e2e

import (
	"context"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// nodeDrained: the primary's node is cordoned, and its pod is evicted as by kubectl
// drain. Other pods of the node stay.
func nodeDrained(f *failover) time.Duration {
	pod, before := f.primaryPod(), f.currentLeadership()
	node := pod.Spec.NodeName
	uncordon := cordonNodes(f.t, node)
	since := f.history.Now()
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(pod.UID)}},
	}
	eventually(f.t, failoverTimeout, pod.Name+" is evicted", func(ctx context.Context) error {
		return client.IgnoreNotFound(env.client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction.DeepCopy()))
	})
	if next := f.awaitSuccessor(before); next.Name == pod.Name {
		f.t.Errorf("%s was evicted, and leads again", pod.Name)
	}
	gap := f.endEvent(eventDrained, since, true)
	for _, p := range f.listPods() {
		if p.Spec.NodeName == node {
			f.t.Errorf("%s runs on %s, which is drained", p.Name, node)
		}
	}
	uncordon()
	return gap
}
