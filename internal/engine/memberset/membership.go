package memberset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// BootstrapOrdinal is the ordinal of the bootstrap member: it creates the database
// system, or starts with the data of a backup, and the others copy it or join it.
// Which member leads afterwards does not follow from it.
const BootstrapOrdinal = 0

// NoLeader is in the place of an ordinal where no member is known to lead.
const NoLeader = -1

// Membership is which members there are and which there should be, as ordinals in
// ascending order.
type Membership struct {
	// Declared is the number of members that the spec asks for.
	Declared int
	// Count is the number of members by their volumes: what volumes exist as ours,
	// not what the StatefulSet says.
	Count int
	// Pods are the members and former members that have a pod.
	Pods []int
	// Missing are the pods that the StatefulSet should make, and has not.
	Missing []int
	// Leaving are the pods of members that are to have none. It is known once what
	// is desired is.
	Leaving []int
	// Surplus are the volumes of former members that may be deleted once the
	// cluster is known to serve without them.
	Surplus []int
}

// ReadMembership reads off an observation which members there are.
func ReadMembership(s objects.Set, o Observation) Membership {
	return Membership{
		Declared: s.Cluster.Common().DesiredReplicas(), Count: countVolumes(o),
		Pods: slices.Sorted(maps.Keys(o.Pods)), Missing: listMissing(o), Surplus: listSurplus(s, o),
	}
}

// follow completes the membership with the number of members that are desired.
func (m Membership) follow(count int) Membership {
	below := func(n int) bool { return n < count }
	m.Leaving = slices.DeleteFunc(slices.Clone(m.Pods), below)
	m.Surplus = slices.DeleteFunc(slices.Clone(m.Surplus), below)
	return m
}

// HasPodFrom says whether a pod has that ordinal or a higher one.
func (m Membership) HasPodFrom(ordinal int) bool {
	return len(m.Pods) > 0 && m.Pods[len(m.Pods)-1] >= ordinal
}

// Includes says whether an ordinal is a member's: it has a volume as one, or a pod.
func (m Membership) Includes(ordinal int) bool {
	return ordinal < m.Count || slices.Contains(m.Pods, ordinal)
}

// countVolumes is one more than the highest ordinal that has a member's volume.
func countVolumes(o Observation) int {
	have := 0
	for n, v := range o.Volumes {
		if isMembers(&v.ObjectMeta) && v.Labels[v1alpha1.LabelMember] == strconv.Itoa(n) && n+1 > have {
			have = n + 1
		}
	}
	return have
}

// listMissing are the ordinals that the StatefulSet should have a pod for, and has
// none. The one of a volume that is being deleted waits for that.
func listMissing(o Observation) []int {
	if o.StatefulSet == nil || o.StatefulSet.Spec.Replicas == nil || o.StatefulSet.DeletionTimestamp != nil {
		return nil
	}
	var missing []int
	for n := range int(*o.StatefulSet.Spec.Replicas) {
		if o.Pods[n] == nil && !o.isVolumeDeleted(n) {
			missing = append(missing, n)
		}
	}
	return missing
}

// listSurplus are the volumes that the deletion policy lets go: their members were
// scaled away under it, have no pod, and left nothing that the primary lacks.
func listSurplus(s objects.Set, o Observation) []int {
	if s.Cluster.Common().DeletionPolicy != v1alpha1.DeletionDelete {
		return nil
	}
	var found []int
	for _, n := range slices.Sorted(maps.Keys(o.Volumes)) {
		v := o.Volumes[n]
		if o.Pods[n] == nil && v.DeletionTimestamp == nil && v.Labels[v1alpha1.LabelMember] == "" &&
			v.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && !v1alpha1.MarkedDiverged(v) && isDeletable(s, &v.ObjectMeta) {
			found = append(found, n)
		}
	}
	return found
}

const (
	// reasonFailedCreate is the StatefulSet controller's reason for a pod that the
	// API server does not let it make.
	reasonFailedCreate = "FailedCreate"
	// failedCreateLasts is how long such an event speaks of now: longer than the
	// controller's longest pause between two attempts.
	failedCreateLasts = 20 * time.Minute
	// uncreatedRecheck is how often to look why a pod is not made. No watch reports
	// it.
	uncreatedRecheck = 5 * time.Second
)

// observeUncreated asks why pods that the StatefulSet should make are missing: by
// ordinal, in the words of the API server. It asks only while one is missing.
// Where the operator may not read events, nothing is known.
func (k *MemberEngine) observeUncreated(ctx context.Context, s objects.Set, o *Observation) error {
	missing := listMissing(*o)
	if k.Writer == nil || len(missing) == 0 {
		return nil
	}
	var events corev1.EventList
	err := k.Writer.List(ctx, &events, client.InNamespace(s.Key().Namespace),
		client.MatchingFields{"involvedObject.uid": string(o.StatefulSet.UID), "reason": reasonFailedCreate})
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("observe why pods are missing: %w", err)
	}
	o.Uncreated = explainUncreated(s, missing, events.Items, k.Clock.Now())
	return nil
}

// explainUncreated finds the newest event of each missing pod.
func explainUncreated(s objects.Set, missing []int, events []corev1.Event, now time.Time) map[int]string {
	found, newest := map[int]string{}, map[int]time.Time{}
	for i := range events {
		at := events[i].LastTimestamp.Time
		if now.Sub(at) > failedCreateLasts {
			continue
		}
		for _, n := range missing {
			_, why, failed := strings.Cut(events[i].Message, "Create Pod "+s.PodName(n)+" in StatefulSet "+s.Named("")+" failed error: ")
			if failed && !at.Before(newest[n]) {
				found[n], newest[n] = why, at
			}
		}
	}
	return found
}

// judgeUncreated says which pods cannot be made, and what to change.
func (j *Judgement) judgeUncreated(ordinal int) {
	why := j.Observed.Uncreated[ordinal]
	if why == "" || j.Observed.Pods[ordinal] != nil {
		return
	}
	j.AddMemberFact(ordinal, v1alpha1.ConditionStalled, v1alpha1.ReasonForbidden, "pod %s cannot be created: %s", j.PodName(ordinal), engine.DescribeForbidden(why))
}
