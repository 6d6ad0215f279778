package storage

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// watchForGrowth starts a loop that grants claims the size they ask for. That
// a class allows growth at all, the API server has seen to before.
func watchForGrowth(ctx context.Context, client kubernetes.Interface, claims cache.SharedIndexInformer) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	enqueue := func(object any) {
		if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
			if _, wanted := requestedGrowth(claim); wanted {
				queue.Add(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name})
			}
		}
	}
	_, err := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
	})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, queue.ShutDown)
	go handleClaims(ctx, client, queue)
	return nil
}

func handleClaims(ctx context.Context, client kubernetes.Interface, queue workqueue.TypedRateLimitingInterface[types.NamespacedName]) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := growVolume(ctx, client, key); err != nil {
			klog.FromContext(ctx).Error(err, "grow", "claim", key)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// requestedGrowth is the size that a bound claim asks for beyond the one it has.
func requestedGrowth(claim *corev1.PersistentVolumeClaim) (resource.Quantity, bool) {
	wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	has, known := claim.Status.Capacity[corev1.ResourceStorage]
	return wanted, known && claim.Status.Phase == corev1.ClaimBound && wanted.Cmp(has) > 0
}

// growVolume raises what the volume holds, its capacity and then the claim's, in the
// order that a driver's resizer does.
func growVolume(ctx context.Context, client kubernetes.Interface, key types.NamespacedName) error {
	claim, err := client.CoreV1().PersistentVolumeClaims(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get claim: %w", err)
	}
	wanted, asked := requestedGrowth(claim)
	if !asked {
		return nil
	}
	volumes := client.CoreV1().PersistentVolumes()
	volume, err := volumes.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get volume: %w", err)
	}
	if volume.Annotations["pv.kubernetes.io/provisioned-by"] != provisionerName {
		return nil
	}
	if volume.Annotations[limited] == "true" {
		if err := changeLimit(volume.Spec.Local.Path, wanted); err != nil {
			return err
		}
	}
	capacity := map[string]any{"capacity": map[string]string{"storage": wanted.String()}}
	patch, err := json.Marshal(map[string]any{"spec": capacity})
	if err != nil {
		return err
	}
	if _, err := volumes.Patch(ctx, volume.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("raise the volume's capacity: %w", err)
	}
	patch, err = json.Marshal(map[string]any{"status": capacity})
	if err != nil {
		return err
	}
	_, err = client.CoreV1().PersistentVolumeClaims(key.Namespace).
		Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("raise the claim's capacity: %w", err)
	}
	klog.FromContext(ctx).Info("Grew", "claim", key, "size", wanted.String())
	return nil
}
