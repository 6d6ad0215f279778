package postgres

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/utils/ptr"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// desired is what the objects are made from: the spec, where it can be
// followed, and what is there, where it cannot.
type desired struct {
	objects.Desired
	// first is the first database and its owner.
	first memberset.FirstDatabase
	// requests are the one-shot requests to the members.
	requests requests
	// scale is how the number of members comes about.
	scale scalePlan
	// tuning is what is tuned beside spec.parameters.
	tuning memberset.Tuning
}

// planDesired is what the objects should be made from. Where the spec cannot be
// followed, what is there stays, and a Stalled fact says which field to correct.
// The second result says whether volumes and pods may be written at all.
func planDesired(c *v1alpha1.PostgresCluster, view *memberset.View, lead leadership, v versions) (desired, bool, []condition.Fact) {
	o := view.Observed
	d := desired{Desired: memberset.PlanDesired(view)}
	d.first = findFirstDatabase(c, o, lead, d.SystemIdentifier)
	reason, refusal := v.explainRefusal(c)
	facts := d.first.FollowSpec(view, &d.Desired, declaredFirst(c), specImage(c, o.Settings), reason, refusal)
	d.scale = planScale(c, view, lead)
	d.Count = d.scale.count
	d.requests = planRequests(c, view, lead, d.scale)
	writable, faults := memberset.DesireVolumes(view, &d.Desired)
	d.tuning = readTuning(c, view)
	d.Config = clusterConfig(c, d, d.tuning.Parameters())
	for _, parameters := range d.tuning.EarlierParameters() {
		d.EarlierConfigs = append(d.EarlierConfigs, agentapi.HashConfig(clusterConfig(c, d, parameters)))
	}
	return d, writable, append(facts, faults...)
}

// readTuning reads what is tuned.
func readTuning(c *v1alpha1.PostgresCluster, view *memberset.View) memberset.Tuning {
	hash := ""
	if c.Spec.Tuning.Mode == v1alpha1.TuningApply {
		hash = memberset.HashFields(listMeasured(c))
	}
	return view.ReadTuning(tune.PostgreSQL, c.Spec.Parameters, hash)
}

// listMeasured is what is declared and changes what a trial measures, by its field: a trial
// ends when another is declared. A field with its default is left out or empty, so that a
// field that a later version adds with a default ends no trial. What only restarts members
// need not be here: they then begin their measurements anew.
func listMeasured(c *v1alpha1.PostgresCluster) map[string]string {
	s := c.Spec
	fields := map[string]string{
		"version": string(s.Version), "image": s.Image, "storage.size": s.Storage.Size.String(), "storage.storageClass": s.Storage.StorageClass,
	}
	for name, value := range s.Parameters {
		fields["parameters."+name] = strconv.Quote(value) // one that is declared as empty counts
	}
	for name, quantity := range s.Resources.Requests {
		fields["resources.requests."+string(name)] = quantity.String()
	}
	for name, quantity := range s.Resources.Limits {
		fields["resources.limits."+string(name)] = quantity.String()
	}
	if s.Synchronous != nil && s.Synchronous.Mode != "" && s.Synchronous.Mode != v1alpha1.SynchronousOff {
		fields["synchronous"] = fmt.Sprint(s.Synchronous.Mode, " ", max(s.Synchronous.Number, 1))
	}
	if s.Backup.ArchivesWAL() {
		fields["backup.continuous"] = "true"
	}
	if hours := ptr.Deref(s.Tuning.ObserveHours, memberset.DefaultObserveHours); hours != memberset.DefaultObserveHours {
		fields["tuning.observeHours"] = fmt.Sprint(hours)
	}
	return fields
}

// listTuned are the names of parameters that the spec does not declare.
func listTuned(c *v1alpha1.PostgresCluster, parameters map[string]string) []string {
	var tuned []string
	for name := range parameters {
		if _, declared := c.Spec.Parameters[name]; !declared {
			tuned = append(tuned, name)
		}
	}
	slices.Sort(tuned)
	return tuned
}

// clusterConfig is the configuration of the members.
func clusterConfig(c *v1alpha1.PostgresCluster, d desired, parameters map[string]string) []byte {
	config := memberset.BaseConfig(membersOf(c), d.Desired)
	config.Archive = membersOf(c).Archive()
	config.Parameters, config.Tuned, config.OlderData = parameters, listTuned(c, parameters), d.requests.older.request
	config.FailoverConfig = failoverConfig(c, d.requests)
	config.Database, config.Owner = d.first.Database, d.first.Owner
	return memberset.RenderConfig(config)
}
