package postgres

import (
	"os"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// What one destination has taken is not what the next one has.
func TestArchiveMoves(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2, 3, 4)
	a.asks(1, 1)
	for _, n := range []uint64{2, 3, 4} {
		<-a.begin(a.archive, segmentName(1, n)).done // ahead
	}
	a.store = t.TempDir()
	a.down()
	a.config.Store.URL = "file://" + a.store
	if s := a.status(time.Now()); s.Last != "" || !s.LastTime.IsZero() {
		t.Errorf("nothing is stored there: %+v", s)
	}
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 2)) }()
	for a.numbers().failures == 0 {
		time.Sleep(time.Millisecond)
	}
	if s := a.status(time.Now()); s.Last != "" {
		t.Errorf("%s passes for stored there", s.Last)
	}
	a.up()
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	a.asks(1, 3, 4)
	a.holds(1, 2, 3, 4)
	a.gaps()
	if s := a.status(time.Now()); s.Last != segmentName(1, 4) {
		t.Errorf("%+v", s)
	}
}

// Who hears that a configuration is in force has not heard of the archive before
// it any more.
func TestArchiveMovesBeforeTheHash(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	if said := a.said.Load(); said == nil || said.Last != segmentName(1, 1) {
		t.Fatalf("%+v", said)
	}
	l := &life{agent: &agent{Host: &member.Host{Store: member.NewStore(memberapi.Status{})}, archive: a.archiver}}
	a.config.Store.URL = "file://" + t.TempDir()
	l.inForce("new", nil)
	if said := a.said.Load(); said.Last != "" || l.Store.Get().ConfigHash != "new" {
		t.Errorf("%s passes for stored where the log goes now", said.Last)
	}
}

// What nobody wanted counts as stored neither at once nor later.
func TestArchiveOffForAWhile(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.atOnce = 1
	a.asks(1, 1)
	a.nowhere.Store(true)
	a.asks(1, 2)
	if err := os.Remove(a.path(segmentName(1, 2))); err != nil {
		t.Fatal(err)
	}
	a.nowhere.Store(false)
	if s := a.status(time.Now()); s.Last != segmentName(1, 1) {
		t.Errorf("%+v", s)
	}
	a.ready(1, 3)
	a.asks(1, 3)
	a.holds(1, 1, 3)
	a.gaps([2]uint64{2, 2})
	a.begins(true)
	if s := a.status(time.Now()); s.Last != "" {
		t.Errorf("%s was stored by another run", s.Last)
	}
}
