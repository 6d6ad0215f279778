//go:build postgres

package rolechange

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Rule 9: a standby that stopped its receiver receives nothing, whatever its replay
// does, and follows again without a restart.
func TestRealRule9StoppedReceiverReceivesNothing(t *testing.T) {
	w := newWorld(t, 2, map[string]string{"hot_standby_feedback": "off", "max_standby_streaming_delay": "-1"})
	primary, a := w.members[0], w.members[1]
	primary.fill("before", 500)
	primary.sameContent(a)
	started := a.one("select pg_postmaster_start_time()::text")
	for name, hold := range map[string]func(){
		"replay is at the end":   func() {},
		"a person has paused it": func() { a.exec("select pg_wal_replay_pause()") },
		"a reader holds it":      func() { holdReplay(t, primary, a) },
		"WAL arrives all the time": func() {
			go func() {
				_ = primary.Server.exec(context.Background(), "insert into public.ledger (tag, pad) select 'flood', repeat('x', 1000) from generate_series(1, 20000)")
			}()
			a.until("exists (select from pg_stat_wal_receiver where flushed_lsn > latest_end_lsn - 1)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			hold()
			held := a.stopReceiver()
			if pids, settled := a.listReceivers(); len(pids) > 0 || !settled {
				t.Errorf("receivers %v are left", pids)
			}
			primary.fill("unseen", 100)
			primary.until("not exists (select from pg_stat_replication)")
			time.Sleep(1200 * time.Millisecond) // replay looks for WAL twice a second
			if pids, _ := a.listReceivers(); len(pids) > 0 {
				t.Errorf("receivers %v came again", pids)
			}
			if again, err := a.MeasureWAL(t.Context()); err != nil || again.End != held.End {
				t.Errorf("%+v, %v; it held WAL to %s", again, err, held.End)
			}
			a.exec("select pg_wal_replay_resume()")
			a.follow(primary, 1)
			primary.fill("seen", 100)
			primary.sameContent(a)
		})
	}
	if again := a.one("select pg_postmaster_start_time()::text"); again != started {
		t.Error("the standby was restarted")
	}
}

// Rule 8: what is held is of all timelines that were received, whatever pg_control and
// replay have come to.
func TestRealRule8HeldTimelinesAreMoreThanPgControlShows(t *testing.T) {
	w := newWorld(t, 3, nil)
	primary, a, b := w.members[0], w.members[1], w.members[2]
	primary.fill("before", 500)
	primary.sameContent(a, b)
	before := b.position("pg_last_wal_replay_lsn()")
	primary.fill("more", 500)
	primary.sameContent(a, b)
	primary.kill()
	a.stopReceiver()
	fork := a.promote(4, Quorum{}).Fork
	b.follow(a, 4)
	a.fill("on timeline 4", 500)
	a.sameContent(b)
	flushed := a.position("pg_current_wal_flush_lsn()")
	a.kill()
	held := b.stopReceiver()
	if control := b.one("select timeline_id::text from pg_control_checkpoint()"); control != "1" {
		t.Errorf("pg_control says timeline %s already", control)
	}
	if diff := cmp.Diff([]int64{1, 4}, held.Timelines); diff != "" || held.End.Timeline != 4 || held.End.Position < flushed {
		t.Errorf("%+v\n%s", held, diff)
	}
	if got := wal.FormatPosition(held.End.Position); got != b.dumpEnd(4, fork.Position) {
		t.Errorf("holds WAL to %s, and pg_waldump reads to %s", got, b.dumpEnd(4, fork.Position))
	}
	// Replay that is behind, or just where the timeline began, is on the one before.
	for _, replayed := range []uint64{before, fork.Position} {
		if found, err := wal.FindHeld(b.walDir(), 1, replayed, 0); err != nil || int64(found.Timeline) != 4 || found.Position != held.End.Position {
			t.Errorf("from %s: %+v, %v", wal.FormatPosition(replayed), found, err)
		}
	}
	// The server is gone, and the volume says the same.
	b.kill()
	if again, err := MeasureWALAtRest(t.Context(), w.programs, b.pgdata()); err != nil || again.End != held.End {
		t.Errorf("%+v, %v", again, err)
	}
}

// A standby says why it does not follow.
func TestRealFollowSaysWhyItDoesNot(t *testing.T) {
	w := newWorld(t, 3, map[string]string{"wal_keep_size": "0", "max_wal_size": "4MB", "min_wal_size": "2MB"})
	primary, a, b := w.members[0], w.members[1], w.members[2]
	primary.sameContent(a, b)
	a.stopReceiver()
	b.stopReceiver()
	problem := func(err error) FollowProblem {
		var found *FollowError
		if !errors.As(err, &found) {
			t.Fatalf("no problem: %v", err)
		}
		if !strings.Contains(found.Error(), found.Primary) || !strings.Contains(found.Error(), ": ") {
			t.Errorf("%q names no object or no remedy", found)
		}
		return found.Problem
	}
	try := func(m, primary *member, timeline int64) error {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		return m.Follow(ctx, Target{Connection: m.connectionTo(primary), Timeline: timeline})
	}
	if got := problem(try(a, primary, 2)); got != NotLeading {
		t.Errorf("another timeline: %d", got)
	}
	if got := problem(try(a, b, 1)); got != NotLeading {
		t.Errorf("a standby: %d", got)
	}
	absent := &member{w: w, t: t, name: "orders-9", port: freePort(t)}
	if got := problem(try(a, absent, 1)); got != NoAnswer {
		t.Errorf("no server: %d", got)
	}
	primary.exec("select pg_drop_replication_slot('" + settings.SlotName(a.name) + "')")
	if got := problem(try(a, primary, 1)); got != NoSlot {
		t.Errorf("no slot: %d", got)
	}
	a.stopReceiver()
	b.follow(primary, 1)
	for range 8 {
		primary.exec("create table public.filler as select 1 as n", "drop table public.filler", "select pg_switch_wal()", "checkpoint")
	}
	primary.sameContent(b)
	primary.exec("checkpoint") // nothing keeps the WAL by now
	primary.ensureSlots()
	if got := problem(try(a, primary, 1)); got != WALRemoved {
		t.Errorf("no WAL: %d", got)
	}

	// A volume of another cluster.
	foreign := w.newMember("orders-0", nil)
	if _, err := w.programs.Run(t.Context(), "initdb", "--pgdata="+foreign.pgdata(), "--username=postgres", "--no-sync", "--wal-segsize=1"); err != nil {
		t.Fatal(err)
	}
	foreign.start(Live{})
	foreign.exec("create role " + settings.ReplicationRole + " login replication")
	var other *OtherSystemError
	if err := try(b, foreign, 1); !errors.As(err, &other) {
		t.Errorf("another system: %v", err)
	}
}

// Rule 18: a former primary whose WAL ends before the next timeline begins follows as it
// is, crashed or not. One that went further is found before it starts.
func TestRealRule18FormerPrimaryFollowsOrHasDiverged(t *testing.T) {
	w := newWorld(t, 2, nil)
	primary, a := w.members[0], w.members[1]
	primary.fill("streamed", 1000)
	primary.sameContent(a)
	primary.kill()
	a.stopReceiver()
	a.promote(2, Quorum{})
	a.fill("after", 100)
	// It crashed with all of its WAL streamed.
	held := primary.startStandby()
	target := Target{Connection: primary.connectionTo(a), Timeline: 2}
	if err := CheckTarget(t.Context(), held, target); err != nil {
		t.Fatal(err)
	}
	primary.follow(a, 2)
	a.sameContent(primary)

	// The next one writes more than its standby receives, and dies.
	primary.stopReceiver()
	a.fill("lost", 100)
	lost := a.position("pg_current_wal_flush_lsn()")
	a.kill()
	fork := primary.promote(3, Quorum{}).Fork
	primary.fill("instead", 5000) // further than what was lost
	held, err := PrepareStandby(t.Context(), w.programs, a.pgdata())
	if err != nil || held.End.Position < lost {
		t.Fatalf("%+v, %v", held, err)
	}
	var diverged *DivergedError
	if err := CheckTarget(t.Context(), held, Target{Connection: a.connectionTo(primary), Timeline: 3}); !errors.As(err, &diverged) || diverged.Left != fork.Position || diverged.Held != held.End {
		t.Errorf("%v", err)
	}
	// It is found of a standby that runs, too.
	a.start(Live{})
	if err := a.tryFollow(primary, 3); !errors.As(err, &diverged) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(a.walDir(), "00000003.history")); err == nil {
		t.Error("it asked the primary to stream")
	}
}
