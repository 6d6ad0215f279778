package postgres

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// firstDatabase is the database that applications connect to, and its owner.
type firstDatabase struct {
	database, owner string
	// recorded says that the data was made with these names, whatever the spec
	// says.
	recorded bool
}

// defaultFirst is the name of the first database and of its owner where neither
// the spec nor the data says another. It is no default of the schema: a name that
// is not declared must be known as such, so that a restored cluster adopts that
// of its data.
const defaultFirst = "app"

// declaredFirst is what new data is made with.
func declaredFirst(c *v1alpha1.PostgresCluster) firstDatabase {
	return firstDatabase{database: cmp.Or(c.Spec.Bootstrap.Database, defaultFirst), owner: cmp.Or(c.Spec.Bootstrap.Owner, defaultFirst)}
}

// findFirstDatabase is what the data says: the primary that runs on it, or the volumes of
// a cluster that is created again. New data is made with what is declared.
func findFirstDatabase(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, systemIdentifier string) firstDatabase {
	if m := lead.status; m != nil && m.Details[postgresapi.DetailDatabase] != "" && m.Details[postgresapi.DetailOwner] != "" {
		return firstDatabase{m.Details[postgresapi.DetailDatabase], m.Details[postgresapi.DetailOwner], true}
	}
	for _, n := range slices.Sorted(maps.Keys(o.Volumes)) {
		says := o.Volumes[n].Annotations
		if says[v1alpha1.AnnotationSystemIdentifier] != systemIdentifier || systemIdentifier == "" {
			continue
		}
		if database, owner := says[v1alpha1.AnnotationDatabase], says[v1alpha1.AnnotationOwner]; database != "" && owner != "" {
			return firstDatabase{database, owner, true}
		}
	}
	return declaredFirst(c)
}

// volumeAnnotations are what volumes say of it, once the data records it.
func (f firstDatabase) volumeAnnotations(systemIdentifier string) map[string]string {
	if systemIdentifier == "" || !f.recorded {
		return nil
	}
	return map[string]string{v1alpha1.AnnotationDatabase: f.database, v1alpha1.AnnotationOwner: f.owner}
}

// describeDifference says how what is declared differs from the data; empty when it does
// not. A name that is not declared is that of the data.
func (f firstDatabase) describeDifference(c *v1alpha1.PostgresCluster) string {
	want := c.Spec.Bootstrap
	if cmp.Or(want.Database, f.database) == f.database && cmp.Or(want.Owner, f.owner) == f.owner {
		return ""
	}
	return fmt.Sprintf("spec.bootstrap names database %q with owner %q, and the data was made with database %q and owner %q, which stay in use: set spec.bootstrap to these or remove it, and use SQL for further databases and roles",
		cmp.Or(want.Database, f.database), cmp.Or(want.Owner, f.owner), f.database, f.owner)
}

// judgeFirst says when applications are sent to what does not exist.
func (j *judgement) judgeFirst() {
	m := j.lead.status
	if m == nil || m.Details[postgresapi.DetailAbsent] == "" {
		return
	}
	j.AddFact(v1alpha1.ConditionDegraded, v1alpha1.ReasonDatabaseMissing,
		"the data holds no %s, which Secret %s names: create it, or, where the data was made with other names, set spec.bootstrap to them",
		m.Details[postgresapi.DetailAbsent], j.Named(objects.SuffixApp))
}
