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
)

// desired is what the objects are made from: the spec, where it can be
// followed, and what is there, where it cannot.
type desired struct {
	memberset.Desired
	// first is the first database and its owner.
	first firstDatabase
}

// desire is what the objects should be made from. Where the spec cannot be
// followed, what is there stays, and a Stalled fact says which field to mend.
// The second result says whether volumes and pods may be written at all.
func desire(c *v1alpha1.PostgresCluster, o memberset.Observation) (desired, bool, []condition.Fact) {
	s := set(c)
	d := desired{Desired: s.Desire(o)}
	var facts []condition.Fact
	d.first = first(c, o, d.SystemIdentifier)
	maps.Copy(d.Data, d.first.annotations(d.SystemIdentifier))
	if message := d.first.differs(c); message != "" {
		facts = append(facts, memberset.Stalled(v1alpha1.ReasonBootstrapChanged, "%s", message))
	}
	s.Follow(&d.Desired, o, image(c, o.Settings))
	if reason, message := versionRefused(c, o); reason != "" {
		facts = append(facts, memberset.Stalled(reason, "%s", message))
		s.Stay(&d.Desired, o)
	}
	d.Count = count(c, o)
	writable, faults := s.DesireVolumes(&d.Desired, o)
	d.Config = clusterConfig(c, d)
	return d, writable, append(facts, faults...)
}

// clusterConfig is what the members are told.
func clusterConfig(c *v1alpha1.PostgresCluster, d desired) []byte {
	config := set(c).Config(d.Desired)
	config.Archive = set(c).Archive()
	config.Parameters = c.Spec.Parameters
	config.Database, config.Owner = d.first.database, d.first.owner
	return memberset.Render(config)
}

// count of members: what volumes exist as ours is the membership. It grows to
// what is declared at once, and shrinks one by one, each when the pod before
// it is gone.
func count(c *v1alpha1.PostgresCluster, o memberset.Observation) int {
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
	if o.DataAhead(have-1) && c.Spec.DeletionPolicy == v1alpha1.DeletionDelete {
		return have // its volume would go, with what the primary lacks
	}
	return have - 1
}

// image that a version maps to.
func image(c *v1alpha1.PostgresCluster, s memberset.Settings) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return s.ImageRepository + ":" + c.Spec.Version
}

// versionRefused says why the declared version cannot follow the running one.
// Minor versions of one major version read each other's data: a member goes back
// to an older one as it goes on to a newer one.
func versionRefused(c *v1alpha1.PostgresCluster, o memberset.Observation) (reason, message string) {
	running := runningVersion(c, o)
	if running == "" {
		return "", ""
	}
	haveMajor, wantMajor := majorOf(running), majorOf(c.Spec.Version)
	switch {
	case wantMajor < haveMajor:
		return v1alpha1.ReasonDowngradeRefused, fmt.Sprintf(
			"spec.version %q is older than the running %s, and PostgreSQL cannot read newer data: set spec.version to %q or %q", c.Spec.Version, running, running, strconv.Itoa(haveMajor))
	case wantMajor > haveMajor:
		return v1alpha1.ReasonMajorUpgrade, fmt.Sprintf(
			"spec.version %q is a new major version over the running %s, which Holdfast does not upgrade in place yet: set spec.version to %q and move the data with a dump, or with logical replication to a new cluster", c.Spec.Version, running, strconv.Itoa(haveMajor))
	}
	return "", ""
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
