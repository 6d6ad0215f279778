// Package leaseclient reads and writes the two Leases of a cluster: that of the
// primary, and the membership record. Every write is bound to what was read
// before it.
package leaseclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
)

// Annotations of the Lease beside v1alpha1.AnnotationSystemIdentifier.
const (
	// AnnotationPrimary is the holder's pod by name.
	AnnotationPrimary = "holdfast.dev/primary"
	// AnnotationAddress is the IP address of the holder's pod: names are
	// cached for seconds, and a successor has another address.
	AnnotationAddress = "holdfast.dev/address"
	// AnnotationTerm counts the changes of the holder.
	AnnotationTerm = "holdfast.dev/term"
	// AnnotationTimeline is the timeline that the holder writes.
	AnnotationTimeline = "holdfast.dev/timeline"
	// AnnotationCluster is the UID of the cluster whose member claimed it last:
	// a Lease may outlive its cluster.
	AnnotationCluster = "holdfast.dev/cluster-uid"
	// AnnotationCheckpoint is the position of the last checkpoint that a holder
	// had on its disk, on AnnotationTimeline: data that does not go so far is
	// older than the cluster's.
	AnnotationCheckpoint = "holdfast.dev/checkpoint"
	// AnnotationFlushed is how far the holder's WAL was on its disk at the last
	// renewal, on AnnotationTimeline.
	AnnotationFlushed = "holdfast.dev/flushed-position"
	// AnnotationReserved is the highest timeline that was ever reserved for a
	// promotion, whether that came to its end or not.
	AnnotationReserved = "holdfast.dev/reserved-timeline"
	// AnnotationBoot is the boot ID of the kernel under which the holder's pod
	// has written AnnotationFlushed.
	AnnotationBoot = "holdfast.dev/boot-id"
	// AnnotationShutdownPosition is the last position of a holder that shut
	// down in order; only a Lease without a holder has it.
	AnnotationShutdownPosition = "holdfast.dev/shutdown-position"
)

// ErrLeaseLost says that another member holds the Lease.
var ErrLeaseLost = errors.New("the Lease has another holder")

// Record is what a Lease says. It is as flat as the annotations that it is read from.
type Record struct {
	Claim            ClaimState
	HolderUID        string
	HolderPod        string
	Address          string
	Term             int64
	SystemIdentifier string
	Cluster          string
	Timeline         int64
	Checkpoint       string
	ShutdownPosition string
	Flushed          string
	Reserved         int64
	Boot             string
	Duration         time.Duration
	RenewTime        time.Time
	Version          string
}

// Lease says which member may take writes. One goroutine claims, annotates and
// releases; RenewWhileHeld renews beside it.
type Lease struct {
	id     identity.Identity
	name   string
	labels map[string]string
	client coordinationclient.LeaseInterface
	now    func() time.Duration
	log    *slog.Logger

	mu     sync.Mutex
	expiry expiry
	object *coordinationv1.Lease // as last read or written
	held   bool
	lost   chan struct{}
	owners func() []metav1.OwnerReference
	// renewed edits the annotations at every renewal; nil for none.
	renewed func(annotations map[string]string)
}

// NewLease is the Lease <cluster>-primary of the member's cluster, made with
// the labels when it is missing. Owners are asked at every write whose deletion
// takes the Lease along: none while it is to outlive its cluster.
func NewLease(id identity.Identity, labels map[string]string, owners func() []metav1.OwnerReference, client kubernetes.Interface, log *slog.Logger) *Lease {
	return &Lease{
		owners: owners,
		id:     id, labels: labels, now: clock.Boottime, log: log,
		name:   id.Cluster + "-primary",
		client: client.CoordinationV1().Leases(id.Namespace),
		lost:   make(chan struct{}),
	}
}

// RecordAtRenewal has every renewal edit the annotations, too, by what is in
// memory: a renewal never waits for a disk. Call it before RenewWhileHeld.
func (l *Lease) RecordAtRenewal(edit func(annotations map[string]string)) { l.renewed = edit }

// ReadRecord reads the Lease. Claims expire only for a member that reads it at
// least every few seconds.
func (l *Lease) ReadRecord(ctx context.Context) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, LeaseTimeout)
	defer cancel()
	object, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if apierrors.IsNotFound(err) {
		l.expiry, l.object = l.expiry.recordFailure(), nil
		l.markLost()
		return Record{Claim: ClaimMissing}, nil
	}
	if err != nil {
		l.expiry = l.expiry.recordFailure()
		return Record{}, fmt.Errorf("read Lease %s: %w", l.name, err)
	}
	l.object = object
	l.expiry = l.expiry.recordReading(string(object.UID), object.ResourceVersion, l.now())
	record := recordOf(object)
	record.Claim = claimState(record, l.id.PodUID, l.expiry)
	if record.Claim == ClaimMine && !l.held {
		record.Claim = ClaimLapsed
	}
	if record.Claim != ClaimMine {
		l.markLost()
	}
	return record, nil
}

// LastRecord returns what the Lease said when it was read or written last, while this
// member holds it.
func (l *Lease) LastRecord() (Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held || l.object == nil {
		return Record{}, false
	}
	record := recordOf(l.object)
	record.Claim = ClaimMine
	return record, true
}

// ClaimLease takes the Lease as it was read last, or makes it, for the cluster
// of a UID. With forget, all that an earlier cluster recorded on it goes in the
// same write.
func (l *Lease) ClaimLease(ctx context.Context, cluster string, forget bool) error {
	ctx, cancel := context.WithTimeout(ctx, LeaseTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	next := buildClaim(l.object, l.id, l.name, l.labels, time.Now())
	if forget {
		for _, name := range []string{v1alpha1.AnnotationSystemIdentifier, AnnotationTimeline, AnnotationCheckpoint, AnnotationFlushed, AnnotationReserved, AnnotationBoot} {
			delete(next.Annotations, name)
		}
	}
	next.Annotations[AnnotationCluster] = cluster
	next.OwnerReferences = l.owners()
	var err error
	if l.object == nil {
		next, err = l.client.Create(ctx, next, metav1.CreateOptions{FieldManager: v1alpha1.AgentFieldManager})
	} else {
		next, err = l.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: v1alpha1.AgentFieldManager})
	}
	if err != nil {
		return fmt.Errorf("claim Lease %s: %w", l.name, err)
	}
	l.object = next
	if !l.held {
		l.held, l.lost = true, make(chan struct{})
	}
	return nil
}

// CheckHeld says whether this member holds the Lease as far as it knows, and
// returns a channel that is closed when it learns otherwise.
func (l *Lease) CheckHeld() (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held, l.lost
}

// AnnotateLease records facts on the Lease while this member holds it.
func (l *Lease) AnnotateLease(ctx context.Context, annotations map[string]string) error {
	return l.writeLease(ctx, func(object *coordinationv1.Lease) {
		maps.Copy(object.Annotations, annotations)
	})
}

// ReleaseLease gives the Lease up after a shutdown in order, at the given timeline
// and position of the WAL. Nothing may run any more that could write.
func (l *Lease) ReleaseLease(ctx context.Context, timeline int64, position string) error {
	err := l.writeLease(ctx, func(object *coordinationv1.Lease) {
		object.Spec.HolderIdentity = new("")
		object.Annotations[AnnotationTimeline] = strconv.FormatInt(timeline, 10)
		object.Annotations[AnnotationCheckpoint] = position
		object.Annotations[AnnotationShutdownPosition] = position
		object.Annotations[AnnotationFlushed] = position
	})
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held = false
	}
	return err
}

// RenewWhileHeld renews the Lease while it is held, until ctx ends.
func (l *Lease) RenewWhileHeld(ctx context.Context) {
	ticker := time.NewTicker(LeaseRenewal)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if held, _ := l.CheckHeld(); !held {
			continue
		}
		err := l.writeLease(ctx, func(object *coordinationv1.Lease) {
			if l.renewed != nil {
				l.renewed(object.Annotations)
			}
		})
		if (err != nil) != failing && ctx.Err() == nil {
			failing = err != nil
			l.log.Info("renewal of the Lease", "lease", l.name, "failing", failing, "error", fmt.Sprint(err))
		}
	}
}

// writeLease changes and renews the Lease as it was last read; after a conflict as
// it is, if this member still holds it.
func (l *Lease) writeLease(ctx context.Context, change func(*coordinationv1.Lease)) error {
	ctx, cancel := context.WithTimeout(ctx, LeaseTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held || l.object == nil {
		return ErrLeaseLost
	}
	for range 2 {
		next := l.object.DeepCopy()
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		next.OwnerReferences = l.owners()
		change(next)
		written, err := l.client.Update(ctx, next, metav1.UpdateOptions{FieldManager: v1alpha1.AgentFieldManager})
		if err == nil {
			l.object = written
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("write Lease %s: %w", l.name, err)
		}
		if err := l.resolveConflict(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("write Lease %s: it changes all the time", l.name)
}

// resolveConflict finds out what a conflict means.
func (l *Lease) resolveConflict(ctx context.Context) error {
	object, err := l.client.Get(ctx, l.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return l.recreateLease(ctx)
	case err != nil:
		return fmt.Errorf("read Lease %s: %w", l.name, err)
	case recordOf(object).HolderUID != l.id.PodUID:
		l.markLost()
		return ErrLeaseLost
	}
	l.object = object
	return nil
}

// recreateLease makes the Lease again with all that it recorded, when
// another client deleted it under its holder. The first member to make one is the
// holder.
func (l *Lease) recreateLease(ctx context.Context) error {
	next := l.object.DeepCopy()
	next.UID, next.ResourceVersion, next.Generation, next.ManagedFields = "", "", 0, nil
	next.CreationTimestamp = metav1.Time{}
	object, err := l.client.Create(ctx, next, metav1.CreateOptions{FieldManager: v1alpha1.AgentFieldManager})
	if apierrors.IsAlreadyExists(err) {
		l.markLost()
		return ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("make Lease %s again: %w", l.name, err)
	}
	l.object = object
	return nil
}

// markLost is called with the lock held.
func (l *Lease) markLost() {
	if l.held {
		l.held = false
		close(l.lost)
	}
}

// buildClaim makes the Lease with the claimant as its holder. The term rises when
// the holder changes.
func buildClaim(observed *coordinationv1.Lease, id identity.Identity, name string, labels map[string]string, now time.Time) *coordinationv1.Lease {
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: id.Namespace, Labels: labels}}
	if observed != nil {
		next = observed.DeepCopy()
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	if record := recordOf(next); record.HolderUID != id.PodUID {
		next.Annotations[AnnotationTerm] = strconv.FormatInt(record.Term+1, 10)
		delete(next.Annotations, AnnotationBoot)
		next.Spec.AcquireTime = &metav1.MicroTime{Time: now}
		next.Spec.LeaseTransitions = new(int32(record.Term))
	}
	// A member that may claim goes at least as far, and an older agent recorded no
	// checkpoint with it.
	if position := next.Annotations[AnnotationShutdownPosition]; position != "" {
		next.Annotations[AnnotationCheckpoint] = position
	}
	delete(next.Annotations, AnnotationShutdownPosition)
	next.Annotations[AnnotationPrimary] = id.Pod
	next.Annotations[AnnotationAddress] = id.Address
	next.Spec.HolderIdentity = new(id.PodUID)
	next.Spec.LeaseDurationSeconds = new(int32(LeaseDuration / time.Second))
	next.Spec.RenewTime = &metav1.MicroTime{Time: now}
	return next
}

func recordOf(object *coordinationv1.Lease) Record {
	r := Record{
		HolderPod:        object.Annotations[AnnotationPrimary],
		Address:          object.Annotations[AnnotationAddress],
		SystemIdentifier: object.Annotations[v1alpha1.AnnotationSystemIdentifier],
		Cluster:          object.Annotations[AnnotationCluster],
		ShutdownPosition: object.Annotations[AnnotationShutdownPosition],
		Flushed:          object.Annotations[AnnotationFlushed],
		Boot:             object.Annotations[AnnotationBoot],
		Duration:         LeaseDuration,
		Version:          object.ResourceVersion,
	}
	r.Timeline, _ = strconv.ParseInt(object.Annotations[AnnotationTimeline], 10, 64)
	r.Checkpoint = object.Annotations[AnnotationCheckpoint]
	r.Reserved, _ = strconv.ParseInt(object.Annotations[AnnotationReserved], 10, 64)
	r.Term, _ = strconv.ParseInt(object.Annotations[AnnotationTerm], 10, 64)
	if object.Spec.HolderIdentity != nil {
		r.HolderUID = *object.Spec.HolderIdentity
	}
	if seconds := object.Spec.LeaseDurationSeconds; seconds != nil {
		r.Duration = max(LeaseDuration, time.Duration(*seconds)*time.Second)
	}
	if object.Spec.RenewTime != nil {
		r.RenewTime = object.Spec.RenewTime.Time
	}
	return r
}
