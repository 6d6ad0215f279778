//go:build postgres

package postgres

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/insights"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/postgrestest"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
)

// What an agent prevents is provoked on servers without one, whose text logs are read as an
// agent reads them.

// readServer has the text log of a server read from now on.
func readServer(t *testing.T, m *postgrestest.Member) *insights.Analyzer {
	t.Helper()
	reader := insights.NewAnalyzer(textLog, m.Name, "uid")
	go reader.Follow(t.Context(), func(string) {})
	m.SetHeard(reader.Hear)
	return reader
}

// untilRead waits until a reader has found a class so often.
func untilRead(t *testing.T, reader *insights.Analyzer, class string, least int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); countRead(reader, class) < least; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is found %d times, not %d: %+v", class, countRead(reader, class), least, reader.Report())
		}
	}
}

func countRead(reader *insights.Analyzer, class string) (count int64) {
	for _, i := range reader.Report().Classes {
		if i.Class == class {
			count += i.Count
		}
	}
	return count
}

// execIn runs statements in a session.
func execIn(t *testing.T, conn *pgx.Conn, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

const (
	// oldestAge and oldestLockAge are the least ages that autovacuum can be set to, of
	// transactions and of locks that several of them share.
	oldestAge, oldestLockAge = "100000", "10000"
	// pastStop is a transaction ID at which a new database refuses others. It begins a file of
	// pg_xact, so that none has to be there.
	pastStop = "2145386496"
)

// provokeOldTransactions lets transactions grow old, and then takes a database to the end of
// its transaction IDs.
func provokeOldTransactions(t *testing.T, found provoked) {
	w := postgrestest.NewWorld(t, 1, map[string]string{"autovacuum_freeze_max_age": oldestAge, "autovacuum_multixact_freeze_max_age": oldestLockAge})
	m := w.Members[0]
	reader := readServer(t, m)
	old, busy := m.Connect(), m.Connect()
	execIn(t, old, "begin isolation level repeatable read", "select pg_current_xact_id()")
	execIn(t, busy, "create table public.burnt (n int)",
		"do $$ begin for i in 1.."+oldestAge+" loop begin insert into public.burnt values (1); exception when others then null; end; end loop; end $$",
		"vacuum public.burnt")
	untilRead(t, reader, "OldestTransactionFar", 1)

	// The next one is old by the locks that are shared meanwhile, and by nothing else.
	execIn(t, old, "rollback")
	m.Until("not exists (select from pg_stat_activity where backend_type = 'autovacuum worker')")
	execIn(t, old, "begin", "select n from public.ledger where n = 1 for share")
	before := countRead(reader, "OldestTransactionFar")
	execIn(t, busy, "create table public.shared as select g as n, 0 as v from generate_series(1, "+oldestLockAge+"+ 100) g", "alter table public.shared add primary key (n)",
		`do $$ begin for i in 1..`+oldestLockAge+` + 100 loop
			perform from public.shared where n = i for key share;
			begin update public.shared set v = 1 where n = i; exception when others then null; end;
		end loop; end $$`,
		"vacuum public.shared")
	untilRead(t, reader, "OldestTransactionFar", before+1)

	// A table that cannot be read keeps autovacuum from helping.
	m.Exec("create table public.unreadable (n int)", "checkpoint")
	file := filepath.Join(m.PGData(), m.One("select pg_relation_filepath('public.unreadable')"))
	if err := errors.Join(old.Close(context.Background()), busy.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
	m.StopInOrder()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Programs.Run(t.Context(), "pg_resetwal", "--next-transaction-id="+pastStop, "--pgdata="+m.PGData()); err != nil {
		t.Fatal(err)
	}
	m.Start(rolechange.Live{})
	untilRead(t, reader, "TransactionIDsRunLow", 1)
	if _, err := m.Connect().Exec(t.Context(), "create table public."+secretOf+" as select '"+secretOf+"'"); err == nil {
		t.Error("a database at the end of its transaction IDs begins another transaction")
	}
	untilRead(t, reader, "TransactionIDsExhausted", 1)
	report := reader.Report()
	found.add(t, report)
	for _, i := range report.Classes {
		if i.Class == "TransactionIDsRunLow" && (i.Largest < 1 || i.Largest > 3e6) {
			t.Errorf("%v transactions are left", i.Largest)
		}
		if i.Class == "TransactionIDsExhausted" && !slices.Equal(i.SQLStates, []string{"54000"}) {
			t.Errorf("the SQLSTATEs are %v", i.SQLStates)
		}
	}
}

// provokePausedReplay raises a setting of a primary that its standby does not have.
func provokePausedReplay(t *testing.T, found provoked) {
	w := postgrestest.NewWorld(t, 2, nil)
	primary, standby := w.Members[0], w.Members[1]
	reader := readServer(t, standby)
	primary.Kill()
	primary.SetParameter("max_connections", "60")
	primary.Start(rolechange.Live{})
	untilRead(t, reader, "ReplayPaused", 1)
	found.add(t, reader.Report())
}
