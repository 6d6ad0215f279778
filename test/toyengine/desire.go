package toyengine

import (
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// planDesired is what the objects should be made from. The second result says
// whether volumes and pods may be written at all.
func planDesired(c *ToyCluster, view *memberset.View) (objects.Desired, bool, []condition.Fact) {
	d := memberset.PlanDesired(view)
	memberset.FollowImage(view, &d, specImage(c, view.Observed.Settings))
	d.Count = countMembers(view.Membership)
	writable, faults := memberset.DesireVolumes(view, &d)
	d.Config = memberset.RenderConfig(memberset.BaseConfig(view.Set, d))
	return d, writable, faults
}

// countMembers of members that have a pod: their volumes are the membership. It
// grows to what is declared at once, and shrinks one by one, each when the pod
// before it is gone.
func countMembers(members memberset.Membership) int {
	switch {
	case members.Count <= members.Declared:
		return members.Declared
	case members.HasPodFrom(members.Count):
		return members.Count
	}
	return members.Count - 1
}

// specImage that a version maps to.
func specImage(c *ToyCluster, s objects.Settings) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return s.ImageRepository + ":" + c.Spec.Version
}
