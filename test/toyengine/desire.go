package toyengine

import (
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// planDesired is what the objects should be made from. The second result says
// whether volumes and pods may be written at all.
func planDesired(c *ToyCluster, o memberset.Observation) (objects.Desired, bool, []condition.Fact) {
	s := membersOf(c)
	d := memberset.PlanDesired(s, o)
	memberset.FollowImage(s, &d, o, specImage(c, o.Settings))
	d.Count = countMembers(c, o)
	writable, faults := memberset.DesireVolumes(s, &d, o)
	d.Config = memberset.RenderConfig(memberset.BaseConfig(s, d))
	return d, writable, faults
}

// countMembers of members that have a pod: their volumes are the membership. It
// grows to what is declared at once, and shrinks one by one, each when the pod
// before it is gone.
func countMembers(c *ToyCluster, o memberset.Observation) int {
	want, have := c.Spec.DesiredReplicas(), o.Membership()
	if have <= want {
		return want
	}
	for n := range o.Pods {
		if n >= have {
			return have
		}
	}
	return have - 1
}

// specImage that a version maps to.
func specImage(c *ToyCluster, s objects.Settings) string {
	if c.Spec.Image != "" {
		return c.Spec.Image
	}
	return s.ImageRepository + ":" + c.Spec.Version
}
