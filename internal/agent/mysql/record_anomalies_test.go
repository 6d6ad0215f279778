//go:build mysql

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/holdfast-db/holdfast/internal/agent/anomalies/recording"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/anomaly"
)

// rowsOfAccounts is how many rows the load reads and changes.
const rowsOfAccounts = 40_000

// TestRecordAnomalies records what the replay in internal/anomaly judges. make
// record-anomalies runs it.
func TestRecordAnomalies(t *testing.T) {
	recording.SkipUnlessAsked(t)
	w := newWorld(t, 1)
	member := w.create()[0]
	member.untilState(agentapi.StateRunning)
	member.exec("CREATE TABLE app_1.accounts (id INT PRIMARY KEY, n INT, pad VARCHAR(250))",
		"CREATE TABLE app_1.ledger (n BIGINT PRIMARY KEY AUTO_INCREMENT, account INT, pad VARCHAR(250))",
		"CREATE TABLE app_1.hot (id INT PRIMARY KEY, n INT)", "INSERT INTO app_1.hot VALUES (1, 0)")
	c := clientsOfApp{member: member}
	db := c.open()
	for range recording.Workers + 1 { // one is the job's
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c.all = append(c.all, conn)
	}
	for _, statement := range []string{"USE app_1", // which WITH does not do without
		fmt.Sprintf("INSERT INTO accounts WITH RECURSIVE g (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM g WHERE id < 1000) "+
			"SELECT a.id * 1000 + b.id - 1000, 0, REPEAT(SHA2(a.id * 1000 + b.id, 256), 3) FROM g a JOIN g b WHERE a.id <= %d", rowsOfAccounts/1000)} {
		if err := send(t.Context(), c.all[0], statement); err != nil {
			t.Fatal(err)
		}
	}
	r := recording.Recorder{
		Engine: "mysql", Version: member.query("SELECT VERSION()"), Signals: anomaly.MySQLSignals,
		Measure: member.measureSignals, Load: c.load(), Faults: c.faults(),
	}
	r.Record(t)
}

// clientsOfApp are sessions on a recorded server.
type clientsOfApp struct {
	member *run
	all    []*sql.Conn
}

// open returns as many sessions as are asked for.
func (c clientsOfApp) open() *sql.DB {
	db := c.member.session()
	db.SetMaxOpenConns(0)
	return db
}

func (c clientsOfApp) do(worker int, statement string) func(context.Context) error {
	return func(ctx context.Context) error { return send(ctx, c.all[worker], statement) }
}

// send runs a statement.
func send(ctx context.Context, conn *sql.Conn, statement string) error {
	rows, err := conn.QueryContext(ctx, statement)
	if err != nil {
		return err
	}
	return errors.Join(rows.Close(), rows.Err()) // which reads the rest
}

func (c clientsOfApp) load() *recording.Load {
	request := func(statement func(id int) string) func(context.Context, int) error {
		return func(ctx context.Context, worker int) error {
			return c.do(worker, statement(1+rand.IntN(rowsOfAccounts)))(ctx)
		}
	}
	return &recording.Load{
		PerSecond: 80,
		Requests: []recording.Request{
			{Weight: 55, Do: request(func(id int) string { return fmt.Sprintf("SELECT n FROM app_1.accounts WHERE id = %d", id) })},
			{Weight: 12, Do: request(func(id int) string {
				return fmt.Sprintf("SELECT SUM(n) FROM app_1.accounts WHERE id BETWEEN %d AND %d", id, id+2000)
			})},
			{Weight: 18, Do: request(func(id int) string {
				return fmt.Sprintf("UPDATE app_1.accounts SET n = n + 1 WHERE id BETWEEN %d AND %d", id, id+9)
			})},
			{Weight: 14, Do: request(func(id int) string {
				return fmt.Sprintf("INSERT INTO app_1.ledger (account, pad) VALUES (%d, REPEAT('x', 200))", id)
			})},
			{Weight: 0.4, Do: request(func(id int) string { return fmt.Sprintf("INSERT INTO app_1.accounts VALUES (%d, 0, '')", id) })}, // fails
			{Weight: 2, Do: func(ctx context.Context, worker int) error {
				tx, err := c.all[worker].BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, "INSERT INTO app_1.ledger (account, pad) VALUES (1, 'x')")
				return errors.Join(err, tx.Rollback())
			}},
			{Weight: 0.4, Do: request(func(int) string {
				return "DELETE FROM app_1.ledger ORDER BY n LIMIT 100"
			})},
		},
		Job: c.do(recording.Workers, "SELECT COUNT(*), SUM(n) FROM app_1.accounts WHERE pad <> ''"),
	}
}

// faults are caused one after the other.
func (c clientsOfApp) faults() []recording.Fault {
	return []recording.Fault{
		{Cause: recording.Cause{Name: "forgotten_transaction", What: "a session locks a row, and idles in its transaction while 16 others wait for the row", Signals: []string{"lock_waits", "active_sessions"}}, Run: c.forgetTransaction},
		{Cause: recording.Cause{Name: "scans", What: "two clients read a table of 40,000 rows whole, three times a second each", Signals: []string{"rows_read"}}, Run: c.each(2, 3, "SELECT COUNT(pad) FROM app_1.accounts WHERE pad <> ''")},
		{Cause: recording.Cause{Name: "connections", What: "70 sessions connect, and idle", Signals: []string{"sessions"}}, Run: c.connectMany},
		{Cause: recording.Cause{Name: "temporary_tables", What: "two clients group into temporary tables that do not fit into memory, four times a second each", Signals: []string{"temporary_tables"}},
			Run: c.each(2, 4, "SELECT /*+ SET_VAR(tmp_table_size=1024) SET_VAR(big_tables=ON) */ COUNT(*) FROM (SELECT DISTINCT pad FROM app_1.accounts WHERE id < 2000) d")},
		{Cause: recording.Cause{Name: "failures", What: "two clients roll back six transactions a second each", Signals: []string{"rollbacks"}}, Run: c.together(2, func(ctx context.Context, conn *sql.Conn) error {
			return recording.Repeat(ctx, 6, func(ctx context.Context) error {
				tx, err := conn.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, "INSERT INTO app_1.ledger (account, pad) VALUES (1, '')")
				return errors.Join(err, tx.Rollback())
			})
		})},
		{Cause: recording.Cause{Name: "refused", What: "a client with a wrong name connects ten times a second", Signals: []string{"refused_connections"}}, Run: c.connectAsStranger},
		{Cause: recording.Cause{Name: "bulk_load", What: "a client inserts 500 rows four times a second", Signals: []string{"rows_written", "log_bytes"}},
			Run: c.each(1, 4, "INSERT INTO app_1.ledger (account, pad) SELECT id, REPEAT('y', 100) FROM app_1.accounts WHERE id <= 500")},
		{Cause: recording.Cause{Name: "clients_away", What: "the load stops", Signals: []string{"statements", "commits", "rows_read", "rows_written"}}},
	}
}

// each has clients of their own repeat a statement.
func (c clientsOfApp) each(clients int, perSecond float64, statement string) func(context.Context) error {
	return c.together(clients, func(ctx context.Context, conn *sql.Conn) error {
		return recording.Repeat(ctx, perSecond, func(ctx context.Context) error { return send(ctx, conn, statement) })
	})
}

// together runs clients with a session each.
func (c clientsOfApp) together(clients int, do func(context.Context, *sql.Conn) error) func(context.Context) error {
	return func(ctx context.Context) error {
		db := c.open()
		errs := make([]error, clients)
		var running sync.WaitGroup
		for i := range clients {
			running.Go(func() {
				conn, err := db.Conn(context.Background())
				if err != nil {
					errs[i] = err
					return
				}
				errs[i] = do(ctx, conn)
				_ = conn.Close()
			})
		}
		running.Wait()
		return errors.Join(append(errs, db.Close())...)
	}
}

func (c clientsOfApp) connectMany(ctx context.Context) error {
	return c.together(70, func(ctx context.Context, _ *sql.Conn) error {
		<-ctx.Done()
		return nil
	})(ctx)
}

// forgetTransaction locks a row that others wait for. Those begin once it is locked.
func (c clientsOfApp) forgetTransaction(ctx context.Context) error {
	const update = "UPDATE app_1.hot SET n = n + 1"
	return c.together(1, func(ctx context.Context, conn *sql.Conn) error {
		tx, err := conn.BeginTx(context.Background(), nil)
		if err == nil {
			_, err = tx.ExecContext(ctx, update)
		}
		if err != nil {
			return err
		}
		waited := make(chan error, 1)
		go func() {
			waited <- c.together(16, func(_ context.Context, conn *sql.Conn) error {
				if err := send(context.Background(), conn, "SET innodb_lock_wait_timeout = 300"); err != nil {
					return err
				}
				return send(context.Background(), conn, update)
			})(ctx)
		}()
		<-ctx.Done()
		return errors.Join(tx.Commit(), <-waited)
	})(ctx)
}

// connectAsStranger is refused each time.
func (c clientsOfApp) connectAsStranger(ctx context.Context) error {
	config := driver.NewConfig()
	config.User, config.Net, config.Addr = "stranger", "unix", c.member.o.socket()
	connector, err := driver.NewConnector(config)
	if err != nil {
		return err
	}
	return recording.Repeat(ctx, 10, func(ctx context.Context) error {
		conn, err := connector.Connect(ctx)
		if err == nil {
			return errors.Join(errors.New("a stranger is let in"), conn.Close())
		}
		return nil
	})
}
