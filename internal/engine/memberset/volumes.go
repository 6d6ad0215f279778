package memberset

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// DesireVolumes fills in the volumes of d, whose count is known. It says
// whether volumes and pods may be written at all.
func DesireVolumes(view *View, d *objects.Desired) (writable bool, facts []condition.Fact) {
	s, o := view.Set, view.Observed
	writable = true
	if class := s.Storage.StorageClass; class != "" && o.StorageClasses != nil {
		if _, ok := o.StorageClasses[class]; !ok {
			facts = append(facts, StalledFact(v1alpha1.ReasonStorageClassMissing, "spec.storage.storageClass %q does not exist: create it, or name one that does", class))
			writable = !missesVolume(o, d.Count)
		}
	}
	if fault := halfRestored(s, o); fault != nil {
		facts, writable = append(facts, *fault), false
	}
	d.Template = objects.Volume{Size: s.Storage.Size, Class: s.Storage.StorageClass}
	if o.StatefulSet != nil && len(o.StatefulSet.Spec.VolumeClaimTemplates) > 0 {
		d.Template = templateVolume(o.StatefulSet.Spec.VolumeClaimTemplates[0])
	}
	if fault := growthRefused(s, o, d.Count); fault != nil {
		facts = append(facts, *fault)
	}
	for _, n := range volumeOrdinals(o, d.Count) {
		v, fault := desireVolume(s, o, view.growth, d.Data, n, n < d.Count)
		v.Diverged, v.Cluster, v.Left = o.DataDiverged(n), volumeOwner(s, o.Volumes[n]), leftUnder(s, o.Volumes[n], n < d.Count)
		d.Volumes = append(d.Volumes, v)
		if fault != nil {
			fault.Ordinal = n
			facts = append(facts, *fault)
		}
	}
	return writable, facts
}

// volumeOwner is whose volume this is, before the bootstrap of this cluster is recorded.
func volumeOwner(s objects.Set, live *corev1.PersistentVolumeClaim) string {
	if live == nil {
		return string(s.Cluster.GetUID())
	}
	return live.Annotations[v1alpha1.AnnotationCluster]
}

// missesVolume says whether a member has no volume yet: made with a wrong
// class it could not be repaired.
func missesVolume(o Observation, count int) bool {
	for n := range count {
		if o.Volumes[n] == nil {
			return true
		}
	}
	return false
}

// volumeOrdinals are the members' volumes and those of former members.
func volumeOrdinals(o Observation, count int) []int {
	all := map[int]bool{}
	for n := range count {
		all[n] = true
	}
	for n, v := range o.Volumes {
		if o.ownsVolume(v) && v.DeletionTimestamp == nil {
			all[n] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// desireVolume says how large a volume should be. A volume never shrinks and
// never changes its class.
func desireVolume(s objects.Set, o Observation, g growth, data map[string]string, ordinal int, member bool) (v objects.Volume, fault *condition.Fact) {
	live := o.Volumes[ordinal]
	if live == nil {
		return objects.Volume{Ordinal: ordinal, Member: member, Size: g.size, Class: s.Storage.StorageClass}, nil
	}
	size := live.Spec.Resources.Requests[corev1.ResourceStorage]
	v = objects.Volume{Ordinal: ordinal, Member: member, Size: size, Capacity: live.Status.Capacity[corev1.ResourceStorage], Class: className(live)}
	if !member {
		return v, nil
	}
	fault = findRefusal(s, o, live)
	switch {
	case live.Status.Phase != corev1.ClaimBound:
		// The API server refuses to resize a claim that has no volume yet.
	case g.size.Cmp(size) <= 0 || !isExpandable(o, v.Class) || g.itself && !isGrowable(o, v.Class):
	case fault != nil && !g.itself:
	case !mayDrift(s) && !recordsData(s, data, live):
		v.Waits = true
	default:
		v.Size = g.size
	}
	return v, fault
}

// findRefusal says why a member's volume cannot be what is declared; nil when it
// can.
func findRefusal(s objects.Set, o Observation, live *corev1.PersistentVolumeClaim) *condition.Fact {
	want, size, class, name := s.Storage, live.Spec.Resources.Requests[corev1.ResourceStorage], className(live), live.Name
	switch auto := want.AutoGrow; {
	case want.StorageClass != "" && want.StorageClass != class:
		was, remedy := fmt.Sprintf("is of the class %q", class), fmt.Sprintf("set it to %q", class)
		if class == "" {
			was, remedy = "is of no class", "remove it"
		}
		return new(StalledFact(v1alpha1.ReasonStorageClassChanged,
			"spec.storage.storageClass is %q, and volume %s %s: a volume cannot change its class; %s", want.StorageClass, name, was, remedy))
	case auto != nil && auto.MaxSize.Cmp(size) < 0 && want.Size.Cmp(size) < 0:
		return new(StalledFact(v1alpha1.ReasonStorageShrink,
			"spec.storage.autoGrow.maxSize %s is less than the %s of volume %s: a volume cannot shrink; set it to at least %s", auto.MaxSize.String(), size.String(), name, size.String()))
	case auto == nil && want.Size.Cmp(size) < 0:
		return new(StalledFact(v1alpha1.ReasonStorageShrink,
			"spec.storage.size %s is less than the %s of volume %s: a volume cannot shrink; set it to at least %s", want.Size.String(), size.String(), name, size.String()))
	case want.Size.Cmp(size) > 0 && !isExpandable(o, class):
		return new(StalledFact(v1alpha1.ReasonStorageNotExpandable,
			"spec.storage.size %s is more than the %s of volume %s, whose storage class %q does not allow it to grow: set the size back, or allowVolumeExpansion on the class", want.Size.String(), size.String(), name, class))
	}
	return nil
}

// growthRefused says what of spec.storage.autoGrow, and of the size beside it, has
// no effect; nil when all of it has.
func growthRefused(s objects.Set, o Observation, count int) *condition.Fact {
	auto := s.Storage.AutoGrow
	if auto == nil {
		return nil
	}
	if o.StatefulSet != nil && len(o.StatefulSet.Spec.VolumeClaimTemplates) > 0 {
		made := templateVolume(o.StatefulSet.Spec.VolumeClaimTemplates[0]).Size
		if s.Storage.Size.Cmp(made) < 0 && auto.MaxSize.Cmp(made) >= 0 {
			return new(StalledFact(v1alpha1.ReasonStorageShrink,
				"spec.storage.size %s is less than the %s that the volumes were made with: a volume cannot shrink, with spec.storage.autoGrow either; set it to at least %s", s.Storage.Size.String(), made.String(), made.String()))
		}
	}
	for n := range count {
		v := o.Volumes[n]
		if v == nil {
			continue
		}
		if _, known := o.StorageClasses[className(v)]; known && !isGrowable(o, className(v)) {
			return &condition.Fact{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonStorageNotExpandable, Message: fmt.Sprintf(
				"spec.storage.autoGrow has no effect: storage class %q of volume %s does not allow volumes to grow; set allowVolumeExpansion on the class, or remove autoGrow", className(v), v.Name)}
		}
	}
	return nil
}

// mayDrift says whether drift on a volume may stay: what waited for its end
// would wait for ever.
func mayDrift(s objects.Set) bool {
	drift := s.Cluster.Common().Drift
	return drift.Mode == v1alpha1.DriftReport || slices.ContainsFunc(drift.Ignore, func(rule v1alpha1.DriftIgnore) bool {
		return rule.Kind == "" || rule.Kind == "PersistentVolumeClaim"
	})
}

// recordsData says whether a volume's owner and what it says of its data are as
// desired. They go first: a quota refuses an apply that grows as a whole.
func recordsData(s objects.Set, data map[string]string, live *corev1.PersistentVolumeClaim) bool {
	for name, value := range data {
		if live.Annotations[name] != value {
			return false
		}
	}
	return PolicyHolds(s, &live.ObjectMeta)
}

// isExpandable says whether a class lets volumes grow, as far as that is known: of
// what the spec asks for, trying shows the rest.
func isExpandable(o Observation, class string) bool {
	_, known := o.StorageClasses[class]
	return !known || isGrowable(o, class)
}

// isGrowable says whether the API server lets volumes of a class grow: it refuses
// where there is none. Where the operator may not read classes, trying shows it.
func isGrowable(o Observation, class string) bool {
	allowed := o.StorageClasses[class].AllowVolumeExpansion
	return o.StorageClasses == nil || allowed != nil && *allowed
}

func templateVolume(pvc corev1.PersistentVolumeClaim) objects.Volume {
	v := objects.Volume{Size: pvc.Spec.Resources.Requests[corev1.ResourceStorage]}
	if pvc.Spec.StorageClassName != nil {
		v.Class = *pvc.Spec.StorageClassName
	}
	return v
}
