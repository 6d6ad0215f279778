// Package loginsighttest makes lines of text logs for tests: one for each class, and lines
// that have canaries wherever a client chooses the text.
package loginsighttest

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Canaries are texts and numbers that must never leave a text log. Equal seeds make equal
// ones.
func Canaries(n int) []string {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's, which is to be repeatable
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	all := make([]string, n)
	for i := range all {
		if i%4 == 3 { // card numbers and the like
			all[i] = fmt.Sprintf("4%015d", random.Int64N(1e15))
			continue
		}
		var b strings.Builder
		for range 12 {
			b.WriteByte(letters[random.IntN(len(letters))])
		}
		all[i] = fmt.Sprintf("%s%03d", b.String(), i)
	}
	return all
}

// prefix is that of a PostgreSQL session of a client with an SQLSTATE.
func prefix(sqlstate, process string) string {
	return "2026-03-01 10:00:00.123 UTC [4242] " + sqlstate + " 7919 (" + process + ") "
}

// PostgresLines have a canary in each place whose text a client chooses: statements,
// identifiers, values, names of roles, databases and applications, texts of errors.
func PostgresLines(canary string) []string {
	session := func(sqlstate, text string) string { return prefix(sqlstate, "client backend") + text }
	code := "P" + strings.ToUpper(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, canary))[:4]
	q := canary
	return []string{
		// Texts of errors.
		session("P0001", "ERROR:  "+q), session("P0001", "ERROR:  first line\n\t"+q),
		session(code, "ERROR:  an SQLSTATE that a function chose"),
		session("00000", "LOG:  "+q), session("01000", "WARNING:  "+q),
		session("XX001", "ERROR:  "+q), session("53100", "ERROR:  "+q), session("XX000", "ERROR:  "+q),
		session("00000", "LOG:  duration: "+q+" ms  statement: select 1"),
		session("00000", "LOG:  duration: 12.5 ms  statement: select '"+q+"'"),
		session("00000", "LOG:  duration: 12.5 ms  execute "+q+": select $1"),
		session("00000", `LOG:  temporary file: path "`+q+`", size `+q),
		session("00000", "LOG:  process "+q+" still waiting for "+q+" on transaction "+q+" after "+q+" ms"),
		// Identifiers and values.
		session("42P01", `ERROR:  relation "`+q+`" does not exist at character 15`),
		session("42703", `ERROR:  column "`+q+`" does not exist`),
		session("42601", `ERROR:  syntax error at or near "`+q+`"`),
		session("22P02", `ERROR:  invalid input syntax for type integer: "`+q+`"`),
		session("22003", `ERROR:  value "`+q+`" is out of range for type integer`),
		session("23505", `ERROR:  duplicate key value violates unique constraint "`+q+`"`),
		session("42501", "ERROR:  permission denied for table "+q),
		session("26000", `ERROR:  prepared statement "`+q+`" does not exist`),
		session("25006", "ERROR:  cannot execute "+q+" in a read-only transaction"),
		session("55P03", `ERROR:  could not obtain lock on row in relation "`+q+`"`),
		session("53300", `FATAL:  too many connections for role "`+q+`"`),
		session("01000", `WARNING:  database "`+q+`" must be vacuumed within 1000 transactions`),
		session("01000", `WARNING:  database "`+q+` must be vacuumed within `+q+`" has a collation version mismatch`),
		// Roles, databases and applications.
		session("28P01", `FATAL:  password authentication failed for user "`+q+`"`),
		session("28000", `FATAL:  role "`+q+`" does not exist`),
		session("28000", `FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "`+q+`", database "`+q+`", no encryption`),
		session("3D000", `FATAL:  database "`+q+`" does not exist`),
		session("00000", "LOG:  connection authorized: user="+q+" database="+q+" application_name="+q),
		// Fields of an entry, and further lines.
		session("23505", "DETAIL:  Key (email)=("+q+") already exists."),
		session("23505", "HINT:  "+q), session("23505", "QUERY:  select "+q), session("23505", "CONTEXT:  SQL statement \""+q+"\""),
		session("23505", "STATEMENT:  insert into t values ('"+q+"')"), session("23505", "LOCATION:  "+q),
		"\t" + q, "\tselect '" + q + "'", q,
		// Background processes that name what a client chose.
		prefix("00000", "autovacuum worker") + `LOG:  automatic vacuum of table "` + q + `": index scans: 1`,
		prefix("57014", "autovacuum worker") + "ERROR:  canceling autovacuum task",
		prefix("57014", "autovacuum worker") + `CONTEXT:  automatic vacuum of table "` + q + `"`,
		prefix("00000", "checkpointer") + `LOG:  invalidating obsolete replication slot "` + q + `"`,
		prefix("00000", "postmaster") + "LOG:  server process (PID 77) was terminated by signal 11: Segmentation fault",
		prefix("00000", "postmaster") + "DETAIL:  Failed process was running: " + q,
		prefix("00000", q) + "LOG:  a process that an extension named",
		prefix("55P02", "postmaster") + `LOG:  parameter "` + q + `" cannot be changed without restarting the server`,
		// Attempts to begin an entry.
		"\t2026-03-01 10:00:00.123 UTC [1] XX001 0 (client backend) PANIC:  " + q,
		"2026-03-01 10:00:00.123 UTC [1] " + code + " 0 (" + q + ") PANIC:  " + q,
		"2026-03-01 10:00:00.123 " + q + " [1] 53100 0 (client backend) ERROR:  disk full",
	}
}

// EtcdLines have a canary in each place whose text a client chooses.
func EtcdLines(canary string) []string {
	entry := func(msg, rest string) string {
		return `{"level":"warn","ts":"2026-03-01T10:00:00.123456Z","caller":"txn/util.go:93","msg":"` + msg + `",` + rest + `}`
	}
	q := canary
	return []string{
		entry("apply request took too long", `"took":"123ms","expected-duration":"100ms","prefix":"read-only range ","request":"key:\"`+q+`\" ","response":"`+q+`"`),
		entry("failed to apply request", `"took":"1ms","request":"header:<> put:<key:\"`+q+`\">","error":"`+q+`"`),
		entry("request stats", `"time spent":"310ms","request content":"key:\"`+q+`\"","remote":"`+q+`"`),
		entry("rejected connection on client endpoint", `"remote-addr":"10.0.0.1:1","server-name":"`+q+`","error":"`+q+`"`),
		entry("apply request took too long", `"took":"`+q+`","request":"`+q+`"`),
		entry("slow fdatasync", `"took":"`+q+`ms"`),
		entry(q, `"took":"1s"`), entry("trace["+q+"] range", `"detail":"{range_begin:`+q+`; }"`),
		entry("raft.node: "+q+" elected leader "+q+" at term 2", `"x":"`+q+`"`),
		`{"level":"` + q + `","ts":"` + q + `","msg":"request stats","alarm":"` + q + `"}`,
		q, "{" + q, `{"msg":"request stats"` + q,
	}
}

// MySQLLines have a canary in each place whose text a client chooses.
func MySQLLines(canary string) []string {
	q := canary
	return []string{
		"2026-03-01T10:00:00.123456Z 8 [Note] [MY-010926] [Server] Access denied for user '" + q + "'@'10.0.0.1' (using password: YES)",
		"2026-03-01T10:00:00.123456Z 8 [Warning] [MY-010909] [Server] mysqld: Forcing close of thread 8  user: '" + q + "'.",
		"2026-03-01T10:00:00.123456Z 8 [ERROR] [MY-013132] [Server] The table '" + q + "' is full!",
		"2026-03-01T10:00:00.123456Z 8 [ERROR] [MY-010584] [Repl] Replica SQL for channel 'x': Error 'Duplicate entry '" + q + "' for key 't.email'' on query. Default database: '" + q + "'. Query: '" + q + "', Error_code: MY-001062",
		"2026-03-01T10:00:00.123456Z 8 [System] [MY-013172] [Server] Received SHUTDOWN from user " + q + ". Shutting down mysqld.",
		"2026-03-01T10:00:00.123456Z 8 [Note] [" + q + "] [Server] text",
		"2026-03-01T10:00:00.123456Z 8 [" + q + "] [MY-013132] [Server] text",
		"2026-03-01T10:00:00.123456Z " + q + " [ERROR] [MY-013132] [" + q + "] text",
		q, "TRANSACTION 42, ACTIVE 3 sec\nupdate t set x='" + q + "'",
	}
}
