package etcd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
)

// versions is what the members run beside what the spec declares.
type versions struct {
	// running is the oldest version that a member runs: the cluster as a whole is at
	// that one, and may go back to it while an upgrade is under way. Empty before
	// bootstrap.
	running string
	// have is the same, and want what is declared; hasHave and hasWant say whether
	// they could be read.
	have, want       etcdversion.Version
	hasHave, hasWant bool
	// ownImage says that every pod was made from the image that spec.image names:
	// then another version takes another image.
	ownImage bool
	// begun says that the members are declared as the spec asks, or at another build
	// of that minor version.
	begun bool
	// logsWait says that a member must be restarted as it is before the next minor
	// version takes over its data.
	logsWait bool
}

// readVersions reads off the view what the members run.
func readVersions(c *v1alpha1.EtcdCluster, view *memberset.View) versions {
	v := versions{running: oldestVersion(c, view), ownImage: c.Spec.Image != "" && len(view.Versions.Members) > 0}
	v.have, v.hasHave = etcdversion.Parse(v.running)
	v.want, v.hasWant = etcdversion.ParseDeclared(c.Spec.Version)
	for n, runs := range view.Versions.Members {
		v.ownImage = v.ownImage && runs.Asked == c.Spec.Image
		if m := view.Observed.Member(n); m != nil && slices.Contains(m.PendingRestart, etcdapi.PendingLog) {
			v.logsWait = v.want.Minor > v.have.Minor
		}
	}
	v.begun = hasBegun(view, specImage(c, view.Observed.Settings), v.want)
	return v
}

// oldestVersion is the oldest that a member runs. A member that does not answer may
// run what ran before, which status says.
func oldestVersion(c *v1alpha1.EtcdCluster, view *memberset.View) string {
	oldest, all := "", true
	consider := func(text string) {
		v, ok := etcdversion.Parse(text)
		if before, known := etcdversion.Parse(oldest); ok && (!known || v.IsBefore(before)) {
			oldest = text
		}
	}
	for n := range objects.MostMembers {
		if !view.Membership.Includes(n) {
			continue
		}
		if runs := view.Versions.Members[n]; runs.Serving && view.Observed.Pods[n].DeletionTimestamp == nil {
			consider(runs.Reported)
		} else {
			all = false
		}
	}
	if !all || oldest == "" {
		consider(c.Status.Version)
	}
	return oldest
}

// hasBegun says whether the members are declared as the spec asks, or at another
// build of that minor version; where their StatefulSet is gone, whether one of
// them is. What a member says that runs an image goes before the tag: that of an
// image of one's own may count something else.
func hasBegun(view *memberset.View, asked string, want etcdversion.Version) bool {
	declares := func(declared string) bool {
		v, known := versionOf(declared)
		return declared == asked || known && v.Minor == want.Minor && !runsOther(view, declared, want)
	}
	declared := view.Observed.StatefulSet != nil
	if declared && declares(view.Versions.Asked) {
		return true
	}
	for _, runs := range view.Versions.Members {
		if !declared && declares(runs.Asked) {
			return true
		}
		if v, known := etcdversion.Parse(runs.Reported); known && v.Minor == want.Minor {
			return true
		}
	}
	return false
}

// runsOther says whether a member that runs an image says that this is another
// minor version.
func runsOther(view *memberset.View, image string, than etcdversion.Version) bool {
	for _, runs := range view.Versions.Members {
		if v, known := etcdversion.Parse(runs.Reported); known && runs.Asked == image && v.Minor != than.Minor {
			return true
		}
	}
	return false
}

// versionOf an image, by its tag.
func versionOf(image string) (etcdversion.Version, bool) {
	name, _, _ := strings.Cut(image, "@")
	_, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	return etcdversion.ParseDeclared(strings.TrimPrefix(tag, "v"))
}

// explainRefusal says why the declared version cannot follow the running one; both
// are empty where it can.
func (v versions) explainRefusal(c *v1alpha1.EtcdCluster) (reason, message string) {
	if !v.hasHave || !v.hasWant {
		return "", ""
	}
	if v.want.Minor != v.have.Minor && v.ownImage {
		return v1alpha1.ReasonVersionMismatch, fmt.Sprintf(
			"spec.image %q holds etcd %s, and spec.version is %q: name an image of etcd 3.%d in spec.image, or set spec.version to \"3.%d\"", c.Spec.Image, v.running, c.Spec.Version, v.want.Minor, v.have.Minor)
	}
	switch obstacle, first := etcdversion.FindObstacle(v.have, v.want); obstacle {
	case etcdversion.Older:
		return v1alpha1.ReasonDowngradeRefused, fmt.Sprintf(
			"spec.version %q is older than the running %s, and etcd does not go back: set spec.version to %q or newer", c.Spec.Version, v.running, v.running)
	case etcdversion.Patch:
		return v1alpha1.ReasonUpgradePath, fmt.Sprintf(
			"spec.version %q takes over data of %s or later only, and %s runs: set spec.version to %q or a later 3.%d first",
			c.Spec.Version, first, v.running, first, first.Minor)
	case etcdversion.Minor:
		return v1alpha1.ReasonUpgradePath, fmt.Sprintf(
			"spec.version %q is more than one minor version ahead of the running %s: set spec.version to \"3.%d\" first", c.Spec.Version, v.running, first.Minor)
	}
	return "", ""
}

// firstImage is what to pull for the declared version until its build is pinned.
// A minor version alone is no tag of etcd's: it is the newest patch that is known,
// or a newer one that runs.
func (v versions) firstImage(c *v1alpha1.EtcdCluster, s objects.Settings) string {
	asked := specImage(c, s)
	if c.Spec.Image != "" || !v.hasWant || v.want.Patch != etcdversion.Open {
		return asked
	}
	patch, known := etcdversion.NewestPatch(v.want.Minor)
	if !known {
		return asked
	}
	if v.hasHave && v.have.Minor == patch.Minor && patch.IsBefore(v.have) {
		patch = v.have
	}
	return s.ImageRepository + ":v" + patch.String()
}

// specImage that a version maps to.
func specImage(c *v1alpha1.EtcdCluster, s objects.Settings) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return s.ImageRepository + ":v" + c.Spec.Version
}
