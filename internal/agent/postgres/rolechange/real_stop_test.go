//go:build postgres

package rolechange

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/wal"
)

const (
	pageSize    = 8 << 10
	segmentSize = 1 << 20
)

// stop shuts a primary down in order.
func (m *member) stop() (end uint64) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), limit)
	defer cancel()
	at, err := m.Stop(ctx)
	if err != nil {
		m.t.Fatalf("%s: %v", m.name, err)
	}
	if again, err := ReadShutdownEnd(ctx, m.w.programs, m.pgdata()); err != nil || again != at {
		m.t.Errorf("%s: %s, and then %s, %v", m.name, at, again, err)
	}
	m.session.Close()
	m.postmaster = nil
	return at.Position
}

// fillTo has the next record of a primary begin so many bytes before a boundary.
func (m *member) fillTo(before uint64, boundary uint64) {
	m.t.Helper()
	// A message takes so much more: headers of the record, its data and itself.
	const overhead, least = 24 + 5 + 24 + 2, 320
	emit := func(bytes uint64) uint64 {
		m.exec(fmt.Sprintf("select pg_logical_emit_message(false, 'h', repeat('x', %d))", bytes-overhead))
		return m.position("pg_current_wal_insert_lsn()")
	}
	for at, tries := m.position("pg_current_wal_insert_lsn()"), 0; tries < 100; tries++ {
		target := (at/boundary+1)*boundary - before
		if target < at+least {
			at = emit(boundary/2 + least) // the next boundary is far enough
			continue
		}
		if left := target - at; at/pageSize != (target-1)/pageSize {
			// Headers of pages are in between: come near first, and stay before it.
			at = emit(max(least, left-left/pageSize*32-least*2))
			continue
		}
		// At a boundary, the next record begins behind the header of the page.
		if at = emit(target - at); at-target == 0 || before == 0 && at-target <= 40 {
			return
		}
	}
	m.t.Fatal("WAL cannot be filled to a boundary")
}

// Rule 17: the end of an orderly shutdown is where its last record ends, wherever that
// lies, and that is what a standby received. It is promoted there, and the former
// primary follows it as it is.
func TestRealRule17ShutdownEndIsWhatAStandbyReceived(t *testing.T) {
	w := newWorld(t, 2, nil)
	primary, standby := w.members[0], w.members[1]
	timeline := int64(1)
	for _, c := range []struct {
		name    string
		prepare func(*member)
		// at says where the record has to end, or to begin and end.
		at func(start, end uint64) bool
	}{
		{"somewhere", func(m *member) { m.fill("somewhere", 10) }, func(start, end uint64) bool { return start/pageSize == end/pageSize }},
		{"after a switch of the segment", func(m *member) { m.exec("select pg_switch_wal()") }, func(start, _ uint64) bool { return start%segmentSize == 40 }},
		{"over the end of a page", func(m *member) { m.fillTo(40, pageSize) }, func(start, end uint64) bool { return start/pageSize != end/pageSize }},
		{"over the end of a segment", func(m *member) { m.fillTo(40, segmentSize) }, func(start, end uint64) bool { return start/segmentSize != end/segmentSize }},
		{"at the end of a page", func(m *member) { m.fillTo(120, pageSize) }, func(_, end uint64) bool { return end%pageSize == 0 }},
		{"at the end of a segment", func(m *member) { m.fillTo(120, segmentSize) }, func(_, end uint64) bool { return end%segmentSize == 0 }},
		{"at the beginning of a page", func(m *member) { m.fillTo(0, pageSize) }, func(start, _ uint64) bool { return start%pageSize == 24 }},
		{"at the beginning of a segment", func(m *member) { m.fillTo(0, segmentSize) }, func(start, _ uint64) bool { return start%segmentSize == 40 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var end uint64
			for try := 0; ; try++ {
				c.prepare(primary)
				end = primary.stop()
				control, err := w.programs.ReadControlData(t.Context(), primary.pgdata())
				if err != nil {
					t.Fatal(err)
				}
				start, err := wal.ParsePosition(control.Checkpoint)
				if err != nil {
					t.Fatal(err)
				}
				if c.at(start, end) {
					t.Logf("the record is from %s to %s", control.Checkpoint, wal.FormatPosition(end))
					break
				}
				if try == 10 {
					t.Fatalf("the record is from %s to %s", control.Checkpoint, wal.FormatPosition(end))
				}
				// Another process wrote in between: once more.
				primary.start(Live{})
				// The standby may still show the stream of the run before.
				primary.until("exists (select from pg_stat_replication where state = 'streaming')")
			}
			received := standby.position("pg_last_wal_receive_lsn()")
			if received != end {
				t.Errorf("the standby received %s, and the shutdown ends at %s", wal.FormatPosition(received), wal.FormatPosition(end))
			}
			if held := standby.stopReceiver(); held.End.Position != end {
				t.Errorf("the standby holds WAL to %s, and the shutdown ends at %s", held.End, wal.FormatPosition(end))
			}
			timeline++
			if promoted := standby.promote(timeline, Quorum{}); promoted.Fork.Position != end {
				t.Errorf("the timeline begins at %s, and the shutdown ends at %s", promoted.Fork, wal.FormatPosition(end))
			}
			standby.fill(c.name, 50)
			if held := primary.startStandby(); held.End.Position != end {
				t.Errorf("the former primary holds WAL to %s", held.End)
			}
			primary.follow(standby, timeline)
			standby.fill(c.name, 50)
			standby.sameContent(primary)
			primary, standby = standby, primary
		})
	}
}

// A server that archives switches the segment before its shutdown checkpoint.
func TestRealRule17ShutdownEndOfAServerThatArchives(t *testing.T) {
	w := newWorld(t, 2, nil)
	primary, standby := w.members[0], w.members[1]
	standby.archives, primary.archives = true, true
	primary.stop()
	primary.start(Live{})
	standby.waitStreams()
	primary.fill("archived", 100)
	end := primary.stop()
	if received := standby.position("pg_last_wal_receive_lsn()"); received != end || end%segmentSize > pageSize {
		t.Errorf("the standby received %s, and the shutdown ends at %s", wal.FormatPosition(received), wal.FormatPosition(end))
	}
	standby.stopReceiver()
	standby.promote(2, Quorum{})
	primary.startStandby()
	primary.follow(standby, 2)
	standby.fill("after", 100)
	standby.sameContent(primary)
}

// A shutdown that takes too long ends with a kill, says so, and leaves no process.
func TestRealRule17StopHasADeadline(t *testing.T) {
	w := newWorld(t, 1, nil)
	primary := w.members[0]
	// A session that does not hear keeps the shutdown waiting.
	conn, err := primary.connect(t.Context(), "stopped")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if err := syscall.Kill(int(conn.PgConn().PID()), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var unclean *UncleanStopError
	if at, err := primary.Stop(ctx); !errors.As(err, &unclean) {
		t.Errorf("stopped at %s: %v", at, err)
	}
	if alive, err := primary.lock.DatabaseAlive(); alive || err != nil {
		t.Errorf("a process is left: %v, %v", alive, err)
	}
	if left := primary.lock.Holders(); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	primary.postmaster = nil
	if at, err := ReadShutdownEnd(t.Context(), w.programs, primary.pgdata()); !errors.As(err, &unclean) {
		t.Errorf("a crashed server shut down at %s: %v", at, err)
	}
}
