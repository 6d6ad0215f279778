package memberset

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/engine"
)

// Types of the steps that touch a member.
const (
	StepReplaceMember = "ReplaceMember"
	StepDeleteVolume  = "DeleteVolume"
)

// Act does a step that this package planned.
func (k *Keeper) Act(ctx context.Context, s Set, step engine.Step) error {
	meta := metav1.ObjectMeta{Namespace: s.Key().Namespace, Name: step.Target}
	switch step.Type {
	case StepReplaceMember:
		err := k.remove(ctx, &corev1.Pod{ObjectMeta: meta}, step)
		if err == nil {
			k.pods.replaced(s, step, k.Clock.Now())
		}
		return err
	case StepDeleteVolume:
		if err := k.Unchanged(ctx, s); err != nil {
			return err
		}
		if err := k.ended(ctx, s, step.Subject); err != nil {
			return err
		}
		return k.remove(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta}, step)
	case stepRelabelPod:
		return k.relabelPod(ctx, s, step)
	case stepVolumePolicy, stepSecretPolicy:
		return k.applyPolicy(ctx, s, step)
	}
	return k.mint(ctx, s, step)
}

// Unchanged makes sure that the cluster's live object says what the step was
// planned from: a cache may be behind, and what is deleted is gone.
func (k *Keeper) Unchanged(ctx context.Context, s Set) error {
	var live metav1.PartialObjectMetadata
	live.SetGroupVersionKind(s.GVK)
	if err := k.Writer.Get(ctx, s.Key(), &live); err != nil {
		return fmt.Errorf("read the cluster again: %w", err)
	}
	if live.UID != s.Cluster.GetUID() || live.Generation != s.Cluster.GetGeneration() || live.DeletionTimestamp != nil {
		return errors.New("the cluster has changed since the step was planned")
	}
	return nil
}

// ended makes sure that there is no pod of a name: a cache that lags, or a label
// that was taken, hides one that runs.
func (k *Keeper) ended(ctx context.Context, s Set, pod string) error {
	var live metav1.PartialObjectMetadata
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	err := k.Writer.Get(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: pod}, &live)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for pod %s: %w", pod, err)
	}
	return fmt.Errorf("pod %s exists: its volume is not deleted while it does", pod)
}

// remove deletes exactly the object that was observed. That it is gone, or
// another one by now, is an answer: the next pass looks again.
func (k *Keeper) remove(ctx context.Context, obj client.Object, step engine.Step) error {
	only := client.Preconditions{UID: &step.UID}
	if step.ResourceVersion != "" {
		only.ResourceVersion = &step.ResourceVersion
	}
	err := k.Writer.Delete(ctx, obj, only)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", step.Target, err)
	}
	return nil
}
