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
)

// subject of a member's certificate, which is all the password that members have.
const subject = "/CN=" + agentapi.MemberName

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
	statements = append(statements, memberStatements()...)
	return append(statements,
		"ALTER USER 'root'@'localhost' IDENTIFIED BY RANDOM PASSWORD ACCOUNT LOCK",
		"SET GLOBAL super_read_only = ON",
		"RESET BINARY LOGS AND GTIDS",
	)
}

// memberStatements make the accounts of the members, each with what it needs only.
func memberStatements() []string {
	var statements []string
	for _, account := range []struct{ name, privileges string }{
		{Recovery, "REPLICATION SLAVE, CONNECTION_ADMIN, GROUP_REPLICATION_STREAM"},
		{Clone, "BACKUP_ADMIN"},
	} {
		name := quoteAccount(account.name, "%")
		statements = append(statements,
			"CREATE USER "+name+" IDENTIFIED WITH caching_sha2_password BY '' REQUIRE SUBJECT "+Quote(subject)+" PASSWORD EXPIRE NEVER",
			"GRANT "+account.privileges+" ON *.* TO "+name,
		)
	}
	return statements
}

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
