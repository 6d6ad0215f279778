package memberset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// settlePeriod is from the end of a member's pod to the question whose answer
// permits to delete its volume. An agent may take a few seconds to notice that
// its database hangs.
const settlePeriod = 5 * time.Second

// isMembers says whether a volume is labelled as a member's. A label that is
// put on the volume of a former member makes it none.
func isMembers(obj *metav1.ObjectMeta) bool {
	return obj.Labels[v1alpha1.LabelMember] != "" && obj.Annotations[v1alpha1.AnnotationScaledAway] == ""
}

// leftUnder is what a volume says of how its member left: what the deletion
// policy said at that moment. One that was kept stays kept, whatever the policy
// says later, and so does one of which nothing is known.
func leftUnder(s objects.Set, live *corev1.PersistentVolumeClaim, member bool) v1alpha1.DeletionPolicy {
	switch {
	case member || live == nil:
		return ""
	case s.Cluster.Common().DeletionPolicy != v1alpha1.DeletionDelete:
		return v1alpha1.DeletionRetain
	case isMembers(&live.ObjectMeta) || isDeletable(s, &live.ObjectMeta):
		return v1alpha1.DeletionDelete
	}
	return v1alpha1.DeletionRetain
}

// isDeletable says whether a volume says that its member was scaled away from this
// very cluster while the deletion policy was Delete.
func isDeletable(s objects.Set, obj *metav1.ObjectMeta) bool {
	return obj.Annotations[v1alpha1.AnnotationScaledAway] == string(v1alpha1.DeletionDelete) &&
		obj.Annotations[v1alpha1.AnnotationCluster] == string(s.Cluster.GetUID())
}

// endings remembers when pods of former members were first seen to be gone. An
// operator that has just started counts from then.
type endings struct {
	mu       sync.Mutex
	clusters map[types.NamespacedName]map[ending]time.Time
}

// ending is a volume, and why it is about to go. The time of one reason says nothing of the
// other: a volume is discarded while its member has a pod.
type ending struct {
	volume    types.UID
	discarded bool
}

// observeEndings answers since when the volumes of former members have had no pod, and
// since when those of others are discarded by request, by ordinal: the later of both.
func (e *endings) observeEndings(s objects.Set, o Observation, now time.Time) map[int]time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, after, ended := e.clusters[s.Key()], map[ending]time.Time{}, map[int]time.Time{}
	observe := func(ordinals []int, discarded bool) {
		for _, n := range ordinals {
			key := ending{volume: o.Volumes[n].UID, discarded: discarded}
			at, known := before[key]
			if !known {
				at = now
			}
			after[key] = at
			if at.After(ended[n]) {
				ended[n] = at
			}
		}
	}
	observe(listSurplus(s, o), false)
	observe(listDiscarded(s, o), true)
	if len(after) == 0 {
		delete(e.clusters, s.Key())
		return nil
	}
	if e.clusters == nil {
		e.clusters = map[types.NamespacedName]map[ending]time.Time{}
	}
	e.clusters[s.Key()] = after
	return ended
}

// forgetVolume forgets since when a volume has had no pod: one may have been found, and
// what the cluster answered before its end proves nothing.
func (e *endings) forgetVolume(cluster types.NamespacedName, volume types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.clusters[cluster], ending{volume: volume})
}

func (e *endings) forgetCluster(cluster types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.clusters, cluster)
}

// provenSince is when a question must be asked, or later, whose answer shows that
// the cluster serves without the member of an ordinal.
func (o Observation) provenSince(ordinal int) (time.Time, bool) {
	ended, known := o.Ended[ordinal]
	return ended.Add(settlePeriod), known
}

// newestProof is the latest such time that has come; zero for none.
func (o Observation) newestProof(now time.Time) time.Time {
	var newest time.Time
	for n := range o.Ended {
		if since, known := o.provenSince(n); known && !since.After(now) && since.After(newest) {
			newest = since
		}
	}
	return newest
}

// AnsweredSince says whether what a member says is the answer to a question that
// was asked then, or later.
func (o Observation) AnsweredSince(ordinal int, since time.Time) bool {
	pod := o.Pods[ordinal]
	return pod != nil && pod.DeletionTimestamp == nil && o.Member(ordinal) != nil && !o.Members[pod.Name].Asked.Before(since)
}

// DropVolumeStep deletes the volume of a member that was scaled away, when the
// spec says so in words, and said so then. It is the engine's to know that it is
// not the last copy: serves says whether the cluster was seen to serve without
// that member, by answers to questions that were asked at a time or later.
func (view *View) DropVolumeStep(serves func(since time.Time) bool) *engine.Step {
	for _, n := range view.Membership.Surplus {
		v := view.Observed.Volumes[n]
		if since, known := view.Observed.provenSince(n); !known || !serves(since) {
			continue
		}
		return &engine.Step{Type: StepDeleteVolume, Target: v.Name, Subject: view.PodName(n), UID: v.UID, ResourceVersion: v.ResourceVersion,
			Message: "its member was scaled away and spec.deletionPolicy is Delete"}
	}
	return nil
}

// JudgeSurplus says which volumes are about to be deleted, and when to look at
// them again; 0 for none.
func (j *Judgement) JudgeSurplus(now time.Time) time.Duration {
	var names []string
	wait := settlePeriod
	for _, n := range j.Membership.Surplus {
		names = append(names, j.Observed.Volumes[n].Name)
		if since, known := j.Observed.provenSince(n); known && since.After(now) {
			wait = min(wait, since.Sub(now))
		}
	}
	if len(names) == 0 || j.Cluster.Common().Suspend {
		return 0
	}
	j.AddFact(v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown,
		"%s of members that were scaled away: deleted once the cluster has answered that it serves without them", volumesNamed(names))
	return wait
}

// KeptNotes report the volumes that stay although their members left, and how to
// delete them: when a member leaves, and when the policy begins to say Delete.
func (view *View) KeptNotes() []engine.Note {
	var notes []engine.Note
	var kept []string
	var first string
	for _, v := range view.Desired.Volumes {
		live := view.Observed.Volumes[v.Ordinal]
		if live == nil {
			continue
		}
		if v.Member && first == "" && !PolicyHolds(view.Set, &live.ObjectMeta) {
			first = live.Name
		}
		if v.Left != v1alpha1.DeletionRetain {
			continue
		}
		kept = append(kept, live.Name)
		if isMembers(&live.ObjectMeta) {
			notes = append(notes, keptNote(live.Name, view.Key().Namespace, []string{live.Name},
				"its member is scaled away while spec.deletionPolicy is Retain"))
		}
	}
	if first != "" && len(kept) > 0 && view.Cluster.Common().DeletionPolicy == v1alpha1.DeletionDelete {
		notes = append(notes, keptNote(first, view.Key().Namespace, kept,
			"spec.deletionPolicy became Delete after their members had been scaled away"))
	}
	return notes
}

func keptNote(object, namespace string, kept []string, why string) engine.Note {
	verb := "stays"
	if len(kept) > 1 {
		verb = "stay"
	}
	return engine.Note{Kind: "PersistentVolumeClaim", Name: object, Reason: v1alpha1.ReasonVolumeKept, Action: "Keep",
		Message: fmt.Sprintf("%s %s, also when the cluster is deleted: %s. To delete the data: kubectl delete pvc -n %s %s",
			volumesNamed(kept), verb, why, namespace, strings.Join(kept, " "))}
}

func volumesNamed(names []string) string {
	if len(names) == 1 {
		return "volume " + names[0]
	}
	return "volumes " + strings.Join(names, ", ")
}

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
// the member, by answers to questions that were asked at a time or later. It is asked
// before each step: Kubernetes keeps the volume until its pod is gone, and the primary may
// be lost after the claim was deleted.
func (view *View) DiscardStep(ordinal int, now time.Time, serves func(since time.Time) bool) *engine.Step {
	v, pod := view.Observed.Volumes[ordinal], view.Observed.Pods[ordinal]
	if since, known := view.Observed.provenSince(ordinal); !known || !serves(since) {
		return nil
	}
	if v.DeletionTimestamp == nil {
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
