package metrics

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agent/statementcounts"
	"github.com/holdfast-db/holdfast/internal/agent/statements"
)

// StatementsPart is the part of a scrape that Statements answers.
const StatementsPart = "statements"

// StatementFamilies are the numbers of a statement, in the order of statementColumns. There is
// no label of the user, which postgres_exporter has: no metric names a role. The text of a
// statement is not even read.
var StatementFamilies = []metricfamily.Family{
	metricfamily.NewCounter("pg_stat_statements_calls_total", "How often a statement ran.", "queryid", "datname"),
	metricfamily.NewCounter("pg_stat_statements_seconds_total", "Time in which a statement ran.", "queryid", "datname"),
	metricfamily.NewCounter("pg_stat_statements_rows_total", "Rows that a statement returned or changed.", "queryid", "datname"),
	metricfamily.NewCounter("pg_stat_statements_block_read_seconds_total", "Time in which a statement read blocks; 0 without track_io_timing.", "queryid", "datname"),
	metricfamily.NewCounter("pg_stat_statements_block_write_seconds_total", "Time in which a statement wrote blocks; 0 without track_io_timing.", "queryid", "datname"),
}

// findStatements finds the extension's function and which columns it has: an extension keeps
// those of the version that it was created with. The function is that of the extension, which
// only a superuser creates, and none that another role has put beside it. Without the library,
// whose setting is then unknown, there is none.
const findStatements = `select n.nspname::text, 'toplevel' = any(p.proargnames), 'shared_blk_read_time' = any(p.proargnames)
	from pg_extension e
	join pg_depend d on d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid and d.classid = 'pg_proc'::regclass and d.deptype = 'e'
	join pg_proc p on p.oid = d.objid
	join pg_namespace n on n.oid = p.pronamespace
	where e.extname = 'pg_stat_statements' and p.proname = 'pg_stat_statements' and 'total_exec_time' = any(p.proargnames)
		and exists(select from pg_settings where name = 'pg_stat_statements.max')`

// boundStatements lets the server sort its entries in memory, as a temporary file would count
// as one of the load, and stops it where the scrape does not wait any longer.
const boundStatements = `select set_config('work_mem', '32MB', true), set_config('statement_timeout', '2s', true)`

// readStatements reads the entries, one for each user, database and statement, and one more
// for those that ran inside others. Entries of databases that were dropped stay for a while.
const readStatements = `select s.userid::int8, s.dbid::int8, coalesce(s.queryid, 0), %s, coalesce(d.datname, '` + statements.OtherDatabases + `'), %s
	from %s.pg_stat_statements(false) s left join ` + namedDatabases + ` on d.oid = s.dbid
	order by s.total_exec_time desc limit %d`

// statementColumns are the numbers of an entry. Blocks are those of tables and indexes that
// all sessions share: up to PostgreSQL 16 those of temporary tables count as well.
func statementColumns(sharedBlocks bool) string {
	prefix := "s."
	if sharedBlocks {
		prefix = "s.shared_"
	}
	return "s.calls::float8, s.total_exec_time / 1000, s.rows::float8, " + prefix + "blk_read_time / 1000, " + prefix + "blk_write_time / 1000"
}

// statementKey is what the server tells entries apart by.
type statementKey struct {
	user, database, query int64
	topLevel              bool
}

// Statements counts what the statements of a member do, as pg_stat_statements has it. Its zero
// value has counted nothing. It is safe for use by several goroutines.
type Statements struct {
	counter statementcounts.Counter[statementKey]
}

// CollectFamilies returns what reads the statements over a connection, unless they have just
// been read, and sends what they did: of at most so many statements, and of all others
// together. Without the extension, or the library, it sends nothing.
func (s *Statements) CollectFamilies(send metricfamily.Send, most int) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		read := func() ([]statements.Row[statementKey], error) { return readStatementRows(ctx, conn) }
		err := s.counter.Collect(StatementFamilies, most, read, send)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read the statements: %w", err)
		}
		return nil
	}
}

// readStatementRows fails with pgx.ErrNoRows where there is nothing to read.
func readStatementRows(ctx context.Context, conn *pgx.Conn) ([]statements.Row[statementKey], error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var schema string
	var hasTopLevel, hasShared bool
	if err := tx.QueryRow(ctx, findStatements).Scan(&schema, &hasTopLevel, &hasShared); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, boundStatements); err != nil {
		return nil, err
	}
	topLevel := "true"
	if hasTopLevel {
		topLevel = "s.toplevel"
	}
	found, err := tx.Query(ctx, fmt.Sprintf(readStatements, topLevel, statementColumns(hasShared), pgx.Identifier{schema}.Sanitize(), statements.MaxEntries))
	if err != nil {
		return nil, err
	}
	rows, err := pgx.CollectRows(found, scanStatement)
	if err != nil {
		return nil, err
	}
	return rows, tx.Commit(ctx)
}

func scanStatement(from pgx.CollectableRow) (statements.Row[statementKey], error) {
	var row statements.Row[statementKey]
	v := &row.Values
	err := from.Scan(&row.Key.user, &row.Key.database, &row.Key.query, &row.Key.topLevel, &row.Database, &v[0], &v[1], &v[2], &v[3], &v[4])
	if row.Key.query != 0 {
		row.ID = strconv.FormatInt(row.Key.query, 10)
	}
	return row, err
}
