package controller

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// passPriority is what a pass is repeated with, whatever the one before had: a cluster that was
// looked at is no new one.
const passPriority = 0

// enqueueLate has what h adds come after everything that happened to a cluster: of thousands of
// new clusters, those that were begun do not wait for the first passes of all others.
func enqueueLate(h handler.EventHandler) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			h.Create(ctx, e, atTheEnd(q))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			h.Update(ctx, e, atTheEnd(q))
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			h.Delete(ctx, e, atTheEnd(q))
		},
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			h.Generic(ctx, e, atTheEnd(q))
		},
	}
}

// atTheEnd is q, to which requests are added with the priority of those of an operator that starts.
func atTheEnd(q workqueue.TypedRateLimitingInterface[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	if p, is := q.(priorityqueue.PriorityQueue[reconcile.Request]); is {
		return lateQueue{p}
	}
	return q
}

type lateQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
}

func (q lateQueue) Add(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, request)
}

func (q lateQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	o.Priority = new(handler.LowPriority)
	q.PriorityQueue.AddWithOpts(o, requests...)
}

// comes selects that an object was made, and goesOn everything else.
func comes() predicate.Predicate { return selectCreate(true) }

func goesOn() predicate.Predicate { return selectCreate(false) }

func selectCreate(create bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return create },
		UpdateFunc:  func(event.UpdateEvent) bool { return !create },
		DeleteFunc:  func(event.DeleteEvent) bool { return !create },
		GenericFunc: func(event.GenericEvent) bool { return !create },
	}
}
