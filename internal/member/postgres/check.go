package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/internal/member"
)

// Soundness is what was found when all of the data was read.
type Soundness struct {
	// Databases and Tables, without those of the system, and Size of all in
	// bytes.
	Databases, Tables int
	Size              int64
	// Checksums says that every page has one, and that it is right; Structure
	// that amcheck has looked at tables and B-tree indexes.
	Checksums, Structure bool
}

// Check reads all of the data in Dir, which was stopped in order or has crashed,
// as a server that nobody else reaches: every row of every table, with what is
// stored beside it, the structure of tables and indexes where the image has
// amcheck, and every page where pages have checksums. What is wrong with the data
// is a BadCopy. The data is good for nothing else afterwards: settings that were
// made by ALTER SYSTEM on the source, of programs that would run and of how much
// memory is taken, are removed.
func (c Copy) Check(ctx context.Context) (Soundness, error) {
	p := programs{member.Programs{Dir: c.BinDir, Processes: member.NewProcesses()}}
	before, err := p.controlData(ctx, c.Dir)
	if err != nil {
		return Soundness{}, err
	}
	if err := os.RemoveAll(filepath.Join(c.Dir, autoName)); err != nil {
		return Soundness{}, fmt.Errorf("prepare to look at the data: %w", err)
	}
	if err := c.write(before); err != nil {
		return Soundness{}, err
	}
	s := Soundness{Structure: true}
	checksums := ""
	c.also = func(ctx context.Context) (err error) {
		checksums, err = c.readAll(ctx, &s)
		return err
	}
	if err := c.run(ctx, p, &tale{}); err != nil {
		return s, bad(ctx, err)
	}
	if checksums != "on" {
		return s, nil
	}
	if _, err := p.Run(ctx, "pg_checksums", "--check", "-D", c.Dir); err != nil {
		return s, bad(ctx, err)
	}
	s.Checksums = true
	return s, nil
}

// bad is what PostgreSQL itself said of the data, in answer to a query or at the
// end of a program.
func bad(ctx context.Context, err error) error {
	answer, exit := (*pgconn.PgError)(nil), (*exec.ExitError)(nil)
	if ctx.Err() == nil && (errors.As(err, &answer) || errors.As(err, &exit) && exit.Exited()) {
		return &BadCopy{err}
	}
	return err
}

// readAll reads every database that lets somebody in.
func (c Copy) readAll(ctx context.Context, s *Soundness) (checksums string, err error) {
	var databases []string
	err = c.query(ctx, "postgres", func(conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, "select current_setting('data_checksums'), sum(pg_database_size(oid))::bigint from pg_database").Scan(&checksums, &s.Size); err != nil {
			return err
		}
		rows, err := conn.Query(ctx, "select datname from pg_database where datallowconn and datconnlimit <> -2 order by datname")
		if err != nil {
			return err
		}
		databases, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	for _, database := range databases {
		if err != nil {
			break
		}
		s.Databases++
		err = c.query(ctx, database, func(conn *pgx.Conn) error {
			schema, err := amcheck(ctx, conn)
			if err != nil {
				return fmt.Errorf("set up amcheck: %w", err)
			}
			s.Structure = s.Structure && schema != ""
			if err := readTables(ctx, conn, schema, s); err != nil {
				return err
			}
			return checkIndexes(ctx, conn, schema)
		})
		if err != nil {
			err = fmt.Errorf("database %q: %w", database, err)
		}
	}
	return checksums, err
}

// amcheck is the schema of the extension, which is made where the image has it;
// empty where it has not. Triggers of users do not fire.
func amcheck(ctx context.Context, conn *pgx.Conn) (schema string, err error) {
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
