package postgres

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// Act implements engine.Engine.
func (e *Engine) Act(ctx context.Context, c *v1alpha1.PostgresCluster, s engine.Step) error {
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: s.Target}
	switch s.Type {
	case stepReplaceMember:
		return e.remove(ctx, &corev1.Pod{ObjectMeta: meta}, s)
	case stepDeleteVolume:
		if err := e.unchanged(ctx, c); err != nil {
			return err
		}
		return e.remove(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta}, s)
	case stepVolumePolicy, stepSecretPolicy:
		return e.applyPolicy(ctx, c, s)
	}
	return e.mint(ctx, c, s)
}

// unchanged makes sure that the cluster's live object says what the step was
// planned from: a cache may be behind, and what is deleted is gone.
func (e *Engine) unchanged(ctx context.Context, c *v1alpha1.PostgresCluster) error {
	var live v1alpha1.PostgresCluster
	if err := e.Writer.Get(ctx, client.ObjectKeyFromObject(c), &live); err != nil {
		return fmt.Errorf("read the cluster again: %w", err)
	}
	if live.UID != c.UID || live.Generation != c.Generation || live.DeletionTimestamp != nil {
		return errors.New("the cluster has changed since the step was planned")
	}
	return nil
}

// remove deletes exactly the object that was observed. That it is gone, or
// another one by now, is an answer: the next pass looks again.
func (e *Engine) remove(ctx context.Context, obj client.Object, s engine.Step) error {
	only := client.Preconditions{UID: &s.UID}
	if s.ResourceVersion != "" {
		only.ResourceVersion = &s.ResourceVersion
	}
	err := e.Writer.Delete(ctx, obj, only)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", s.Target, err)
	}
	return nil
}
