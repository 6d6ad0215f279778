package postgres

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

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// DataName is the data directory on a member's volume.
const DataName = dataName

// Copy is a base backup that is to become the data of a cluster's first member.
type Copy struct {
	// Dir of the copy, and Beside it one on the same file system for what it
	// must not hold while it recovers.
	Dir, Beside string
	// Major version of the programs in BinDir; RunDir is for the socket.
	Major          int
	BinDir, RunDir string
	Lock           *member.VolumeLock
	// Log is what the recovery goes on with behind the copy; nil for nothing.
	Log *Log

	// also is asked of the server before it is stopped.
	also func(context.Context) error
}

// BadCopy says that what was copied is not good, so that to try again is in
// vain.
type BadCopy struct{ Err error }

func (b *BadCopy) Error() string { return b.Err.Error() }

// Unwrap makes the error itself known.
func (b *BadCopy) Unwrap() error { return b.Err }

// RoomFor is what the data of a copy needs of a volume, in bytes.
func RoomFor(size int64) int64 { return roomFor(size) }

// ImageVersion is that of the programs of the image, with its major part, and
// where they are.
func ImageVersion(ctx context.Context) (version string, major int, dir string, err error) {
	if dir, err = findPrograms(); err != nil {
		return "", 0, "", err
	}
	version, major, err = programs{member.Programs{Dir: dir, Processes: member.NewProcesses()}}.version(ctx)
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
	// as 1:0/3000138; Last is the time of the last transaction in the log that
	// was recovered, zero without any.
	Left string
	Last time.Time
}

// Reaches says whether the data holds everything up to a position of the
// copy's timeline, such as 0/3000138.
func (e End) Reaches(position string) bool {
	wanted := parsePoint(e.Timeline, position)
	return wanted.Position > 0 && !wanted.newer(parsePoint(e.Timeline, e.Position))
}

const (
	// recoveryStop is how long the server may take to shut down.
	recoveryStop = 5 * time.Minute
	// recoveryPort is the number in the name of the socket.
	recoveryPort = 5432
)

// Recover checks a copy, has PostgreSQL recover it to the end of the log that
// is in it, or where its Log says, and there begin a timeline of its own, so that nothing that the
// source wrote later is ever taken for this data's. Nobody but us reaches the
// server: it listens on a socket in RunDir alone. It ends shut down in order.
func (c Copy) Recover(ctx context.Context) (End, error) {
	p := programs{member.Programs{Dir: c.BinDir, Processes: member.NewProcesses()}}
	if _, err := p.Run(ctx, "pg_verifybackup", c.Dir); err != nil {
		if exit := (*exec.ExitError)(nil); ctx.Err() != nil || !errors.As(err, &exit) || !exit.Exited() {
			return End{}, err // it was stopped before it knew
		}
		return End{}, &BadCopy{fmt.Errorf("PostgreSQL refuses the copy: %w", err)}
	}
	before, err := p.controlData(ctx, c.Dir)
	if err != nil {
		return End{}, err
	}
	putBack, err := c.prepare()
	if err != nil {
		return End{}, err
	}
	last, err := c.replay(ctx, p, before)
	if err != nil {
		return End{}, err
	}
	after, err := p.controlData(ctx, c.Dir)
	if err != nil {
		return End{}, err
	}
	if after.State != "shut down" || after.SystemIdentifier != before.SystemIdentifier || after.Timeline <= before.Timeline {
		return End{}, fmt.Errorf("after the recovery of %s on timeline %d PostgreSQL's files say %q, %s on timeline %d",
			before.SystemIdentifier, before.Timeline, after.State, after.SystemIdentifier, after.Timeline)
	}
	left, err := c.left(after.Timeline)
	if err != nil {
		return End{}, err
	}
	return End{after.SystemIdentifier, before.Timeline, after.Timeline, after.Checkpoint, left, last}, putBack()
}

// replay has the server recover. Where the log says that the source was given
// more of what a recovery needs as much of, it goes on with that.
func (c Copy) replay(ctx context.Context, p programs, from controlData) (last time.Time, err error) {
	for {
		if err := c.write(from); err != nil {
			return time.Time{}, err
		}
		told := &tale{}
		err := c.run(ctx, p, told)
		if err = told.explain(err); err == nil || c.Log == nil || ctx.Err() != nil || errors.As(err, new(*Missed)) {
			return told.last(), err
		}
		now, unread := p.controlData(ctx, c.Dir)
		if unread != nil || !now.outgrows(from) {
			return time.Time{}, err
		}
		from = now
	}
}

// left is where a timeline was begun, with the one before it.
func (c Copy) left(timeline int64) (string, error) {
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

// autoName holds settings that were made by ALTER SYSTEM on the source: ends of
// another recovery may be among them.
const autoName = "postgresql.auto.conf"

// prepare takes away what was the source's own, and has the next start recover.
// What it returns puts back what belongs to the data.
func (c Copy) prepare() (putBack func() error, err error) {
	path := func(name string) string { return filepath.Join(c.Dir, name) }
	for _, name := range []string{"standby.signal", "postmaster.pid", "postmaster.opts", "backup_manifest"} {
		err = errors.Join(err, os.RemoveAll(path(name)))
	}
	slots, globErr := filepath.Glob(filepath.Join(path("pg_replslot"), "*"))
	err = errors.Join(err, globErr)
	for _, slot := range slots {
		err = errors.Join(err, os.RemoveAll(slot))
	}
	aside := filepath.Join(c.Beside, autoName)
	moved := os.Rename(path(autoName), aside)
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
		return os.Rename(aside, path(autoName))
	}, nil
}

// own directory of the recovery: RunDir may belong to others than us.
func (c Copy) own() string { return filepath.Join(c.RunDir, "recovery") }

func (c Copy) file(name string) string { return filepath.Join(c.own(), name) }

// alone are settings that keep the server to itself: nobody reaches it but us, it
// reaches nobody, and it runs nobody's code. They are arguments, which no file in
// the data overrules.
func (c Copy) alone() map[string]string {
	settings := map[string]string{
		"listen_addresses":                "",
		"port":                            strconv.Itoa(recoveryPort),
		"unix_socket_directories":         c.own(),
		"unix_socket_permissions":         "0700",
		"hba_file":                        c.file("restore_hba.conf"),
		"ident_file":                      c.file("restore_ident.conf"),
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

// write what the server reads at its start.
func (c Copy) write(before controlData) error {
	settings := map[string]string{
		// Where there is no other log, all that is needed is in the copy. There is
		// no target then: one that is the log's very end is never reached.
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
	maps.Copy(settings, c.Log.settings(member.SpaceOf(c.Dir)))
	for name, floor := range before.Floors {
		settings[name] = strconv.FormatInt(floor, 10)
	}
	if err := errors.Join(os.MkdirAll(c.own(), 0o700), os.Chmod(c.own(), 0o700)); err != nil {
		return fmt.Errorf("prepare the recovery: %w", err)
	}
	for name, text := range map[string]string{
		"restore.conf":       renderSettings(settings),
		"restore_hba.conf":   "local all postgres trust\n", // whoever opens the socket is us
		"restore_ident.conf": "",
	} {
		if err := os.WriteFile(c.file(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("prepare the recovery: %w", err)
		}
	}
	return nil
}

// run has the server recover, asks it whether all is well, and stops it.
func (c Copy) run(ctx context.Context, p programs, told *tale) error {
	heard := func(line string) {
		if told.hear(line) {
			c.Log.tell(told.last())
		}
	}
	server, err := p.startPostmaster(c.Dir, c.file("restore.conf"), c.Lock, heard, c.alone())
	if err != nil {
		return err
	}
	defer func() { _ = server.kill() }()
	if err := c.await(ctx, server, told); err != nil {
		return err
	}
	if err := c.inspect(ctx); err != nil {
		return fmt.Errorf("look at the recovered data: %w", err)
	}
	if err := c.unsubscribe(ctx); err != nil {
		return fmt.Errorf("disable subscriptions: %w", err)
	}
	if c.also != nil {
		if err := c.also(ctx); err != nil {
			return err
		}
	}
	if !server.stop(recoveryStop) {
		return errors.New("PostgreSQL does not shut down after the recovery: " + server.cause())
	}
	return nil
}

// recoveryRefusals is how often a server that is ready may refuse us: for a
// minute at least.
const recoveryRefusals = 300

// await the end of the recovery, and a server that lets us in.
func (c Copy) await(ctx context.Context, server *postmaster, told *tale) error {
	// Each question before it is ready is a line in its log.
	const patience = 50
	for n, refused := 1, 0; ; n++ {
		if ready := told.readied(); ready || n%patience == 0 {
			err := c.query(ctx, "postgres", func(*pgx.Conn) error { return nil })
			if err == nil {
				return nil
			}
			if ready {
				refused++
			}
			if refused > recoveryRefusals && ctx.Err() == nil {
				return fmt.Errorf("PostgreSQL is ready, and lets nobody in: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-server.Done():
			return fmt.Errorf("PostgreSQL does not recover the copy: %s", server.cause())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// unsubscribe disables what the source subscribes to: two subscribers of one
// slot take each other's changes, and what came since the copy is not sent
// again.
func (c Copy) unsubscribe(ctx context.Context) error {
	type subscription struct{ Database, Name string }
	var enabled []subscription
	err := c.query(ctx, "postgres", func(conn *pgx.Conn) error {
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
		err = c.query(ctx, s.Database, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "set default_transaction_read_only = off")
			if err == nil {
				_, err = conn.Exec(ctx, "alter subscription "+pgx.Identifier{s.Name}.Sanitize()+" disable")
			}
			return err
		})
	}
	return err
}

// query on a connection of its own, that runs nobody's code and writes nothing
// unless it is told to.
func (c Copy) query(ctx context.Context, database string, use func(*pgx.Conn) error) error {
	config, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d user=postgres sslmode=disable connect_timeout=10 application_name=holdfast-restore", c.own(), recoveryPort))
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

// inspect says whether recovery has ended, and reads the catalogs of every
// database.
func (c Copy) inspect(ctx context.Context) error {
	var databases []string
	err := c.query(ctx, "postgres", func(conn *pgx.Conn) error {
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
		err = c.query(ctx, database, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "select count(c), count(a) from pg_class c left join pg_attribute a on a.attrelid = c.oid")
			return err
		})
		if err != nil {
			err = fmt.Errorf("database %q: %w", database, err)
		}
	}
	return err
}
