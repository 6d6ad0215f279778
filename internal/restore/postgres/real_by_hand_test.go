//go:build postgres

package postgres

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// printedCommands are the commands that the page on restores prints for a restore
// of PostgreSQL by hand.
func printedCommands(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/guides/restore.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## Restore by hand\n")
	for _, block := range strings.Split(section, "```sh\n")[1:] {
		if commands, _, closed := strings.Cut(block, "```"); closed && strings.Contains(commands, "pg_verifybackup") {
			return commands
		}
	}
	t.Fatalf("docs/guides/restore.md prints no commands (section found: %v)", found)
	return ""
}

// What the page prints restores a backup of a source whose settings are greater
// than those by default, whichever member was copied.
func TestRealRestoreByHand(t *testing.T) {
	if _, err := exec.LookPath("zstd"); err != nil {
		t.Fatalf("the page needs zstd: %v", err)
	}
	const greater = " -c max_wal_senders=20 -c max_connections=150 -c max_worker_processes=16 -c max_prepared_transactions=5 -c max_locks_per_transaction=128 -c track_commit_timestamp=on"
	primary := newServer(t)
	primary.init(t)
	primary.start(t, greater)
	primary.query(t, "create role holdfast_replication login replication")
	primary.query(t, "create table rows as select n from generate_series(1, 20000) n")
	standby := newServer(t)
	standby.identity = primary.identity
	standby.run(t, "pg_basebackup", "--pgdata="+standby.data, "--host="+primary.socket, "--port="+primary.port, "--username=postgres", "--checkpoint=fast", "--write-recovery-conf")
	standby.start(t, greater)
	for name, source := range map[string]*server{"of a primary": primary, "of a standby": standby} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source.backup(t, dir)
			found, err := filepath.Glob(filepath.Join(dir, "shop/orders/c-1/nightly-uid/*/data"))
			if err != nil || len(found) != 1 {
				t.Fatalf("%v: the parts are in %v", err, found)
			}
			restored := newServer(t)
			restored.data = filepath.Join(filepath.Dir(found[0]), "pgdata")
			t.Cleanup(func() {
				_ = exec.Command(filepath.Join(restored.bin, "pg_ctl"), "--pgdata="+restored.data, "--mode=immediate", "stop").Run()
			})
			hand := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", printedCommands(t))
			hand.Dir = filepath.Dir(found[0])
			hand.Env = append(os.Environ(), "PATH="+restored.bin+":"+os.Getenv("PATH"), "PGPORT="+restored.port)
			// Its server must not hold our end of a pipe.
			log, err := os.Create(filepath.Join(t.TempDir(), "log"))
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			hand.Stdout, hand.Stderr = log, log
			if err := hand.Run(); err != nil {
				t.Fatalf("%v:\n%s\n%s", err, read(log.Name()), read(filepath.Join(hand.Dir, "recovery.log")))
			}
			restored.socket = socketOf(t, restored.data)
			if got := restored.query(t, "select count(*)::text || ' ' || pg_is_in_recovery() || ' ' || timeline_id from rows, pg_control_checkpoint() group by timeline_id"); got != "20000 false 2" {
				t.Errorf("restored: %s", got)
			}
		})
	}
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// socketOf a running server, by its postmaster.pid.
func socketOf(t *testing.T, data string) string {
	t.Helper()
	lines := strings.Split(read(filepath.Join(data, "postmaster.pid")), "\n")
	if len(lines) < 5 {
		t.Fatalf("postmaster.pid is %q", lines)
	}
	return lines[4]
}
