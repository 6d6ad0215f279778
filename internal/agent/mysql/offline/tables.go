package offline

import (
	"context"
	"database/sql"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Checked is what CheckTables has read. Discarded are tables that it has not: a person
// discarded their tablespaces, and they have no rows until one is imported.
type Checked struct{ Databases, Tables, Discarded int }

// Unsound is a table that CHECK TABLE finds fault with.
type Unsound struct{ Table, Says string }

func (u *Unsound) Error() string { return fmt.Sprintf("CHECK TABLE says of %s: %s", u.Table, u.Says) }

// CheckTables has the server read every table with all of its indexes. It fails with an
// *Unsound at the first that is not sound.
func CheckTables(ctx context.Context, db *sql.DB, progress func(Checked)) (Checked, error) {
	tables, err := listTables(ctx, db)
	if err != nil {
		return Checked{}, err
	}
	discarded, err := listDiscarded(ctx, db)
	if err != nil {
		return Checked{}, err
	}
	var done Checked
	last := ""
	for _, t := range tables {
		if slices.ContainsFunc(discarded, t.hasTablespace) {
			done.Discarded++
			continue
		}
		if err := checkTable(ctx, db, t); err != nil {
			return done, err
		}
		done.Tables++
		if t.database != last {
			done.Databases, last = done.Databases+1, t.database
		}
		progress(done)
	}
	return done, nil
}

type table struct{ database, name string }

func (t table) quoted() string { return quoteName(t.database) + "." + quoteName(t.name) }

// hasTablespace says whether a tablespace is of the table or of a partition of it, by its
// name in InnoDB's dictionary.
func (t table) hasTablespace(name string) bool {
	own := t.database + "/" + t.name
	return name == own || strings.HasPrefix(name, own+"#p#")
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// listTables are all that InnoDB holds, MySQL's own too, by database.
func listTables(ctx context.Context, db *sql.DB) ([]table, error) {
	rows, err := db.QueryContext(ctx, `SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
		WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE = 'InnoDB' ORDER BY TABLE_SCHEMA, TABLE_NAME`)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	defer rows.Close() //nolint:errcheck // it was only read
	var all []table
	for rows.Next() {
		var t table
		if err := rows.Scan(&t.database, &t.name); err != nil {
			return nil, fmt.Errorf("list the tables: %w", err)
		}
		all = append(all, t)
	}
	return all, rows.Err()
}

// listTablespaces are the files below the data directory that InnoDB's dictionary names.
// It also names those that a person discarded, which are no more.
func listTablespaces(ctx context.Context, db *sql.DB) ([]string, error) {
	// The system's tablespace is in one of the two tables only.
	all, err := listNames(ctx, db, `SELECT d.PATH FROM information_schema.INNODB_DATAFILES d
		LEFT JOIN information_schema.INNODB_TABLESPACES t ON t.SPACE = d.SPACE WHERE COALESCE(t.STATE, '') <> 'discarded'`)
	if err != nil {
		return nil, fmt.Errorf("list the tablespaces: %w", err)
	}
	for i := range all {
		all[i] = path.Clean(all[i])
	}
	slices.Sort(all)
	return all, nil
}

// listDiscarded are the names of tablespaces that a person discarded.
func listDiscarded(ctx context.Context, db *sql.DB) ([]string, error) {
	all, err := listNames(ctx, db, "SELECT NAME FROM information_schema.INNODB_TABLESPACES WHERE STATE = 'discarded'")
	if err != nil {
		return nil, fmt.Errorf("list the discarded tablespaces: %w", err)
	}
	return all, nil
}

// listNames runs a query of one column.
func listNames(ctx context.Context, db *sql.DB, query string) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // it was only read
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		all = append(all, name)
	}
	return all, rows.Err()
}

// checkTable reads the answers of CHECK TABLE, of which the last says how it ended.
func checkTable(ctx context.Context, db *sql.DB, t table) error {
	rows, err := db.QueryContext(ctx, "CHECK TABLE "+t.quoted()+" EXTENDED")
	if err != nil {
		return fmt.Errorf("check %s: %w", t.quoted(), err)
	}
	defer rows.Close() //nolint:errcheck // it was only read
	var said []string
	sound := false
	for rows.Next() {
		var name, op, kind, text string
		if err := rows.Scan(&name, &op, &kind, &text); err != nil {
			return fmt.Errorf("check %s: %w", t.quoted(), err)
		}
		sound = kind == "status" && text == "OK"
		said = append(said, text)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("check %s: %w", t.quoted(), err)
	}
	if !sound {
		return &Unsound{t.database + "." + t.name, strings.Join(said, "; ")}
	}
	return nil
}
