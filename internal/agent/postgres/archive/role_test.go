package archive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// asksMeanwhile asks for a file, and returns when the archiver has looked for a place
// for it: the call is under way.
func (a *archiving) asksMeanwhile(name string) <-chan error {
	a.t.Helper()
	before := a.placed.Load()
	asked := make(chan error, 1)
	go func() { asked <- a.ask(name) }()
	for end := time.Now().Add(time.Minute); a.placed.Load() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			a.t.Fatal("the archiver does not look for the place")
		}
	}
	return asked
}

func receive(t *testing.T, asked <-chan error) {
	t.Helper()
	select {
	case err := <-asked:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the call does not return")
	}
}

// formatTurn is a history with one turn.
func formatTurn(timeline uint32, at uint64) string {
	return fmt.Sprintf("%d\t%s\tno recovery target specified\n", timeline, wal.FormatPosition(at))
}

// holdsFile says whether the store has an object.
func (a *archiving) holdsFile(object string) bool {
	a.t.Helper()
	_, err := os.Stat(filepath.Join(a.store, a.config.Prefix, object))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		a.t.Fatal(err)
	}
	return err == nil
}

// promotes leaves the files of a promotion from the middle of a segment.
func (a *archiving) promotes(to uint32, number uint64) (history, partial string) {
	a.t.Helper()
	history, partial = wal.HistoryName(to), segmentName(to-1, number)+".partial"
	mustWrite(a.t, a.files.walPath(history), formatTurn(to-1, number*uint64(mebibyte)+uint64(mebibyte)/2))
	mustWrite(a.t, a.sign(history), "")
	a.write(to-1, number)
	if err := os.Rename(a.files.walPath(segmentName(to-1, number)), a.files.walPath(partial)); err != nil {
		a.t.Fatal(err)
	}
	mustWrite(a.t, a.sign(partial), "")
	a.ready(to, number)
	return history, partial
}

// A call that waits for the old primary is served when the member is promoted, and
// nothing of the new timeline is let go before, whatever the old primary has stored.
func TestRule21PromotionWithACallUnderWay(t *testing.T) {
	for _, first := range []string{"the last segment", "the history", "the partial segment", "the first segment"} {
		t.Run(first, func(t *testing.T) {
			a := newArchiving(t)
			a.ready(1, 1, 2)
			a.asks(1, 1, 2)
			a.Archiver = a.another(t.TempDir())
			a.BeginRun(false)
			a.RecordUpstream(&agentapi.ArchiveStatus{Last: segmentName(1, 2)}, 1)
			a.ready(1, 3, 4)
			history, partial := a.promotes(2, 5)
			name := map[string]string{"the last segment": segmentName(1, 4), "the history": history, "the partial segment": partial, "the first segment": segmentName(2, 5)}[first]
			if first != "the last segment" {
				// The primary before went on for a while, on a timeline that was left.
				a.RecordUpstream(&agentapi.ArchiveStatus{Last: segmentName(1, 9)}, 1)
			}
			asked := a.asksMeanwhile(name)
			a.ChangeRole(true)
			receive(t, asked)
			for _, next := range []string{history, segmentName(1, 3), segmentName(1, 4), partial, segmentName(2, 5)} {
				if err := a.ask(next); err != nil {
					t.Fatal(err)
				}
			}
			a.holds(1, 1, 2, 3, 4)
			a.holds(2, 5)
			a.gaps()
			if !a.holdsFile("00000002/"+history) || !a.holdsFile("00000001/"+partial+".zst") {
				t.Error("the store lacks what the promotion left")
			}
		})
	}
}

// What a replica discarded, and what no member has, is recorded before its timeline goes on.
func TestRule21PromotionRecordsWhatIsMissing(t *testing.T) {
	a := newArchiving(t)
	a.config.Budget = 3 * mebibyte
	a.ready(1, 1, 2)
	a.asks(1, 1, 2)
	a.Archiver = a.another(t.TempDir())
	a.BeginRun(false)
	a.ready(1, 3, 4, 5)
	a.promotes(2, 6)
	a.asks(1, 3) // beyond the budget
	a.recycled(3)
	a.ChangeRole(true)
	a.asks(1, 4, 5)
	a.asks(2, 6)
	a.holds(1, 1, 2, 4, 5)
	a.gaps([2]uint64{3, 3})
	a.says("the gap", ended)
}

// A former primary stores nothing more, and its call waits for its successor.
func TestRule21DemotionWithACallUnderWay(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	a.hangs.Store(true)
	a.ready(1, 2, 3)
	asked := a.asksMeanwhile(segmentName(1, 2))
	for end := time.Now().Add(time.Minute); a.inFlight.Load() < 2 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	} // the one behind it is stored ahead
	a.ChangeRole(false)
	a.hangs.Store(false)
	a.settles()
	a.holds(1, 1)
	if status := a.computeStatus(time.Now()); status != nil {
		t.Errorf("a replica reports %+v", status)
	}
	if counts := a.ReadCounts(); counts.Failures != 0 {
		t.Errorf("the change of the role counts as a failure: %+v", counts)
	}
	a.RecordUpstream(&agentapi.ArchiveStatus{Last: segmentName(2, 2)}, 2)
	receive(t, asked)
	a.holds(1, 1)

	// And it leads once more: what no other member stored is stored now.
	a.ChangeRole(true)
	a.asks(1, 3)
	a.holds(1, 1, 2, 3)
	a.gaps()
}

// What a follower has of a timeline that its primary left is marked as if the segment
// were whole. Promoted, it stores that beside the whole one of the former primary.
func TestRule21HalfSegmentOfAFollower(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.asks(1, 1, 2) // the former primary's, past the fork
	a.Archiver = a.another(t.TempDir())
	a.BeginRun(false)
	mustWrite(t, a.files.walPath("00000002.history"), formatTurn(1, uint64(2*mebibyte+mebibyte/2)))
	mustWrite(t, a.sign("00000002.history"), "")
	a.ready(1, 2)
	half, err := os.OpenFile(a.files.walPath(segmentName(1, 2)), os.O_WRONLY, 0)
	if err == nil {
		_, err = half.WriteAt([]byte("other"), mebibyte-9)
	}
	if err := errors.Join(err, half.Close()); err != nil {
		t.Fatal(err)
	}
	a.ready(2, 2, 3)
	a.ChangeRole(true)
	if err := a.ask("00000002.history"); err != nil {
		t.Fatal(err)
	}
	a.asks(1, 2)
	a.asks(2, 2, 3)
	a.holds(1, 1, 2)
	a.holds(2, 2, 3)
	a.gaps()
	if !a.holdsFile("00000001/" + segmentName(1, 2) + ".partial.zst") {
		t.Error("the half segment is not stored")
	}
}

// Of the histories that a follower has fetched, only what another member cannot have
// stored differently is stored: a reserved timeline has none, and one that was written
// anew does not replace the first.
func TestRule21HistoriesOfAFollower(t *testing.T) {
	a := newArchiving(t)
	first := map[string]string{"00000002.history": "1\t0/180000\tno recovery target specified\n", "00000003.history": "1\t0/180000\tburned\n"}
	for name, text := range first {
		mustWrite(t, a.files.walPath(name), text)
		if err := a.ask(name); err != nil {
			t.Fatal(err)
		}
	}
	a.Archiver = a.another(t.TempDir())
	a.BeginRun(false)
	mustWrite(t, a.files.walPath("00000002.history"), "1\t0/180000\tas a later timeline has it\n")
	mustWrite(t, a.files.walPath("00000003.history"), "# reserved: this volume holds no data of this timeline\n")
	mustWrite(t, a.files.walPath("00000004.history"), "1\t0/180000\tas a later timeline has it\n2\t0/280000\tas a later timeline has it\n")
	mustWrite(t, a.files.walPath("00000005.history"), "# reserved: this volume holds no data of this timeline\n")
	own := "1\t0/180000\tx\n2\t0/280000\tx\n4\t0/380000\tno recovery target specified\n"
	mustWrite(t, a.files.walPath("00000006.history"), own)
	a.ChangeRole(true)
	for _, name := range []string{"00000002.history", "00000003.history", "00000004.history", "00000005.history", "00000006.history"} {
		if err := a.ask(name); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]string{}
	for _, timeline := range []string{"00000002", "00000003", "00000004", "00000005", "00000006"} {
		data, err := os.ReadFile(filepath.Join(a.store, a.config.Prefix, timeline, timeline+".history"))
		if err == nil {
			got[timeline+".history"] = string(data)
		}
	}
	first["00000004.history"] = "1\t0/180000\tas a later timeline has it\n2\t0/280000\tas a later timeline has it\n"
	first["00000006.history"] = own
	if diff := cmp.Diff(first, got); diff != "" {
		t.Errorf("histories in the store (-want +got):\n%s", diff)
	}
}

// WAL that a former primary wrote after its successor left its timeline counts as stored by
// that successor at no position: it waits until it is stored, or the data is the
// successor's.
func TestRule21DivergedWALWaits(t *testing.T) {
	history, burned := wal.HistoryName(2), wal.HistoryName(3)
	const left = 3*uint64(mebibyte) + 100 // within 3
	for _, c := range []struct {
		name     string
		history  string
		received int64
		stored   []string
		waits    []string
	}{
		{"its history is there", formatTurn(1, left), 0, []string{segmentName(1, 2), segmentName(1, 2) + ".00000028.backup"}, []string{segmentName(1, 3), segmentName(1, 4), burned}},
		{"its history leads through other timelines", formatTurn(7, left), 0, nil, []string{segmentName(1, 2), segmentName(1, 4), burned}},
		{"its history is not known", "", 0, nil, []string{segmentName(1, 2), segmentName(1, 4), burned}},
		{"the timeline before is received still", formatTurn(1, left), 1, []string{segmentName(1, 2)}, []string{segmentName(1, 3), segmentName(1, 4)}},
		{"its timeline is received", "", 4, []string{segmentName(1, 2), segmentName(1, 3), segmentName(1, 4), segmentName(1, 3) + ".partial", history, burned}, []string{segmentName(1, 10)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newArchiving(t)
			a.BeginRun(false)
			a.ready(1, 2, 3, 4)
			if c.history != "" {
				mustWrite(t, a.files.walPath(wal.HistoryName(4)), c.history)
			}
			a.RecordUpstream(&agentapi.ArchiveStatus{Last: segmentName(4, 9)}, c.received)
			for want, names := range map[bool][]string{true: c.stored, false: c.waits} {
				for _, name := range names {
					if a.isStoredUpstream(name) != want {
						t.Errorf("%s counts as stored: %t", name, !want)
					}
				}
			}
		})
	}
	// The call itself waits, and what waits is stored before the data is given up.
	a := newArchiving(t)
	a.BeginRun(false)
	a.ready(1, 4, 5)
	mustWrite(t, a.files.walPath(history), formatTurn(1, left))
	a.RecordUpstream(&agentapi.ArchiveStatus{Last: segmentName(2, 9)}, 0)
	asked := make(chan error, 1)
	go func() { asked <- a.ask(segmentName(1, 4)) }()
	select {
	case err := <-asked:
		t.Fatalf("it lets go of what is not stored: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	a.EndRun(false)
	if err := <-asked; !errors.Is(err, wal.ErrStopping) {
		t.Fatal(err)
	}
	if err := a.StoreSuperseded(t.Context(), a.files.pgdata, wal.Turn{}); err != nil {
		t.Fatal(err)
	}
	a.holds(1, 4, 5)
}
