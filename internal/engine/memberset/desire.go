package memberset

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// PlanDesired starts from what is known whatever the engine makes of it: who the
// cluster is, and what was minted for it.
func PlanDesired(view *View) objects.Desired {
	s, o := view.Set, view.Observed
	d := objects.Desired{Minted: o.Minted.secretData(s), Settings: o.Settings, AgentImage: o.Settings.AgentImage, SystemIdentifier: findSystemIdentifier(s, o), Data: map[string]string{}}
	d.Backups, d.BackupsLater = desireBackups(s, o)
	d.Fresh = d.SystemIdentifier == "" && !inheritsVolumes(s, o)
	if d.SystemIdentifier != "" {
		d.Data[v1alpha1.AnnotationSystemIdentifier] = d.SystemIdentifier
	}
	if s.Cluster.CommonStatus().SystemIdentifier != "" {
		d.Data[v1alpha1.AnnotationCluster] = string(s.Cluster.GetUID())
	}
	return d
}

// FollowImage takes the image that the spec maps to, at the build that it stood for
// when the first member ran.
func FollowImage(view *View, d *objects.Desired, asked string) {
	FollowPatch(view, d, asked, asked)
}

// FollowPatch is FollowImage for an image that the spec names by a minor version: pull
// is the patch of it to begin with.
func FollowPatch(view *View, d *objects.Desired, asked, pull string) {
	d.Asked, d.Pull, d.Image = asked, pull, pinImage(view, asked, pull)
}

// KeepImage declares the image that is declared already, since the spec's cannot
// follow it. Where the StatefulSet is gone its pods have it, or the status.
func KeepImage(view *View, d *objects.Desired) {
	runs := view.Versions
	if runs.Declared != "" {
		d.Asked, d.Image = cmp.Or(runs.Asked, runs.Declared), runs.Declared
		return
	}
	if view.Observed.StatefulSet != nil {
		return
	}
	for _, n := range view.Membership.Pods {
		if pod := runs.Members[n]; pod.Image != "" {
			d.Asked, d.Image = cmp.Or(pod.Asked, pod.Image), pod.Image
			return
		}
	}
	if last := view.Cluster.CommonStatus().Image; last != "" {
		d.Asked, d.Image = last, last
	}
}

// StalledFact is a fact that only a person can fix.
func StalledFact(reason, format string, args ...any) condition.Fact {
	return condition.Fact{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// inheritsVolumes says whether any volume is one that an earlier cluster of the name
// left, and stays.
func inheritsVolumes(s objects.Set, o Observation) bool {
	for n, v := range o.Volumes {
		if isInherited(s, v) && !isInheritedAndDeleted(s, o, n) {
			return true
		}
	}
	return false
}

// isInherited says whether a volume is an earlier cluster's. It says whose it is;
// one that does not is older than this cluster's object or not, by clocks of API
// servers that may differ.
func isInherited(s objects.Set, v *corev1.PersistentVolumeClaim) bool {
	if made := v.Annotations[v1alpha1.AnnotationCluster]; made != "" {
		return made != string(s.Cluster.GetUID())
	}
	created := s.Cluster.GetCreationTimestamp()
	return v.CreationTimestamp.Before(&created)
}

// isInheritedAndDeleted says whether a volume of an earlier cluster is being deleted, and no
// member of this one uses it: no member of this cluster will read what it holds, and
// it says nothing any more.
func isInheritedAndDeleted(s objects.Set, o Observation, ordinal int) bool {
	return o.isVolumeDeleted(ordinal) && isInherited(s, o.Volumes[ordinal]) && o.Pods[ordinal] == nil
}

// findSystemIdentifier is the recorded system identifier: status, any volume or the bootstrap
// member knows it.
func findSystemIdentifier(s objects.Set, o Observation) string {
	if id := s.Cluster.CommonStatus().SystemIdentifier; id != "" {
		return id
	}
	for _, n := range slices.Sorted(maps.Keys(o.Volumes)) {
		if id := o.Volumes[n].Annotations[v1alpha1.AnnotationSystemIdentifier]; id != "" && !isInheritedAndDeleted(s, o, n) {
			return id
		}
	}
	if m := o.Member(BootstrapOrdinal); m != nil {
		return m.SystemIdentifier
	}
	return ""
}

// DataDiverged says whether a volume holds what the primary's does not, as far as
// its member ever reported: one that does not answer now changes nothing.
func (o Observation) DataDiverged(ordinal int) bool {
	if m := o.Member(ordinal); m != nil && (m.Serving || m.Hold == agentapi.HoldDataDiverged) {
		return m.Hold == agentapi.HoldDataDiverged
	}
	v := o.Volumes[ordinal]
	return v != nil && v1alpha1.MarkedDiverged(v)
}

// BaseConfig is the configuration that members of every kind have.
func BaseConfig(s objects.Set, d objects.Desired) agentapi.ClusterConfig {
	config := agentapi.ClusterConfig{
		APIVersion: s.GVK.GroupVersion().String(), Kind: s.GVK.Kind,
		DeletionPolicy: string(s.Cluster.Common().DeletionPolicy), Namespace: s.Cluster.GetNamespace(), Name: s.Cluster.GetName(), UID: string(s.Cluster.GetUID()),
		SystemIdentifier: d.SystemIdentifier, Fresh: d.Fresh, VolumeSize: s.Storage.Size.Value(),
	}
	for i := range d.Count {
		config.Members = append(config.Members, s.PodName(i))
	}
	return config
}

// RenderConfig is deterministic: maps are marshalled with sorted keys.
func RenderConfig(config agentapi.ClusterConfig) []byte {
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("a ClusterConfig always marshals: %v", err))
	}
	return append(data, '\n')
}
