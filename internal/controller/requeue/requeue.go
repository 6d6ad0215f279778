// Package requeue holds when the controllers look again at what no watch reports,
// and how retries back off.
package requeue

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// AfterConflict is how often a name that another client holds is checked
// again: their objects are not watched.
const AfterConflict = 30 * time.Second

// AfterStep lets the watches show what a step did before the next pass.
const AfterStep = 50 * time.Millisecond

// Retries of transient errors back off from the first to the last of these.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 2 * time.Minute
)

// NewRateLimiter makes what a controller's retries wait for.
func NewRateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
}
