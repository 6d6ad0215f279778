package plugin

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/mysql"
	"github.com/holdfast-db/holdfast/internal/plugin/declaration"
)

func mysqlKind() kind {
	return kind{
		gvk:            v1alpha1.GroupVersion.WithKind("MySQLCluster"),
		names:          []string{"my", "mysqlclusters", "mysqlclusters.holdfast.dev"},
		engine:         "MySQL",
		lead:           v1alpha1.RolePrimary,
		newCluster:     func() v1alpha1.Cluster { return &v1alpha1.MySQLCluster{} },
		newList:        func() client.ObjectList { return &v1alpha1.MySQLClusterList{} },
		lag:            "holdfast_mysql_replication_lag_seconds",
		pendingRestart: "holdfast_mysql_settings_pending_restart",
		declared: declaration.FromEngine(
			func(k *memberset.MemberEngine) engine.Engine[*v1alpha1.MySQLCluster, memberset.Observation] {
				return &mysql.Engine{MemberEngine: k}
			},
			func(o *memberset.Observation) *memberset.Observation { return o }),
		client: program{
			name: "mysql", rights: "with all rights", options: "-e 'select 1'", replicas: true, command: mysqlCommandLine,
			example: `  kubectl holdfast mysql orders
  kubectl holdfast mysql orders -- -e 'select 1'
  kubectl holdfast mysql orders --replica < report.sql`,
		},
		shell: []string{"sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"},
		connection: []connectionKey{
			{name: "host", variable: "MYSQL_HOST"}, {name: "port", variable: "MYSQL_TCP_PORT"},
			{name: "username"}, {name: "database"},
			{name: "password", variable: "MYSQL_PWD", secret: true},
			{name: "ca.crt", file: true},
		},
	}
}

// mysqlCommandLine is the client as the agent's account, which the server knows by the
// operating system's user, over the member's socket. Options of files are not read, and
// the history goes to where one can write.
func mysqlCommandLine(_ v1alpha1.Cluster, _ string, args []string) []string {
	return append([]string{
		"env", "MYSQL_HISTFILE=/tmp/.mysql_history", "mysql", "--no-defaults", "--socket=" + agentapi.RunDir + "/mysqld.sock", "--user=holdfast",
	}, args...)
}
