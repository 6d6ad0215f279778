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
	// Hidden says that row-level security hides rows from the owner, who cannot count
	// them.
	Hidden bool
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
		return t, row.Scan(&t.Name, &t.Hidden)
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

// findContent names what a database holds that a user made; empty for nothing.
func findContent(ctx context.Context, conn *pgx.Conn) (string, error) {
	var found []string
	err := conn.QueryRow(ctx, `select array(
		select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind in ('r', 'p', 'v', 'm', 'S', 'f') and `+isUsers+`
		union all select n.nspname || '.' || p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
			and not exists (select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
		union all select n.nspname || '.' || t.typname from pg_type t join pg_namespace n on n.oid = t.typnamespace where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' and t.typtype in ('e', 'd')
			and not exists (select from pg_depend d where d.classid = 'pg_type'::regclass and d.objid = t.oid and d.deptype = 'e')
		union all select 'schema ' || n.nspname from pg_namespace n where n.nspname !~ '^pg_' and n.nspname not in ('information_schema', 'public')
			and not exists (select from pg_depend d where d.objid = n.oid and d.deptype = 'e' or d.refobjid = n.oid and d.classid = 'pg_extension'::regclass)
		union all select 'large object ' || oid from pg_largeobject_metadata
		limit 3)`).Scan(&found)
	return strings.Join(found, ", "), err
}

// extensions of the source that the new database cannot have, or only by a superuser.
type extensions struct {
	Missing, Privileged []string
	// Installed are in the new database already, and belong to another role.
	Installed []string
}

// compareExtensions compares those of the source to what the new server has.
func compareExtensions(ctx context.Context, source pgx.Tx, target *pgx.Conn) (e extensions, err error) {
	rows, err := source.Query(ctx, "select extname::text from pg_extension where extname <> 'plpgsql' order by 1")
	if err != nil {
		return e, err
	}
	needed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return e, err
	}
	for _, name := range needed {
		var available, privileged, installed bool
		err := target.QueryRow(ctx, `select exists (select from pg_available_extensions where name = $1),
			coalesce((select v.superuser and not v.trusted from pg_available_extension_versions v join pg_available_extensions a on a.name = v.name and a.default_version = v.version where v.name = $1), false),
			exists (select from pg_extension where extname = $1)`, name).Scan(&available, &privileged, &installed)
		switch {
		case err != nil:
			return e, err
		case installed:
			e.Installed = append(e.Installed, name)
		case !available:
			e.Missing = append(e.Missing, name)
		case privileged:
			e.Privileged = append(e.Privileged, name)
		}
	}
	return e, nil
}

// refuse says why the extensions keep the source from being copied.
func (e extensions) refuse(database string) error {
	switch {
	case len(e.Missing) > 0:
		return newPermanent("the source uses extensions that the image of this cluster does not have: %s; name an image with them in spec.image, or drop them in the source", strings.Join(e.Missing, ", "))
	case len(e.Privileged) > 0:
		return newPermanent("the source uses extensions that only a superuser may create: %s; create them in database %s as the superuser, and ask for another try (docs/guides/import.md)", strings.Join(e.Privileged, ", "), database)
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
