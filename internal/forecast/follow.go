package forecast

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// FollowPlan does what the operator does with a plan: it writes the status, applies the
// objects and carries out the step. It answers whether anything changed.
func (w *World) FollowPlan(p engine.Plan) bool {
	w.takeStatus(p)
	changed := false
	if !w.Cluster.Common().Suspend {
		for _, ac := range p.Objects {
			changed = w.applyObject(ac) || changed
		}
		if p.Complete {
			changed = w.pruneObjects(p.Objects) || changed
		}
		changed = w.makeBackup(p.Demand) || changed
		changed = w.makeBackupVolume(p) || changed
	}
	if p.Step != nil {
		w.carryOut(*p.Step)
		changed = true
	}
	return changed
}

// makeBackupVolume makes the volume for backups as the operator does: with the first backup,
// which is made once the cluster serves.
func (w *World) makeBackupVolume(p engine.Plan) bool {
	if p.BackupVolume == nil || w.Observed.BackupVolume != nil || !conditions.IsTrue(w.Cluster, v1alpha1.ConditionAvailable) {
		return false
	}
	return w.applyObject(p.BackupVolume)
}

// takeStatus writes the status as the operator does after a pass.
func (w *World) takeStatus(p engine.Plan) {
	if len(p.Facts) == 0 {
		return
	}
	st, r := w.Cluster.CommonStatus(), p.Report
	st.Image, st.Version, st.Primary, st.SystemIdentifier = r.Image, r.Version, r.Primary, r.SystemIdentifier
	st.Replicas, st.ReadyReplicas, st.Members, st.Endpoints = r.Replicas, r.ReadyReplicas, r.Members, r.Endpoints
	st.Requests, st.Election, st.Archive = r.Requests, r.Election, r.Archive
	st.Schedules = slices.Clone(r.Schedules)
	condition.Resolve(w.Cluster, condition.Input{Facts: slices.Clone(p.Facts), Suspended: w.Cluster.Common().Suspend})
	st.ObservedGeneration = w.Cluster.GetGeneration()
}

// objectHead is what names an object.
type objectHead struct {
	Kind     string            `json:"kind"`
	Metadata metav1.ObjectMeta `json:"metadata"`
}

func (h objectHead) String() string { return h.Kind + "/" + h.Metadata.Name }

// applyObject applies one object, and answers whether that changes it.
func (w *World) applyObject(ac runtime.ApplyConfiguration) bool {
	data, head := encode(ac)
	before, known := w.applied[head.String()]
	w.applied[head.String()] = string(data)
	same := known && before == string(data)
	switch head.Kind {
	case "PersistentVolumeClaim":
		return w.applyVolume(head, data)
	case "StatefulSet":
		if same && w.Observed.StatefulSet != nil {
			return false
		}
		w.applyStatefulSet(data, before)
		return true
	case "ConfigMap":
		if config := readConfig(ac); config != nil && string(config) != string(w.config) {
			w.recordConfig(w.config, config)
			w.config = config
			return true
		}
		return false
	}
	if known && !same && head.Kind != "Secret" {
		w.record(Step{Kind: ObjectChanges, Objects: []string{head.String()}})
	}
	return !same
}

// encode is the JSON of an object, and what names it.
func encode(ac runtime.ApplyConfiguration) ([]byte, objectHead) {
	data, err := json.Marshal(ac)
	if err != nil {
		panic(fmt.Sprintf("an apply configuration always marshals: %v", err))
	}
	var head objectHead
	decode(data, &head)
	return data, head
}

// decode reads what was encoded from the same kind of object.
func decode(data []byte, into any) {
	if err := json.Unmarshal(data, into); err != nil {
		panic(fmt.Sprintf("%T reads what it was made from: %v", into, err))
	}
}

// readConfig is the configuration of the members in an object; nil where it is another
// one.
func readConfig(ac runtime.ApplyConfiguration) []byte {
	if m, is := ac.(*corev1ac.ConfigMapApplyConfiguration); is && m.Data[agentapi.ConfigKey] != "" {
		return []byte(m.Data[agentapi.ConfigKey])
	}
	return nil
}

// ReadConfig is the configuration of the members, as it was applied last.
func (w *World) ReadConfig() (config agentapi.ClusterConfig) {
	if len(w.config) > 0 {
		decode(w.config, &config)
	}
	return config
}

// ConfigHash names that configuration.
func (w *World) ConfigHash() string { return agentapi.HashConfig(w.config) }

// pruneObjects deletes what is declared no more. Volumes and Secrets stay.
func (w *World) pruneObjects(declared []runtime.ApplyConfiguration) bool {
	stays := map[string]bool{}
	for _, ac := range declared {
		_, head := encode(ac)
		stays[head.String()] = true
	}
	pruned := false
	for _, name := range slices.Sorted(maps.Keys(w.applied)) {
		if stays[name] || strings.HasPrefix(name, "PersistentVolumeClaim/") || strings.HasPrefix(name, "Secret/") {
			continue
		}
		delete(w.applied, name)
		w.record(Step{Kind: ObjectDeleted, Objects: []string{name}})
		pruned = true
	}
	return pruned
}

// applyStatefulSet takes a StatefulSet as its controller has acted on it.
func (w *World) applyStatefulSet(data []byte, before string) {
	set, old := &appsv1.StatefulSet{}, w.Observed.StatefulSet
	decode(data, set)
	set.UID = types.UID(w.Cluster.GetName() + "-statefulset")
	if old != nil {
		set.UID, set.Generation, set.Status.UpdateRevision = old.UID, old.Generation, old.Status.UpdateRevision
	}
	set.Generation++
	set.Status.ObservedGeneration = set.Generation
	if old == nil || w.changesTemplate(set, old, before) {
		w.revisions++
		set.Status.UpdateRevision = fmt.Sprintf("%s-revision-%d", set.Name, w.revisions)
	}
	w.Observed.StatefulSet = set
}

// changesTemplate says whether pods are made otherwise from now on. What a live cluster
// has by default is in no apply configuration: its rollout decides.
func (w *World) changesTemplate(set, old *appsv1.StatefulSet, before string) bool {
	if before == "" {
		return set.Spec.Template.Annotations[v1alpha1.AnnotationRollout] != old.Spec.Template.Annotations[v1alpha1.AnnotationRollout]
	}
	was := &appsv1.StatefulSet{}
	decode([]byte(before), was)
	one, other := mustEncode(was.Spec.Template), mustEncode(set.Spec.Template)
	return one != other
}

func mustEncode(of any) string {
	data, err := json.Marshal(of)
	if err != nil {
		panic(fmt.Sprintf("%T always marshals: %v", of, err))
	}
	return string(data)
}

// applyVolume takes a claim as it is applied. It is bound at once, and grows at once.
func (w *World) applyVolume(head objectHead, data []byte) bool {
	ordinal, isMembers := w.ordinalOfVolume(head.Metadata.Name)
	live := w.Observed.BackupVolume
	if isMembers {
		live = w.Observed.Volumes[ordinal]
	}
	declared := &corev1.PersistentVolumeClaim{}
	decode(data, declared)
	if live == nil {
		declared.UID = types.UID("new-" + head.Metadata.Name)
		declared.CreationTimestamp = metav1.NewTime(w.Now)
		if declared.Spec.StorageClassName == nil {
			declared.Spec.StorageClassName = w.defaultClass()
		}
		declared.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: declared.Spec.Resources.Requests.DeepCopy()}
		w.putVolume(ordinal, isMembers, declared)
		w.record(Step{Kind: VolumeCreated, Volumes: []string{head.Metadata.Name}, To: sizeOf(declared)})
		return true
	}
	next := live.DeepCopy()
	takeMetadata(next, declared)
	from, to := live.Spec.Resources.Requests[corev1.ResourceStorage], declared.Spec.Resources.Requests[corev1.ResourceStorage]
	if to.Cmp(from) > 0 {
		next.Spec.Resources.Requests[corev1.ResourceStorage] = to
		next.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: to}
		w.record(Step{Kind: VolumesGrow, Volumes: []string{next.Name}, From: from.String(), To: to.String(), OneWay: "volumes never shrink"})
	}
	if live.Labels[v1alpha1.LabelMember] != "" && next.Labels[v1alpha1.LabelMember] == "" && next.Annotations[v1alpha1.AnnotationScaledAway] != string(v1alpha1.DeletionDelete) {
		w.record(Step{Kind: VolumeKept, Volumes: []string{next.Name}})
	}
	w.putVolume(ordinal, isMembers, next)
	return !equality.Semantic.DeepEqual(live, next)
}

func (w *World) putVolume(ordinal int, isMembers bool, v *corev1.PersistentVolumeClaim) {
	if isMembers {
		w.Observed.Volumes[ordinal] = v
		return
	}
	w.Observed.BackupVolume = v
}

// takeMetadata gives a claim what is declared of it. Annotations of others stay.
func takeMetadata(live, declared *corev1.PersistentVolumeClaim) {
	if live.Labels == nil {
		live.Labels = map[string]string{}
	}
	if live.Annotations == nil {
		live.Annotations = map[string]string{}
	}
	delete(live.Labels, v1alpha1.LabelMember)
	maps.Copy(live.Labels, declared.Labels)
	maps.DeleteFunc(live.Annotations, func(name, _ string) bool { return strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") })
	maps.Copy(live.Annotations, declared.Annotations)
	live.OwnerReferences = declared.OwnerReferences
}

// ordinalOfVolume is the member that a claim of a name is of.
func (w *World) ordinalOfVolume(name string) (int, bool) {
	for _, n := range listOrdinals() {
		if w.Set().VolumeName(n) == name {
			return n, true
		}
	}
	return 0, false
}

// defaultClass is the class of claims that name none; nil where none is known.
func (w *World) defaultClass() *string {
	for _, name := range slices.Sorted(maps.Keys(w.Observed.StorageClasses)) {
		if w.Observed.StorageClasses[name].Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			return &name
		}
	}
	return nil
}

func sizeOf(v *corev1.PersistentVolumeClaim) string {
	size := v.Spec.Resources.Requests[corev1.ResourceStorage]
	return size.String()
}

// makeBackup makes a backup that a plan demands, at once.
func (w *World) makeBackup(demand *engine.Demand) bool {
	if demand == nil {
		return false
	}
	st, at := w.Cluster.CommonStatus(), w.Now
	if demand.Since.After(at) {
		at = demand.Since
	}
	if demand.Before == "" {
		st.LastBackup = &v1alpha1.LastBackup{Name: demand.Name, Time: metav1.NewTime(at)}
		w.record(Step{Kind: BackupMade, Objects: []string{"Backup/" + demand.Name}, Message: "the archive continues it"})
		return true
	}
	if w.Precaution != nil && w.Precaution.Name == demand.Name {
		return false
	}
	set := w.Set()
	w.Precaution = &v1alpha1.Backup{
		ObjectMeta: metav1.ObjectMeta{Name: demand.Name, Namespace: w.Cluster.GetNamespace(), CreationTimestamp: metav1.NewTime(at)},
		Spec:       v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: set.GVK.Kind, Name: w.Cluster.GetName()}},
		Status:     v1alpha1.BackupStatus{StartTime: new(metav1.NewTime(at)), CompletionTime: new(metav1.NewTime(at)), Result: &v1alpha1.BackupResult{}},
	}
	w.record(Step{Kind: BackupMade, Objects: []string{"Backup/" + demand.Name}, Message: "before the upgrade to " + demand.Before})
	return true
}

// carryOut does the step of a plan.
func (w *World) carryOut(s engine.Step) {
	switch s.Type {
	case memberset.StepReplaceMember:
		for n, pod := range w.Observed.Pods {
			if pod.UID == s.UID {
				w.endPod(n, MemberRestarts, s.Message)
				return
			}
		}
	case memberset.StepDeleteVolume:
		w.deleteVolume(s)
	case memberset.StepDiscardVolume, memberset.StepDiscardPod:
		w.deleteVolume(s)
		if n := w.ordinalOfPod(s.Target); n != memberset.NoLeader {
			w.endPod(n, MemberRestarts, s.Message)
		}
	default:
		if w.Agents.CarryOut(w, s) || w.ownVolume(s) {
			return
		}
		minted, err := Mint(w.Set(), w.Now)
		if err != nil {
			panic(fmt.Sprintf("certificates can always be made: %v", err))
		}
		w.Observed.Minted = minted
	}
}

func (w *World) deleteVolume(s engine.Step) {
	for n, v := range w.Observed.Volumes {
		if v.UID != s.UID {
			continue
		}
		delete(w.Observed.Volumes, n)
		delete(w.applied, "PersistentVolumeClaim/"+v.Name)
		w.record(Step{Kind: VolumeDeleted, Volumes: []string{v.Name}, From: sizeOf(v), Message: s.Message, OneWay: "deleted data comes back from a backup only", DataAtRisk: true})
	}
}

// ownVolume gives a volume the owner that the deletion policy asks for. That is all that
// is done to a suspended cluster.
func (w *World) ownVolume(s engine.Step) bool {
	for _, v := range w.Observed.Volumes {
		if v.UID == s.UID && s.UID != "" {
			w.toggleOwner(v)
			return true
		}
	}
	if v := w.Observed.BackupVolume; v != nil && v.UID == s.UID && s.UID != "" {
		w.toggleOwner(v)
		return true
	}
	return false
}

func (w *World) toggleOwner(v *corev1.PersistentVolumeClaim) {
	owned := slices.ContainsFunc(v.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == w.Cluster.GetUID() })
	v.OwnerReferences = slices.DeleteFunc(slices.Clone(v.OwnerReferences), func(o metav1.OwnerReference) bool { return o.UID == w.Cluster.GetUID() })
	if !owned {
		v.OwnerReferences = append(v.OwnerReferences, *metav1.NewControllerRef(w.Cluster, w.Set().GVK))
	}
}

// ordinalOfPod is the member of a pod of a name; memberset.NoLeader for none.
func (w *World) ordinalOfPod(name string) int {
	rest, found := strings.CutPrefix(name, w.Cluster.GetName()+"-")
	if n, err := strconv.Atoi(rest); found && err == nil && w.Observed.Pods[n] != nil {
		return n
	}
	return memberset.NoLeader
}

// ListApplied are the objects as they were applied last, by kind and name.
func (w *World) ListApplied() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(w.applied)) {
		u := &unstructured.Unstructured{}
		decode([]byte(w.applied[name]), &u.Object)
		all = append(all, u)
	}
	return all
}
