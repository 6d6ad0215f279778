//go:build mysql

package settings

import (
	"context"
	"database/sql"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
)

// A member's server takes what the catalogue says that it takes, and nothing else: it is
// asked to set each variable to the value that it has, as the agent asks it.
func TestRealMySQLCatalogue(t *testing.T) {
	m := mysqltest.NewMembers(t, 1)[0]
	m.JoinGroupNamed("5b8f3c1e-0000-5000-8000-000000000001")
	if err := m.Bootstrap(); err != nil {
		t.Fatal(err)
	}
	m.Start()
	ctx := t.Context()
	conn, err := m.DB.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var version string
	if err := conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	catalogue, compared := ForMySQL(version), 0
	for _, name := range listVariables(ctx, t, conn) {
		effect := catalogue.EffectOf(name)
		if effect == Unknown {
			if catalogue.Exact {
				t.Errorf("%s is in no catalogue", name)
			}
			continue
		}
		compared++
		_, err := conn.ExecContext(ctx, "SET GLOBAL "+name+" = @@GLOBAL."+name)
		waits := settings.JudgeError(server.ErrorNumber(err)) == settings.NeedsRestart
		if waits != (effect == Restart) {
			t.Errorf("%s of MySQL %s: effect %s, and the server answers %v", name, version, effect, err)
		}
	}
	if compared < 500 {
		t.Errorf("%d variables were compared", compared)
	}
}

func listVariables(ctx context.Context, t *testing.T, conn *sql.Conn) []string {
	t.Helper()
	// What would refuse the statements that follow comes last.
	rows, err := conn.QueryContext(ctx, "SELECT VARIABLE_NAME FROM performance_schema.global_variables ORDER BY VARIABLE_NAME IN ('read_only', 'super_read_only', 'offline_mode'), VARIABLE_NAME")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}
