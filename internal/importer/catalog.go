package importer

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// isUsers is a condition on pg_class c and pg_namespace n: what a user made, and no
// extension.
const isUsers = `n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
	and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')`

// table of the source, with the rows that the snapshot has.
type table struct {
	// Name with its schema, quoted.
	Name string
	Rows int64
	// Forced says that row-level security holds for the owner, too.
	Forced bool
}

// inventory is what the source holds in the snapshot that is copied.
type inventory struct {
	Tables                  []table
	Sequences, LargeObjects int64
}

func (v inventory) countRows() (rows int64) {
	for _, t := range v.Tables {
		rows += t.Rows
	}
	return rows
}

// takeInventory counts what the source holds, in the transaction of the snapshot.
func takeInventory(ctx context.Context, tx pgx.Tx, counted func(done, all int)) (v inventory, err error) {
	rows, err := tx.Query(ctx, `select quote_ident(n.nspname) || '.' || quote_ident(c.relname), c.relforcerowsecurity
		from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind = 'r' and `+isUsers+` order by 1`)
	if err != nil {
		return v, err
	}
	v.Tables, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t table, err error) {
		return t, row.Scan(&t.Name, &t.Forced)
	})
	if err != nil {
		return v, err
	}
	for i := range v.Tables {
		counted(i, len(v.Tables))
		if err := tx.QueryRow(ctx, "select count(*) from only "+v.Tables[i].Name).Scan(&v.Tables[i].Rows); err != nil {
			return v, err
		}
	}
	if err := tx.QueryRow(ctx, countSequences).Scan(&v.Sequences); err != nil {
		return v, err
	}
	return v, tx.QueryRow(ctx, countLargeObjects).Scan(&v.LargeObjects)
}

const (
	countSequences    = `select count(*) from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace where c.relkind = 'S' and ` + isUsers
	countLargeObjects = `select count(*) from pg_catalog.pg_largeobject_metadata`
)

// contentQuery is an array of names of what a database holds that a user made, three at
// most.
const contentQuery = `array(
	select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f') and ` + isUsers + `
	union all select n.nspname || '.' || p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
		and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
	union all select n.nspname || '.' || t.typname from pg_type t join pg_namespace n on n.oid = t.typnamespace where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' and t.typtype in ('e', 'd')
		and not exists (select from pg_depend d where d.classid = 'pg_type'::regclass and d.objid = t.oid and d.deptype = 'e')
	union all select 'schema ' || n.nspname from pg_namespace n where n.nspname !~ '^pg_' and n.nspname not in ('information_schema', 'public')
		and not exists (select from pg_depend d where d.classid = 'pg_namespace'::regclass and d.objid = n.oid and d.deptype = 'e' or d.refobjid = n.oid and d.classid = 'pg_extension'::regclass)
	union all select 'large object ' || oid from pg_largeobject_metadata
	limit 3)`

// catalogs are what the source needs of a server, and the new one does not have, or only a
// superuser can make.
type catalogs struct {
	// Missing extensions of the image, and Privileged ones, which only a superuser may
	// create.
	Missing, Privileged []string
	// Roles that policies name.
	Roles []string
	// Installed extensions are in the new database already, and may belong to another role.
	Installed []string
}

// compareCatalogs compares what the source uses to what the new server has.
func compareCatalogs(ctx context.Context, source pgx.Tx, target *pgx.Conn) (c catalogs, err error) {
	extensions, err := readNames(ctx, source, "select extname::text from pg_extension order by 1")
	if err != nil {
		return c, err
	}
	for _, name := range extensions {
		var available, privileged, installed bool
		err := target.QueryRow(ctx, `select exists (select from pg_available_extensions where name = $1),
			coalesce((select v.superuser and not v.trusted from pg_available_extension_versions v join pg_available_extensions a on a.name = v.name and a.default_version = v.version where v.name = $1), false),
			exists (select from pg_extension where extname = $1)`, name).Scan(&available, &privileged, &installed)
		switch {
		case err != nil:
			return c, err
		case installed:
			c.Installed = append(c.Installed, name)
		case !available:
			c.Missing = append(c.Missing, name)
		case privileged:
			c.Privileged = append(c.Privileged, name)
		}
	}
	roles, err := readNames(ctx, source, "select distinct r.rolname::text from pg_policy p join pg_roles r on r.oid = any (p.polroles) order by 1")
	if err != nil {
		return c, err
	}
	for _, name := range roles {
		var there bool
		if err := target.QueryRow(ctx, "select exists (select from pg_roles where rolname = $1)", name).Scan(&there); err != nil {
			return c, err
		}
		if !there {
			c.Roles = append(c.Roles, name)
		}
	}
	return c, nil
}

func readNames(ctx context.Context, tx pgx.Tx, query string) ([]string, error) {
	rows, err := tx.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// refuse says what keeps the source from being copied.
func (c catalogs) refuse(database string) error {
	switch {
	case len(c.Missing) > 0:
		return newPermanent("the source uses extensions that the image of this cluster does not have: %s; name an image with them in spec.image, or drop them in the source", strings.Join(c.Missing, ", "))
	case len(c.Privileged) > 0:
		return newPermanent("the source uses extensions that only a superuser may create: %s; create them in database %s as the superuser, and ask for another try (docs/guides/import.md)", strings.Join(c.Privileged, ", "), database)
	case len(c.Roles) > 0:
		return newPermanent("policies of the source name roles that the new cluster does not have: %s; create them as the superuser, and ask for another try (docs/guides/import.md)", strings.Join(c.Roles, ", "))
	}
	return nil
}

// readVersion reads the version of a server, as a number such as 150018 and in words.
func readVersion(ctx context.Context, conn *pgx.Conn) (number int, words string, err error) {
	err = conn.QueryRow(ctx, "select current_setting('server_version_num')::int, current_setting('server_version')").Scan(&number, &words)
	words, _, _ = strings.Cut(words, " ")
	if err != nil {
		return 0, "", fmt.Errorf("read the version: %w", err)
	}
	return number, words, nil
}
