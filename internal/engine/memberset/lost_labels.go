package memberset

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Caches and lists select by label. What was taken a label is there all the same:
// it is looked for at the API server, by its name, where it is known to have been
// there or is missed.

// stepRelabelPod puts labels back by which a pod is found.
const stepRelabelPod = "RestorePodLabels"

// labelPodName is what the StatefulSet controller calls a pod.
const labelPodName = "statefulset.kubernetes.io/pod-name"

// volumeCache remembers the volumes of clusters, by name. It only saves requests.
type volumeCache struct {
	mu       sync.Mutex
	clusters map[types.UID]map[string]types.UID
}

// knownVolumes a cluster; unknown before the first observation.
func (c *volumeCache) knownVolumes(cluster types.UID) (names map[string]types.UID, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, known = c.clusters[cluster]
	return names, known
}

func (c *volumeCache) rememberVolumes(s objects.Set, volumes []corev1.PersistentVolumeClaim) {
	names := map[string]types.UID{}
	for i := range volumes {
		names[volumes[i].Name] = volumes[i].UID
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusters == nil {
		c.clusters = map[types.UID]map[string]types.UID{}
	}
	if before, known := c.clusters[s.Cluster.GetUID()]; !known || !maps.Equal(before, names) {
		c.clusters[s.Cluster.GetUID()] = names
	}
}

func (c *volumeCache) forgetCluster(cluster types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.clusters, cluster)
}

// findVolumes adds to the volumes that are found by label those that have lost one,
// and says which of all are the cluster's although their labels do not say so.
func (k *MemberEngine) findVolumes(ctx context.Context, s objects.Set, o *Observation, found []corev1.PersistentVolumeClaim) ([]corev1.PersistentVolumeClaim, error) {
	if k.Writer == nil {
		return found, nil
	}
	known, observed := k.claims.knownVolumes(s.Cluster.GetUID())
	there := map[string]bool{}
	for i := range found {
		there[found[i].Name] = true
	}
	missed, err := k.missedVolumes(ctx, s, known, observed, there)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(found)
	for i := range missed {
		// One that has its labels again is there although the cache lags.
		if v := &missed[i]; lostLabels(s, v, known[v.Name]) || known[v.Name] == v.UID && labels.SelectorFromSet(s.Selector()).Matches(labels.Set(v.Labels)) {
			out = append(out, *v)
		}
	}
	for i := range out {
		if lostLabels(s, &out[i], known[out[i].Name]) {
			o.Recorded = append(o.Recorded, out[i].UID)
		}
	}
	k.claims.rememberVolumes(s, out)
	return out, nil
}

// missedVolumes are those that no list by label showed: of all where nothing is
// known of what an operator before this one saw, and else of those that are known.
func (k *MemberEngine) missedVolumes(ctx context.Context, s objects.Set, known map[string]types.UID, observed bool, there map[string]bool) ([]corev1.PersistentVolumeClaim, error) {
	var missed []corev1.PersistentVolumeClaim
	if !observed {
		var all corev1.PersistentVolumeClaimList
		if err := k.Writer.List(ctx, &all, client.InNamespace(s.Key().Namespace)); err != nil {
			return nil, fmt.Errorf("look for volumes without labels: %w", err)
		}
		missed = slices.DeleteFunc(all.Items, func(v corev1.PersistentVolumeClaim) bool { return there[v.Name] || !isVolumeName(s, v.Name) })
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if there[name] {
			continue
		}
		var live corev1.PersistentVolumeClaim
		err := k.Writer.Get(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: name}, &live)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("look for volume %s: %w", name, err)
		}
		if err == nil {
			missed = append(missed, live)
		}
	}
	return missed, nil
}

// isVolumeName says whether a volume of the cluster has such a name.
func isVolumeName(s objects.Set, name string) bool {
	return strings.HasPrefix(name, "data-"+s.Named("-")) || name == s.Named(v1alpha1.SuffixBackups)
}

// lostLabels says whether a volume lacks labels by which it is found, and is the
// cluster's all the same: the one that was seen before, or by what else it says.
func lostLabels(s objects.Set, v *corev1.PersistentVolumeClaim, known types.UID) bool {
	should := s.Selector()
	should[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	should["app.kubernetes.io/name"], should["app.kubernetes.io/instance"] = s.App, s.Cluster.GetName()
	lost := false
	for name, want := range should {
		have, there := v.Labels[name]
		if there && have != want {
			return false // labelled as another's
		}
		lost = lost || !there
	}
	owner := metav1.GetControllerOf(v)
	if !lost || owner != nil && owner.UID != s.Cluster.GetUID() {
		return false
	}
	made := v.Annotations[v1alpha1.AnnotationCluster]
	return owner != nil || known == v.UID || made == string(s.Cluster.GetUID()) || made == "" && apply.LostLabels(v, should)
}

// ownsVolume says whether a volume is the cluster's, by its labels or without them.
func (o Observation) ownsVolume(v *corev1.PersistentVolumeClaim) bool {
	return isLabelled(v) || slices.Contains(o.Recorded, v.UID)
}

// findPods adds pods of the StatefulSet that lost a label by which they are found:
// their StatefulSet let go of them, and can make none of their name.
func (k *MemberEngine) findPods(ctx context.Context, s objects.Set, o *Observation) error {
	if k.Writer == nil || o.StatefulSet == nil {
		return nil
	}
	for n := range int(ptr.Deref(o.StatefulSet.Spec.Replicas, 0)) {
		if o.Pods[n] != nil {
			continue
		}
		pod := &corev1.Pod{}
		err := k.Writer.Get(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: s.PodName(n)}, pod)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look for pod %s: %w", s.PodName(n), err)
		}
		if hasOtherOwner(pod, o.StatefulSet.UID) || pod.DeletionTimestamp != nil || len(listLostLabels(s, pod)) == 0 ||
			pod.Labels[labelPodName] != pod.Name || pod.Annotations[v1alpha1.AnnotationRollout] == "" || findContainer(s, pod.Spec) == nil {
			continue
		}
		if _, err := engine.LeanObject(pod); err != nil {
			return err
		}
		o.Pods[n] = pod
	}
	return nil
}

// listLostLabels are the labels that the members' selector asks for and a pod does not
// have; sorted.
func listLostLabels(s objects.Set, pod *corev1.Pod) []string {
	var lost []string
	for name, want := range s.Selector() {
		if pod.Labels[name] != want {
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	return lost
}

// RelabelStep puts back what one pod lost of the labels by which it is found; nil
// where none did.
func (view *View) RelabelStep() *engine.Step {
	if view.Cluster.Common().Drift.Mode == v1alpha1.DriftReport {
		return nil
	}
	for _, n := range slices.Sorted(maps.Keys(view.Observed.Pods)) {
		pod := view.Observed.Pods[n]
		if lost := listLostLabels(view.Set, pod); len(lost) > 0 && pod.DeletionTimestamp == nil {
			return &engine.Step{Type: stepRelabelPod, Target: pod.Name, UID: pod.UID,
				Message: "it lost " + strings.Join(lost, " and ") + ", by which Services and its StatefulSet find it"}
		}
	}
	return nil
}

// PodDrifts are the labels that pods lost, as drift that is put back or stays.
func (view *View) PodDrifts(now time.Time) []apply.Drift {
	if view.Cluster.Common().Suspend {
		return nil
	}
	step := view.RelabelStep()
	if step == nil {
		return nil
	}
	var drifts []apply.Drift
	for _, pod := range view.Observed.Pods {
		if pod.Name != step.Target {
			continue
		}
		for _, label := range listLostLabels(view.Set, pod) {
			operation := apply.OperationRemoved
			if _, there := pod.Labels[label]; there {
				operation = apply.OperationUnattributed
			}
			drifts = append(drifts, apply.Drift{
				Time:   metav1.NewTime(now),
				Object: apply.ObjectID{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: pod.Namespace, Name: pod.Name},
				Path:   fmt.Sprintf(".metadata.labels[%q]", label), Operation: operation, Action: apply.ActionReverted,
			})
		}
	}
	return drifts
}

// relabelPod sets the labels by which the very pod is found that was observed.
func (k *MemberEngine) relabelPod(ctx context.Context, s objects.Set, step engine.Step) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": step.UID, "labels": s.Selector()}})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Key().Namespace, Name: step.Target}}
	err = k.Writer.Patch(ctx, pod, client.RawPatch(types.MergePatchType, body), client.FieldOwner(v1alpha1.FieldManager))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // gone, or another by now: the next pass looks again
	}
	if err != nil {
		return fmt.Errorf("label pod %s: %w", step.Target, err)
	}
	return nil
}
