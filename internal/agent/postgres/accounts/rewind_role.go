package accounts

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
)

// rewindFunctions are those by which pg_rewind reads a running server's files.
var rewindFunctions = []string{
	"pg_catalog.pg_ls_dir(text, boolean, boolean)",
	"pg_catalog.pg_stat_file(text, boolean)",
	"pg_catalog.pg_read_binary_file(text)",
	"pg_catalog.pg_read_binary_file(text, bigint, bigint, boolean)",
}

// EnsureRewindRole makes the role as which a former primary reads this primary's files
// when it is rewound. It has no password, for members show their certificate, and may
// do nothing else. The rights are of the database that the session is connected to.
func EnsureRewindRole(ctx context.Context, conn *pgx.Conn) error {
	var ready, exists bool
	err := conn.QueryRow(ctx, `select true, rolcanlogin and not (rolsuper or rolreplication or rolcreaterole or rolcreatedb or rolbypassrls) and rolpassword is null
		and not exists (select from unnest($2::text[]) f where not has_function_privilege(r.oid, f::regprocedure, 'execute'))
		from pg_authid r where rolname = $1`, settings.RewindRole, rewindFunctions).Scan(&exists, &ready)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("look at the role for rewinds: %w", err)
	}
	if ready {
		return nil
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("make the role for rewinds: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var statements []string
	if !exists {
		statements = append(statements, "create role "+settings.RewindRole)
	}
	statements = append(statements, "alter role "+settings.RewindRole+" login nosuperuser noreplication nocreaterole nocreatedb nobypassrls noinherit password null")
	for _, function := range rewindFunctions {
		statements = append(statements, "grant execute on function "+function+" to "+settings.RewindRole)
	}
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the role for rewinds: %w", err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("make the role for rewinds: %w", err)
	}
	return nil
}
