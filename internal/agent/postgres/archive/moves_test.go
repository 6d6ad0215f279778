package archive

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What one destination has taken is not what the next one has.
func TestArchiveMoves(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2, 3, 4)
	a.asks(1, 1)
	for _, n := range []uint64{2, 3, 4} {
		<-a.queue.startJob(a.destination.archive, segmentName(1, n)).done // ahead
	}
	a.store = t.TempDir()
	a.down()
	a.config.Store.URL = "file://" + a.store
	if s := a.computeStatus(time.Now()); s.Last != "" || !s.LastTime.IsZero() {
		t.Errorf("nothing is stored there: %+v", s)
	}
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 2)) }()
	for a.ReadCounts().Failures == 0 {
		time.Sleep(time.Millisecond)
	}
	if s := a.computeStatus(time.Now()); s.Last != "" {
		t.Errorf("%s passes for stored there", s.Last)
	}
	a.up()
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	a.asks(1, 3, 4)
	a.holds(1, 2, 3, 4)
	a.gaps()
	if s := a.computeStatus(time.Now()); s.Last != segmentName(1, 4) {
		t.Errorf("%+v", s)
	}
}

// The report after a move says nothing of the place before.
func TestArchiveReportAfterAMove(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	if said := a.said.Load(); said == nil || said.Last != segmentName(1, 1) {
		t.Fatalf("%+v", said)
	}
	a.config.Store.URL = "file://" + t.TempDir()
	a.ReportStatus()
	if said := a.said.Load(); said.Last != "" {
		t.Errorf("%s passes for stored where the WAL goes now", said.Last)
	}
}

// What no request wanted counts as stored neither at once nor later.
func TestArchiveOffForAWhile(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.queue.atOnce = 1
	a.asks(1, 1)
	a.nowhere.Store(true)
	a.asks(1, 2)
	if err := os.Remove(a.files.walPath(segmentName(1, 2))); err != nil {
		t.Fatal(err)
	}
	a.nowhere.Store(false)
	if s := a.computeStatus(time.Now()); s.Last != segmentName(1, 1) {
		t.Errorf("%+v", s)
	}
	a.ready(1, 3)
	a.asks(1, 3)
	a.holds(1, 1, 3)
	a.gaps([2]uint64{2, 2})
	a.BeginRun(true)
	if s := a.computeStatus(time.Now()); s.Last != "" {
		t.Errorf("%s was stored by another run", s.Last)
	}
}

// Two promotions from one segment leave two partial ones of its name: the archive
// keeps both, replaces neither, and goes on.
func TestArchiveOfTwoPromotionsFromOneSegment(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.asks(1, 1, 2)
	partial := segmentName(1, 3) + ".partial"
	for promotion, timeline := range []uint32{2, 3} {
		a.Archiver = a.another(t.TempDir())
		a.write(1, 3)
		data, err := os.ReadFile(a.files.walPath(segmentName(1, 3)))
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] = byte(promotion)
		mustWrite(t, a.files.walPath(partial), string(data))
		mustWrite(t, a.sign(partial), "")
		history := fmt.Sprintf("%08X.history", timeline)
		mustWrite(t, a.files.walPath(history), fmt.Sprintf("1\t0/%d80000\tno recovery target specified\n", 3))
		mustWrite(t, a.sign(history), "")
		a.ready(timeline, 3, 4)
		for _, name := range []string{history, partial} {
			if err := a.ask(name); err != nil {
				t.Fatal(err)
			}
		}
		a.asks(timeline, 3, 4)
		a.holds(timeline, 3, 4)
	}
	a.holds(1, 1, 2)
	a.gaps()
	stored, err := filepath.Glob(filepath.Join(a.store, a.config.Prefix, "00000001", partial+"*"))
	if err != nil || len(stored) != 2 {
		t.Errorf("%v, %v", stored, err)
	}
}
