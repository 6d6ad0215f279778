package memberset

import (
	"maps"
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// founder is the ordinal of the member whose volume a backup is restored to: of
// the members it is the one that needs no other.
const founder = 0

// PlanRestore says how the founder's volume is filled with a backup. Writable and
// the faults are what DesireVolumes said.
func PlanRestore(s objects.Set, o Observation, d objects.Desired, writable bool, faults []condition.Fact) engine.RestorePlan {
	r := engine.RestorePlan{
		Program: s.Container, Image: d.Image, User: s.User, Member: s.PodName(founder), Account: objects.BackupAccount(s),
		Living: o.StatefulSet != nil || s.Cluster.CommonStatus().SystemIdentifier != "",
		Volume: o.Volumes[founder],
	}
	if !writable {
		r.Faults = faults
	}
	for _, v := range d.Volumes {
		if v.Ordinal == founder {
			r.Size = v.Size.Value()
			r.Claim = objects.VolumeClaim(s, d, v).WithAnnotations(map[string]string{v1alpha1.AnnotationRestoredBy: string(s.Cluster.GetUID())})
		}
	}
	for _, n := range slices.Sorted(maps.Keys(o.Volumes)) {
		if isInherited(s, o.Volumes[n]) && o.isVolumeDeleted(n) {
			r.Leaving = o.Volumes[n].Name
		}
		if n != founder {
			r.Others = append(r.Others, o.Volumes[n].Name)
		}
	}
	return r
}

// halfRestored keeps members off the part of a database that an earlier cluster
// of the name left. One that restores says so itself.
func halfRestored(s objects.Set, o Observation) *condition.Fact {
	v := o.Volumes[founder]
	if v == nil || v.DeletionTimestamp != nil || o.StatefulSet != nil || s.Cluster.Common().Restore != nil || s.Cluster.CommonStatus().Restore != nil {
		return nil
	}
	if v.Annotations[v1alpha1.AnnotationRestoredBy] == "" || v.Annotations[v1alpha1.AnnotationSystemIdentifier] != "" {
		return nil
	}
	return new(StalledFact(v1alpha1.ReasonRestoreRefused,
		"volume %s holds what an earlier cluster of this name began to restore, and does not say that a member ran on it: look at what it holds first; then delete it, or give the cluster another name", v.Name))
}
