package recovery

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Check reads all of the data in Dir, which was stopped in order or has crashed,
// as a server that no other client reaches: every row of every table, with what is
// stored beside it, the structure of tables and indexes where the image has
// amcheck, and every page where pages have checksums. What is wrong with the data
// is a BadCopy. The data is good for nothing else afterwards: settings that were
// made by ALTER SYSTEM on the source, of programs that would run and of how much
// memory is taken, are removed.
func (c Copy) Check(ctx context.Context) (Soundness, error) {
	p := server.Programs{Programs: process.Programs{Dir: c.BinDir, Processes: process.NewProcesses()}}
	before, err := p.ReadControlData(ctx, c.Dir)
	if err != nil {
		return Soundness{}, err
	}
	if err := os.RemoveAll(filepath.Join(c.Dir, settings.AlterSystemFile)); err != nil {
		return Soundness{}, fmt.Errorf("prepare to look at the data: %w", err)
	}
	if err := c.writeConfiguration(before); err != nil {
		return Soundness{}, err
	}
	s := Soundness{Structure: true}
	checksums := ""
	c.inspectData = func(ctx context.Context) (err error) {
		checksums, err = c.readAll(ctx, &s)
		return err
	}
	if err := c.runServer(ctx, p, &progress{}); err != nil {
		return s, asBadCopy(ctx, err)
	}
	if checksums != "on" {
		return s, nil
	}
	if _, err := p.Run(ctx, "pg_checksums", "--check", "-D", c.Dir); err != nil {
		return s, asBadCopy(ctx, err)
	}
	s.Checksums = true
	return s, nil
}

// readAll reads every database that allows connections.
func (c Copy) readAll(ctx context.Context, s *Soundness) (checksums string, err error) {
	var databases []string
	err = c.queryDatabase(ctx, "postgres", func(conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, "select current_setting('data_checksums'), sum(pg_database_size(oid))::bigint from pg_database").Scan(&checksums, &s.Size); err != nil {
			return err
		}
		rows, err := conn.Query(ctx, "select datname from pg_database where datallowconn and datconnlimit <> -2 order by datname")
		if err != nil {
			return err
		}
		databases, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	for _, database := range databases {
		if err != nil {
			break
		}
		s.Databases++
		err = c.queryDatabase(ctx, database, func(conn *pgx.Conn) error {
			schema, err := installAmcheck(ctx, conn)
			if err != nil {
				return fmt.Errorf("set up amcheck: %w", err)
			}
			s.Structure = s.Structure && schema != ""
			if err := readTables(ctx, conn, schema, s); err != nil {
				return err
			}
			return checkIndexes(ctx, conn, schema)
		})
		if err != nil {
			err = fmt.Errorf("database %q: %w", database, err)
		}
	}
	return checksums, err
}

// Copy is a base backup that is to become the data of a cluster's first member.
type Copy struct {
	// Dir of the copy, and Beside it one on the same file system for what it
	// must not hold while it recovers.
	Dir, Beside string
	// Major version of the programs in BinDir; RunDir is for the socket.
	Major          int
	BinDir, RunDir string
	Lock           *volumelock.VolumeLock
	// ArchivedWAL is what the recovery goes on with behind the copy; nil for nothing.
	Archived *ArchivedWAL

	// also is asked of the server before it is stopped.
	inspectData func(context.Context) error
}

// BadCopy says that what was copied is not good, so that to try again is in
// vain.
type BadCopy struct{ Err error }

func (b *BadCopy) Error() string { return b.Err.Error() }

// Unwrap makes the error itself known.
func (b *BadCopy) Unwrap() error { return b.Err }

// ImageVersion is that of the programs of the image, with its major part, and
// where they are.
func ImageVersion(ctx context.Context) (version string, major int, dir string, err error) {
	if dir, err = server.FindPrograms(); err != nil {
		return "", 0, "", err
	}
	version, major, err = server.Programs{Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}}.ReadVersion(ctx)
	return version, major, dir, err
}

// End of a recovery, and whose it is.
type End struct {
	SystemIdentifier string
	// Before is the timeline of the copy, Timeline that of the data now, and
	// Position where its log ends.
	Before, Timeline int64
	Position         string
	// Left is where the new timeline was begun, with the one that was left, such
	// as 1:0/3000138; Last is the time of the last transaction in the WAL that
	// was recovered, zero without any.
	Left string
	Last time.Time
}

// Reaches says whether the data holds everything up to a position of the
// copy's timeline, such as 0/3000138.
func (e End) Reaches(position string) bool {
	wanted := lsn.Parse(e.Timeline, position)
	return wanted.Position > 0 && !wanted.Newer(lsn.Parse(e.Timeline, e.Position))
}

const (
	// recoveryStop is how long the server may take to shut down.
	recoveryStop = 5 * time.Minute
	// recoveryPort is the number in the name of the socket.
	recoveryPort = 5432
)

// Recover checks a copy, has PostgreSQL recover it to the end of the WAL that
// is in it, or where its Log says, and there begin a timeline of its own, so that nothing that the
// source wrote later is ever taken for this data's. No client but us reaches the
// server: it listens on a socket in RunDir alone. It ends shut down in order.
func (c Copy) Recover(ctx context.Context) (End, error) {
	p := server.Programs{Programs: process.Programs{Dir: c.BinDir, Processes: process.NewProcesses()}}
	if _, err := p.Run(ctx, "pg_verifybackup", c.Dir); err != nil {
		if exit := (*exec.ExitError)(nil); ctx.Err() != nil || !errors.As(err, &exit) || !exit.Exited() {
			return End{}, err // it was stopped before it knew
		}
		return End{}, &BadCopy{fmt.Errorf("PostgreSQL refuses the copy: %w", err)}
	}
	before, err := p.ReadControlData(ctx, c.Dir)
	if err != nil {
		return End{}, err
	}
	putBack, err := c.prepareRecovery()
	if err != nil {
		return End{}, err
	}
	last, err := c.replayWAL(ctx, p, before)
	if err != nil {
		return End{}, err
	}
	after, err := p.ReadControlData(ctx, c.Dir)
	if err != nil {
		return End{}, err
	}
	if after.State != server.StateShutDown || after.SystemIdentifier != before.SystemIdentifier || after.Timeline <= before.Timeline {
		return End{}, fmt.Errorf("after the recovery of %s on timeline %d PostgreSQL's files say %q, %s on timeline %d",
			before.SystemIdentifier, before.Timeline, after.State, after.SystemIdentifier, after.Timeline)
	}
	left, err := c.findForkPoint(after.Timeline)
	if err != nil {
		return End{}, err
	}
	return End{after.SystemIdentifier, before.Timeline, after.Timeline, after.Checkpoint, left, last}, putBack()
}

// replayWAL has the server recover. Where its messages say that the source was given
// more of what a recovery needs as much of, it goes on with that.
func (c Copy) replayWAL(ctx context.Context, p server.Programs, from server.ControlData) (last time.Time, err error) {
	for {
		if err := c.writeConfiguration(from); err != nil {
			return time.Time{}, err
		}
		seen := &progress{}
		err := c.runServer(ctx, p, seen)
		if err = seen.explainFailure(err); err == nil || c.Archived == nil || ctx.Err() != nil || errors.As(err, new(*Missed)) {
			return seen.lastTransaction(), err
		}
		now, unread := p.ReadControlData(ctx, c.Dir)
		if unread != nil || !now.RaisesFloors(from) {
			return time.Time{}, err
		}
		from = now
	}
}

// findForkPoint is where a timeline was begun, with the one before it.
func (c Copy) findForkPoint(timeline int64) (string, error) {
	name := wal.HistoryName(uint32(timeline)) //nolint:gosec // PostgreSQL's are so long
	data, err := os.ReadFile(filepath.Join(c.Dir, "pg_wal", name))
	if err != nil {
		return "", err
	}
	history, err := wal.ParseHistory(data)
	if err != nil || len(history) == 0 {
		return "", fmt.Errorf("%s does not say where the timeline begins: %w", name, err)
	}
	end := history[len(history)-1].Position
	for _, turn := range history { // the first that was left there
		if turn.Position >= end {
			return fmt.Sprintf("%d:%s", turn.Timeline, wal.FormatPosition(end)), nil
		}
	}
	return "", fmt.Errorf("%s does not say which timeline was left", name)
}

// prepareRecovery takes away what was the source's own, and has the next start recover.
// What it returns puts back what belongs to the data.
func (c Copy) prepareRecovery() (putBack func() error, err error) {
	path := func(name string) string { return filepath.Join(c.Dir, name) }
	for _, name := range []string{"standby.signal", "postmaster.pid", "postmaster.opts", "backup_manifest"} {
		err = errors.Join(err, os.RemoveAll(path(name)))
	}
	slots, globErr := filepath.Glob(filepath.Join(path("pg_replslot"), "*"))
	err = errors.Join(err, globErr)
	for _, slot := range slots {
		err = errors.Join(err, os.RemoveAll(slot))
	}
	aside := filepath.Join(c.Beside, settings.AlterSystemFile)
	moved := os.Rename(path(settings.AlterSystemFile), aside)
	if !errors.Is(moved, fs.ErrNotExist) {
		err = errors.Join(err, moved)
	}
	err = errors.Join(err, os.WriteFile(path("recovery.signal"), nil, 0o600), os.Chmod(c.Dir, 0o700))
	if err != nil {
		return nil, fmt.Errorf("prepare the recovery: %w", err)
	}
	return func() error {
		if moved != nil {
			return nil
		}
		return os.Rename(aside, path(settings.AlterSystemFile))
	}, nil
}

// runDirectory is the recovery's own: RunDir may belong to others than us.
func (c Copy) runDirectory() string { return filepath.Join(c.RunDir, "recovery") }

func (c Copy) filePath(name string) string { return filepath.Join(c.runDirectory(), name) }

// isolationSettings are settings that keep the server to itself: no client reaches it but us, it
// reaches no server, and it runs no user's code. They are arguments, which no file in
// the data overrules.
func (c Copy) isolationSettings() map[string]string {
	settings := map[string]string{
		"listen_addresses":                "",
		"port":                            strconv.Itoa(recoveryPort),
		"unix_socket_directories":         c.runDirectory(),
		"unix_socket_permissions":         "0700",
		"hba_file":                        c.filePath("restore_hba.conf"),
		"ident_file":                      c.filePath("restore_ident.conf"),
		"ssl":                             "off",
		"archive_mode":                    "off",
		"shared_preload_libraries":        "",
		"autovacuum":                      "off",
		"max_logical_replication_workers": "0",
	}
	if c.Major >= 17 {
		settings["event_triggers"] = "off" // some fire when we connect
	}
	return settings
}

// writeConfiguration writes what the server reads at its start.
func (c Copy) writeConfiguration(before server.ControlData) error {
	values := map[string]string{
		// Where there is no other WAL, all that is needed is in the copy. There is
		// no target then: one that is the very end of the WAL is never reached.
		"restore_command":          "false",
		"recovery_target_timeline": "latest",
		"hot_standby":              "off",
		"wal_level":                before.WALLevel,
		"wal_log_hints":            "on",
		"track_commit_timestamp":   before.CommitTimestamps,
		"fsync":                    "on",
		"full_page_writes":         "on",
		"restart_after_crash":      "off",
		"logging_collector":        "off",
		"log_destination":          "stderr",
		"lc_messages":              "C",
	}
	maps.Copy(values, c.Archived.recoverySettings(diskspace.SpaceOf(c.Dir)))
	for name, floor := range before.Floors {
		values[name] = strconv.FormatInt(floor, 10)
	}
	if err := errors.Join(os.MkdirAll(c.runDirectory(), 0o700), os.Chmod(c.runDirectory(), 0o700)); err != nil {
		return fmt.Errorf("prepare the recovery: %w", err)
	}
	for name, text := range map[string]string{
		"restore.conf":       settings.RenderSettings(values),
		"restore_hba.conf":   "local all postgres trust\n", // only we can open the socket
		"restore_ident.conf": "",
	} {
		if err := os.WriteFile(c.filePath(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("prepare the recovery: %w", err)
		}
	}
	return nil
}

// runServer has the server recover, asks it whether all is well, and stops it.
func (c Copy) runServer(ctx context.Context, p server.Programs, seen *progress) error {
	heard := func(line string) {
		if seen.readLine(line) {
			c.Archived.reportProgress(seen.lastTransaction())
		}
	}
	started, err := p.StartPostmaster(c.Dir, c.filePath("restore.conf"), c.Lock, heard, c.isolationSettings())
	if err != nil {
		return err
	}
	defer func() { _ = started.StopAtOnce() }()
	if err := c.awaitRecovery(ctx, started, seen); err != nil {
		return err
	}
	if err := c.inspectCatalogs(ctx); err != nil {
		return fmt.Errorf("look at the recovered data: %w", err)
	}
	if err := c.disableSubscriptions(ctx); err != nil {
		return fmt.Errorf("disable subscriptions: %w", err)
	}
	if c.inspectData != nil {
		if err := c.inspectData(ctx); err != nil {
			return err
		}
	}
	if !started.StopInOrder(recoveryStop) {
		return errors.New("PostgreSQL does not shut down after the recovery: " + started.EndReason())
	}
	return nil
}

// recoveryRefusals is how often a server that is ready may refuse us: for a
// minute at least.
const recoveryRefusals = 300

// awaitRecovery waits for the end of the recovery, and a server that lets us in.
func (c Copy) awaitRecovery(ctx context.Context, started *server.Postmaster, seen *progress) error {
	// Each question before it is ready is a line in its log.
	const patience = 50
	for n, refused := 1, 0; ; n++ {
		if ready := seen.isReady(); ready || n%patience == 0 {
			err := c.queryDatabase(ctx, "postgres", func(*pgx.Conn) error { return nil })
			if err == nil {
				return nil
			}
			if ready {
				refused++
			}
			if refused > recoveryRefusals && ctx.Err() == nil {
				return fmt.Errorf("PostgreSQL is ready, but refuses the agent's connection: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-started.Done():
			return fmt.Errorf("PostgreSQL does not recover the copy: %s", started.EndReason())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// disableSubscriptions disables what the source subscribes to: two subscribers of
// one slot take each other's changes, and what came since the copy is not sent
// again.
func (c Copy) disableSubscriptions(ctx context.Context) error {
	type subscription struct{ Database, Name string }
	var enabled []subscription
	err := c.queryDatabase(ctx, "postgres", func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "select d.datname, s.subname from pg_subscription s join pg_database d on d.oid = s.subdbid where s.subenabled")
		if err != nil {
			return err
		}
		enabled, err = pgx.CollectRows(rows, pgx.RowToStructByPos[subscription])
		return err
	})
	for _, s := range enabled {
		if err != nil {
			break
		}
		err = c.queryDatabase(ctx, s.Database, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set default_transaction_read_only = off")
			if err == nil {
				_, err = conn.Exec(ctx, "alter subscription "+pgx.Identifier{s.Name}.Sanitize()+" disable")
			}
			return err
		})
	}
	return err
}

// queryDatabase queries on a connection of its own, that runs no user's code and writes nothing
// unless it is asked to.
func (c Copy) queryDatabase(ctx context.Context, database string, use func(*pgx.Conn) error) error {
	config, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d user=postgres sslmode=disable connect_timeout=10 application_name=holdfast-restore", c.runDirectory(), recoveryPort))
	if err != nil {
		return err
	}
	config.Database = database
	for name, value := range map[string]string{
		"search_path": "pg_catalog", "session_preload_libraries": "", "local_preload_libraries": "",
		"default_transaction_read_only": "on", "statement_timeout": "0",
	} {
		config.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return errors.Join(use(conn), conn.Close(ctx))
}

// inspectCatalogs says whether recovery has ended, and reads the catalogs of every
// database.
func (c Copy) inspectCatalogs(ctx context.Context) error {
	var databases []string
	err := c.queryDatabase(ctx, "postgres", func(conn *pgx.Conn) error {
		var recovering bool
		if err := conn.QueryRow(ctx, "select pg_is_in_recovery()").Scan(&recovering); err != nil {
			return err
		}
		if recovering {
			return errors.New("the recovery has not ended")
		}
		rows, err := conn.Query(ctx, "select datname from pg_database where datallowconn and datconnlimit <> -2 order by datname")
		if err != nil {
			return err
		}
		databases, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	for _, database := range databases {
		if err != nil {
			break
		}
		err = c.queryDatabase(ctx, database, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "select count(c), count(a) from pg_class c left join pg_attribute a on a.attrelid = c.oid")
			return err
		})
		if err != nil {
			err = fmt.Errorf("database %q: %w", database, err)
		}
	}
	return err
}
