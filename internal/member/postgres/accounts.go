package postgres

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"golang.org/x/text/secure/precis"
)

// passwordFile holds the owner's password.
const passwordFile = "app-password"

// bootstrapped is the comment on the replication role that says that the first
// database was created once. It lives in the database system, so it is in
// every copy and every backup, and a database that was dropped stays dropped.
const bootstrapped = "Holdfast has created the first database"

// account is who owns the first database.
type account struct {
	Database, Owner, Password string
}

// readAccount is the account of the configuration, with the mounted password.
func (a *agent) readAccount() (account, error) {
	config, _ := a.config.Current()
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

// ensureAccount creates the first database with its owner in a new database
// system, and keeps the owner's password as it is declared.
func ensureAccount(ctx context.Context, conn *pgx.Conn, acc account) error {
	if acc.Owner == "" || acc.Database == "" {
		return nil
	}
	var done, ownerExists, databaseExists bool
	var verifier *string
	err := conn.QueryRow(ctx, `select
		coalesce((select shobj_description(oid, 'pg_authid') = $1 from pg_authid where rolname = $2), false),
		exists (select from pg_authid where rolname = $3),
		exists (select from pg_database where datname = $4),
		(select rolpassword from pg_authid where rolname = $3)`,
		bootstrapped, replicationRole, acc.Owner, acc.Database).Scan(&done, &ownerExists, &databaseExists, &verifier)
	if err != nil {
		return fmt.Errorf("look at the owner: %w", err)
	}
	owner := pgx.Identifier{acc.Owner}.Sanitize()
	if !ownerExists && !done {
		if _, err := conn.Exec(ctx, "create role "+owner+" login"); err != nil {
			return fmt.Errorf("create the owner: %w", err)
		}
		ownerExists = true
	}
	if ownerExists && (verifier == nil || !verifies(*verifier, acc.Password)) {
		if err := setPassword(ctx, conn, owner, acc.Password); err != nil {
			return err
		}
	}
	if done {
		return nil
	}
	if !databaseExists {
		if _, err := conn.Exec(ctx, "create database "+pgx.Identifier{acc.Database}.Sanitize()+" owner "+owner); err != nil {
			return fmt.Errorf("create the first database: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, "comment on role "+replicationRole+" is '"+bootstrapped+"'"); err != nil {
		return fmt.Errorf("record the first database: %w", err)
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
