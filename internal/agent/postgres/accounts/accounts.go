package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// Bootstrapped is the comment on the replication role that says that the first
// database was created once. It lives in the database system, so it is in
// every copy and every backup, and a database that was dropped stays dropped.
// The names follow it.
const Bootstrapped = "Holdfast has created the first database"

// Account is who owns the first database.
type Account struct {
	Database, Owner, Password string
}

// EnsureReplicationRole makes the role that members stream as. It has no
// password: members show their certificate.
func EnsureReplicationRole(ctx context.Context, conn *pgx.Conn) error {
	var ready, exists bool
	err := conn.QueryRow(ctx, `select true, rolreplication and rolcanlogin and not rolsuper and rolpassword is null
		from pg_authid where rolname = $1`, settings.ReplicationRole).Scan(&exists, &ready)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("look at the replication role: %w", err)
	}
	switch {
	case ready:
		return nil
	case exists:
		_, err = conn.Exec(ctx, "alter role "+settings.ReplicationRole+" login replication nosuperuser password null")
	default:
		_, err = conn.Exec(ctx, "create role "+settings.ReplicationRole+" login replication")
	}
	if err != nil {
		return fmt.Errorf("make the replication role: %w", err)
	}
	return nil
}

// FirstDatabase is what the data says of its first database.
type FirstDatabase struct {
	// Done says that it was created once.
	Done bool `json:"-"`
	// database and Owner are the names with which it was; empty where an older
	// agent did not record them.
	Database string `json:"database"`
	Owner    string `json:"owner"`
}

func (f FirstDatabase) isNamed() bool { return f.Database != "" && f.Owner != "" }

// FormatComment is how the data says it.
func (f FirstDatabase) FormatComment() string {
	names, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("two names always marshal: %v", err))
	}
	return Bootstrapped + ": " + string(names)
}

func parseFirstDatabase(comment string) (f FirstDatabase) {
	rest, done := strings.CutPrefix(comment, Bootstrapped)
	_ = json.Unmarshal([]byte(strings.TrimPrefix(rest, ": ")), &f)
	if !plainName.MatchString(f.Database) || !plainName.MatchString(f.Owner) {
		f = FirstDatabase{}
	}
	f.Done = done
	return f
}

// plainName is what the API lets a first database and its owner be named.
// Others than Holdfast can write a comment.
var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Account is whose password is kept: what the data was made with counts, not
// what a cluster that was created again over it declares.
func (f FirstDatabase) chooseAccount(declared Account) Account {
	if f.Done && f.isNamed() {
		declared.Database, declared.Owner = f.Database, f.Owner
	}
	return declared
}

// observation says what of an account exists.
type observation struct {
	Owner, Superuser, Database bool
	Verifier                   *string
}

func (e observation) listAbsent(acc Account) string {
	var absent []string
	if !e.Database {
		absent = append(absent, "database "+acc.Database)
	}
	if !e.Owner {
		absent = append(absent, "role "+acc.Owner)
	}
	return strings.Join(absent, " and ")
}

func observeAccount(ctx context.Context, conn *pgx.Conn, acc Account) (e observation, err error) {
	err = conn.QueryRow(ctx, `select exists (select from pg_roles where rolname = $1),
		coalesce((select rolsuper from pg_roles where rolname = $1), false),
		exists (select from pg_database where datname = $2),
		(select rolpassword from pg_authid where rolname = $1)`, acc.Owner, acc.Database).Scan(&e.Owner, &e.Superuser, &e.Database, &e.Verifier)
	if err != nil {
		return e, fmt.Errorf("look at the owner: %w", err)
	}
	return e, nil
}

// EnsureAccount creates the first database with its owner in a new database
// system, and keeps the owner's password as it is declared. It returns the
// details to report.
func EnsureAccount(ctx context.Context, conn *pgx.Conn, declared Account) (map[string]string, error) {
	first, err := readTrustedFirst(ctx, conn, declared.Owner)
	acc := first.chooseAccount(declared)
	if err != nil || acc.Owner == "" || acc.Database == "" {
		return nil, err
	}
	if !first.Done {
		if err := createFirstDatabase(ctx, conn, acc); err != nil {
			return nil, err
		}
	}
	found, err := observeAccount(ctx, conn, acc)
	if err != nil {
		return nil, err
	}
	absent := found.listAbsent(acc)
	if first.Done && !first.isNamed() && absent != "" {
		// It is not recorded with which names this data was made: these are not the
		// ones, and a role of this name is a user's.
		return map[string]string{postgresapi.DetailAbsent: absent}, nil
	}
	if err := keepPassword(ctx, conn, acc, found); err != nil {
		return nil, err
	}
	if record := (FirstDatabase{Done: true, Database: acc.Database, Owner: acc.Owner}); record != first {
		if err := recordFirstDatabase(ctx, conn, record); err != nil {
			return nil, err
		}
	}
	return acc.describeFirst(absent), nil
}

func (a Account) describeFirst(absent string) map[string]string {
	details := map[string]string{postgresapi.DetailDatabase: a.Database, postgresapi.DetailOwner: a.Owner}
	if absent != "" {
		details[postgresapi.DetailAbsent] = absent
	}
	return details
}

func readFirstDatabase(ctx context.Context, conn *pgx.Conn) (FirstDatabase, error) {
	var comment string
	err := conn.QueryRow(ctx, `select coalesce((select shobj_description(oid, 'pg_authid') from pg_authid where rolname = $1), '')`, settings.ReplicationRole).Scan(&comment)
	if err != nil {
		return FirstDatabase{}, fmt.Errorf("look at the first database: %w", err)
	}
	return parseFirstDatabase(comment), nil
}

// readTrustedFirst leaves out names that hand a superuser to applications when the
// configuration does not: a comment can be written by lesser roles. They must
// not be reported either, for the operator declares what is reported.
func readTrustedFirst(ctx context.Context, conn *pgx.Conn, declared string) (FirstDatabase, error) {
	first, err := readFirstDatabase(ctx, conn)
	if err != nil || !first.isNamed() || first.Owner == declared {
		return first, err
	}
	found, err := observeAccount(ctx, conn, Account{Database: first.Database, Owner: first.Owner})
	if found.Superuser {
		first.Database, first.Owner = "", ""
	}
	return first, err
}

func recordFirstDatabase(ctx context.Context, conn *pgx.Conn, f FirstDatabase) error {
	text := strings.ReplaceAll(f.FormatComment(), "'", "''")
	if _, err := conn.Exec(ctx, "comment on role "+settings.ReplicationRole+" is '"+text+"'"); err != nil {
		return fmt.Errorf("record the first database: %w", err)
	}
	return nil
}

// keepPassword keeps the owner's password.
func keepPassword(ctx context.Context, conn *pgx.Conn, acc Account, found observation) error {
	if !found.Owner || found.Verifier != nil && verifyPassword(*found.Verifier, acc.Password) {
		return nil
	}
	return setPassword(ctx, conn, pgx.Identifier{acc.Owner}.Sanitize(), acc.Password)
}

func createFirstDatabase(ctx context.Context, conn *pgx.Conn, acc Account) error {
	found, err := observeAccount(ctx, conn, acc)
	if err != nil {
		return err
	}
	owner := pgx.Identifier{acc.Owner}.Sanitize()
	if !found.Owner {
		if _, err := conn.Exec(ctx, "create role "+owner+" login"); err != nil {
			return fmt.Errorf("create the owner: %w", err)
		}
	}
	if !found.Database {
		if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{acc.Database}.Sanitize()+" owner "+owner); err != nil {
			return fmt.Errorf("create the first database: %w", err)
		}
	}
	return nil
}

// setPassword sends a verifier: the password itself never leaves the agent.
// The error names no statement.
func setPassword(ctx context.Context, conn *pgx.Conn, owner, password string) error {
	verifier, err := newVerifier(password)
	if err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "alter role "+owner+" password '"+verifier+"'"); err != nil {
		return fmt.Errorf("set the owner's password: %w", err)
	}
	return nil
}
