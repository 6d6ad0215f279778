package postgres

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// desire is what the objects should be made from. Where the spec cannot be
// followed, what is there stays, and a Stalled fact says which field to mend.
// The second result says whether volumes and pods may be written at all.
func desire(c *v1alpha1.PostgresCluster, o Observation) (desired, bool, []condition.Fact) {
	d := desired{minted: o.Minted, settings: o.Settings, systemIdentifier: systemIdentifier(c, o)}
	var facts []condition.Fact
	stall := func(reason, format string, args ...any) {
		facts = append(facts, condition.Fact{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	d.fresh = d.systemIdentifier == "" && !inherits(c, o)
	d.first = first(c, o, d.systemIdentifier)
	if message := d.first.differs(c); message != "" {
		stall(v1alpha1.ReasonBootstrapChanged, "%s", message)
	}
	d.asked = image(c, o.Settings)
	d.image = latch(c, o, d.asked)
	if reason, message := versionRefused(c, o); reason != "" {
		stall(reason, "%s", message)
		if current := currentImage(o); current != "" {
			d.asked, d.image = orDefault(o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationImage], current), current
		}
	}
	d.count = count(c, o)
	writable := true
	if class := c.Spec.Storage.StorageClass; class != "" && o.StorageClasses != nil {
		if _, ok := o.StorageClasses[class]; !ok {
			stall(v1alpha1.ReasonStorageClassMissing, "spec.storage.storageClass %q does not exist: create it, or name one that does", class)
			writable = !missesVolume(o, d.count)
		}
	}
	d.template = desiredVolume{size: c.Spec.Storage.Size, class: c.Spec.Storage.StorageClass}
	if o.StatefulSet != nil && len(o.StatefulSet.Spec.VolumeClaimTemplates) > 0 {
		d.template = templateVolume(o.StatefulSet.Spec.VolumeClaimTemplates[0])
	}
	for _, n := range volumeOrdinals(o, d.count) {
		v, reason, message := desireVolume(c, o, d, n, n < d.count)
		v.ahead = dataAhead(o, n)
		d.volumes = append(d.volumes, v)
		if reason != "" {
			stall(reason, "%s", message)
		}
	}
	return d, writable, facts
}

// inherits says whether any volume is older than the cluster's object: one that
// an earlier cluster of the name left.
func inherits(c *v1alpha1.PostgresCluster, o Observation) bool {
	for _, v := range o.Volumes {
		if v.CreationTimestamp.Before(&c.CreationTimestamp) {
			return true
		}
	}
	return false
}

// missesVolume says whether a member has no volume yet: made with a wrong
// class it could not be mended.
func missesVolume(o Observation, count int) bool {
	for n := range count {
		if o.Volumes[n] == nil {
			return true
		}
	}
	return false
}

// systemIdentifier is the birth latch: status or any volume knows it.
func systemIdentifier(c *v1alpha1.PostgresCluster, o Observation) string {
	if id := c.Status.SystemIdentifier; id != "" {
		return id
	}
	for _, n := range sortedKeys(o.Volumes) {
		if id := o.Volumes[n].Annotations[v1alpha1.AnnotationSystemIdentifier]; id != "" {
			return id
		}
	}
	for _, n := range sortedKeys(o.Pods) {
		if m := o.member(n); m != nil && n == 0 && m.SystemIdentifier != "" {
			return m.SystemIdentifier
		}
	}
	return ""
}

// count of members: what volumes exist as ours is the membership. It grows to
// what is declared at once, and shrinks one by one, each when the pod before
// it is gone.
func count(c *v1alpha1.PostgresCluster, o Observation) int {
	want, have := c.Spec.DesiredReplicas(), membership(o)
	if have <= want {
		return want
	}
	for n := range o.Pods {
		if n >= have {
			return have
		}
	}
	if first := o.member(0); first == nil || first.Role != v1alpha1.RolePrimary || !first.Serving {
		return have // without a primary the others may be the last copies
	}
	if dataAhead(o, have-1) && c.Spec.DeletionPolicy == v1alpha1.DeletionDelete {
		return have // its volume would go, with what the primary lacks
	}
	return have - 1
}

// dataAhead says whether a volume holds what the primary's does not, as far as
// its member ever said: one that is not heard now takes nothing back.
func dataAhead(o Observation, ordinal int) bool {
	if m := o.member(ordinal); m != nil && (m.Serving || m.Hold == memberapi.HoldDataAhead) {
		return m.Hold == memberapi.HoldDataAhead
	}
	v := o.Volumes[ordinal]
	return v != nil && v.Annotations[v1alpha1.AnnotationDataAhead] != ""
}

// membership is the number of members by their volumes.
func membership(o Observation) int {
	have := 0
	for n, v := range o.Volumes {
		if v.Labels[v1alpha1.LabelMember] == strconv.Itoa(n) && n+1 > have {
			have = n + 1
		}
	}
	return have
}

// volumeOrdinals are the members' volumes and those of former members.
func volumeOrdinals(o Observation, count int) []int {
	all := map[int]bool{}
	for n := range count {
		all[n] = true
	}
	for n, v := range o.Volumes {
		if v.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && v.DeletionTimestamp == nil {
			all[n] = true
		}
	}
	return sortedKeys(all)
}

// desireVolume says how large a volume should be. A volume never shrinks and
// never changes its class.
func desireVolume(c *v1alpha1.PostgresCluster, o Observation, d desired, ordinal int, member bool) (v desiredVolume, reason, message string) {
	want := c.Spec.Storage
	v = desiredVolume{ordinal: ordinal, member: member, size: want.Size, class: want.StorageClass}
	live := o.Volumes[ordinal]
	if live == nil {
		return v, "", ""
	}
	size := live.Spec.Resources.Requests[corev1.ResourceStorage]
	class := ""
	if live.Spec.StorageClassName != nil {
		class = *live.Spec.StorageClassName
	}
	v.class = class
	if !member {
		v.size = size
		return v, "", ""
	}
	name := volumeName(c, ordinal)
	switch {
	case want.StorageClass != "" && want.StorageClass != class:
		v.size = size
		return v, v1alpha1.ReasonStorageClassChanged, fmt.Sprintf(
			"spec.storage.storageClass %q differs from %q of volume %s: a volume cannot change its class; set it back", want.StorageClass, class, name)
	case want.Size.Cmp(size) < 0:
		v.size = size
		return v, v1alpha1.ReasonStorageShrink, fmt.Sprintf(
			"spec.storage.size %s is less than the %s of volume %s: a volume cannot shrink; set it to at least %s", want.Size.String(), size.String(), name, size.String())
	case want.Size.Cmp(size) > 0 && !expandable(o, class):
		v.size = size
		return v, v1alpha1.ReasonStorageNotExpandable, fmt.Sprintf(
			"spec.storage.size %s is more than the %s of volume %s, whose storage class %q does not allow it to grow: set the size back, or allowVolumeExpansion on the class", want.Size.String(), size.String(), name, class)
	case want.Size.Cmp(size) > 0 && !mayDiffer(c) && !saysAll(c, d, live):
		v.size, v.waits = size, true
	}
	return v, "", ""
}

// mayDiffer says whether drift on a volume may stay: what waited for its end
// would wait for ever.
func mayDiffer(c *v1alpha1.PostgresCluster) bool {
	return c.Spec.Drift.Mode == v1alpha1.DriftReport || slices.ContainsFunc(c.Spec.Drift.Ignore, func(rule v1alpha1.DriftIgnore) bool {
		return rule.Kind == "" || rule.Kind == "PersistentVolumeClaim"
	})
}

// saysAll says whether a volume's owner and what it says of its data are as
// desired. They go first: a quota refuses an apply that grows as a whole.
func saysAll(c *v1alpha1.PostgresCluster, d desired, live *corev1.PersistentVolumeClaim) bool {
	for name, value := range dataAnnotations(d) {
		if live.Annotations[name] != value {
			return false
		}
	}
	return policyHolds(c, &live.ObjectMeta)
}

func expandable(o Observation, class string) bool {
	sc, known := o.StorageClasses[class]
	return !known || (sc.AllowVolumeExpansion != nil && *sc.AllowVolumeExpansion)
}

func templateVolume(pvc corev1.PersistentVolumeClaim) desiredVolume {
	v := desiredVolume{size: pvc.Spec.Resources.Requests[corev1.ResourceStorage]}
	if pvc.Spec.StorageClassName != nil {
		v.class = *pvc.Spec.StorageClassName
	}
	return v
}

// image that a version maps to.
func image(c *v1alpha1.PostgresCluster, s Settings) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return s.ImageRepository + ":" + c.Spec.Version
}

// currentImage is what the StatefulSet declares now.
func currentImage(o Observation) string {
	if o.StatefulSet == nil {
		return ""
	}
	if ctr := databaseContainer(o.StatefulSet.Spec.Template.Spec); ctr != nil {
		return ctr.Image
	}
	return ""
}

// versionRefused says why the declared version cannot follow the running one.
func versionRefused(c *v1alpha1.PostgresCluster, o Observation) (reason, message string) {
	running := runningVersion(c, o)
	if running == "" {
		return "", ""
	}
	haveMajor, haveMinor := parseVersion(running)
	wantMajor, wantMinor := parseVersion(c.Spec.Version)
	switch {
	case wantMajor < haveMajor:
		return v1alpha1.ReasonDowngradeRefused, fmt.Sprintf(
			"spec.version %q is older than the running %s, and PostgreSQL cannot read newer data: set spec.version to %q or %q", c.Spec.Version, running, running, strconv.Itoa(haveMajor))
	case wantMajor > haveMajor:
		return v1alpha1.ReasonMajorUpgrade, fmt.Sprintf(
			"spec.version %q is a new major version over the running %s, which Holdfast does not upgrade in place yet: set spec.version to %q and move the data with a dump, or with logical replication to a new cluster", c.Spec.Version, running, strconv.Itoa(haveMajor))
	case wantMinor >= 0 && haveMinor >= 0 && wantMinor < haveMinor:
		return v1alpha1.ReasonDowngradeRefused, fmt.Sprintf(
			"spec.version %q is older than the running %s: set spec.version to %q or newer", c.Spec.Version, running, running)
	}
	return "", ""
}

// runningVersion is the primary's, or what status remembers of it.
func runningVersion(c *v1alpha1.PostgresCluster, o Observation) string {
	for _, n := range sortedKeys(o.Pods) {
		if m := o.member(n); m != nil && m.Role == v1alpha1.RolePrimary && m.Version != "" {
			return m.Version
		}
	}
	return c.Status.Version
}

// parseVersion splits 17.4; the minor is -1 when there is none.
func parseVersion(version string) (major, minor int) {
	head, tail, found := strings.Cut(version, ".")
	major, err := strconv.Atoi(head)
	if err != nil {
		return 0, -1
	}
	minor, err = strconv.Atoi(tail)
	if !found || err != nil {
		return major, -1
	}
	return major, minor
}
