package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// Find finds a cluster. It fails with NotFound where there is none.
func (r *Reconciler[C, O]) Find(ctx context.Context, name types.NamespacedName) (v1alpha1.Cluster, error) {
	c := r.New()
	if err := r.Client.Get(ctx, name, c); err != nil {
		return nil, err
	}
	return c, nil
}

// Copying finds a cluster, and says how it is copied now.
func (r *Reconciler[C, O]) Copying(ctx context.Context, name types.NamespacedName) (v1alpha1.Cluster, engine.CopyPlan, error) {
	c := r.New()
	if err := r.Client.Get(ctx, name, c); err != nil {
		return nil, engine.CopyPlan{}, err
	}
	o, err := r.Engine.Observe(ctx, c)
	if err != nil {
		return nil, engine.CopyPlan{}, fmt.Errorf("observe: %w", err)
	}
	return c, r.Engine.PlanCopy(c, o), nil
}
