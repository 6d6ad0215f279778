//go:build apiserver

package controller_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// advanceJobPod takes the pod of a Job one step further until its program runs, which it
// reports, or until it is gone.
func (s *simulation) advanceJobPod(ctx context.Context, pod *corev1.Pod) (runs bool, err error) {
	switch {
	case pod.DeletionTimestamp != nil:
		return false, s.kubelet.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	case pod.Spec.NodeName == "":
		return false, s.kubelet.SubResource("binding").Create(ctx, pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		return false, s.startPod(ctx, pod)
	}
	return pod.Status.Phase == corev1.PodRunning, nil
}

// actAsPod is the access that the programs of a pod have.
func (s *simulation) actAsPod(pod *corev1.Pod) *rest.Config {
	config := rest.CopyConfig(s.world.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + pod.Namespace + ":" + pod.Spec.ServiceAccountName,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + pod.Namespace, "system:authenticated"},
	}
	return config
}
