package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/text/secure/precis"

	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// passwordFile holds the owner's password.
const passwordFile = "app-password"

// bootstrapped is the comment on the replication role that says that the first
// database was created once. It lives in the database system, so it is in
// every copy and every backup, and a database that was dropped stays dropped.
// The names follow it.
const bootstrapped = "Holdfast has created the first database"

// account is who owns the first database.
type account struct {
	Database, Owner, Password string
}

// readAccount is the account of the configuration, with the mounted password.
func (a *agent) readAccount() (account, error) {
	config, _ := a.Config.Current()
	if config == nil {
		return account{}, errors.New("no configuration yet")
	}
	password, err := os.ReadFile(filepath.Join(a.o.CredentialsDir, passwordFile))
	if err != nil {
		return account{}, fmt.Errorf("read the owner's password: %w", err)
	}
	return account{config.Database, config.Owner, strings.TrimRight(string(password), "\n")}, nil
}

// ensureReplicationRole makes the role that members stream as. It has no
// password: members show their certificate.
func ensureReplicationRole(ctx context.Context, conn *pgx.Conn) error {
	var ready, exists bool
	err := conn.QueryRow(ctx, `select true, rolreplication and rolcanlogin and not rolsuper and rolpassword is null
		from pg_authid where rolname = $1`, replicationRole).Scan(&exists, &ready)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("look at the replication role: %w", err)
	}
	switch {
	case ready:
		return nil
	case exists:
		_, err = conn.Exec(ctx, "alter role "+replicationRole+" login replication nosuperuser password null")
	default:
		_, err = conn.Exec(ctx, "create role "+replicationRole+" login replication")
	}
	if err != nil {
		return fmt.Errorf("make the replication role: %w", err)
	}
	return nil
}

// firstDatabase is what the data says of its first database.
type firstDatabase struct {
	// Done says that it was created once.
	Done bool `json:"-"`
	// Database and Owner are the names with which it was; empty where an older
	// agent did not record them.
	Database string `json:"database"`
	Owner    string `json:"owner"`
}

func (f firstDatabase) named() bool { return f.Database != "" && f.Owner != "" }

// comment is how the data says it.
func (f firstDatabase) comment() string {
	names, err := json.Marshal(f)
	if err != nil {
		panic(fmt.Sprintf("two names always marshal: %v", err))
	}
	return bootstrapped + ": " + string(names)
}

func parseFirstDatabase(comment string) (f firstDatabase) {
	rest, done := strings.CutPrefix(comment, bootstrapped)
	_ = json.Unmarshal([]byte(strings.TrimPrefix(rest, ": ")), &f)
	if !plainName.MatchString(f.Database) || !plainName.MatchString(f.Owner) {
		f = firstDatabase{}
	}
	f.Done = done
	return f
}

// plainName is what the API lets a first database and its owner be named.
// Others than Holdfast can write a comment.
var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// account is whose password is kept: what the data was made with counts, not
// what a cluster that was created again over it declares.
func (f firstDatabase) account(declared account) account {
	if f.Done && f.named() {
		declared.Database, declared.Owner = f.Database, f.Owner
	}
	return declared
}

// existing says what of an account exists.
type existing struct {
	Owner, Superuser, Database bool
	Verifier                   *string
}

func (e existing) absent(acc account) string {
	var absent []string
	if !e.Database {
		absent = append(absent, "database "+acc.Database)
	}
	if !e.Owner {
		absent = append(absent, "role "+acc.Owner)
	}
	return strings.Join(absent, " and ")
}

func lookUp(ctx context.Context, conn *pgx.Conn, acc account) (e existing, err error) {
	err = conn.QueryRow(ctx, `select exists (select from pg_roles where rolname = $1),
		coalesce((select rolsuper from pg_roles where rolname = $1), false),
		exists (select from pg_database where datname = $2),
		(select rolpassword from pg_authid where rolname = $1)`, acc.Owner, acc.Database).Scan(&e.Owner, &e.Superuser, &e.Database, &e.Verifier)
	if err != nil {
		return e, fmt.Errorf("look at the owner: %w", err)
	}
	return e, nil
}

// ensureAccount creates the first database with its owner in a new database
// system, and keeps the owner's password as it is declared. It returns the
// details to report.
func ensureAccount(ctx context.Context, conn *pgx.Conn, declared account) (map[string]string, error) {
	first, err := believedFirst(ctx, conn, declared.Owner)
	acc := first.account(declared)
	if err != nil || acc.Owner == "" || acc.Database == "" {
		return nil, err
	}
	if !first.Done {
		if err := createFirst(ctx, conn, acc); err != nil {
			return nil, err
		}
	}
	found, err := lookUp(ctx, conn, acc)
	if err != nil {
		return nil, err
	}
	absent := found.absent(acc)
	if first.Done && !first.named() && absent != "" {
		// Nobody knows with which names this data was made: these are not the
		// ones, and a role of this name is somebody else's.
		return map[string]string{memberapi.DetailAbsent: absent}, nil
	}
	if err := keepPassword(ctx, conn, acc, found); err != nil {
		return nil, err
	}
	if record := (firstDatabase{Done: true, Database: acc.Database, Owner: acc.Owner}); record != first {
		if err := recordFirst(ctx, conn, record); err != nil {
			return nil, err
		}
	}
	return acc.details(absent), nil
}

func (a account) details(absent string) map[string]string {
	details := map[string]string{memberapi.DetailDatabase: a.Database, memberapi.DetailOwner: a.Owner}
	if absent != "" {
		details[memberapi.DetailAbsent] = absent
	}
	return details
}

func readFirst(ctx context.Context, conn *pgx.Conn) (firstDatabase, error) {
	var comment string
	err := conn.QueryRow(ctx, `select coalesce((select shobj_description(oid, 'pg_authid') from pg_authid where rolname = $1), '')`, replicationRole).Scan(&comment)
	if err != nil {
		return firstDatabase{}, fmt.Errorf("look at the first database: %w", err)
	}
	return parseFirstDatabase(comment), nil
}

// believedFirst leaves out names that hand a superuser to applications when the
// configuration does not: a comment can be written by lesser roles. They must
// not be reported either, for the operator declares what is reported.
func believedFirst(ctx context.Context, conn *pgx.Conn, declared string) (firstDatabase, error) {
	first, err := readFirst(ctx, conn)
	if err != nil || !first.named() || first.Owner == declared {
		return first, err
	}
	found, err := lookUp(ctx, conn, account{Database: first.Database, Owner: first.Owner})
	if found.Superuser {
		first.Database, first.Owner = "", ""
	}
	return first, err
}

func recordFirst(ctx context.Context, conn *pgx.Conn, f firstDatabase) error {
	text := strings.ReplaceAll(f.comment(), "'", "''")
	if _, err := conn.Exec(ctx, "comment on role "+replicationRole+" is '"+text+"'"); err != nil {
		return fmt.Errorf("record the first database: %w", err)
	}
	return nil
}

// keepPassword keeps the owner's password.
func keepPassword(ctx context.Context, conn *pgx.Conn, acc account, found existing) error {
	if !found.Owner || found.Verifier != nil && verifies(*found.Verifier, acc.Password) {
		return nil
	}
	return setPassword(ctx, conn, pgx.Identifier{acc.Owner}.Sanitize(), acc.Password)
}

func createFirst(ctx context.Context, conn *pgx.Conn, acc account) error {
	found, err := lookUp(ctx, conn, acc)
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

const scramIterations = 4096

// newVerifier is what PostgreSQL keeps of a password (RFC 5803).
func newVerifier(password string) (string, error) {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt)
	return verifierOf(password, salt, scramIterations)
}

func verifierOf(password string, salt []byte, iterations int) (string, error) {
	// As PostgreSQL does: what cannot be normalised is taken as it is.
	normal, err := precis.OpaqueString.String(password)
	if err != nil {
		normal = password
	}
	salted, err := pbkdf2.Key(sha256.New, normal, salt, iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("derive the verifier: %w", err)
	}
	sign := func(key []byte, text string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sign(salted, "Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, b64(salt), b64(stored[:]), b64(sign(salted, "Server Key"))), nil
}

// verifies says whether a verifier is that of the password.
func verifies(verifier, password string) bool {
	rest, found := strings.CutPrefix(verifier, "SCRAM-SHA-256$")
	if !found {
		return false
	}
	head, _, _ := strings.Cut(rest, "$")
	count, encoded, _ := strings.Cut(head, ":")
	iterations, err := strconv.Atoi(count)
	if err != nil || iterations < 1 || iterations > 1<<20 {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return false
	}
	again, err := verifierOf(password, salt, iterations)
	return err == nil && hmac.Equal([]byte(again), []byte(verifier))
}
