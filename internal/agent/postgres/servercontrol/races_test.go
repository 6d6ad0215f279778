package servercontrol

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recoverywatch"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
)

// hookedServer does something in the middle of what it is asked.
type hookedServer struct {
	*fakeServer
	during func()
}

func (s hookedServer) Promote(ctx context.Context, p rolechange.Promotion) (rolechange.Promoted, error) {
	s.during()
	return s.fakeServer.Promote(ctx, p)
}

func (s hookedServer) Stop(ctx context.Context) (lsn.Point, error) {
	s.during()
	return s.fakeServer.Stop(ctx)
}

func attach(w *world, during func()) {
	w.Attach(&Run{
		Server: hookedServer{&fakeServer{trace: w.trace}, during}, Ended: make(chan struct{}),
		BecomePrimary: func(rolechange.Promoted) { w.add("is the primary") },
		ReadMark:      func() recoverywatch.Mark { return recoverywatch.Mark{} },
	})
}

// A server that ends as soon as it is promoted is started again as a standby: a term
// that was reported as won by then would have a leader that takes no writes, for ever.
func TestRule1ServerThatEndedAtItsPromotionDoesNotLead(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		attach(w, w.Detach)
		w.Promote(t.Context(), elector.Promotion{Term: 4, Timeline: 5})
		synctest.Wait()
		if lines := w.take(); !slices.Contains(lines, "term 4 failed") || slices.Contains(lines, "is the primary") {
			t.Errorf("what happened: %q", lines)
		}
		if led := w.LedTerm(); led != 0 {
			t.Errorf("it led in term %d", led)
		}
	})
}

// A primary without a server keeps its term as long as one comes nearer, and no longer.
func TestRule7TermEndsWithoutAServer(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		others, ctx := true, t.Context()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go w.FollowTerm(ctx, func(term int64) bool { return others && term == 4 })
		end := w.attach(&fakeServer{})
		w.Promote(t.Context(), elector.Promotion{Term: 4, Timeline: 5})
		w.expect(t, "promotes to 5 with 0 of []", "is the primary on 5", "promoted: term 4, timeline 5")
		time.Sleep(10 * recoverywatch.Limit)
		w.expect(t)
		end()
		for range 100 { // a recovery that replays
			time.Sleep(recoverywatch.Limit / 2)
			w.ReportProgress()
		}
		w.expect(t)
		others = false
		time.Sleep(2 * recoverywatch.Limit)
		w.expect(t)
		others = true
		time.Sleep(recoverywatch.Limit + 5*time.Second)
		w.expect(t, "term 4 failed")
	})
}

// What answered last may have ended, and the loop may wait for its volume.
func TestRule7TermEndsWithTheServerThatEnded(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go w.FollowTerm(ctx, func(int64) bool { return true })
		ended := make(chan struct{})
		w.Attach(&Run{
			Server: &fakeServer{trace: w.trace}, Ended: ended,
			BecomePrimary: func(rolechange.Promoted) {}, ReadMark: func() recoverywatch.Mark { return recoverywatch.Mark{} },
		})
		w.Promote(t.Context(), elector.Promotion{Term: 4, Timeline: 5})
		w.expect(t, "promotes to 5 with 0 of []", "promoted: term 4, timeline 5")
		close(ended) // and is not detached
		time.Sleep(recoverywatch.Limit + 5*time.Second)
		w.expect(t, "term 4 failed")
	})
}

// The next run of the server changes pg_control. It begins after the end of the WAL was
// read, or the Lease would not be released.
func TestRule17NextRunWaitsForTheShutdownPosition(t *testing.T) {
	inWork(t, func(t *testing.T, w *world) {
		attach(w, func() {
			go func() {
				w.Detach()
				w.add("the next run may begin")
			}()
			time.Sleep(time.Second)
		})
		w.StopServer(3)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if lines := w.take(); len(lines) < 2 || lines[0] != "stops" || !slices.Contains(lines, "the next run may begin") {
			t.Errorf("what happened: %q", lines)
		}
	})
}

// What the loop has observed of a term may be over when it starts the server: a primary
// is not started again after a fence, or after a stop that found no server.
func TestRule1NoPrimaryIsStartedAfterItsTerm(t *testing.T) {
	for name, end := range map[string]func(*world){
		"fence": func(w *world) { w.Fence(1) },
		"stop":  func(w *world) { w.StopServer(4) },
	} {
		t.Run(name, func(t *testing.T) {
			inWork(t, func(t *testing.T, w *world) {
				attach(w, func() {})
				w.Promote(t.Context(), elector.Promotion{Term: 4, Timeline: 5})
				synctest.Wait()
				w.Detach() // it has crashed
				if _, may := w.BeginStart(w.LedTerm()); !may {
					t.Fatal("a primary that crashed is not started in its term")
				}
				w.Detach()
				end(w)
				synctest.Wait()
				if _, may := w.BeginStart(4); may {
					t.Error("a primary is started after its term")
				}
				if _, may := w.BeginStart(0); !may {
					t.Error("no standby is started")
				}
			})
		})
	}
}
