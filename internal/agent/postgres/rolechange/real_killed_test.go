//go:build postgres

package rolechange

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/wal"
)

// killAt is a moment of a promotion at which its server is killed: after a time, or
// when a file is there or gone.
type killAt struct {
	name string
	// wait returns at the moment.
	wait func(a *member, timeline int64, stop <-chan struct{})
}

// moments are as PostgreSQL comes to them.
func moments(a *member, timeline int64) []killAt {
	until := func(name string, reached func() bool) killAt {
		return killAt{name, func(_ *member, _ int64, stop <-chan struct{}) {
			for !reached() {
				select {
				case <-stop:
					return
				default:
				}
			}
		}}
	}
	exists := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	list := []killAt{
		until("the signal is removed", func() bool { return !exists(filepath.Join(a.pgdata(), "standby.signal")) }),
		until("the history is written", func() bool { return exists(filepath.Join(a.walDir(), wal.HistoryName(uint32(timeline)))) }), //nolint:gosec // a small number
		until("the request is taken up", func() bool { return exists(filepath.Join(a.pgdata(), "promote")) }),
	}
	for range 3 {
		after := time.Duration(rand.Int64N(int64(60 * time.Millisecond)))
		list = append(list, killAt{after.String(), func(_ *member, _ int64, stop <-chan struct{}) {
			select {
			case <-stop:
			case <-time.After(after):
			}
		}})
	}
	return list
}

// killPromotion begins to promote, and kills every process of the server at a moment
// that is chosen at random.
func (m *member) killPromotion(timeline int64) string {
	m.t.Helper()
	pids := append([]int{m.startupPID()}, m.lock.Holders()...)
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = m.Promote(ctx, Promotion{Timeline: timeline})
	}()
	list := moments(m, timeline)
	moment := list[rand.IntN(len(list))]
	moment.wait(m, timeline, ended)
	for _, pid := range pids { // the startup process first
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	m.lock.KillHolders()
	cancel()
	<-ended
	m.kill()
	return moment.name
}

func (m *member) startupPID() int {
	m.t.Helper()
	pid, err := strconv.Atoi(m.one("select pid::text from pg_stat_activity where backend_type = 'startup'"))
	if err != nil {
		m.t.Fatal(err)
	}
	return pid
}

// Rule 11: a promotion that is killed at any moment burns its timeline. Its server
// starts again as a standby on what it holds, the member with the newest WAL goes on
// under a number of its own, and the other one follows without a rewind.
func TestRealRule11KilledPromotionBurnsItsTimeline(t *testing.T) {
	w := newWorld(t, 3, nil)
	w.members[0].fill("streamed", 500)
	w.members[0].sameContent(w.members[1], w.members[2])
	w.members[0].kill()
	a, b := w.members[1], w.members[2]
	want := a.content()
	timeline, reached, histories, signals := int64(1), 0, 0, 0
	for round := range 20 {
		timeline++
		a.stopReceiver()
		b.stopReceiver()
		moment := a.killPromotion(timeline)
		_, err := os.Stat(filepath.Join(a.walDir(), wal.HistoryName(uint32(timeline)))) //nolint:gosec // a small number
		written := err == nil
		if written {
			histories++
		}
		if _, err := os.Stat(filepath.Join(a.pgdata(), "standby.signal")); err != nil {
			signals++
		}

		held := a.startStandby()
		// What the next round begins with is the newest WAL, and never the burnt number.
		leader, follower := b, a
		if held.End.Timeline == timeline {
			reached++
			leader, follower = a, b
		}
		if again := leader.stopReceiver(); follower.stopReceiver().End.Newer(again.End) {
			t.Fatalf("round %d: %s has more WAL than %s", round, follower.name, leader.name)
		}
		timeline++
		leader.promote(timeline, Quorum{})
		if got := leader.content(); got != want {
			t.Fatalf("round %d: holds %s, and %s was committed", round, got, want)
		}
		follower.follow(leader, timeline)
		leader.fill("round", 50)
		leader.sameContent(follower)
		want = leader.content()
		t.Logf("round %d: killed when %s, history %v, begun %v; goes on on timeline %d", round, moment, written, leader == a, timeline)
		leader.kill()
		leader.startStandby()
		a, b = follower, leader
	}
	t.Logf("of 20 promotions, %d had removed the signal, %d had written a history and %d had begun their timeline", signals, histories, reached)
}

// A promotion that was interrupted before it began its timeline leaves files with
// which PostgreSQL would not start, or would lead.
func TestRealRule11InterruptedReservationStartsAsAStandby(t *testing.T) {
	w := newWorld(t, 2, nil)
	primary, a := w.members[0], w.members[1]
	for name, interrupt := range map[string]func(held HeldWAL){
		"the histories before it are reserved": func(HeldWAL) {},
		"the signal is gone": func(HeldWAL) {
			if err := os.Remove(filepath.Join(a.pgdata(), "standby.signal")); err != nil {
				t.Fatal(err)
			}
		},
		"its history is written": func(held HeldWAL) {
			if err := os.Remove(filepath.Join(a.pgdata(), "standby.signal")); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, filepath.Join(a.walDir(), "00000009.history"), "1\t"+wal.FormatPosition(held.End.Position)+"\tno recovery target specified\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			held := a.stopReceiver()
			if _, err := reserveTimeline(a.walDir(), held, 9); err != nil {
				t.Fatal(err)
			}
			a.kill()
			interrupt(held)
			if again := a.startStandby(); again.End != held.End {
				t.Errorf("holds WAL to %s, and held it to %s", again.End, held.End)
			}
			a.follow(primary, 1)
			primary.fill(name, 100)
			primary.sameContent(a)
			a.stopReceiver()
			for _, path := range []string{"00000008.history", "00000009.history"} {
				_ = os.Remove(filepath.Join(a.walDir(), path+unreachedSuffix))
			}
			a.follow(primary, 1)
		})
	}
}

// The history of a timeline that never arrived would become the parent of the next.
func TestRealRule11StaleHistoryIsNoParent(t *testing.T) {
	w := newWorld(t, 3, nil)
	primary, a, b := w.members[0], w.members[1], w.members[2]
	primary.fill("before", 100)
	primary.sameContent(a, b)
	primary.kill()
	held := a.stopReceiver()
	b.stopReceiver()
	// A primary was elected that had more WAL, and died before any of it was received.
	mustWrite(t, filepath.Join(a.walDir(), "00000002.history"), "1\t"+wal.FormatPosition(held.End.Position+5<<20)+"\tno recovery target specified\n")
	if _, err := a.Promote(t.Context(), Promotion{Timeline: 3}); err == nil {
		t.Fatal("it was promoted with a parent that it holds nothing of")
	}
	a.kill()
	a.startStandby()
	a.promote(3, Quorum{})
	b.follow(a, 3)
	a.fill("after", 100)
	a.sameContent(b)
}
