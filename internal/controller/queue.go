package controller

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// underWayPriority is what passes of a cluster are repeated with that changes: those that were
// begun go on. Other passes are repeated with what they had.
const underWayPriority = 0

// enqueueNew has the first pass of a new cluster come after everything that happened to
// others, as those of an operator that starts: of thousands of new clusters, those that were
// begun do not wait for the first passes of all others.
func enqueueNew(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)}
	if p, is := q.(priorityqueue.PriorityQueue[reconcile.Request]); is {
		p.AddWithOpts(priorityqueue.AddOpts{Priority: new(handler.LowPriority)}, request)
		return
	}
	q.Add(request)
}

// goesOn selects all but that an object was made.
func goesOn() predicate.Predicate {
	return predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }}
}
