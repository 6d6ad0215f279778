//go:build postgres

package postgres

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A client's words in the text log of a replica that starts pass for a trouble. The
// replica takes part in the election all the same.
func TestRealRule9UnprovenTroubleKeepsTheVote(t *testing.T) {
	w := newWorld(t, 2)
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	volume := t.TempDir()
	replica := w.start(1, volume, "uid-1")
	replica.untilRole(v1alpha1.RoleReplica)
	replica.stop()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			config, err := pgx.ParseConfig("host=localhost dbname=postgres sslmode=disable port=" + strconv.Itoa(w.agents[1].database))
			if err != nil {
				t.Error(err)
				return
			}
			config.User = "recovery has already been removed"
			if conn, err := pgx.ConnectConfig(ctx, config); err == nil {
				_ = conn.Close(ctx)
			}
		}
	}()
	replica = w.start(1, volume, "uid-1b")
	startup := 0
	for startup == 0 { // it has not answered yet
		data, _ := os.ReadFile(filepath.Join(replica.o.pgdataPath(), "postmaster.pid"))
		first, _, _ := strings.Cut(string(data), "\n")
		if postmaster, err := strconv.Atoi(first); err == nil {
			startup = findStartup(postmaster)
		}
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	signalTo(t, startup, syscall.SIGSTOP)
	time.Sleep(3 * time.Second) // for lines of the text log
	signalTo(t, startup, syscall.SIGCONT)
	replica.untilRole(v1alpha1.RoleReplica)
	cancel()
	<-ended
	limit, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	wal, err := replica.servers.ReadWAL(limit)
	if err != nil || wal.Flushed.LSN == 0 {
		t.Errorf("it does not say what it holds: %+v, %v", wal, err)
	}
}
