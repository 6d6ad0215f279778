package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/job"
)

// indexTurn is the name of an index of Backups in the cache: by what a backup
// takes of what may be made at the same time. It holds only those that are made or
// queued, so that what is kept of all clusters costs nothing.
const indexTurn = "turn"

// queuedRecheck is how often a queued backup looks by itself. The end of another one
// wakes it; only a Job that never got a program frees its turn without that.
const queuedRecheck = 2 * time.Minute

// unseenPeriod is how long the cache may take to show that a backup was begun.
const unseenPeriod = time.Minute

// Values of the index.
const (
	turnMade   = "made"
	turnQueued = "queued"
)

// turnOf is the value of the index; empty for a backup that is neither.
func turnOf(b *v1alpha1.Backup) string {
	switch {
	case takesTurn(b):
		return turnMade
	case isQueued(b):
		return turnQueued
	}
	return ""
}

func indexByTurn(obj client.Object) []string {
	if b, ok := obj.(*v1alpha1.Backup); ok {
		if turn := turnOf(b); turn != "" {
			return []string{turn}
		}
	}
	return nil
}

// listByTurn lists the Backups with a value of the index, which are the cache's and must not be changed.
func listByTurn(ctx context.Context, reader client.Reader, turn string) ([]v1alpha1.Backup, error) {
	var list v1alpha1.BackupList
	if err := reader.List(ctx, &list, client.MatchingFields{indexTurn: turn}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	return list.Items, nil
}

// listQueued lists the queued backups that hold a place in the queue. One whose last pass
// failed holds none: it keeps no other from its turn, is tried again at growing intervals, and
// takes its turn when a pass of it finds that fewer are made than may be.
func (r *Reconciler) listQueued(ctx context.Context) ([]v1alpha1.Backup, error) {
	queued, err := listByTurn(ctx, r.Client, turnQueued)
	return slices.DeleteFunc(queued, r.hasFailedPass), err
}

// hasFailedPass says whether the last pass of a backup failed.
func (r *Reconciler) hasFailedPass(b v1alpha1.Backup) bool {
	uid, failed := r.failed.Load(types.NamespacedName{Namespace: b.Namespace, Name: b.Name})
	return failed && uid == b.UID
}

// recordPass remembers whether a pass of a backup failed. Where that gives up a place in the
// queue, the next ones are enqueued.
func (r *Reconciler) recordPass(ctx context.Context, b *v1alpha1.Backup, err error) {
	name := client.ObjectKeyFromObject(b)
	if err == nil {
		r.failed.Delete(name)
		return
	}
	if before, _ := r.failed.Swap(name, b.UID); before != b.UID && r.queue != nil && isQueued(b) {
		r.enqueueNext(ctx, r.queue)
	}
}

// mayBeWritten says whether a write was done, or may have been: the API server refused it
// only where it says so.
func mayBeWritten(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true // no error, or no answer
	}
	code := answer.Status().Code
	return code < http.StatusBadRequest || code >= http.StatusInternalServerError
}

// observeTurn finds whether a backup waits since as many of other clusters are
// made as may be at the same time. One that an upgrade waits for does not.
func (r *Reconciler) observeTurn(ctx context.Context, s *observation) error {
	if r.Concurrent <= 0 || !s.isOpen() || s.job != nil || takesTurn(s.backup) || s.backup.Labels[v1alpha1.LabelBefore] != "" {
		return nil
	}
	// In this order: what the cache takes up in between is counted once.
	taken, err := r.findUnseen(ctx, s.backup.UID, s.now)
	if err != nil {
		return err
	}
	made, err := listByTurn(ctx, r.Client, turnMade)
	if err != nil {
		return err
	}
	addMade(taken, s.backup.UID, made, s.now)
	free := r.Concurrent - len(taken)
	if free > 0 { // else the queue, which may be long, does not matter
		queued, err := r.listQueued(ctx)
		if err != nil {
			return err
		}
		free -= countAhead(s.backup, queued, taken)
	}
	if free <= 0 {
		s.most = r.Concurrent
	}
	return nil
}

// findUnseen finds the backups beside one that this process began of late and that the
// cache does not show as begun yet.
func (r *Reconciler) findUnseen(ctx context.Context, beside types.UID, now time.Time) (map[types.UID]bool, error) {
	unseen := map[types.UID]bool{}
	for name, begun := range r.begun {
		b := &v1alpha1.Backup{}
		err := r.Client.Get(ctx, name, b, client.UnsafeDisableDeepCopy)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("read a backup that was begun: %w", err)
		case err != nil, b.UID != begun.uid, b.Status.Location != nil, now.Sub(begun.at) > unseenPeriod:
			delete(r.begun, name)
		case begun.uid != beside:
			unseen[begun.uid] = true
		}
	}
	return unseen, nil
}

// rememberBegun remembers a backup whose place was just recorded.
func (r *Reconciler) rememberBegun(b *v1alpha1.Backup) {
	if r.begun == nil {
		r.begun = map[types.NamespacedName]begunBackup{}
	}
	r.begun[client.ObjectKeyFromObject(b)] = begunBackup{uid: b.UID, at: r.Clock.Now()}
}

// addMade adds the backups that are made beside one; an empty UID is none's.
func addMade(taken map[types.UID]bool, beside types.UID, made []v1alpha1.Backup, now time.Time) {
	for i := range made {
		if made[i].UID != beside && isMade(&made[i], now) {
			taken[made[i].UID] = true
		}
	}
}

// countAhead counts the queued backups whose turn comes before that of one, without those
// that have it already. Whatever else a backup waits for, it keeps no other from its turn.
func countAhead(b *v1alpha1.Backup, queued []v1alpha1.Backup, taken map[types.UID]bool) int {
	count := 0
	for i := range queued {
		if queued[i].UID != b.UID && !taken[queued[i].UID] && isOlder(&queued[i], b) {
			count++
		}
	}
	return count
}

// enqueueNext enqueues the queued backups whose turn it is now, the oldest first.
func (r *Reconciler) enqueueNext(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	made, err := listByTurn(ctx, r.Client, turnMade)
	if err != nil {
		return // each looks again by itself
	}
	queued, err := r.listQueued(ctx)
	if err != nil {
		return
	}
	next := make([]*v1alpha1.Backup, 0, len(queued))
	for i := range queued {
		next = append(next, &queued[i])
	}
	slices.SortFunc(next, compareAge)
	taken := map[types.UID]bool{}
	addMade(taken, "", made, r.Clock.Now())
	free := max(0, r.Concurrent-len(taken))
	for _, b := range next[:min(free, len(next))] {
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
	}
}

// followTurns enqueues who is next when a backup ends, or waits no longer.
func (r *Reconciler) followTurns() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			before, is := e.ObjectOld.(*v1alpha1.Backup)
			after, isToo := e.ObjectNew.(*v1alpha1.Backup)
			if is && isToo && turnOf(before) != "" && turnOf(after) == "" {
				r.enqueueNext(ctx, queue)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if b, is := e.Object.(*v1alpha1.Backup); is && turnOf(b) != "" {
				r.enqueueNext(ctx, queue)
			}
		},
	}
}

// isMade says whether a backup has a Job, or is about to. A Job without a program
// is withdrawn after a while: what has said nothing for longer has none.
func isMade(b *v1alpha1.Backup, now time.Time) bool {
	if !takesTurn(b) {
		return false
	}
	started := b.Status.StartTime
	return b.Status.Run != nil || started == nil || now.Sub(started.Time) <= job.IdleDeadline+job.PodDeadline
}

// takesTurn says whether a backup says of itself that it is made.
func takesTurn(b *v1alpha1.Backup) bool {
	if b.IsFinished() || b.DeletionTimestamp != nil || b.Status.Location == nil {
		return false
	}
	switch conditions.GetReason(b, v1alpha1.ConditionReconciling) {
	case v1alpha1.ReasonCopying, v1alpha1.ReasonVerifying:
		return true
	}
	// Its pod waits for a node, or an image.
	return conditions.IsTrue(b, v1alpha1.ConditionStalled) && conditions.GetReason(b, v1alpha1.ConditionStalled) == v1alpha1.ReasonWaitingForSource
}

// isQueued says whether a backup waits for nothing but its turn among all.
func isQueued(b *v1alpha1.Backup) bool {
	return !b.IsFinished() && b.DeletionTimestamp == nil && conditions.GetReason(b, v1alpha1.ConditionReconciling) == v1alpha1.ReasonQueued
}

func isOlder(a, b *v1alpha1.Backup) bool { return compareAge(a, b) < 0 }

func compareAge(a, b *v1alpha1.Backup) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
