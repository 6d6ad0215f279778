package plugin

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/postgres"
	"github.com/holdfast-db/holdfast/internal/plugin/declaration"
)

func postgresKind() kind {
	return kind{
		gvk:            v1alpha1.GroupVersion.WithKind("PostgresCluster"),
		names:          []string{"pg", "postgresclusters", "postgresclusters.holdfast.dev"},
		engine:         "PostgreSQL",
		lead:           v1alpha1.RolePrimary,
		newCluster:     func() v1alpha1.Cluster { return &v1alpha1.PostgresCluster{} },
		newList:        func() client.ObjectList { return &v1alpha1.PostgresClusterList{} },
		lag:            "holdfast_pg_replication_lag_seconds",
		pendingRestart: "holdfast_pg_settings_pending_restart",
		declared: declaration.FromEngine(
			func(k *memberset.MemberEngine) engine.Engine[*v1alpha1.PostgresCluster, memberset.Observation] {
				return &postgres.Engine{MemberEngine: k}
			},
			func(o *memberset.Observation) *memberset.Observation { return o }),
		client: program{
			name: "psql", rights: "as the superuser", options: "-Atc 'select 1'", replicas: true, command: psqlCommandLine,
			example: `  kubectl holdfast psql orders
  kubectl holdfast psql orders -- -c 'select 1'
  kubectl holdfast psql orders --replica < report.sql`,
		},
		shell: []string{"sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"},
		connection: []connectionKey{
			{name: "host", variable: "PGHOST"}, {name: "port", variable: "PGPORT"},
			{name: "username", variable: "PGUSER"}, {name: "database", variable: "PGDATABASE"},
			{name: "password", variable: "PGPASSWORD", secret: true},
			{name: "ca.crt", variable: "PGSSLROOTCERT", file: true},
		},
		environment: func(files bool) [][2]string {
			// Without the CA at hand the server cannot be verified.
			if files {
				return [][2]string{{"PGSSLMODE", "verify-full"}}
			}
			return [][2]string{{"PGSSLMODE", "require"}}
		},
	}
}

// psqlCommandLine is psql as the superuser, over the member's socket. What
// stands in the environment can be overridden by psql's own options. Its root
// file system is read-only, so the history goes to where one can write.
func psqlCommandLine(c v1alpha1.Cluster, _ string, args []string) []string {
	database := "app"
	if pg, ok := c.(*v1alpha1.PostgresCluster); ok && pg.Spec.Bootstrap.Database != "" {
		database = pg.Spec.Bootstrap.Database
	}
	return append([]string{
		"env", "PGHOST=" + agentapi.RunDir, "PGUSER=postgres", "PGDATABASE=" + database,
		"PSQL_HISTORY=/tmp/.psql_history", "psql",
	}, args...)
}
