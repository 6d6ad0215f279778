package archive

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// holdUp lets requests for some segments hang until they are canceled, or the
// function it returns is called. With lands, the store takes them all the same.
func (a *archiving) holdUp(lands bool, numbers ...uint64) (release func()) {
	var released atomic.Bool
	var names []string
	for _, n := range numbers {
		names = append(names, segmentName(1, n))
	}
	put := a.queue.put
	a.queue.put = func(ctx context.Context, archive *wal.Archive, name string) error {
		if released.Load() || !slices.Contains(names, name) {
			return put(ctx, archive, name)
		}
		if lands {
			if err := put(ctx, archive, name); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}
	return func() { released.Store(true) }
}

// discards asks for a segment, waits until the store holds others, and lets one
// more wait than the budget allows.
func (a *archiving) discards(number, next uint64, stored ...uint64) {
	a.t.Helper()
	asked := make(chan error, 1)
	go func() { asked <- a.ask(segmentName(1, number)) }()
	for _, n := range stored {
		for there := false; !there; time.Sleep(time.Millisecond) {
			there, _ = a.openedArchive().HasFile(a.t.Context(), segmentName(1, n))
		}
	}
	a.ready(1, next)
	if err := <-asked; err != nil {
		a.t.Fatal(err)
	}
}

// recycled removes segments as a checkpoint does.
func (a *archiving) recycled(numbers ...uint64) {
	a.t.Helper()
	for _, n := range numbers {
		if err := os.Remove(a.files.walPath(segmentName(1, n))); err != nil {
			a.t.Fatal(err)
		}
	}
}

// newArchivingBesideOneHeld has stored 1, and 2 to 5 wait.
func newArchivingBesideOneHeld(t *testing.T) *archiving {
	a := newArchiving(t)
	a.config.Budget, a.queue.atOnce = 4*mebibyte, 4
	a.ready(1, 1)
	a.asks(1, 1)
	a.ready(1, 2, 3, 4, 5)
	return a
}

func ended(s *agentapi.ArchiveStatus) bool { return s.Gap != nil && !s.Gap.Ended.IsZero() }

// A segment that was discarded is missing, although segments behind it were stored
// at the same time.
func TestArchiveGapBehindSegmentsStoredAhead(t *testing.T) {
	a := newArchivingBesideOneHeld(t)
	a.holdUp(false, 2)
	a.discards(2, 6, 3, 4, 5)
	a.discards(3, 7)
	a.recycled(2)
	a.asks(1, 4, 5, 6, 7)
	a.holds(1, 1, 3, 4, 5, 6, 7)
	a.gaps([2]uint64{2, 2})
	if s := a.says("a gap that ended", ended); s.Gap.To != segmentName(1, 2) || s.Gap.After != segmentName(1, 1) || s.Gap.Begun.IsZero() {
		t.Errorf("%+v", s.Gap)
	}
}

// The same, and the volume still has it: it is stored after all.
func TestArchiveStoresBehindSegmentsStoredAhead(t *testing.T) {
	a := newArchivingBesideOneHeld(t)
	release := a.holdUp(false, 2)
	a.discards(2, 6, 3, 4, 5)
	a.discards(3, 7)
	release()
	a.asks(1, 4, 5, 6, 7)
	a.holds(1, 1, 2, 3, 4, 5, 6, 7)
	a.gaps()
	a.says("no gap", func(s *agentapi.ArchiveStatus) bool { return s.Gap == nil })
}

// Of several holes each is recorded, not only the last.
func TestArchiveGapsBetweenSegmentsStoredAhead(t *testing.T) {
	a := newArchivingBesideOneHeld(t)
	a.holdUp(false, 2, 4)
	a.discards(2, 6, 3, 5)
	a.discards(3, 7)
	a.discards(4, 8)
	a.recycled(2, 4)
	a.asks(1, 5, 6, 7, 8)
	a.holds(1, 1, 3, 5, 6, 7, 8)
	a.gaps([2]uint64{2, 2}, [2]uint64{4, 4})
}

// A segment that was discarded, and whose request reached the store, is not
// missing.
func TestArchiveGapOfAStoredSegment(t *testing.T) {
	a := newArchivingBesideOneHeld(t)
	a.holdUp(true, 2)
	a.discards(2, 6, 2)
	a.recycled(2)
	a.asks(1, 3, 4, 5, 6)
	a.holds(1, 1, 2, 3, 4, 5, 6)
	a.gaps()
	a.says("no gap", func(s *agentapi.ArchiveStatus) bool { return s.Gap == nil })
}

// The database may ask once more for what was discarded.
func TestArchiveGapOfASegmentAskedForAgain(t *testing.T) {
	a := newArchivingBesideOneHeld(t)
	release := a.holdUp(false, 2)
	a.discards(2, 6, 3)
	release()
	a.asks(1, 2)
	a.asks(1, 3, 4, 5, 6)
	a.holds(1, 1, 2, 3, 4, 5, 6)
	a.gaps()
	a.says("no gap", func(s *agentapi.ArchiveStatus) bool { return s.Gap == nil })
}

// An agent that starts again remembers nothing of what was discarded, and finds
// it all the same; so does a member that takes over.
func TestArchiveGapAfterARestart(t *testing.T) {
	a := newArchivingBesideOneHeld(t)
	a.holdUp(false, 2)
	a.discards(2, 6, 3, 4, 5)
	a.discards(3, 7)
	a.recycled(2)
	a.Archiver = a.another(a.files.pgdata)
	a.asks(1, 4, 5, 6, 7)
	a.holds(1, 1, 3, 4, 5, 6, 7)
	a.gaps([2]uint64{2, 2})
	first := a.says("a gap that ended", ended).Gap

	// What is recorded is not recorded as new.
	a.Archiver = a.another(a.files.pgdata)
	a.ready(1, 8)
	a.asks(1, 8)
	a.gaps([2]uint64{2, 2})
	if again := a.says("a gap that ended", ended).Gap; !again.Ended.Equal(first.Ended) {
		t.Errorf("it ended at %s, and then at %s", first.Ended, again.Ended)
	}
}

func TestArchiveGapAfterAFailover(t *testing.T) {
	a := newArchivingBesideOneHeld(t)
	a.holdUp(false, 2)
	a.discards(2, 6, 3, 4, 5)
	a.discards(3, 7)
	a.Archiver = a.another(t.TempDir())
	mustWrite(t, a.files.walPath("00000002.history"), "1\t0/580000\tno recovery target specified\n")
	a.write(1, 4)
	a.ready(2, 5, 6)
	a.asks(2, 5, 6)
	a.gaps([2]uint64{2, 2})
	a.holds(2, 5, 6)
}

// What was not wanted for a while is missing, although segments behind it were
// stored before.
func TestArchiveGapOfAnArchiveThatWasOff(t *testing.T) {
	a := newArchivingBesideOneHeld(t)
	release := a.holdUp(false, 2)
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() { asked <- a.archiveFile(ctx, segmentName(1, 2)) }()
	for there := false; !there; time.Sleep(time.Millisecond) {
		there, _ = a.openedArchive().HasFile(t.Context(), segmentName(1, 3))
	}
	cancel()
	if err := <-asked; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	a.nowhere.Store(true)
	a.asks(1, 2, 3)
	a.recycled(2)
	release()
	a.nowhere.Store(false)
	a.asks(1, 4, 5)
	a.gaps([2]uint64{2, 2})
}

func (a *archiving) openedArchive() *wal.Archive {
	a.destination.mu.Lock()
	defer a.destination.mu.Unlock()
	return a.destination.archive
}

// The same, and what came next was discarded.
func TestArchiveGapFromAnArchiveThatWasOff(t *testing.T) {
	a := newArchivingBesideOneHeld(t)
	a.queue.atOnce = 1
	a.nowhere.Store(true)
	a.asks(1, 2)
	a.nowhere.Store(false)
	a.down()
	a.ready(1, 6)
	a.discards(3, 7)
	a.recycled(2, 3)
	a.up()
	a.asks(1, 4, 5, 6, 7)
	a.holds(1, 1, 4, 5, 6, 7)
	a.gaps([2]uint64{2, 3})
}
