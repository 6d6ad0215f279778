package memberset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// RequestDiscardVolume is the type of the request that a volume is discarded, as status
// has it.
var RequestDiscardVolume = strings.TrimPrefix(v1alpha1.AnnotationDiscardVolume, v1alpha1.GroupVersion.Group+"/")

// Steps of a volume that is discarded: first its claim is deleted, then the pod that the
// claim waits for.
const (
	StepDiscardVolume = "DiscardVolume"
	StepDiscardPod    = "DiscardPod"
	// stepForcePod removes a pod whose node does not end it.
	stepForcePod = "ForcePod"
)

// forceAfter is how long after the end of its grace period a pod is stuck.
const forceAfter = 30 * time.Second

// FindVolumeByUID is the ordinal of the volume whose claim has a UID; false for none.
func (o Observation) FindVolumeByUID(uid string) (int, bool) {
	for n, v := range o.Volumes {
		if uid != "" && string(v.UID) == uid {
			return n, true
		}
	}
	return 0, false
}

// listDiscarded are the ordinals of volumes that a request which is under way discards.
// What the cluster answers counts from when the operator learned of it.
func listDiscarded(s objects.Set, o Observation) (discarded []int) {
	for _, r := range s.Cluster.CommonStatus().Requests {
		if n, found := o.FindVolumeByUID(r.VolumeUID); found && r.Type == RequestDiscardVolume && r.Result == "" {
			discarded = append(discarded, n)
		}
	}
	return discarded
}

// DiscardStep discards a volume, and the pod that holds it: the claim first, so that no
// other pod gets the volume. Serves says whether the cluster was seen to serve without
// the member, by answers to questions that were asked at a time or later; it is asked
// before the claim is deleted.
func (view *View) DiscardStep(ordinal int, now time.Time, serves func(since time.Time) bool) *engine.Step {
	v, pod := view.Observed.Volumes[ordinal], view.Observed.Pods[ordinal]
	if v.DeletionTimestamp == nil {
		if since, known := view.Observed.provenSince(ordinal); !known || !serves(since) {
			return nil
		}
		return &engine.Step{Type: StepDiscardVolume, Target: v.Name, Subject: view.PodName(ordinal), UID: v.UID, ResourceVersion: v.ResourceVersion,
			Message: "it is discarded by request"}
	}
	switch {
	case pod == nil:
		return nil
	case pod.DeletionTimestamp == nil:
		return &engine.Step{Type: StepDiscardPod, Target: pod.Name, UID: pod.UID, Message: "its volume is discarded by request"}
	case now.Sub(pod.DeletionTimestamp.Time) > forceAfter:
		return &engine.Step{Type: stepForcePod, Target: pod.Name, UID: pod.UID, Message: "its volume is discarded by request, and its node does not end it"}
	}
	return nil
}

// NextDiscard is when to look again at a volume that is discarded.
func (view *View) NextDiscard(ordinal int, now time.Time) time.Duration {
	pod := view.Observed.Pods[ordinal]
	if pod == nil || pod.DeletionTimestamp == nil {
		return settlePeriod
	}
	return max(time.Second, forceAfter+time.Second-now.Sub(pod.DeletionTimestamp.Time))
}

// actDiscard does a step of a volume that is discarded.
func (k *MemberEngine) actDiscard(ctx context.Context, s objects.Set, step engine.Step) error {
	if err := k.checkDiscarding(ctx, s); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Namespace: s.Key().Namespace, Name: step.Target}
	switch step.Type {
	case StepDiscardVolume:
		return k.removeObserved(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: meta}, step)
	case StepDiscardPod:
		return k.removeObserved(ctx, &corev1.Pod{ObjectMeta: meta}, step)
	}
	err := k.Writer.Delete(ctx, &corev1.Pod{ObjectMeta: meta}, client.Preconditions{UID: &step.UID}, &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", step.Target, err)
	}
	return nil
}

// checkDiscarding makes sure that the request is recorded, and that the live cluster is
// the one that the step was planned from.
func (k *MemberEngine) checkDiscarding(ctx context.Context, s objects.Set) error {
	if err := k.CheckUnchanged(ctx, s); err != nil {
		return err
	}
	isDiscard := func(r v1alpha1.RequestStatus) bool { return r.Type == RequestDiscardVolume && r.Result == "" }
	if !slices.ContainsFunc(s.Cluster.CommonStatus().Requests, isDiscard) {
		return errors.New("no recorded request discards this volume")
	}
	return nil
}
