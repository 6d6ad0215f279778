package postgres

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// desired is what the objects are made from: the spec, where it can be
// followed, and what is there, where it cannot.
type desired struct {
	objects.Desired
	// first is the first database and its owner.
	first firstDatabase
	// older is the request to go on with older data.
	older olderData
}

// planDesired is what the objects should be made from. Where the spec cannot be
// followed, what is there stays, and a Stalled fact says which field to correct.
// The second result says whether volumes and pods may be written at all.
func planDesired(c *v1alpha1.PostgresCluster, o memberset.Observation) (desired, bool, []condition.Fact) {
	s := membersOf(c)
	d := desired{Desired: memberset.PlanDesired(s, o)}
	var facts []condition.Fact
	d.first = findFirstDatabase(c, o, d.SystemIdentifier)
	maps.Copy(d.Data, d.first.volumeAnnotations(d.SystemIdentifier))
	if message := d.first.describeDifference(c); message != "" {
		facts = append(facts, memberset.StalledFact(v1alpha1.ReasonBootstrapChanged, "%s", message))
	}
	memberset.FollowImage(s, &d.Desired, o, specImage(c, o.Settings))
	if reason, message := versionRefused(c, o); reason != "" {
		facts = append(facts, memberset.StalledFact(reason, "%s", message))
		memberset.KeepImage(s, &d.Desired, o)
	}
	d.Count = countMembers(c, o)
	d.older = planOlderData(c, o)
	writable, faults := memberset.DesireVolumes(s, &d.Desired, o)
	d.Config = clusterConfig(c, d)
	return d, writable, append(facts, faults...)
}

// clusterConfig is the configuration of the members.
func clusterConfig(c *v1alpha1.PostgresCluster, d desired) []byte {
	config := memberset.BaseConfig(membersOf(c), d.Desired)
	config.Archive = membersOf(c).Archive()
	config.Parameters, config.OlderData = c.Spec.Parameters, d.older.request
	config.Database, config.Owner = d.first.database, d.first.owner
	return memberset.RenderConfig(config)
}

// countMembers of members: what volumes exist as ours is the membership. It grows to
// what is declared at once, and shrinks one by one, each when the pod before
// it is gone.
func countMembers(c *v1alpha1.PostgresCluster, o memberset.Observation) int {
	want, have := c.Spec.DesiredReplicas(), o.Membership()
	if have <= want {
		return want
	}
	for n := range o.Pods {
		if n >= have {
			return have
		}
	}
	if first := o.Member(0); first == nil || first.Role != v1alpha1.RolePrimary || !first.Serving {
		return have // without a primary the others may be the last copies
	}
	if o.DataDiverged(have-1) && c.Spec.DeletionPolicy == v1alpha1.DeletionDelete {
		return have // its volume would go, with what the primary lacks
	}
	return have - 1
}

// specImage that a version maps to.
func specImage(c *v1alpha1.PostgresCluster, s objects.Settings) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return s.ImageRepository + ":" + string(c.Spec.Version)
}

// versionRefused says why the declared version cannot follow the running one.
// Minor versions of one major version read each other's data: a member goes back
// to an older one as it goes on to a newer one.
func versionRefused(c *v1alpha1.PostgresCluster, o memberset.Observation) (reason, message string) {
	running := runningVersion(c, o)
	if running == "" {
		return "", ""
	}
	haveMajor, wantMajor := majorOf(running), majorOf(string(c.Spec.Version))
	declared := declaredVersion(c, o, running)
	switch {
	case wantMajor != haveMajor && ownImageRuns(c, o):
		return v1alpha1.ReasonVersionMismatch, fmt.Sprintf(
			"spec.image %q holds PostgreSQL %s, and spec.version is %q: name an image of PostgreSQL %d in spec.image, or set spec.version to \"%d\"", c.Spec.Image, running, c.Spec.Version, wantMajor, haveMajor)
	case wantMajor < haveMajor:
		return v1alpha1.ReasonDowngradeRefused, fmt.Sprintf(
			"spec.version %q is older than the running %s, and PostgreSQL cannot read newer data: set spec.version to %q again", c.Spec.Version, running, declared)
	case wantMajor > haveMajor:
		return v1alpha1.ReasonMajorUpgrade, fmt.Sprintf(
			"spec.version %q is a new major version over the running %s, which Holdfast does not upgrade in place yet: set spec.version to %q again, and move the data with a dump, or with logical replication to a new cluster", c.Spec.Version, running, declared)
	}
	return "", ""
}

// declaredVersion is what the spec said of the version that runs, as far as the
// image that is declared says it; the running one where it does not. Another word
// for the same version would restart the members.
func declaredVersion(c *v1alpha1.PostgresCluster, o memberset.Observation, running string) string {
	if c.Spec.Image != "" || o.StatefulSet == nil {
		return running
	}
	tag, ok := strings.CutPrefix(o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationImage], o.Settings.ImageRepository+":")
	if !ok || majorOf(tag) != majorOf(running) {
		return running
	}
	return tag
}

// ownImageRuns says whether the primary was made from the image that spec.image
// names.
func ownImageRuns(c *v1alpha1.PostgresCluster, o memberset.Observation) bool {
	for n, pod := range o.Pods {
		if m := o.Member(n); m != nil && m.Role == v1alpha1.RolePrimary {
			return c.Spec.Image != "" && pod.Annotations[v1alpha1.AnnotationImage] == c.Spec.Image
		}
	}
	return false
}

// runningVersion is the primary's, or what status remembers of it.
func runningVersion(c *v1alpha1.PostgresCluster, o memberset.Observation) string {
	for _, n := range slices.Sorted(maps.Keys(o.Pods)) {
		if m := o.Member(n); m != nil && m.Role == v1alpha1.RolePrimary && m.Version != "" {
			return m.Version
		}
	}
	return c.Status.Version
}

// majorOf a version such as 17.4; 0 where it is none.
func majorOf(version string) int {
	head, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(head)
	if err != nil {
		return 0
	}
	return major
}
