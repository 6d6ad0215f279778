//go:build postgres

package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/anomalies/recording"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/anomaly"
)

// rowsOfAccounts is how many rows the load reads and changes.
const rowsOfAccounts = 120_000

// clientsOfApp are sessions of the application on a recorded server.
type clientsOfApp struct {
	t   *testing.T
	w   *world
	all []*pgx.Conn
}

func (c *clientsOfApp) dial() *pgx.Conn {
	c.t.Helper()
	conn, err := c.w.dialApp(0, "app", "s3cret", "app", "require")
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

func (c *clientsOfApp) do(worker int, sql string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.all[worker].Exec(ctx, sql)
		return err
	}
}

// TestRecordAnomalies records what the replay in internal/anomaly judges. make
// record-anomalies runs it.
func TestRecordAnomalies(t *testing.T) {
	recording.SkipUnlessAsked(t)
	w := newWorld(t, 1)
	w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"shared_buffers": "24MB", "max_connections": "150", "max_wal_size": "256MB"}
	})
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	c := &clientsOfApp{t: t, w: w}
	for range recording.Workers + 1 { // one is the job's
		conn := c.dial()
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		c.all = append(c.all, conn)
	}
	app := w.session(0)
	app.must("create table accounts (id int primary key, n int, pad text)",
		fmt.Sprintf("insert into accounts select g, 0, repeat(md5(g::text), 6) from generate_series(1, %d) g", rowsOfAccounts),
		"create table ledger (n bigserial primary key, account int, pad text)", "create table hot (id int primary key, n int)", "insert into hot values (1, 0)",
		"analyze")
	r := recording.Recorder{
		Engine: "postgres", Version: primary.query("select current_setting('server_version')"), Signals: anomaly.PostgresSignals,
		Measure: primary.measureSignals, Load: c.load(), Faults: c.faults(),
	}
	r.Record(t)
}

func (c *clientsOfApp) load() *recording.Load {
	request := func(sql func(id int) string) func(context.Context, int) error {
		return func(ctx context.Context, worker int) error {
			return c.do(worker, sql(1+rand.IntN(rowsOfAccounts)))(ctx)
		}
	}
	return &recording.Load{
		PerSecond: 80,
		Requests: []recording.Request{
			{Weight: 55, Do: request(func(id int) string { return fmt.Sprintf("select n from accounts where id = %d", id) })},
			{Weight: 12, Do: request(func(id int) string {
				return fmt.Sprintf("select sum(n) from accounts where id between %d and %d", id, id+2000)
			})},
			{Weight: 18, Do: request(func(id int) string {
				return fmt.Sprintf("update accounts set n = n + 1 where id between %d and %d", id, id+9)
			})},
			{Weight: 14, Do: request(func(id int) string {
				return fmt.Sprintf("insert into ledger (account, pad) values (%d, repeat('x', 200))", id)
			})},
			{Weight: 2, Do: request(func(id int) string { return fmt.Sprintf("insert into accounts values (%d, 0, '')", id) })}, // fails
			{Weight: 0.4, Do: request(func(int) string { return "delete from ledger where n < (select max(n) - 20000 from ledger)" })},
		},
		Job: c.do(recording.Workers, "select count(*), sum(n) from accounts"),
	}
}

// faults are caused one after the other.
func (c *clientsOfApp) faults() []recording.Fault {
	return []recording.Fault{
		{Cause: recording.Cause{Name: "forgotten_transaction", What: "a session locks a row, and idles in its transaction while 16 others wait for the row", Signals: []string{"lock_waits", "active_sessions", "oldest_transaction"}}, Run: c.forgetTransaction},
		{Cause: recording.Cause{Name: "scans", What: "two clients read a table of 120,000 rows whole, twice a second each", Signals: []string{"rows_read", "blocks_read"}}, Run: c.each(2, 2, "select count(pad) from accounts")},
		{Cause: recording.Cause{Name: "connections", What: "70 sessions connect, and idle", Signals: []string{"sessions"}}, Run: c.connectMany},
		{Cause: recording.Cause{Name: "spills", What: "two clients sort more than their memory once a second", Signals: []string{"temporary_bytes"}}, Run: c.each(2, 1, "set work_mem = '64kB'; select count(*) from (select pad from accounts where id <= 20000 order by pad, n offset 1) s")},
		{Cause: recording.Cause{Name: "failures", What: "two clients send six statements a second each that fail", Signals: []string{"rollbacks"}}, Run: c.eachFails(2, 6, "insert into hot values (1, 0)")},
		{Cause: recording.Cause{Name: "bulk_load", What: "a client inserts 500 rows four times a second", Signals: []string{"rows_written", "log_bytes"}}, Run: c.each(1, 4, "insert into ledger (account, pad) select g, repeat('y', 100) from generate_series(1, 500) g")},
		{Cause: recording.Cause{Name: "clients_away", What: "the load stops", Signals: []string{"commits", "rows_read", "rows_written", "log_bytes"}}},
	}
}

// each has clients of their own repeat a statement.
func (c *clientsOfApp) each(clients int, perSecond float64, sql string) func(context.Context) error {
	return c.repeat(clients, perSecond, sql, func(err error) error { return err })
}

// eachFails is each of a statement that has to fail.
func (c *clientsOfApp) eachFails(clients int, perSecond float64, sql string) func(context.Context) error {
	return c.repeat(clients, perSecond, sql, func(err error) error {
		if err == nil {
			return errors.New("it does not fail")
		}
		return nil
	})
}

func (c *clientsOfApp) repeat(clients int, perSecond float64, sql string, judge func(error) error) func(context.Context) error {
	return func(ctx context.Context) error {
		return c.together(clients, func(conn *pgx.Conn) error {
			return recording.Repeat(ctx, perSecond, func(ctx context.Context) error {
				_, err := conn.Exec(ctx, sql)
				return judge(err)
			})
		})
	}
}

// together runs clients with a session each.
func (c *clientsOfApp) together(clients int, do func(*pgx.Conn) error) error {
	errs := make([]error, clients)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			conn, err := c.w.dialApp(0, "app", "s3cret", "app", "require")
			if err != nil {
				errs[i] = err
				return
			}
			errs[i] = do(conn)
			_ = conn.Close(context.Background())
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (c *clientsOfApp) connectMany(ctx context.Context) error {
	return c.together(70, func(*pgx.Conn) error {
		<-ctx.Done()
		return nil
	})
}

// forgetTransaction locks a row that others wait for. Those begin once it is locked.
func (c *clientsOfApp) forgetTransaction(ctx context.Context) error {
	return c.together(1, func(conn *pgx.Conn) error {
		const update = "update hot set n = n + 1"
		if _, err := conn.Exec(ctx, "begin; "+update); err != nil {
			return err
		}
		waited := make(chan error, 1)
		go func() {
			waited <- c.together(16, func(conn *pgx.Conn) error {
				_, err := conn.Exec(context.Background(), update)
				return err
			})
		}()
		<-ctx.Done()
		_, err := conn.Exec(context.Background(), "commit")
		return errors.Join(err, <-waited)
	})
}
