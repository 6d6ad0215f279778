package postgres

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// versions is what runs beside what the spec declares.
type versions struct {
	// running is the primary's version, or what status remembers of it; empty
	// before bootstrap.
	running string
	// declared is what the spec said of the version that runs, as far as the image
	// that is declared says it; the running one where it does not. Another word for
	// the same version would restart the members.
	declared string
	// ownImage says that the primary was made from the image that spec.image names.
	ownImage bool
}

// readVersions reads off the view what the primary runs.
func readVersions(c *v1alpha1.PostgresCluster, view *memberset.View, lead leadership) versions {
	v := versions{running: c.Status.Version}
	if lead.isLed() {
		runs := view.Versions.Members[lead.leader]
		v.ownImage = c.Spec.Image != "" && runs.Asked == c.Spec.Image
		v.running = cmp.Or(runs.Reported, v.running)
	}
	v.declared = v.running
	tag, ok := strings.CutPrefix(view.Versions.Asked, view.Observed.Settings.ImageRepository+":")
	if ok && c.Spec.Image == "" && majorOf(tag) == majorOf(v.running) {
		v.declared = tag
	}
	return v
}

// explainRefusal says why the declared version cannot follow the running one; both
// are empty where it can. Minor versions of one major version read each other's
// data: a member goes back to an older one as it goes on to a newer one.
func (v versions) explainRefusal(c *v1alpha1.PostgresCluster) (reason, message string) {
	if v.running == "" {
		return "", ""
	}
	have, want := majorOf(v.running), majorOf(string(c.Spec.Version))
	switch {
	case want != have && v.ownImage:
		return v1alpha1.ReasonVersionMismatch, fmt.Sprintf(
			"spec.image %q holds PostgreSQL %s, and spec.version is %q: name an image of PostgreSQL %d in spec.image, or set spec.version to \"%d\"", c.Spec.Image, v.running, c.Spec.Version, want, have)
	case want < have:
		return v1alpha1.ReasonDowngradeRefused, fmt.Sprintf(
			"spec.version %q is older than the running %s, and PostgreSQL cannot read newer data: set spec.version to %q again", c.Spec.Version, v.running, v.declared)
	case want > have:
		return v1alpha1.ReasonMajorUpgrade, fmt.Sprintf(
			"spec.version %q is a new major version over the running %s, which Holdfast does not upgrade in place yet: set spec.version to %q again, and move the data with a dump, or with logical replication to a new cluster", c.Spec.Version, v.running, v.declared)
	}
	return "", ""
}

// specImage that a version maps to.
func specImage(c *v1alpha1.PostgresCluster, s objects.Settings) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return s.ImageRepository + ":" + string(c.Spec.Version)
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
