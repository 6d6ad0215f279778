package mysql

import (
	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// desired is what the objects are made from: the spec, where it can be followed, and
// what is there, where it cannot.
type desired struct {
	objects.Desired
	// first is the first database and its owner.
	first memberset.FirstDatabase
	// requests are the one-shot requests to the members.
	requests requests
	// scale is how the number of members comes about.
	scale scalePlan
}

// planDesired is what the objects should be made from. Where the spec cannot be
// followed, what is there stays, and a Stalled fact says which field to correct.
// The second result says whether volumes and pods may be written at all.
func planDesired(c *v1alpha1.MySQLCluster, view *memberset.View, g group, v versions) (desired, bool, []condition.Fact) {
	o := view.Observed
	d := desired{Desired: memberset.PlanDesired(view)}
	d.first = findFirstDatabase(c, o, g, d.SystemIdentifier)
	reason, refusal := v.explainRefusal(c)
	facts := d.first.FollowSpec(view, &d.Desired, declaredFirst(c), specImage(c, o.Settings), reason, refusal)
	d.scale = planScale(c, view, g)
	d.Count = d.scale.count
	d.requests = planRequests(c, view, g, d.scale)
	writable, faults := memberset.DesireVolumes(view, &d.Desired)
	d.Config = clusterConfig(c, d)
	return d, writable, append(facts, faults...)
}

// declaredFirst are the names that the spec declares; empty where it does not.
func declaredFirst(c *v1alpha1.MySQLCluster) memberset.FirstDatabase {
	return memberset.FirstDatabase{Database: c.Spec.Bootstrap.Database, Owner: c.Spec.Bootstrap.Owner}
}

// findFirstDatabase is the first database and its owner as the data has them, or is made
// with.
func findFirstDatabase(c *v1alpha1.MySQLCluster, o memberset.Observation, g group, systemIdentifier string) memberset.FirstDatabase {
	var reported memberset.FirstDatabase
	if m := g.status; m != nil {
		reported = memberset.FirstDatabase{Database: m.Details[mysqlapi.DetailDatabase], Owner: m.Details[mysqlapi.DetailOwner]}
	}
	return memberset.FindFirstDatabase(o, systemIdentifier, reported, declaredFirst(c))
}

// clusterConfig is the configuration of the members.
func clusterConfig(c *v1alpha1.MySQLCluster, d desired) []byte {
	config := memberset.BaseConfig(membersOf(c), d.Desired)
	config.Archive = membersOf(c).Archive()
	config.Parameters, config.GroupReplication = c.Spec.Parameters, d.requests.forMembers()
	config.Database, config.Owner = d.first.Database, d.first.Owner
	return memberset.RenderConfig(config)
}
