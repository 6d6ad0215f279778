package postgres

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

func TestArchive(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 3, 4, 5, 6, 7, 8)
	a.asks(1, 3)
	// What comes next is stored before it is asked for.
	for _, n := range []uint64{4, 5, 6} {
		a.mu.Lock()
		job := a.jobs[segmentName(1, n)]
		a.mu.Unlock()
		if job == nil {
			t.Fatalf("segment %d is not stored ahead", n)
		}
		<-job.done
	}
	a.holds(1, 3, 4, 5, 6)
	a.asks(1, 4, 5, 6, 7, 8)
	a.holds(1, 3, 4, 5, 6, 7, 8)
	a.gaps()
	a.asks(1, 8) // the database forgot that it did
	s := a.says("it is done", func(s *memberapi.ArchiveStatus) bool { return s.Last == segmentName(1, 8) })
	if s.Waiting != 0 || s.Late || s.Error != "" || s.Gap != nil || !s.Oldest.IsZero() {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff([]float64{0, 0, 0, 7, 0, 0}, a.measure(time.Now())); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if len(a.jobs) != 0 {
		t.Errorf("%d jobs are kept", len(a.jobs))
	}
}

func TestArchiveOrder(t *testing.T) {
	a := newArchiving(t)
	for _, name := range []string{"000000010000000000000002", "00000002.history", "000000010000000000000001.00000028.backup", "000000010000000000000001"} {
		mustWrite(t, a.sign(name), "")
	}
	want := []string{"00000002.history", "000000010000000000000001", "000000010000000000000001.00000028.backup", "000000010000000000000002"}
	if diff := cmp.Diff(want, a.waiting().names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestArchiveWaitsForTheStore(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	a.down()
	a.ready(1, 2)
	old := time.Now().Add(-memberapi.ArchivePatience - time.Minute)
	if err := os.Chtimes(a.sign(segmentName(1, 2)), old, old); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 2)) }()
	s := a.says("late", func(s *memberapi.ArchiveStatus) bool { return s.Late && s.Error != "" })
	if s.Waiting != 1 || !s.Oldest.Equal(old.Truncate(time.Minute)) {
		t.Errorf("%+v", s)
	}
	select {
	case err := <-asked:
		t.Fatalf("archived without a store: %v", err)
	default:
	}
	a.up()
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	a.holds(1, 1, 2)
	a.says("well", func(s *memberapi.ArchiveStatus) bool { return !s.Late && s.Error == "" })
}

// The budget is used up, and not before; what the volume still has when the
// store is back is stored after all.
func TestArchiveBudget(t *testing.T) {
	for _, recycled := range []bool{false, true} {
		a := newArchiving(t)
		a.config.Budget = 4 * mebibyte
		a.ready(1, 1)
		a.asks(1, 1)
		a.down()
		a.ready(1, 2, 3, 4, 5)
		asked := make(chan error, 1)
		go func() { asked <- a.ask(segmentName(1, 2)) }()
		a.says("the reason", func(*memberapi.ArchiveStatus) bool { return a.numbers().failures > 3 })
		select {
		case err := <-asked:
			t.Fatalf("given up within the budget: %v", err)
		default:
		}
		a.ready(1, 6)
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		a.ready(1, 7)
		a.asks(1, 3)
		s := a.says("a gap", func(s *memberapi.ArchiveStatus) bool { return s.Gap != nil })
		if m := a.measure(time.Now().Add(time.Minute)); m[0] < 59 || m[1] != 4 || m[2] != 1 || m[3] != 1 || m[5] != 2 {
			t.Errorf("metrics %v", m)
		}
		if s.Gap.From != segmentName(1, 2) || s.Gap.To != "" || s.Gap.After != segmentName(1, 1) || s.Gap.Begun.IsZero() || !s.Gap.Ended.IsZero() || s.Error == "" {
			t.Errorf("%+v, %s", s.Gap, s.Error)
		}
		if recycled {
			if err := errors.Join(os.Remove(a.path(segmentName(1, 2))), os.Remove(a.path(segmentName(1, 3)))); err != nil {
				t.Fatal(err)
			}
		}
		a.up()
		a.asks(1, 4, 5, 6, 7)
		if recycled {
			a.holds(1, 1, 4, 5, 6, 7)
			a.gaps([2]uint64{2, 3})
			s := a.says("the end", func(s *memberapi.ArchiveStatus) bool { return s.Gap != nil && !s.Gap.Ended.IsZero() })
			if s.Gap.To != segmentName(1, 3) || s.Gap.After != segmentName(1, 1) || s.Gap.Begun.IsZero() {
				t.Errorf("%+v", s.Gap)
			}
			// Whoever comes later says so, too.
			a.archiver = a.another(a.pgdata)
			a.ready(1, 8)
			a.asks(1, 8)
			a.says("what is on record", func(s *memberapi.ArchiveStatus) bool { return s.Gap != nil && s.Gap.To == segmentName(1, 3) })
			continue
		}
		a.holds(1, 1, 2, 3, 4, 5, 6, 7)
		a.gaps()
		a.says("no gap", func(s *memberapi.ArchiveStatus) bool { return s.Gap == nil })
	}
}

// An archiver that remembers nothing finds out what is missing.
func TestArchiveAfterGivingUp(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.asks(1, 1, 2)
	a.archiver = a.another(a.pgdata)
	a.write(1, 4, 5, 7) // given up, or stored by nobody
	a.ready(1, 9)
	a.asks(1, 9)
	a.holds(1, 1, 2, 4, 5, 7, 9)
	a.gaps([2]uint64{3, 3}, [2]uint64{6, 6}, [2]uint64{8, 8})
}

// What is not its name's is not stored for it.
func TestArchiveOfRecycledFiles(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	a.archiver = a.another(a.pgdata)
	a.write(1, 9)
	if err := os.Rename(a.path(segmentName(1, 9)), a.path(segmentName(1, 2))); err != nil {
		t.Fatal(err)
	}
	a.ready(1, 3)
	a.asks(1, 3)
	a.holds(1, 1, 3)
	a.gaps([2]uint64{2, 2})
}

// A member that takes over stores what its predecessor had not.
func TestArchiveOnANewTimeline(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.asks(1, 1, 2)
	a.archiver = a.another(t.TempDir())
	a.write(1, 1, 2, 3, 4)
	mustWrite(t, a.path("00000002.history"), "1\t0/480000\tno recovery target specified\n")
	mustWrite(t, a.sign("00000002.history"), "")
	if err := os.Rename(a.path(segmentName(1, 4)), a.path(segmentName(1, 4)+".partial")); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, a.sign(segmentName(1, 4)+".partial"), "")
	a.ready(2, 4, 5)
	for _, name := range []string{"00000002.history", segmentName(1, 4) + ".partial"} {
		if err := a.ask(name); err != nil {
			t.Fatal(err)
		}
	}
	a.asks(2, 4, 5)
	a.holds(1, 1, 2, 3)
	a.holds(2, 4, 5)
	a.gaps()
	for _, object := range []string{"00000002/00000002.history", "00000001/" + segmentName(1, 4) + ".partial.zst"} {
		if _, err := os.Stat(filepath.Join(a.store, a.config.Prefix, object)); err != nil {
			t.Error(err)
		}
	}
	// And one that comes later still finds the way, although the volume does not
	// tell it any more.
	a.archiver = a.another(t.TempDir())
	a.ready(2, 7)
	a.asks(2, 7)
	a.gaps([2]uint64{6, 6})
}

func TestArchiveThatBegins(t *testing.T) {
	a := newArchiving(t)
	a.write(1, 1, 2, 3)
	a.ready(1, 4)
	a.asks(1, 4)
	a.holds(1, 4)
	a.gaps()

	// One that begins on a later timeline has its history, which nobody asks it
	// to store: it came with the data.
	later := newArchiving(t)
	mustWrite(t, later.path("00000002.history"), "1\t0/300000\tno recovery target specified\n")
	later.ready(2, 3)
	later.asks(2, 3)
	if _, err := os.Stat(filepath.Join(later.store, later.config.Prefix, "00000002/00000002.history")); err != nil {
		t.Error(err)
	}

	// One that never began, and gave up.
	b := newArchiving(t)
	b.config.Budget = 4 * mebibyte
	b.down()
	b.ready(1, 1, 2, 3, 4, 5)
	b.asks(1, 1)
	b.up()
	if err := os.Remove(b.path(segmentName(1, 1))); err != nil {
		t.Fatal(err)
	}
	b.asks(1, 2, 3)
	b.gaps([2]uint64{1, 1})
}

// An archive is of one database system; what is wrong with it is said before
// anything waits.
func TestArchiveOfSomebodyElse(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	a.archiver, a.system = a.another(t.TempDir()), "8"
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan bool)
	go func() { a.watch(ctx); close(watched) }()
	s := a.says("whose it is", func(s *memberapi.ArchiveStatus) bool { return s.Permanent })
	if s.Late || s.Waiting != 0 || s.Error == "" {
		t.Errorf("%+v", s)
	}
	cancel()
	<-watched
	a.ready(1, 2)
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 2)) }()
	a.says("it again", func(*memberapi.ArchiveStatus) bool { return a.numbers().failures > 5 })
	a.holds(1, 1)
	a.ends(false)
	if err := <-asked; !errors.Is(err, wal.ErrStopping) {
		t.Errorf("archived with somebody else: %v", err)
	}
}

// A segment of the same name and another content is neither replaced nor taken
// for stored.
func TestArchiveOfAnotherContent(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.asks(1, 1, 2)
	a.archiver = a.another(t.TempDir())
	a.ready(1, 2)
	f, err := os.OpenFile(a.path(segmentName(1, 2)), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("other"), mebibyte-9)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 2)) }()
	a.says("that it differs", func(s *memberapi.ArchiveStatus) bool { return s.Permanent && s.Error != "" })
	a.ends(false)
	if err := <-asked; !errors.Is(err, wal.ErrStopping) {
		t.Error(err)
	}
}

// A database that is being stopped does not wait for a store that is away, and
// not for ever for one that is slow.
func TestArchiveStops(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.asks(1, 1)
	a.ends(false) // all is well: it may take its time
	a.asks(1, 2)
	a.begins(true)
	a.down()
	a.ready(1, 3)
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 3)) }()
	a.says("why", func(*memberapi.ArchiveStatus) bool { return a.numbers().failures > 0 })
	a.ends(false)
	if err := <-asked; !errors.Is(err, wal.ErrStopping) {
		t.Error(err)
	}
	if err := a.ask(segmentName(1, 3)); !errors.Is(err, wal.ErrStopping) {
		t.Errorf("asked again: %v", err)
	}
	a.up()
	a.begins(true)
	a.asks(1, 3)
	a.holds(1, 1, 2, 3)
}

// Keys that are not there are said to be, and taken up once they are, as are
// others.
func TestArchiveKeys(t *testing.T) {
	a := newArchiving(t)
	a.config.Secret = "keys"
	key := func(value string) { // in one step, as the kubelet does
		mustWrite(t, filepath.Join(a.pgdata, "key"), value)
		if err := errors.Join(os.MkdirAll(a.keys, 0o700), os.Rename(filepath.Join(a.pgdata, "key"), filepath.Join(a.keys, "AWS_ACCESS_KEY_ID"))); err != nil {
			t.Fatal(err)
		}
	}
	a.ready(1, 1, 2)
	asked := make(chan error, 1)
	go func() { asked <- a.ask(segmentName(1, 1)) }()
	s := a.says("which Secret", func(s *memberapi.ArchiveStatus) bool { return s.Permanent })
	if !strings.Contains(s.Error, "Secret keys") || !strings.Contains(s.Error, "credentialsSecretRef") {
		t.Errorf("%q", s.Error)
	}
	key("one")
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	before := a.archive
	a.asks(1, 2)
	if a.archive != before {
		t.Error("the store is opened again for the same keys")
	}
	key("another")
	a.ready(1, 3)
	if a.asks(1, 3); a.archive == before {
		t.Error("other keys are not taken up")
	}
	a.gaps()
}

// What is not known yet is never taken for nowhere: log would be let go of.
func TestArchivePlace(t *testing.T) {
	config := &member.Config{ClusterConfig: memberapi.ClusterConfig{Kind: "PostgresCluster", Namespace: "shop", Name: "orders", UID: "u"}}
	if place, err := placeOf(nil, "7"); place != nil || err == nil {
		t.Errorf("without a configuration: %v, %v", place, err)
	}
	if place, err := placeOf(config, "7"); place != nil || err != nil {
		t.Errorf("without an archive: %v, %v", place, err)
	}
	config.Archive = &memberapi.ArchiveConfig{Prefix: "p/"}
	if place, err := placeOf(config, ""); place != nil || err == nil {
		t.Errorf("whose it is is not known: %v, %v", place, err)
	}
	want := archivePlace{*config.Archive, wal.Owner{Kind: "PostgresCluster", Namespace: "shop", Cluster: "orders", ClusterUID: "u", SystemIdentifier: "7"}}
	if place, err := placeOf(config, "7"); err != nil || *place != want {
		t.Errorf("%+v, %v", place, err)
	}
}

func TestArchiveNowhere(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.unknown.Store(true)
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 1)) }()
	for a.numbers().failures == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-asked:
		t.Fatalf("what is not known passes for nowhere: %v", err)
	default:
	}
	a.ends(true)
	if err := <-asked; !errors.Is(err, wal.ErrStopping) {
		t.Error(err)
	}
	a.begins(true)
	a.unknown.Store(false)
	a.nowhere.Store(true)
	a.asks(1, 1)
	if s := a.status(time.Now()); s != nil {
		t.Errorf("%+v", s)
	}
	a.nowhere.Store(false)
	if err := a.ask("000000010000000000000077"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// A volume that is short of disk space makes an end of waiting, for a store that
// fails and for one that is slow: that one reports nothing.
func TestArchiveOnAFullVolume(t *testing.T) {
	for name, stops := range map[string]func(*archiving){"fails": (*archiving).down, "hangs": func(a *archiving) { a.hangs.Store(true) }} {
		for left, urgent := range map[int64]bool{20 * mebibyte: true, 190 * mebibyte: false} {
			a := newArchiving(t)
			a.ready(1, 1)
			a.asks(1, 1)
			a.left = left
			a.ready(1, 2, 3)
			a.asks(1, 2, 3) // the store takes it: nothing is given up
			if a.pace.slow = 20 * time.Millisecond; urgent {
				a.pace.slow, a.pace.urgent = a.pace.urgent, a.pace.slow
			}
			stops(a)
			a.ready(1, 4, 5)
			a.asks(1, 4)
			s := a.says("a gap", func(s *memberapi.ArchiveStatus) bool { return s.Gap != nil && s.Gap.From == segmentName(1, 4) })
			if s.GapCause != memberapi.GapDiskSpace || a.checkpoints.Load() != 1 {
				t.Errorf("%s: the cause is %q, %d checkpoints", name, s.GapCause, a.checkpoints.Load())
			}
		}
	}
}

// What is given up for want of disk space is no more than what helps: none while
// the volume has room, or PostgreSQL files for WAL to come, or a checkpoint is
// under way; and the last only where the next would fill the volume.
func TestArchiveExcess(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(a *archiving)
		want   memberapi.GapCause
	}{
		{"the volume is short of disk space", func(*archiving) {}, memberapi.GapDiskSpace},
		{"the volume has room", func(a *archiving) { a.left = gibibyte }, ""},
		{"the size of the volume is not known", func(a *archiving) { a.space = func() member.Space { return member.Space{} } }, ""},
		{"only one waits", func(a *archiving) { _ = os.Remove(a.sign(segmentName(1, 3))) }, ""},
		{"only one waits, and the next would fill the volume", func(a *archiving) { _ = os.Remove(a.sign(segmentName(1, 3))); a.left = 10 * mebibyte }, memberapi.GapDiskSpace},
		{"nothing waits", func(a *archiving) {
			_ = errors.Join(os.Remove(a.sign(segmentName(1, 2))), os.Remove(a.sign(segmentName(1, 3))))
			a.left = 10 * mebibyte
		}, ""},
		{"the store has taken one just now", func(a *archiving) { a.lastAt = time.Now().Add(time.Hour) }, ""},
		{"one was given up just now", func(a *archiving) { a.givenAt = time.Now().Add(time.Hour) }, ""},
		{"the database stopped just now", func(a *archiving) { a.stoppedAt = time.Now().Add(time.Hour) }, ""},
		{"a checkpoint is under way", func(a *archiving) { a.checkpointing = true }, ""},
		{"a checkpoint is under way, and the next segments would fill the volume", func(a *archiving) { a.checkpointing, a.left = true, 10*mebibyte }, memberapi.GapDiskSpace},
		{"one was given up just now, and the next segments would fill the volume", func(a *archiving) {
			a.giving, a.givenAt, a.left = &memberapi.ArchiveGap{}, time.Now().Add(time.Hour), 10*mebibyte
		}, memberapi.GapDiskSpace},
		{"the database has files for WAL to come", func(a *archiving) {
			a.left = 190 * mebibyte
			for n := range uint64(20) {
				a.write(1, 5+n)
			}
		}, ""},
		{"what waits is more than the budget", func(a *archiving) { a.left, a.config.Budget = gibibyte, mebibyte }, memberapi.GapBudget},
	} {
		a := newArchiving(t)
		a.left, a.pace.slow, a.pace.urgent = 60*mebibyte, 0, 0
		a.ready(1, 2, 3)
		if c.change(a); a.excess(a.config.Budget) != c.want {
			t.Errorf("%s: %q", c.name, a.excess(a.config.Budget))
		}
	}
}

// A replica stores nothing, and keeps what its primary has not stored.
func TestArchiveOfAReplica(t *testing.T) {
	a := newArchiving(t)
	a.begins(false)
	a.ready(1, 4, 5)
	asked := make(chan error, 1)
	ask := func(name string) { go func() { asked <- a.ask(name) }() }
	ask(segmentName(1, 4))
	a.heard(nil)
	a.heard(&memberapi.ArchiveStatus{Last: segmentName(1, 3)})
	select {
	case err := <-asked:
		t.Fatalf("it lets go of what is not stored: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	a.heard(&memberapi.ArchiveStatus{Last: segmentName(1, 4)})
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	ask(segmentName(1, 5))
	a.ends(false)
	if err := <-asked; !errors.Is(err, wal.ErrStopping) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(a.store, a.config.Prefix)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it has stored something: %v", err)
	}
	// It takes over, and stores what is not.
	a.begins(true)
	a.asks(1, 5)
	a.holds(1, 5)
	// And has no more room than its primary.
	a.begins(false)
	a.config.Budget = 4 * mebibyte
	a.ready(1, 6, 7, 8, 9, 10)
	a.asks(1, 6)
	if s := a.status(time.Now()); s != nil {
		t.Errorf("a replica says %+v", s)
	}
	if a.begins(true); a.said.Load() == nil || a.said.Load().Gap != nil {
		t.Errorf("the gap was the primary's: %+v", a.said.Load())
	}
}

func TestCovers(t *testing.T) {
	last := segmentName(3, 0x1005)
	for name, want := range map[string]bool{
		segmentName(3, 0x1005): true, segmentName(2, 0x1004): true, segmentName(3, 0x1006): false, segmentName(3, 0x5): true, segmentName(2, 0x1006): false,
		segmentName(2, 0x1005) + ".partial": true, segmentName(3, 0x1006) + ".00000028.backup": false,
		"00000003.history": true, "00000004.history": false, "x": false,
	} {
		if covers(last, name) != want {
			t.Errorf("%s: not %t", name, want)
		}
	}
	if covers("", segmentName(1, 1)) {
		t.Error("nothing covers something")
	}
}

// A store that takes nothing is asked for one file at a time.
func TestArchiveSparesAStoreThatAils(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	a.ready(1, 2, 3, 4)
	a.trouble = archiveTrouble{}.meet(errors.New("no route to host"), 0)
	if a.ahead(a.archive, segmentName(1, 2)); len(a.jobs) != 0 {
		t.Errorf("%d more were begun", len(a.jobs))
	}
	a.trouble = archiveTrouble{}
	a.ahead(a.archive, segmentName(1, 2))
	a.mu.Lock()
	begun := maps.Clone(a.jobs)
	a.mu.Unlock()
	for _, j := range begun {
		<-j.done
	}
	a.holds(1, 1, 3, 4)
}

func TestStoredAtOnce(t *testing.T) {
	for limit, want := range map[int64]int{0: 4, 128 * mebibyte: 1, 512 * mebibyte: 2, 64 * gibibyte: 4} {
		if got := storedAtOnce(limit); got != want {
			t.Errorf("with %d bytes %d at once", limit, got)
		}
	}
}
