//go:build postgres

package rolechange

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// dumped is a record as PostgreSQL's own reader prints it.
var dumped = regexp.MustCompile(`len \(rec/tot\): *\d+/ *(\d+), .* lsn: ([0-9A-F]+/[0-9A-F]+), `)

// dumpEnd asks PostgreSQL's own reader where the last record of a timeline ends.
func (m *member) dumpEnd(timeline int64, from uint64) string {
	m.t.Helper()
	out, _ := exec.CommandContext(m.t.Context(), filepath.Join(m.w.programs.Dir, "pg_waldump"), "--path", m.walDir(), "--timeline", strconv.FormatInt(timeline, 10), "--start", wal.FormatPosition(from)).Output()
	records := dumped.FindAllStringSubmatch(string(out), -1)
	if len(records) == 0 {
		m.t.Fatalf("pg_waldump says: %s", out)
	}
	last := records[len(records)-1]
	length, err := strconv.ParseUint(last[1], 10, 64)
	if err != nil {
		m.t.Fatal(err)
	}
	return wal.FormatPosition(endAfter(lsn.Parse(1, last[2]).Position, length))
}

// endAfter is where a record of a length ends, with the headers of pages between.
func endAfter(at, length uint64) uint64 {
	const page, segment = 8 << 10, 1 << 20
	for {
		part := min(length, page-at%page)
		at += part
		if length -= part; length == 0 {
			return (at + 7) / 8 * 8
		}
		if at%segment == 0 {
			at += 40
		} else {
			at += 24
		}
	}
}

// Rule 11: of two standbys, one is promoted to exactly the reserved timeline, and the
// other follows in place.
func TestRealRule11PromoteToExactlyTheReservedTimeline(t *testing.T) {
	w := newWorld(t, 3, nil)
	primary, a, b := w.members[0], w.members[1], w.members[2]
	primary.fill("streamed", 3000)
	primary.sameContent(a, b)
	replayed := primary.position("pg_current_wal_flush_lsn()")
	primary.fill("last", 2000)
	primary.kill()

	held := map[*member]HeldWAL{}
	for _, standby := range []*member{a, b} {
		held[standby] = standby.stopReceiver()
		if got := standby.one("select pg_get_wal_replay_pause_state()"); got != "not paused" {
			t.Errorf("replay is %s", got)
		}
		if diff := cmp.Diff([]int64{1}, held[standby].Timelines); diff != "" {
			t.Error(diff)
		}
		if got, want := wal.FormatPosition(held[standby].End.Position), standby.dumpEnd(1, replayed); got != want {
			t.Errorf("%s holds WAL to %s, and pg_waldump reads to %s", standby.name, got, want)
		}
	}
	if held[b].End.Newer(held[a].End) {
		a, b = b, a
	}
	started := b.one("select pg_postmaster_start_time()::text")
	promoted := a.promote(7, Quorum{})
	if promoted.Timeline != 7 || promoted.Fork.Position != held[a].End.Position || a.timeline() != "7" {
		t.Errorf("promoted: %+v, on %s, with WAL to %s", promoted, a.timeline(), held[a].End)
	}
	b.follow(a, 7)
	a.fill("after", 3000)
	a.sameContent(b)
	if again := b.one("select pg_postmaster_start_time()::text"); again != started {
		t.Error("the standby was restarted")
	}
	progress, err := a.ReadProgress(t.Context())
	if err != nil || cmp.Diff([]string{b.name}, progress.ListReached(promoted)) != "" || progress.FindAcknowledged(Quorum{}) != progress.Own || progress.Own.Timeline != 7 {
		t.Errorf("%+v, %v", progress, err)
	}
	if diff := cmp.Diff([]int64{1, 7}, b.stopReceiver().Timelines); diff != "" {
		t.Error(diff)
	}
	// What is not above all that is known is refused, and the standby stays one.
	for _, taken := range []int64{1, 6, 7} {
		var refused *TimelineTakenError
		if _, err := b.Promote(t.Context(), Promotion{Timeline: taken}); !errors.As(err, &refused) || refused.Highest != 7 {
			t.Errorf("timeline %d: %v", taken, err)
		}
	}
	b.follow(a, 7)
	a.fill("on", 100)
	a.sameContent(b)
	// The next one skips numbers, too, and comes back to the first.
	a.kill()
	b.stopReceiver()
	b.promote(12, Quorum{})
	if held := a.startStandby(); held.End.Timeline != 7 {
		t.Errorf("the former primary holds %+v", held)
	}
	a.follow(b, 12)
	b.fill("back", 1000)
	b.sameContent(a)
}

// Rule 13: a reader that holds replay holds neither a vote nor a promotion, and the
// WAL that it held back is not lost.
func TestRealRule13ReadersHoldNoPromotion(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"hot_standby_feedback": "off", "max_standby_streaming_delay": "-1"})
	primary, a := w.members[0], w.members[1]
	primary.fill("before", 1000)
	primary.sameContent(a)
	holdReplay(t, primary, a)
	primary.fill("behind the reader", 2000)
	flushed := primary.position("pg_current_wal_flush_lsn()")
	a.until("pg_last_wal_receive_lsn() >= '" + wal.FormatPosition(flushed) + "'")
	want := primary.content()
	primary.kill()

	held := a.stopReceiver()
	if held.End.Position < flushed {
		t.Errorf("holds WAL to %s, and %s was flushed", held.End, wal.FormatPosition(flushed))
	}
	a.promote(2, Quorum{})
	if got := a.content(); got != want {
		t.Errorf("holds %s, and the primary held %s", got, want)
	}
}

// A reader that comes after the vote is one more.
func TestRealRule13ReaderAtThePromotion(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"hot_standby_feedback": "off", "max_standby_streaming_delay": "-1"})
	primary, a := w.members[0], w.members[1]
	primary.fill("before", 1000)
	primary.sameContent(a)
	// Replay that a person has paused stays so over a vote, and ends with it.
	a.exec("select pg_wal_replay_pause()")
	a.until("pg_get_wal_replay_pause_state() = 'paused'")
	primary.exec("delete from public.ledger where n % 2 = 0", "vacuum public.ledger")
	primary.fill("behind the reader", 2000)
	flushed := primary.position("pg_current_wal_flush_lsn()")
	a.until("pg_last_wal_receive_lsn() >= '" + wal.FormatPosition(flushed) + "'")
	want := primary.content()
	primary.kill()
	if held := a.stopReceiver(); held.End.Position < flushed {
		t.Errorf("holds WAL to %s, and %s was flushed", held.End, wal.FormatPosition(flushed))
	}
	if got := a.one("select pg_get_wal_replay_pause_state()"); got != "paused" {
		t.Errorf("replay is %s", got)
	}
	a.read(t)
	a.promote(2, Quorum{})
	if got := a.content(); got != want {
		t.Errorf("holds %s, and the primary held %s", got, want)
	}
}

// read begins a long query that sees what the standby has replayed.
func (m *member) read(t *testing.T) {
	t.Helper()
	conn, err := m.connect(t.Context(), "reader")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "begin isolation level repeatable read; select count(*) from public.ledger"); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = conn.Exec(context.Background(), "select count(*), pg_sleep(600) from public.ledger") }()
}

// holdReplay has a reader on a standby that keeps it from replaying a cleanup.
func holdReplay(t *testing.T, primary, standby *member) {
	t.Helper()
	standby.read(t)
	primary.exec("delete from public.ledger where n % 2 = 0", "vacuum public.ledger")
	standby.until("exists (select from pg_stat_activity where backend_type = 'startup' and wait_event = 'RecoveryConflictSnapshot')")
	time.Sleep(time.Second) // replay looks for it ever more seldom
}
