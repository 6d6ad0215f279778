package offline

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

// Binlogs are files to apply, which a server reads as those that it received as a replica.
type Binlogs struct {
	// Dir holds them, named by RelayName in the order in which they are applied. The server
	// writes there, and removes them.
	Dir   string
	Count int
	// Executed is what the data has when they are applied.
	Executed mysqlgtid.Set
	// Last says that no others follow: the data files must be whole without the redo log.
	Last bool
	// Progress is called with what the data has by now.
	Progress func(executed mysqlgtid.Set)
}

// relayBase begins the names of the files.
const relayBase = "restore"

// RelayName is the name of a file, counted from 1.
func RelayName(n int) string { return fmt.Sprintf("%s.%06d", relayBase, n) }

// Refused is a transaction that the server cannot apply.
type Refused struct{ Says string }

func (r *Refused) Error() string { return "MySQL cannot apply the binlog: " + r.Says }

// applyRedo is the redo log of a server that applies binlogs.
const applyRedo = 256 << 20

// Apply has a server apply binlogs to the data. It checks privileges, since accounts are made in
// binlogs too; nothing can reach it but by its socket.
func (d Data) Apply(ctx context.Context, b Binlogs) error {
	var index strings.Builder
	for n := range b.Count {
		index.WriteString(filepath.Join(b.Dir, RelayName(n+1)) + "\n")
	}
	if err := os.WriteFile(filepath.Join(b.Dir, relayBase+".index"), []byte(index.String()), 0o600); err != nil {
		return err
	}
	return d.runServer(ctx, d.applySettings(b), []string{"--disable-log-bin"}, func(ctx context.Context, db *sql.DB) error { return applyAll(ctx, db, b) })
}

// applySettings are those of a replica whose source is gone.
func (d Data) applySettings(b Binlogs) map[string]string {
	s := d.settings()
	maps.Copy(s, map[string]string{
		"relay_log": filepath.Join(b.Dir, relayBase), "relay_log_index": filepath.Join(b.Dir, relayBase+".index"),
		"relay_log_recovery": "OFF", "relay_log_purge": "OFF", "skip_replica_start": "ON",
		// What the source did is done again, and nothing else.
		"event_scheduler": "OFF", "sql_require_primary_key": "OFF",
		"innodb_redo_log_capacity": strconv.Itoa(applyRedo),
	})
	delete(s, "disabled_storage_engines")
	if !b.Last {
		s["innodb_fast_shutdown"] = "1"
	}
	return s
}

// applyInterval is between two checks of how far the server is.
const applyInterval = 200 * time.Millisecond

func applyAll(ctx context.Context, db *sql.DB, b Binlogs) error {
	for _, statement := range []string{
		"CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'archive', SOURCE_AUTO_POSITION = 0, RELAY_LOG_FILE = '" + RelayName(1) + "', RELAY_LOG_POS = 4",
		"START REPLICA SQL_THREAD",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("have the server apply the binlog: %w", err)
		}
	}
	for {
		executed, err := readExecuted(ctx, db)
		if err != nil {
			return err
		}
		b.Progress(executed)
		if executed.Contains(b.Executed) {
			break
		}
		if err := checkApplier(ctx, db); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(applyInterval):
		}
	}
	for _, statement := range []string{"STOP REPLICA", "RESET REPLICA ALL"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("end the replica: %w", err)
		}
	}
	return nil
}

func readExecuted(ctx context.Context, db *sql.DB) (mysqlgtid.Set, error) {
	var text string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_executed").Scan(&text); err != nil {
		return mysqlgtid.Set{}, fmt.Errorf("ask for the transactions of the data: %w", err)
	}
	return mysqlgtid.Parse(text)
}

// checkApplier fails with a *Refused where the server has stopped to apply.
func checkApplier(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SHOW REPLICA STATUS")
	if err != nil {
		return fmt.Errorf("ask how far the server is: %w", err)
	}
	defer rows.Close() //nolint:errcheck // it was only read
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return fmt.Errorf("ask how far the server is: %w", err)
		}
		said := map[string]string{}
		for i, name := range columns {
			said[name] = values[i].String
		}
		if said["Replica_SQL_Running"] == "No" && said["Channel_Name"] == "" {
			return &Refused{said["Last_SQL_Error"]}
		}
	}
	return rows.Err()
}

// settingsFile is the name of the file with the settings of a server without clients.
const settingsFile = "offline.cnf"

// runServer starts the server, calls do, and shuts the server down.
func (d Data) runServer(ctx context.Context, set map[string]string, args []string, do func(ctx context.Context, db *sql.DB) error) error {
	file := filepath.Join(d.RunDir, settingsFile)
	if err := atomicfile.WriteFile(file, []byte(settings.RenderSettings(set))); err != nil {
		return err
	}
	mysqld, err := d.Programs.StartMysqld(d.Lock, file, func(string) {}, args...)
	if err != nil {
		return err
	}
	defer func() { _ = mysqld.StopAtOnce() }()
	// To shut down may take long, and nothing else ends it.
	defer context.AfterFunc(ctx, func() { _ = mysqld.StopAtOnce() })()
	db, err := server.OpenOffline(settings.SocketPath(d.RunDir))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := awaitReady(ctx, mysqld, db); err != nil {
		if ctx.Err() != nil || isDenied(err) {
			return err
		}
		return &Ended{err.Error(), mysqld.HasFailed()}
	}
	if err := do(ctx, db); err != nil {
		if mysqld.Ended(time.Second) && ctx.Err() == nil {
			return errors.Join(&Ended{mysqld.LastError(), mysqld.HasFailed()}, err)
		}
		return err
	}
	_ = db.Close()
	if !mysqld.StopInOrder(stopLimit) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return &Ended{fmt.Sprintf("it did not shut down in order: %s", mysqld.LastError()), mysqld.HasFailed()}
	}
	return nil
}

// awaitReady waits until the server answers. One that knows the agent by another name of the
// operating system's user never will.
func awaitReady(ctx context.Context, mysqld *server.Mysqld, db *sql.DB) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		for ticks := time.NewTicker(time.Second); waiting.Err() == nil; <-ticks.C {
			if err := db.PingContext(waiting); isDenied(err) {
				stop(fmt.Errorf("the data knows the account of the agent by another user of the operating system: set spec.image to one whose user has the name that the source's had: %w", err))
			}
		}
	}()
	err := mysqld.AwaitReady(waiting, db)
	if cause := context.Cause(waiting); err != nil && isDenied(cause) {
		return cause
	}
	return err
}

// isDenied says whether the server refuses the agent's account.
func isDenied(err error) bool {
	const accessDenied, noPassword = 1045, 1698
	n := server.ErrorNumber(err)
	return n == accessDenied || n == noPassword
}
