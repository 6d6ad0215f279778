package memberset

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

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
	missing := o.missingPods()
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

// missingPods are the ordinals that the StatefulSet should have a pod for, and has
// none. The one of a volume that is being deleted waits for that.
func (o Observation) missingPods() []int {
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
