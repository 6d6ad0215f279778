// Package accounts knows the accounts that Holdfast keeps in MySQL, and the statements
// that make them. It is pure but for Apply.
package accounts

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// Agent is the account of the agent: everything, by the socket alone, for the
	// operating system's user that the server runs as.
	Agent = "holdfast"
	// Recovery is the account with which members exchange transactions. Without the
	// privilege for backups no donor gives it a clone: a group would clone over the
	// data of a joining member by itself.
	Recovery = "holdfast_recovery"
	// Clone is the account with which a member clones another one beside its data.
	Clone = "holdfast_clone"
	// Copier is the account with which a Job clones a member for a backup. It reads no
	// table but the view of the group, and which transactions came from there.
	Copier = "holdfast_copier"
)

// Subjects of the certificates that are all the password that these accounts have.
const (
	memberSubject = "/CN=" + agentapi.MemberName
	copierSubject = "/CN=" + agentapi.CopierName
)

// BootstrapStatements make the accounts in new data, where root has no password. They
// are no part of the binlog, and the data that they leave has no transaction.
func BootstrapStatements(systemUser string) []string {
	agent := quoteAccount(Agent, "localhost")
	statements := []string{
		"SET SESSION sql_log_bin = OFF",
		"SET GLOBAL super_read_only = OFF",
		"CREATE USER " + agent + " IDENTIFIED WITH auth_socket AS " + Quote(systemUser),
		"GRANT ALL ON *.* TO " + agent + " WITH GRANT OPTION",
	}
	for _, account := range certified {
		statements = append(statements, account.createStatements()...)
	}
	return append(statements,
		"ALTER USER 'root'@'localhost' IDENTIFIED BY RANDOM PASSWORD ACCOUNT LOCK",
		"SET GLOBAL super_read_only = ON",
		"RESET BINARY LOGS AND GTIDS",
	)
}

// account that logs in by a certificate, from anywhere.
type account struct {
	name, subject string
	// grants are what it may do.
	grants []string
}

// The accounts of members and Jobs, each with what it needs only.
var (
	copier = account{Copier, copierSubject, []string{
		"BACKUP_ADMIN ON *.*", "SELECT ON performance_schema.replication_group_members", "SELECT ON performance_schema.replication_connection_status",
	}}
	certified = []account{
		{Recovery, memberSubject, []string{"REPLICATION SLAVE, CONNECTION_ADMIN, GROUP_REPLICATION_STREAM ON *.*"}},
		{Clone, memberSubject, []string{"BACKUP_ADMIN ON *.*"}},
		copier,
	}
)

// createStatements make the account. Of one that is there they add what it may do.
func (a account) createStatements() []string {
	name := quoteAccount(a.name, "%")
	statements := []string{"CREATE USER IF NOT EXISTS " + name + a.logIn()}
	for _, grant := range a.grants {
		statements = append(statements, "GRANT "+grant+" TO "+name)
	}
	return statements
}

// logIn is how the account logs in.
func (a account) logIn() string {
	return " IDENTIFIED WITH caching_sha2_password BY '' REQUIRE SUBJECT " + Quote(a.subject) + " PASSWORD EXPIRE NEVER ACCOUNT UNLOCK"
}

// EnsureCopier makes the account of Jobs that copy, where data has none, and repairs it: an
// earlier agent has made it, or a person changed it. Nothing is written to one that is
// right, for that would be a transaction. The server takes writes.
func EnsureCopier(ctx context.Context, db *sql.DB) error {
	var found int
	err := db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM mysql.user WHERE User = ? AND Host = '%' AND x509_subject = ?
			AND ssl_type = 'SPECIFIED' AND x509_issuer = '' AND ssl_cipher = '' AND plugin = 'caching_sha2_password' AND authentication_string = ''
			AND password_expired = 'N' AND password_lifetime = 0 AND account_locked = 'N')
		+ (SELECT COUNT(*) FROM mysql.global_grants WHERE USER = ? AND HOST = '%' AND PRIV = 'BACKUP_ADMIN')
		+ (SELECT COUNT(*) FROM mysql.tables_priv WHERE User = ? AND Host = '%' AND Table_name IN ('replication_group_members', 'replication_connection_status'))`,
		Copier, copierSubject, Copier, Copier).Scan(&found)
	if err != nil || found == wholeCopier {
		return err
	}
	return Apply(ctx, db, copier.repairStatements())
}

// repairStatements make the account where there is none. One that is there logs in as it
// should again, and gets its privileges back.
func (a account) repairStatements() []string {
	statements := a.createStatements()
	repair := "ALTER USER " + quoteAccount(a.name, "%") + a.logIn()
	return append(statements[:1:1], append([]string{repair}, statements[1:]...)...)
}

// wholeCopier is how many rows of MySQL's tables make up that account.
const wholeCopier = 4

// Apply runs statements on one connection, for some are of the session.
func Apply(ctx context.Context, db *sql.DB, statements []string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range statements {
		// Some, such as those of a random password, answer with rows.
		rows, err := conn.QueryContext(ctx, statement)
		if err == nil {
			for rows.Next() { //nolint:revive // read to the end
			}
			err = rows.Err()
			_ = rows.Close()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", firstWords(statement), err)
		}
	}
	return nil
}

// firstWords of a statement, which may end with a password.
func firstWords(statement string) string {
	words := strings.Fields(statement)
	return strings.Join(words[:min(3, len(words))], " ")
}

func quoteAccount(name, host string) string { return Quote(name) + "@" + Quote(host) }

// Quote writes a text as a literal.
func Quote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, "\x00", `\0`, "\n", `\n`, "\r", `\r`).Replace(text) + "'"
}
