package memberset

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// MostMembers is the schema's limit of spec.replicas.
const MostMembers = 9

// Desired is what the objects are made from: the spec, where it can be
// followed, and what is there, where it cannot.
type Desired struct {
	// Asked is the image that the spec maps to, and Image the one to declare:
	// its pinned build once that is known. Pull is what was pulled until then,
	// where Asked names a minor version that is no tag.
	Asked, Image, Pull string
	// Count of members.
	Count int
	// Volumes to apply, by ordinal, former members' too.
	Volumes []Volume
	// Template is the volume of the StatefulSet's claim template, which cannot
	// change.
	Template Volume
	// SystemIdentifier is the birth latch; empty before birth.
	SystemIdentifier string
	// Fresh says that nothing is there from before the cluster's object.
	Fresh bool
	// Data is what every volume says of its data, as annotations, for a cluster
	// that is created again over it.
	Data map[string]string
	// Backups is the volume that backups are kept on; nil for none. BackupsLater
	// says that it is made with the first of them.
	Backups      *Volume
	BackupsLater bool
	// Config is the ClusterConfig as the members are told it.
	Config   []byte
	Minted   Minted
	Settings Settings
}

// Desire starts from what is known whatever the engine makes of it: who the
// cluster is, and what was minted for it.
func (s Set) Desire(o Observation) Desired {
	d := Desired{Minted: o.Minted, Settings: o.Settings, SystemIdentifier: s.systemIdentifier(o), Data: map[string]string{}}
	d.Backups, d.BackupsLater = s.desireBackups(o)
	d.Fresh = d.SystemIdentifier == "" && !s.inherits(o)
	if d.SystemIdentifier != "" {
		d.Data[v1alpha1.AnnotationSystemIdentifier] = d.SystemIdentifier
	}
	if s.Cluster.CommonStatus().SystemIdentifier != "" {
		d.Data[v1alpha1.AnnotationCluster] = string(s.Cluster.GetUID())
	}
	return d
}

// Follow takes the image that the spec maps to, at the build that it stood for
// when the first member ran.
func (s Set) Follow(d *Desired, o Observation, asked string) {
	s.FollowPatch(d, o, asked, asked)
}

// FollowPatch is Follow for an image that the spec names by a minor version: pull
// is the patch of it to begin with.
func (s Set) FollowPatch(d *Desired, o Observation, asked, pull string) {
	d.Asked, d.Pull, d.Image = asked, pull, s.latch(o, asked, pull)
}

// Stay declares the image that is declared already, since the spec's cannot
// follow it. Where the StatefulSet is gone its pods have it, or the status.
func (s Set) Stay(d *Desired, o Observation) {
	if current := s.currentImage(o); current != "" {
		d.Asked, d.Image = cmp.Or(o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationImage], current), current
		return
	}
	if o.StatefulSet != nil {
		return
	}
	for _, n := range slices.Sorted(maps.Keys(o.Pods)) {
		if ctr := s.container(o.Pods[n].Spec); ctr != nil {
			d.Asked, d.Image = cmp.Or(o.Pods[n].Annotations[v1alpha1.AnnotationImage], ctr.Image), ctr.Image
			return
		}
	}
	if last := s.Cluster.CommonStatus().Image; last != "" {
		d.Asked, d.Image = last, last
	}
}

// Stalled is a fact that only a person can mend.
func Stalled(reason, format string, args ...any) condition.Fact {
	return condition.Fact{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// inherits says whether any volume is one that an earlier cluster of the name
// left, and stays.
func (s Set) inherits(o Observation) bool {
	for n, v := range o.Volumes {
		if s.inherited(v) && !s.passes(o, n) {
			return true
		}
	}
	return false
}

// inherited says whether a volume is an earlier cluster's. It says whose it is;
// one that does not is older than this cluster's object or not, by clocks of API
// servers that may differ.
func (s Set) inherited(v *corev1.PersistentVolumeClaim) bool {
	if made := v.Annotations[v1alpha1.AnnotationCluster]; made != "" {
		return made != string(s.Cluster.GetUID())
	}
	created := s.Cluster.GetCreationTimestamp()
	return v.CreationTimestamp.Before(&created)
}

// passes says whether a volume of an earlier cluster is being deleted, and no
// member of this one uses it: nobody of this cluster will see what it holds, and
// it says nothing any more.
func (s Set) passes(o Observation, ordinal int) bool {
	return o.leaving(ordinal) && s.inherited(o.Volumes[ordinal]) && o.Pods[ordinal] == nil
}

// systemIdentifier is the birth latch: status, any volume or the first member
// knows it.
func (s Set) systemIdentifier(o Observation) string {
	if id := s.Cluster.CommonStatus().SystemIdentifier; id != "" {
		return id
	}
	for _, n := range slices.Sorted(maps.Keys(o.Volumes)) {
		if id := o.Volumes[n].Annotations[v1alpha1.AnnotationSystemIdentifier]; id != "" && !s.passes(o, n) {
			return id
		}
	}
	if m := o.Member(0); m != nil {
		return m.SystemIdentifier
	}
	return ""
}

// Membership is the number of members by their volumes: what volumes exist as
// ours, not what the StatefulSet says.
func (o Observation) Membership() int {
	have := 0
	for n, v := range o.Volumes {
		if isMembers(&v.ObjectMeta) && v.Labels[v1alpha1.LabelMember] == strconv.Itoa(n) && n+1 > have {
			have = n + 1
		}
	}
	return have
}

// DataAhead says whether a volume holds what the primary's does not, as far as
// its member ever said: one that is not heard now takes nothing back.
func (o Observation) DataAhead(ordinal int) bool {
	if m := o.Member(ordinal); m != nil && (m.Serving || m.Hold == memberapi.HoldDataAhead) {
		return m.Hold == memberapi.HoldDataAhead
	}
	v := o.Volumes[ordinal]
	return v != nil && v.Annotations[v1alpha1.AnnotationDataAhead] != ""
}

// Config is what members of every kind are told.
func (s Set) Config(d Desired) memberapi.ClusterConfig {
	config := memberapi.ClusterConfig{
		APIVersion: s.GVK.GroupVersion().String(), Kind: s.GVK.Kind,
		DeletionPolicy: string(s.Cluster.Common().DeletionPolicy), Namespace: s.Cluster.GetNamespace(), Name: s.Cluster.GetName(), UID: string(s.Cluster.GetUID()),
		SystemIdentifier: d.SystemIdentifier, Fresh: d.Fresh, VolumeSize: s.Storage.Size.Value(),
	}
	for i := range d.Count {
		config.Members = append(config.Members, s.PodName(i))
	}
	return config
}

// Render is deterministic: maps are marshalled with sorted keys.
func Render(config memberapi.ClusterConfig) []byte {
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("a ClusterConfig always marshals: %v", err))
	}
	return append(data, '\n')
}
