//go:build postgres

package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// TestMain is also the programs that the databases call.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "wal" && os.Args[1] != "put" {
		os.Exit(m.Run())
	}
	err := error(nil)
	if os.Args[1] == "put" {
		err = put(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	} else {
		cmd := wal.NewCommand()
		cmd.SetArgs(os.Args[2:])
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err = cmd.Execute()
	}
	code, ended := 0, (*wal.Exit)(nil)
	if errors.As(err, &ended) {
		code = ended.Code
	} else if err != nil {
		code = 1
	}
	os.Exit(code)
}

// put archives a file, as the agent does.
func put(dir, uid, system, path, name string) error {
	s, err := store.Open(context.Background(), store.Location{URL: "file://" + dir}, nil)
	if err != nil {
		return err
	}
	archive := &wal.Archive{Store: s, Prefix: agentapi.ArchivePrefix("shop", "orders", uid)}
	owner := wal.Owner{Kind: "PostgresCluster", Namespace: "shop", Cluster: "orders", ClusterUID: uid, SystemIdentifier: system}
	if err := archive.ClaimArchive(context.Background(), owner); err != nil {
		return err
	}
	return archive.StoreFile(context.Background(), path, name)
}

// archives starts a server that archives its log, as the one of a cluster with a
// UID.
func (s *server) archives(t *testing.T, dir, uid, more string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.start(t, " -c archive_mode=on -c track_commit_timestamp=on"+more)
	system := s.query(t, "select system_identifier::text from pg_control_system()")
	s.query(t, fmt.Sprintf("alter system set archive_command = '%s put %s %s %s %%p %%f'", program, dir, uid, system))
	s.query(t, "select pg_reload_conf()::text")
}

// archived closes the segment that is written, and waits until it is stored.
func (s *server) archived(t *testing.T) string {
	t.Helper()
	s.query(t, "create table if not exists filler (n int)")
	s.query(t, "insert into filler values (1)")
	name := s.query(t, "select pg_walfile_name(pg_current_wal_insert_lsn())")
	s.query(t, "select pg_switch_wal()::text")
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if s.query(t, "select coalesce(max(last_archived_wal), '') from pg_stat_archiver where last_archived_wal !~ 'history'") >= name {
			return name
		}
		if time.Now().After(end) {
			t.Fatalf("%s is never archived", name)
		}
	}
}

// stop in order, and with all of the WAL archived.
func (s *server) stop(t *testing.T) {
	t.Helper()
	s.run(t, "pg_ctl", "--pgdata="+s.data, "--mode=fast", "--wait", "stop")
}

// span is when a row was begun, and when it was acknowledged; zero where it was
// not.
type span struct{ begun, acked time.Time }

// writers insert rows one after the other, several at once.
type writers struct {
	mu   sync.Mutex
	rows map[int]span
	next int
	halt context.CancelFunc
	wait sync.WaitGroup
}

func (w *writers) write(t *testing.T, s *server, several int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w.halt = cancel
	for range several {
		conn, err := pgx.Connect(ctx, "host="+s.socket+" port="+s.port+" user=postgres dbname=postgres")
		if err != nil {
			t.Fatal(err)
		}
		w.wait.Go(func() {
			defer conn.Close(context.Background()) //nolint:errcheck // a test's own
			for ctx.Err() == nil {
				w.mu.Lock()
				n := w.next
				w.next++
				w.rows[n] = span{begun: time.Now()}
				w.mu.Unlock()
				_, err := conn.Exec(context.WithoutCancel(ctx), "insert into rows values ($1)", n)
				if err != nil {
					t.Error(err)
					return
				}
				w.mu.Lock()
				w.rows[n] = span{w.rows[n].begun, time.Now()}
				w.mu.Unlock()
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
}

func (w *writers) stop() {
	w.halt()
	w.wait.Wait()
}

// check compares what came back with what was written: all that was acknowledged
// before one moment, nothing that was begun after another.
func (w *writers) check(t *testing.T, has map[int]bool, before, after time.Time) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	kept := 0
	for n, row := range w.rows {
		switch {
		case !row.acked.IsZero() && row.acked.Before(before):
			kept++
			if !has[n] {
				t.Errorf("row %d, acknowledged at %s, is lost at %s", n, row.acked.Format(time.RFC3339Nano), before.Format(time.RFC3339Nano))
			}
		case row.begun.After(after) && has[n]:
			t.Errorf("row %d, begun at %s, is there at %s", n, row.begun.Format(time.RFC3339Nano), after.Format(time.RFC3339Nano))
		}
	}
	if kept == 0 {
		t.Errorf("nothing was written before %s", before)
	}
}

// script runs several commands on one connection.
func (s *server) script(t *testing.T, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), "host="+s.socket+" port="+s.port+" user=postgres dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background()) //nolint:errcheck // a test's own
	if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatal(err)
	}
}

// rows of a server.
func (s *server) rows(t *testing.T) map[int]bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), "host="+s.socket+" port="+s.port+" user=postgres dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background()) //nolint:errcheck // a test's own
	answer, err := conn.Query(t.Context(), "select n from rows")
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(answer, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	has := map[int]bool{}
	for _, n := range all {
		has[n] = true
	}
	return has
}

// contents of the files below a directory, by path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// promote a standby.
func (s *server) promote(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(filepath.Join(s.bin, "pg_ctl"), "--pgdata="+s.data, "--wait", "promote").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
