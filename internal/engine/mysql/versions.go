package mysql

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/mysqlversion"
)

// versions is what runs beside what the spec declares.
type versions struct {
	// running is the primary's version, or what status remembers of it; empty before
	// bootstrap.
	running string
	// declared is what the spec said of the version that runs, as far as the image that
	// is declared says it; the series that runs where it does not.
	declared string
	// have is the running version, and want the declared one; hasHave and hasWant say
	// whether they could be read.
	have, want       mysqlversion.Version
	hasHave, hasWant bool
	// ownImage says that the primary was made from the image that spec.image names.
	ownImage bool
}

// readVersions reads off the view what the primary runs.
func readVersions(c *v1alpha1.MySQLCluster, view *memberset.View, g group) versions {
	v := versions{running: c.Status.Version}
	if g.isLed() {
		runs := view.Versions.Members[g.leader]
		v.ownImage = c.Spec.Image != "" && runs.Asked == c.Spec.Image
		v.running = cmp.Or(runs.Reported, v.running)
	}
	v.have, v.hasHave = mysqlversion.Parse(v.running)
	v.want, v.hasWant = mysqlversion.ParseDeclared(c.Spec.Version)
	v.declared = v.have.Series.String()
	tag, ok := strings.CutPrefix(view.Versions.Asked, view.Observed.Settings.ImageRepository+":")
	if was, known := mysqlversion.ParseDeclared(tag); ok && known && c.Spec.Image == "" && was.Series == v.have.Series {
		v.declared = tag
	}
	return v
}

// explainRefusal says why the declared version cannot follow the running one; both are
// empty where it can. Versions of one series read each other's data: a member goes back
// to an older one as it goes on to a newer one.
func (v versions) explainRefusal(c *v1alpha1.MySQLCluster) (reason, message string) {
	if !v.hasHave || !v.hasWant {
		return "", ""
	}
	if v.want.Series != v.have.Series && v.ownImage {
		return v1alpha1.ReasonVersionMismatch, fmt.Sprintf(
			"spec.image %q holds MySQL %s, and spec.version is %q: name an image of MySQL %s in spec.image, or set spec.version to %q",
			c.Spec.Image, v.running, c.Spec.Version, v.want.Series, v.have.Series)
	}
	obstacle, first := mysqlversion.FindObstacle(v.have, v.want)
	switch {
	case obstacle == mysqlversion.Older:
		return v1alpha1.ReasonDowngradeRefused, fmt.Sprintf(
			"spec.version %q is older than the running %s, and MySQL cannot read data of a newer series: set spec.version to %q again", c.Spec.Version, v.running, v.declared)
	case obstacle == mysqlversion.SkipsSeries:
		return v1alpha1.ReasonUpgradePath, fmt.Sprintf(
			"spec.version %q skips a series over the running %s: set spec.version to %q first", c.Spec.Version, v.running, first)
	case obstacle == mysqlversion.Unsupported:
		return v1alpha1.ReasonUpgradePath, fmt.Sprintf(
			"MySQL %s runs, which Holdfast does not take to %q: set spec.version to %q again", v.running, c.Spec.Version, v.declared)
	case mysqlversion.IsOneWay(v.have, v.want):
		return v1alpha1.ReasonMajorUpgrade, fmt.Sprintf(
			"spec.version %q is a new series over the running %s, with no way back but a backup, and Holdfast does not upgrade to it yet: set spec.version to %q again, and move the data with a dump, or with replication to a new cluster",
			c.Spec.Version, v.running, v.declared)
	}
	return "", ""
}

// specImage that a version maps to.
func specImage(c *v1alpha1.MySQLCluster, s objects.Settings) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return s.ImageRepository + ":" + c.Spec.Version
}
