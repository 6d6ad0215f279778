//go:build postgres

package postgres

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A primary dies in the middle of a record of which its replica has received
// whole segments. The replica holds nothing that the primary lacks, whether it ran
// all the time or not: it follows, or is copied anew.
func TestRealHalfARecordIsNothingMore(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted=%v", restarted), func(t *testing.T) {
			w, volumes := newWorld(t, 2), [2]string{t.TempDir(), t.TempDir()}
			w.keepLeading()
			primary, replica := w.start(0, volumes[0], "uid-0"), w.start(1, volumes[1], "uid-1")
			primary.untilRole(v1alpha1.RolePrimary)
			primary.fill("before", "1000")
			replica.untilRole(v1alpha1.RoleReplica)
			replica.sameContent(primary)
			written := writeHalf(t, primary, replica)
			if restarted {
				replica.stop()
				replica = w.start(1, volumes[1], "uid-1b")
				replica.until("serving", func(s agentapi.Status) bool { return s.Serving })
			}
			primary = w.start(0, volumes[0], "uid-0b")
			if got := primary.untilRole(v1alpha1.RolePrimary); got.Position > written {
				t.Errorf("leads at %d; %d was received", got.Position, written)
			}
			primary.fill("after", "1000")
			replica.until("a replica, or held", func(s agentapi.Status) bool {
				return s.Role == v1alpha1.RoleReplica && s.Serving || s.State == agentapi.StateHeld
			})
			if s := replica.Store.Get(); s.State == agentapi.StateHeld {
				t.Fatalf("held: %s", s.Message)
			}
			replica.sameContent(primary)
			primary.fill("on", "1000")
			replica.sameContent(primary)
		})
	}
}

// writeHalf kills the primary while it writes a record of many segments, once the
// replica has received two of them, and returns how far that goes.
func writeHalf(t *testing.T, primary, replica *run) uint64 {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		conn, err := pgx.Connect(context.Background(), fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres", primary.o.RunDir, primary.o.Port))
		if err == nil {
			_, err = conn.Exec(context.Background(), "select pg_logical_emit_message(false, 'long', repeat('x', 500000000))")
		}
		ended <- err
	}()
	received := func() (n uint64) {
		n, err := strconv.ParseUint(replica.query("select ((greatest(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn()) - '0/0')::int8)::text"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	begun := received()
	for end := time.Now().Add(time.Minute); received() < begun+40<<20; time.Sleep(time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the record was written as a whole: %v", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatal("nothing is received")
		}
	}
	primary.o.StopTimeout = 0 // no time for a shutdown in order
	primary.stop()
	if err := <-ended; err == nil {
		t.Fatal("the record was written as a whole")
	}
	return received()
}
