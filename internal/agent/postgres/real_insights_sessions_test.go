//go:build postgres

package postgres

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"
)

// provokeStatements provokes what statements of one session do.
func provokeStatements(t *testing.T, primary *run, app *appSession) {
	t.Helper()
	app.fails(
		"selec '"+secretOf+"'", "select "+secretOf, "select * from \""+secretOf+"\"", "select "+secretOf+"('x')",
		"select '"+secretOf+"'::int", "select 1/0", "insert into t values (1, '"+secretOf+"')", "insert into t values (1000, null)",
		"insert into t values (1001, 'bad')", "execute \""+secretOf+"\"", "select * from pg_authid where rolname = '"+secretOf+"'",
		"do $$ begin raise exception '%', '"+secretOf+"'; end $$", "do $$ begin raise exception E'first\\n2026-03-01 10:00:00.123 UTC [1] XX001 0 (postmaster) PANIC:  "+secretOf+"'; end $$",
		"do $$ begin execute (select 'create table wide (' || string_agg('c' || g || ' int', ',') || ')' from generate_series(1, 1700) g); end $$",
		"select int4_avg_accum('{1}'::bigint[], 1)")
	app.must("create function deep(n int) returns int language plpgsql as $$ begin return deep(n + 1); end $$")
	app.fails("select deep(1)")
	app.must("begin read only")
	app.fails("insert into t values (2000, '"+secretOf+"')", "select 1")
	app.must("rollback", "select pg_sleep(0.3), '"+secretOf+"'", "set statement_timeout = '200ms'")
	app.fails("select pg_sleep(10), '" + secretOf + "'")
	app.must("set statement_timeout = 0", "select count(*) from (select md5(g::text) || '"+secretOf+"' m from generate_series(1, 20000) g order by 1) s")
	app.fails("select count(*) from (select repeat(md5(g::text), 20) m from generate_series(1, 200000) g order by 1) s")
	app.fails("do $$ begin for i in 1..100000 loop perform pg_advisory_xact_lock(i); end loop; end $$")
	primary.untilFound("InvalidStatement", "InvalidData", "ConstraintViolated", "PreparedStatementMissing", "PermissionDenied", "RaisedByFunction", "LimitExceeded",
		"InternalError", "WriteOnReadOnly", "AbortedTransactionUsed", "SlowStatement", "StatementTimeout", "TemporaryFile", "TemporaryFileLimit", "LockTableFull")
}

// provokeLocks provokes what sessions do to each other.
func provokeLocks(t *testing.T, w *world, primary *run) {
	t.Helper()
	one, two := w.session(0), w.session(0)
	one.must("begin", "update t set v = '"+secretOf+"' where id = 1")
	two.must("begin", "update t set v = '"+secretOf+"' where id = 2")
	waited := make(chan error, 1)
	go func() { waited <- one.try("update t set v = '" + secretOf + "' where id = 2") }()
	err := two.try("update t set v = '" + secretOf + "' where id = 1")
	if first := <-waited; (err == nil) == (first == nil) {
		t.Errorf("no deadlock: %v, %v", err, first)
	}
	_, _ = one.try("rollback"), two.try("rollback")

	one.must("begin", "update t set v = 'x' where id = 3")
	two.fails("select * from t where id = 3 for update nowait")
	two.must("set lock_timeout = '400ms'")
	two.fails("update t set v = 'y' where id = 3")
	one.must("rollback")

	one.must("begin isolation level serializable", "select count(*) from t")
	two.must("set lock_timeout = 0", "update t set v = 'z' where id = 4")
	one.fails("update t set v = '" + secretOf + "' where id = 4")
	one.must("rollback")
	primary.untilFound("Deadlock", "LockWait", "LockTimeout", "SerializationFailure")
}

// provokeSessions provokes what connections do.
func provokeSessions(t *testing.T, w *world, primary *run) {
	t.Helper()
	for _, bad := range [][4]string{{"app", secretOf, "app", "require"}, {secretOf, "x", "app", "require"}, {"app", "s3cret", secretOf, "require"}, {"app", "s3cret", "app", "disable"}} {
		if conn, err := w.dialApp(0, bad[0], bad[1], bad[2], bad[3]); err == nil {
			_ = conn.Close(context.Background())
			t.Errorf("%v can connect", bad)
		}
	}
	address := net.JoinHostPort("localhost", strconv.Itoa(w.agents[0].database))
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: " + secretOf + "\r\n\r\n", "\x00\x00\x00\x08\x04\xd2\x16\x2fno TLS: " + secretOf} {
		raw, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write([]byte(text))
		_ = raw.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, _ = raw.Read(make([]byte, 64))
		_ = raw.Close()
	}
	primary.exec("alter role app connection limit 0")
	if conn, err := w.dialApp(0, "app", "s3cret", "app", "require"); err == nil {
		_ = conn.Close(context.Background())
		t.Error("a session can connect over its role's limit")
	}
	primary.exec("alter role app connection limit -1")

	ended := w.session(0)
	pid := ended.conn.PgConn().PID()
	waited := make(chan error, 1)
	go func() { waited <- ended.try("select pg_sleep(20), '" + secretOf + "'") }()
	time.Sleep(300 * time.Millisecond)
	primary.exec(fmt.Sprintf("select pg_cancel_backend(%d)", pid))
	if <-waited == nil {
		t.Error("a statement was not canceled")
	}
	primary.exec(fmt.Sprintf("select pg_terminate_backend(%d)", pid))

	idle := w.session(0)
	idle.must("set idle_in_transaction_session_timeout = '200ms'", "begin")
	time.Sleep(500 * time.Millisecond)

	lost := w.session(0)
	lost.must("begin")
	_ = lost.conn.PgConn().Conn().Close() // no farewell, in a transaction
	classes := []string{"PasswordFailed", "LoginRejected", "TLSFailed", "TooManyConnections", "StatementCancelled", "SessionTerminated", "IdleInTransactionTimeout", "ConnectionLost"}
	if primary.programs.Major >= 17 {
		slow := w.session(0)
		slow.must("set transaction_timeout = '200ms'", "begin")
		_ = slow.try("select pg_sleep(1)")
		classes = append(classes, "TransactionTimeout")
	}
	primary.untilFound(classes...)
}
