//go:build postgres

package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// provokeServer provokes what background processes report.
func provokeServer(t *testing.T, w *world, primary *run, app *appSession) {
	t.Helper()
	primary.exec("select pg_create_physical_replication_slot('lazy', true)")
	for range 12 {
		app.must("insert into filler select repeat(md5(g::text), 40) from generate_series(1, 20000) g", "truncate filler")
	}
	primary.exec("checkpoint")
	primary.untilFound("CheckpointsTooFrequent", "CheckpointCompleted", "ReplicationSlotInvalidated")
	primary.exec("select pg_drop_replication_slot('lazy')")

	app.must("insert into filler select 'x' from generate_series(1, 10000)", "delete from filler")
	primary.untilFound("AutovacuumRan")

	auto := filepath.Join(primary.o.pgdataPath(), "postgresql.auto.conf")
	mustWrite(t, auto, "no_such_setting = '"+secretOf+"'\n")
	primary.exec("select pg_reload_conf()")
	primary.untilFound("ConfigurationRejected")
	mustWrite(t, auto, "")
	changed := map[string]string{}
	for name, value := range insightsParameters {
		changed[name] = value
	}
	changed["max_connections"] = "30"
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = changed })
	primary.untilFound("RestartPending")
}

// provokeAutovacuum has a session want a table that autovacuum works at, slowly.
func provokeAutovacuum(t *testing.T, w *world, primary *run) {
	t.Helper()
	app := w.session(0)
	app.must("create table slow (v text) with (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1, autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0)",
		"insert into slow select repeat(md5(g::text), 40) from generate_series(1, 5000) g", "delete from slow")
	table := queryIn(t, app, "select 'slow'::regclass::oid::text")
	primary.untilQuery("select count(*)::text from pg_stat_progress_vacuum where relid = "+table, "1")
	app.must("begin", "lock table slow", "rollback", "drop table slow")
	primary.untilFound("AutovacuumCancelled")
}

// provokeCollations records other versions of a collation and of a database's sort order than
// the library of this machine has, as another image finds them.
func provokeCollations(t *testing.T, w *world, primary *run) {
	t.Helper()
	primary.exec("create database sorted owner app template template0 locale_provider icu icu_locale 'en-US' locale 'C.UTF-8'")
	inSorted := func(statements ...string) {
		conn, err := pgx.Connect(t.Context(), fmt.Sprintf("host=%s port=%d user=postgres dbname=sorted", primary.o.RunDir, primary.o.Port))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		for _, sql := range statements {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
	inSorted("create collation \""+secretOf+"\" (provider = icu, locale = 'de')", "update pg_collation set collversion = '0.0' where collname = '"+secretOf+"'")
	inSorted("select 'a' < '" + secretOf + "' collate \"" + secretOf + "\"")
	primary.untilFound("CollationChanged")
	before := primary.foundClasses()["CollationChanged"].Count
	inSorted("update pg_database set datcollversion = '0.0' where datname = 'sorted'")
	inSorted("select 1")
	primary.untilMore("CollationChanged", before)
	primary.exec("drop database sorted with (force)")
}

// provokeReplica provokes what a standby reports.
func provokeReplica(t *testing.T, w *world, primary, replica *run, app *appSession) {
	t.Helper()
	reader := w.session(1)
	app.must("create table hot (n int)", "insert into hot select generate_series(1, 1000)")
	replica.untilReplayed(primary.query("select pg_current_wal_flush_lsn()::text"))
	reader.must("begin isolation level repeatable read", "select count(*) from hot")
	conflict := make(chan error, 1)
	go func() { conflict <- reader.try("select pg_sleep(30), '" + secretOf + "' from hot limit 1") }()
	app.must("delete from hot", "vacuum hot")
	if <-conflict == nil {
		t.Error("replay canceled no query")
	}
	replica.untilFound("RecoveryConflict", "ReplayWaits")
	writer := w.session(1)
	writer.fails("insert into hot values (1)")
	primary.exec("select pg_terminate_backend(pid) from pg_stat_replication")
	replica.untilFound("WriteOnReadOnly", "ReplicationInterrupted")
	waiting := awaitsStandbys(t, w, primary, replica)
	receiver := untilReceiver(t, replica)
	signalTo(t, receiver, syscall.SIGSTOP)
	cancelCommit(t, primary, waiting)
	primary.untilFound("ReplicationTimeout")
	signalTo(t, receiver, syscall.SIGCONT)
	w.configure(func(c *agentapi.ClusterConfig) { c.Synchronous = nil })
	primary.untilSetting("synchronous_standby_names", "")
}

// awaitsStandbys has commits wait for the replica, and returns a session whose do.
func awaitsStandbys(t *testing.T, w *world, primary, replica *run) *appSession {
	t.Helper()
	w.configure(func(c *agentapi.ClusterConfig) { c.Synchronous = &postgresapi.SynchronousConfig{Number: 1} })
	primary.untilSetting("synchronous_standby_names", fmt.Sprintf(`ANY 1 ("%s")`, settings.StreamName("orders-1", replica.readView().Volume)))
	untilReceiver(t, replica)
	s := w.session(0)
	s.must("insert into hot values (1)")
	return s
}

// cancelCommit cancels a commit that waits for a standby.
func cancelCommit(t *testing.T, primary *run, waiting *appSession) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- waiting.try("insert into hot select 2 where '" + secretOf + "' <> ''") }()
	pid := waiting.conn.PgConn().PID()
	primary.untilQuery(fmt.Sprintf("select count(*)::text from pg_stat_activity where pid = %d and wait_event = 'SyncRep'", pid), "1")
	primary.exec(fmt.Sprintf("select pg_cancel_backend(%d)", pid))
	if err := <-ended; err != nil {
		t.Errorf("a commit that is on the primary only fails: %v", err)
	}
	primary.untilFound("SynchronousWaitCancelled")
}

// untilReceiver waits until a replica streams, and returns the process that receives.
func untilReceiver(t *testing.T, replica *run) int {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		text := replica.query("select coalesce((select pid::text from pg_stat_wal_receiver where status = 'streaming'), '0')")
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if pid > 0 {
			return pid
		}
		if time.Now().After(end) {
			t.Fatal("the replica does not stream again")
		}
	}
}

// provokeDamage damages files of tables that nothing else reads.
func provokeDamage(t *testing.T, w *world, primary *run) {
	t.Helper()
	app := w.session(0)
	app.must("create table damaged (v text)", "insert into damaged values ('"+secretOf+"')", "create table missing (v text)")
	path := func(table string) string {
		return filepath.Join(primary.o.pgdataPath(), queryIn(t, app, "select pg_relation_filepath('"+table+"')"))
	}
	damaged, missing := path("damaged"), path("missing")
	primary.exec("checkpoint")
	file, err := os.OpenFile(damaged, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Write([]byte(strings.Repeat("damage! ", 1024)))
	if err := errors.Join(err, file.Close(), os.Remove(missing)); err != nil {
		t.Fatal(err)
	}
	fresh := w.session(0)
	fresh.fails("select count(v) from damaged", "select count(v) from missing")
	primary.untilFound("DataCorrupted", "StorageFailed")
	mustWrite(t, missing, "")
	if err := os.Truncate(damaged, 8192); err != nil {
		t.Fatal(err)
	}
	fresh.must("drop table damaged", "drop table missing")
}

func queryIn(t *testing.T, s *appSession, sql string) (got string) {
	t.Helper()
	if err := s.conn.QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// provokeCrash ends a session's process by a signal, and the server with it.
func provokeCrash(t *testing.T, w *world, primary *run) {
	t.Helper()
	victim := w.session(0)
	other := w.session(0)
	waited := make(chan error, 1)
	go func() { waited <- other.try("select pg_sleep(60)") }()
	time.Sleep(200 * time.Millisecond)
	signalTo(t, int(victim.conn.PgConn().PID()), syscall.SIGKILL)
	if <-waited == nil {
		t.Error("the server did not crash")
	}
	primary.untilFound("ServerProcessCrashed", "CrashRecovery", "ServerStarted")
	primary.untilRole(v1alpha1.RolePrimary)
}

// provokeStop stops the primary while its replica takes no WAL, so that the stop lasts for
// seconds in which clients are refused.
func provokeStop(t *testing.T, w *world, primary, replica *run) {
	t.Helper()
	receiver := untilReceiver(t, replica)
	signalTo(t, receiver, syscall.SIGSTOP)
	stopped := make(chan struct{})
	go func() { defer close(stopped); primary.stop() }()
	refused := func() bool {
		conn, err := w.dialApp(0, "app", "s3cret", "app", "require")
		if err == nil {
			_ = conn.Close(context.Background())
		}
		var answer *pgconn.PgError
		return errors.As(err, &answer) && answer.Code == "57P03"
	}
	for end := time.Now().Add(time.Minute); !refused(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Error("no client is refused while the server stops")
			break
		}
	}
	signalTo(t, receiver, syscall.SIGCONT)
	<-stopped
	primary.untilFound("NotAccepting", "ServerStopping")
}

// provokeLongAbsence has a replica be away until the WAL that it needs is gone. It is copied
// anew.
func provokeLongAbsence(t *testing.T, found provoked) {
	w := newWorld(t, 2)
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = insightsParameters })
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	volume := t.TempDir()
	replica := w.start(1, volume, "uid-1")
	replica.untilRole(v1alpha1.RoleReplica)
	app := w.session(0)
	app.must("create table filler (v text)")
	replica.stop()
	for range 12 {
		app.must("insert into filler select repeat(md5(g::text), 40) from generate_series(1, 20000) g", "truncate filler")
	}
	primary.exec("checkpoint")
	again := w.start(1, volume, "uid-1b")
	again.untilFound("WALMissing")
	primary.untilFound("WALMissing")
	again.untilRole(v1alpha1.RoleReplica)
	found.add(t, primary.Insights.Report(), again.Insights.Report())
}
