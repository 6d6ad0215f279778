package postgres

import (
	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// declaredFirst are the names that the spec declares; empty where it does not.
func declaredFirst(c *v1alpha1.PostgresCluster) memberset.FirstDatabase {
	return memberset.FirstDatabase{Database: c.Spec.Bootstrap.Database, Owner: c.Spec.Bootstrap.Owner}
}

// findFirstDatabase is the first database and its owner as the data has them, or is made
// with.
func findFirstDatabase(c *v1alpha1.PostgresCluster, o memberset.Observation, lead leadership, systemIdentifier string) memberset.FirstDatabase {
	var reported memberset.FirstDatabase
	if m := lead.status; m != nil {
		reported = memberset.FirstDatabase{Database: m.Details[postgresapi.DetailDatabase], Owner: m.Details[postgresapi.DetailOwner]}
	}
	return memberset.FindFirstDatabase(o, systemIdentifier, reported, declaredFirst(c))
}

// judgeFirst says when applications are sent to what does not exist.
func (j *judgement) judgeFirst() {
	if m := j.lead.status; m != nil {
		j.JudgeFirstDatabase(m.Details[postgresapi.DetailAbsent])
	}
}
