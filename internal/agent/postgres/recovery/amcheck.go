package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// installAmcheck is the schema of the extension, which is made where the image has it;
// empty where it has not. Triggers of users do not fire.
func installAmcheck(ctx context.Context, conn *pgx.Conn) (schema string, err error) {
	var has bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_available_extensions where name = 'amcheck')").Scan(&has); err != nil || !has {
		return "", err
	}
	for _, sql := range []string{
		"set default_transaction_read_only = off", "set session_replication_role = replica", "set client_min_messages = error",
		"create extension if not exists amcheck with schema pg_catalog", "alter extension amcheck update",
		"set default_transaction_read_only = on",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", err
		}
	}
	err = conn.QueryRow(ctx, "select quote_ident(nspname) from pg_extension e join pg_namespace n on n.oid = e.extnamespace where extname = 'amcheck'").Scan(&schema)
	return schema, err
}

// tablesSQL lists the tables and materialized views that hold rows of their own,
// each with the columns that are stored.
const tablesSQL = `
select c.oid::bigint, quote_ident(n.nspname) || '.' || quote_ident(c.relname), n.nspname in ('pg_catalog', 'information_schema'),
	coalesce((select string_agg(quote_ident(a.attname), ', ' order by a.attnum) from pg_attribute a
		where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'), '')
from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_am am on am.oid = c.relam
where c.relkind in ('r', 'm') and c.relpersistence = 'p' and c.relispopulated and am.amname = 'heap'
order by 2`

type table struct {
	OID     int64
	Name    string
	System  bool
	Columns string
}

// readTables reads every row, and has amcheck look at the pages that hold them.
func readTables(ctx context.Context, conn *pgx.Conn, schema string, s *Soundness) error {
	rows, err := conn.Query(ctx, tablesSQL)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if err != nil {
		return err
	}
	for _, t := range tables {
		_, err := conn.PgConn().CopyTo(ctx, io.Discard, "copy (select "+t.Columns+" from only "+t.Name+") to stdout")
		if err == nil && schema != "" {
			err = checkTable(ctx, conn, schema, t)
		}
		if err != nil {
			return fmt.Errorf("table %s: %w", t.Name, err)
		}
		if !t.System {
			s.Tables++
		}
	}
	return nil
}

// checkTable has amcheck look at a table, up to the first page that is wrong.
func checkTable(ctx context.Context, conn *pgx.Conn, schema string, t table) error {
	var block int64
	var message string
	err := conn.QueryRow(ctx, "select blkno, msg from "+schema+".verify_heapam("+strconv.FormatInt(t.OID, 10)+"::oid::regclass, on_error_stop => true) limit 1").Scan(&block, &message)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return &BadCopy{fmt.Errorf("block %d: %s", block, message)}
}

// indexesSQL lists the B-tree indexes that are in use.
const indexesSQL = `
select c.oid::bigint, quote_ident(n.nspname) || '.' || quote_ident(c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_am am on am.oid = c.relam join pg_index i on i.indexrelid = c.oid
where c.relkind = 'i' and c.relpersistence = 'p' and am.amname = 'btree' and i.indisvalid and i.indisready
order by 2`

func checkIndexes(ctx context.Context, conn *pgx.Conn, schema string) error {
	if schema == "" {
		return nil
	}
	type index struct {
		OID  int64
		Name string
	}
	rows, err := conn.Query(ctx, indexesSQL)
	if err != nil {
		return err
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[index])
	if err != nil {
		return err
	}
	for _, i := range indexes {
		if _, err := conn.Exec(ctx, "select "+schema+".bt_index_check("+strconv.FormatInt(i.OID, 10)+"::oid::regclass)"); err != nil {
			return fmt.Errorf("index %s: %w", i.Name, err)
		}
	}
	return nil
}
