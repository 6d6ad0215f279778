package memberset

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// RunningImage is what a member's database runs from.
func RunningImage(s objects.Set, pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	if ctr := findContainer(s, pod.Spec); ctr != nil {
		return ctr.Image
	}
	return ""
}

// CopySources are members to copy from, in that order.
func CopySources(s objects.Set, ordinals []int, port int) []engine.Source {
	out := make([]engine.Source, 0, len(ordinals))
	for _, n := range ordinals {
		pod := s.PodName(n)
		out = append(out, engine.Source{Name: pod, Address: objects.HostPort(s.PodHost(pod), port)})
	}
	return out
}

// CopyScratch is a volume like that of a member that is copied: all of its data fits.
func CopyScratch(s objects.Set, o Observation, ordinal int) *engine.ScratchVolume {
	v := &engine.ScratchVolume{Size: s.Storage.Size.DeepCopy(), Class: s.Storage.StorageClass}
	if claim := o.Volumes[ordinal]; claim != nil {
		v.Size = maxQuantity(v.Size, claim.Spec.Resources.Requests[corev1.ResourceStorage])
		v.Class = cmp.Or(className(claim), v.Class)
	}
	return v
}

// desireBackups is the volume for backups as it should be; nil for none. Later
// says that it is not there yet. One that is there stays, whatever becomes of
// spec.backup.
func desireBackups(s objects.Set, o Observation) (v *objects.Volume, later bool) {
	declared := s.Cluster.Common().Backup
	wanted := declared.IsEnabled() && declared.Destination == nil
	live := o.ownBackupVolume()
	if !wanted && live == nil {
		return nil, false
	}
	base := s.Storage.Size
	if live == nil {
		base = largestVolume(o, base)
	}
	v = &objects.Volume{Size: base.DeepCopy(), Class: s.Storage.StorageClass}
	v.Size.Add(base)
	if wanted && declared.Volume != nil {
		v.Class = cmp.Or(declared.Volume.StorageClass, v.Class)
		if size := declared.Volume.Size; size != nil {
			v.Size = *size
		}
	}
	if live == nil {
		return v, true
	}
	// It never shrinks and never changes its class.
	v.Class = className(live)
	has := live.Spec.Resources.Requests[corev1.ResourceStorage]
	if !wanted || v.Size.Cmp(has) < 0 || live.Status.Phase != corev1.ClaimBound || !isExpandable(o, v.Class) {
		v.Size = has
	}
	return v, false
}

// largestVolume of the volumes that members run on, where that is more than was asked
// for: volumes that grew by themselves are in no spec. It counts for a volume that
// is made and makes none grow, which no user asked for and a quota may refuse.
func largestVolume(o Observation, asked resource.Quantity) resource.Quantity {
	for n, claim := range o.Volumes {
		if has := claim.Spec.Resources.Requests[corev1.ResourceStorage]; o.Pods[n] != nil && has.Cmp(asked) > 0 {
			asked = has
		}
	}
	return asked
}

// ownBackupVolume is the volume for backups that is there and stays; nil where
// there is none, or it is another cluster's.
func (o Observation) ownBackupVolume() *corev1.PersistentVolumeClaim {
	live := o.BackupVolume
	if live == nil || live.DeletionTimestamp != nil || !isLabelled(live) && !slices.Contains(o.Recorded, live.UID) {
		return nil
	}
	return live
}

func isLabelled(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy
}

// observeRecorded finds the volume for backups where a client took its labels:
// those who look by label call it gone, and its backups with it. That a Backup
// says where its data is proves whose volume it is. The API server is asked only
// while one says so of a volume that no cache shows.
func (k *MemberEngine) observeRecorded(ctx context.Context, s objects.Set, o *Observation) error {
	if k.Writer == nil || o.BackupVolume != nil && isLabelled(o.BackupVolume) {
		return nil
	}
	name := s.Named(v1alpha1.SuffixBackups)
	recorded, err := k.findRecordedVolumes(ctx, s, name)
	if err != nil {
		return err
	}
	claim := o.BackupVolume
	if claim == nil && len(recorded) > 0 {
		claim = &corev1.PersistentVolumeClaim{}
		err := k.Writer.Get(ctx, types.NamespacedName{Namespace: s.Key().Namespace, Name: name}, claim)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("look for the volume for backups: %w", err)
		}
	}
	if claim != nil && recorded[claim.UID] && !hasOtherOwner(claim, s.Cluster.GetUID()) && !isDisowned(s, claim) {
		o.BackupVolume, o.Recorded = claim, append(o.Recorded, claim.UID)
	}
	return nil
}

// isDisowned says that an object is labelled as another cluster's, which is not to
// have lost its labels.
func isDisowned(s objects.Set, obj client.Object) bool {
	for _, label := range []string{v1alpha1.LabelCluster, v1alpha1.LabelKind, v1alpha1.LabelManagedBy} {
		if said := obj.GetLabels()[label]; said != "" && said != s.Labels(objects.ComponentBackup)[label] {
			return true
		}
	}
	return false
}

// findRecordedVolumes are the volumes of a name that Backups of the cluster say that their
// data is on, by UID.
func (k *MemberEngine) findRecordedVolumes(ctx context.Context, s objects.Set, name string) (map[types.UID]bool, error) {
	var all v1alpha1.BackupList
	if err := k.Reader.List(ctx, &all, client.InNamespace(s.Key().Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("observe backups: %w", err)
	}
	of, found := v1alpha1.ClusterReference{Kind: s.GVK.Kind, Name: s.Cluster.GetName()}, map[types.UID]bool{}
	for i := range all.Items {
		b := &all.Items[i]
		if at := b.Status.Location; b.Spec.ClusterRef == of && at != nil && at.ClaimName == name && at.ClaimUID != "" && !b.Status.DataLost {
			found[types.UID(at.ClaimUID)] = true
		}
	}
	return found, nil
}

// PlanRestore says how the bootstrap member's volume is filled with a backup. Writable and
// the faults are what DesireVolumes said.
func PlanRestore(view *View, d objects.Desired, writable bool, faults []condition.Fact) engine.RestorePlan {
	s, o := view.Set, view.Observed
	r := engine.RestorePlan{
		Program: s.Container, Image: d.Image, User: s.User, Member: s.PodName(BootstrapOrdinal), Account: objects.BackupAccount(s),
		Living: o.StatefulSet != nil || s.Cluster.CommonStatus().SystemIdentifier != "",
		Volume: o.Volumes[BootstrapOrdinal],
	}
	if !writable {
		r.Faults = faults
	}
	r.Leaving, _ = FindLeaving(s, o)
	for _, v := range d.Volumes {
		if v.Ordinal == BootstrapOrdinal {
			r.Size = v.Size.Value()
			r.Claim = objects.VolumeClaim(s, d, v).WithAnnotations(map[string]string{v1alpha1.AnnotationRestoredBy: string(s.Cluster.GetUID())})
		}
	}
	for _, n := range slices.Sorted(maps.Keys(o.Volumes)) {
		if n != BootstrapOrdinal {
			r.Others = append(r.Others, o.Volumes[n].Name)
		}
	}
	return r
}

// FindLeaving names a volume of an earlier cluster that is being deleted, and counts them; empty
// without one.
func FindLeaving(s objects.Set, o Observation) (name string, count int) {
	for _, n := range slices.Sorted(maps.Keys(o.Volumes)) {
		if isInherited(s, o.Volumes[n]) && o.isVolumeDeleted(n) {
			name, count = o.Volumes[n].Name, count+1
		}
	}
	return name, count
}

// halfRestored keeps members off the part of a database that an earlier cluster
// of the name left. One that restores says so itself.
func halfRestored(s objects.Set, o Observation) *condition.Fact {
	v := o.Volumes[BootstrapOrdinal]
	if v == nil || v.DeletionTimestamp != nil || o.StatefulSet != nil || s.Cluster.Common().Restore != nil || s.Cluster.CommonStatus().Restore != nil {
		return nil
	}
	if v.Annotations[v1alpha1.AnnotationRestoredBy] == "" || v.Annotations[v1alpha1.AnnotationSystemIdentifier] != "" {
		return nil
	}
	return new(StalledFact(v1alpha1.ReasonRestoreRefused,
		"volume %s holds what an earlier cluster of this name began to restore, and does not say that a member ran on it: look at what it holds first; then delete it, or give the cluster another name", v.Name))
}
