package archive

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

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

func TestArchive(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 3, 4, 5, 6, 7, 8)
	a.asks(1, 3)
	// What comes next is stored before it is asked for.
	for _, n := range []uint64{4, 5, 6} {
		a.queue.mu.Lock()
		job := a.queue.jobs[segmentName(1, n)]
		a.queue.mu.Unlock()
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
	s := a.says("it is done", func(s *agentapi.ArchiveStatus) bool { return s.Last == segmentName(1, 8) })
	if s.Waiting != 0 || s.Late || s.Error != "" || s.Gap != nil || !s.Oldest.IsZero() {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff([]float64{0, 0, 0, 7, 0, 0}, a.ReadMetrics(time.Now())); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if len(a.queue.jobs) != 0 {
		t.Errorf("%d jobs are kept", len(a.queue.jobs))
	}
}

func TestArchiveOrder(t *testing.T) {
	a := newArchiving(t)
	for _, name := range []string{"000000010000000000000002", "00000002.history", "000000010000000000000001.00000028.backup", "000000010000000000000001"} {
		mustWrite(t, a.sign(name), "")
	}
	want := []string{"00000002.history", "000000010000000000000001", "000000010000000000000001.00000028.backup", "000000010000000000000002"}
	if diff := cmp.Diff(want, a.ReadBacklog().Names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestArchiveWaitsForTheStore(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	a.down()
	a.ready(1, 2)
	old := time.Now().Add(-agentapi.ArchivePatience - time.Minute)
	if err := os.Chtimes(a.sign(segmentName(1, 2)), old, old); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 2)) }()
	s := a.says("late", func(s *agentapi.ArchiveStatus) bool { return s.Late && s.Error != "" })
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
	a.says("well", func(s *agentapi.ArchiveStatus) bool { return !s.Late && s.Error == "" })
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
		a.says("the reason", func(*agentapi.ArchiveStatus) bool { return a.ReadCounts().Failures > 3 })
		select {
		case err := <-asked:
			t.Fatalf("discarded within the budget: %v", err)
		default:
		}
		a.ready(1, 6)
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		a.ready(1, 7)
		a.asks(1, 3)
		s := a.says("a gap", func(s *agentapi.ArchiveStatus) bool { return s.Gap != nil })
		if m := a.ReadMetrics(time.Now().Add(time.Minute)); m[0] < 59 || m[1] != 4 || m[2] != 1 || m[3] != 1 || m[5] != 2 {
			t.Errorf("metrics %v", m)
		}
		if s.Gap.From != segmentName(1, 2) || s.Gap.To != "" || s.Gap.After != segmentName(1, 1) || s.Gap.Begun.IsZero() || !s.Gap.Ended.IsZero() || s.Error == "" {
			t.Errorf("%+v, %s", s.Gap, s.Error)
		}
		if recycled {
			a.settles()
			if err := errors.Join(os.Remove(a.files.walPath(segmentName(1, 2))), os.Remove(a.files.walPath(segmentName(1, 3)))); err != nil {
				t.Fatal(err)
			}
		}
		a.up()
		a.asks(1, 4, 5, 6, 7)
		if recycled {
			a.holds(1, 1, 4, 5, 6, 7)
			a.gaps([2]uint64{2, 3})
			s := a.says("the end", func(s *agentapi.ArchiveStatus) bool { return s.Gap != nil && !s.Gap.Ended.IsZero() })
			if s.Gap.To != segmentName(1, 3) || s.Gap.After != segmentName(1, 1) || s.Gap.Begun.IsZero() {
				t.Errorf("%+v", s.Gap)
			}
			// One that comes later says so, too.
			a.Archiver = a.another(a.files.pgdata)
			a.ready(1, 8)
			a.asks(1, 8)
			a.says("what is on record", func(s *agentapi.ArchiveStatus) bool { return s.Gap != nil && s.Gap.To == segmentName(1, 3) })
			continue
		}
		a.holds(1, 1, 2, 3, 4, 5, 6, 7)
		a.gaps()
		a.says("no gap", func(s *agentapi.ArchiveStatus) bool { return s.Gap == nil })
	}
}

// An archiver that remembers nothing finds out what is missing.
func TestArchiveAfterDiscarding(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1, 2)
	a.asks(1, 1, 2)
	a.Archiver = a.another(a.files.pgdata)
	a.write(1, 4, 5, 7) // discarded, or stored by no archiver
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
	a.Archiver = a.another(a.files.pgdata)
	a.write(1, 9)
	if err := os.Rename(a.files.walPath(segmentName(1, 9)), a.files.walPath(segmentName(1, 2))); err != nil {
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
	a.Archiver = a.another(t.TempDir())
	a.write(1, 1, 2, 3, 4)
	mustWrite(t, a.files.walPath("00000002.history"), "1\t0/480000\tno recovery target specified\n")
	mustWrite(t, a.sign("00000002.history"), "")
	if err := os.Rename(a.files.walPath(segmentName(1, 4)), a.files.walPath(segmentName(1, 4)+".partial")); err != nil {
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
	a.Archiver = a.another(t.TempDir())
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

	// One that begins on a later timeline has its history, which no request asks it
	// to store: it came with the data.
	later := newArchiving(t)
	mustWrite(t, later.files.walPath("00000002.history"), "1\t0/300000\tno recovery target specified\n")
	later.ready(2, 3)
	later.asks(2, 3)
	if _, err := os.Stat(filepath.Join(later.store, later.config.Prefix, "00000002/00000002.history")); err != nil {
		t.Error(err)
	}

	// One that never began, and was abandoned.
	b := newArchiving(t)
	b.config.Budget = 4 * mebibyte
	b.down()
	b.ready(1, 1, 2, 3, 4, 5)
	b.asks(1, 1)
	b.up()
	if err := os.Remove(b.files.walPath(segmentName(1, 1))); err != nil {
		t.Fatal(err)
	}
	b.asks(1, 2, 3)
	b.gaps([2]uint64{1, 1})
}

// An archive is of one database system; what is wrong with it is said before
// anything waits.
func TestArchiveOfAnotherCluster(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	a.Archiver, a.system = a.another(t.TempDir()), "8"
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan bool)
	go func() { a.watchArchive(ctx); close(watched) }()
	s := a.says("whose it is", func(s *agentapi.ArchiveStatus) bool { return s.Permanent })
	if s.Late || s.Waiting != 0 || s.Error == "" {
		t.Errorf("%+v", s)
	}
	cancel()
	<-watched
	a.ready(1, 2)
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 2)) }()
	a.says("it again", func(*agentapi.ArchiveStatus) bool { return a.ReadCounts().Failures > 5 })
	a.holds(1, 1)
	a.EndRun(false)
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
	a.Archiver = a.another(t.TempDir())
	a.ready(1, 2)
	f, err := os.OpenFile(a.files.walPath(segmentName(1, 2)), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("other"), mebibyte-9)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 2)) }()
	a.says("that it differs", func(s *agentapi.ArchiveStatus) bool { return s.Permanent && s.Error != "" })
	a.EndRun(false)
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
	a.EndRun(false) // all is well: it may take its time
	a.asks(1, 2)
	a.BeginRun(true)
	a.down()
	a.ready(1, 3)
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 3)) }()
	a.says("why", func(*agentapi.ArchiveStatus) bool { return a.ReadCounts().Failures > 0 })
	a.EndRun(false)
	if err := <-asked; !errors.Is(err, wal.ErrStopping) {
		t.Error(err)
	}
	if err := a.ask(segmentName(1, 3)); !errors.Is(err, wal.ErrStopping) {
		t.Errorf("asked again: %v", err)
	}
	a.up()
	a.BeginRun(true)
	a.asks(1, 3)
	a.holds(1, 1, 2, 3)
}

// Keys that are not there are said to be, and taken up once they are, as are
// others.
func TestArchiveKeys(t *testing.T) {
	a := newArchiving(t)
	a.config.Secret = "keys"
	key := func(value string) { // in one step, as the kubelet does
		mustWrite(t, filepath.Join(a.files.pgdata, "key"), value)
		if err := errors.Join(os.MkdirAll(a.destination.credentialsDir, 0o700), os.Rename(filepath.Join(a.files.pgdata, "key"), filepath.Join(a.destination.credentialsDir, "AWS_ACCESS_KEY_ID"))); err != nil {
			t.Fatal(err)
		}
	}
	a.ready(1, 1, 2)
	asked := make(chan error, 1)
	go func() { asked <- a.ask(segmentName(1, 1)) }()
	s := a.says("which Secret", func(s *agentapi.ArchiveStatus) bool { return s.Permanent })
	if !strings.Contains(s.Error, "Secret keys") || !strings.Contains(s.Error, "credentialsSecretRef") {
		t.Errorf("%q", s.Error)
	}
	key("one")
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	before := a.destination.archive
	a.asks(1, 2)
	if a.destination.archive != before {
		t.Error("the store is opened again for the same keys")
	}
	key("another")
	a.ready(1, 3)
	if a.asks(1, 3); a.destination.archive == before {
		t.Error("other keys are not taken up")
	}
	a.gaps()
}

// What is not known yet is never taken for nowhere: log would be let go of.
func TestArchivePlace(t *testing.T) {
	config := &agent.Config{ClusterConfig: agentapi.ClusterConfig{Kind: "PostgresCluster", Namespace: "shop", Name: "orders", UID: "u"}}
	if place, err := FindPlace(nil, "7"); place != nil || err == nil {
		t.Errorf("without a configuration: %v, %v", place, err)
	}
	if place, err := FindPlace(config, "7"); place != nil || err != nil {
		t.Errorf("without an archive: %v, %v", place, err)
	}
	config.Archive = &agentapi.ArchiveConfig{Prefix: "p/"}
	if place, err := FindPlace(config, ""); place != nil || err == nil {
		t.Errorf("whose it is is not known: %v, %v", place, err)
	}
	want := Place{*config.Archive, wal.Owner{Kind: "PostgresCluster", Namespace: "shop", Cluster: "orders", ClusterUID: "u", SystemIdentifier: "7"}}
	if place, err := FindPlace(config, "7"); err != nil || *place != want {
		t.Errorf("%+v, %v", place, err)
	}
}

func TestArchiveNowhere(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.unknown.Store(true)
	asked := make(chan error)
	go func() { asked <- a.ask(segmentName(1, 1)) }()
	for a.ReadCounts().Failures == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-asked:
		t.Fatalf("what is not known passes for nowhere: %v", err)
	default:
	}
	a.EndRun(true)
	if err := <-asked; !errors.Is(err, wal.ErrStopping) {
		t.Error(err)
	}
	a.BeginRun(true)
	a.unknown.Store(false)
	a.nowhere.Store(true)
	a.asks(1, 1)
	if s := a.computeStatus(time.Now()); s != nil {
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
			a.asks(1, 2, 3) // the store takes it: nothing is discarded
			if a.excess.pace.slow = 20 * time.Millisecond; urgent {
				a.excess.pace.slow, a.excess.pace.urgent = a.excess.pace.urgent, a.excess.pace.slow
			}
			stops(a)
			a.ready(1, 4, 5)
			a.asks(1, 4)
			s := a.says("a gap", func(s *agentapi.ArchiveStatus) bool { return s.Gap != nil && s.Gap.From == segmentName(1, 4) })
			if s.GapCause != agentapi.GapDiskSpace || a.checkpoints.Load() != 1 {
				t.Errorf("%s: the cause is %q, %d checkpoints", name, s.GapCause, a.checkpoints.Load())
			}
		}
	}
}

// What is discarded for want of disk space is no more than what helps: none while
// the volume has room, or PostgreSQL files for WAL to come, or a checkpoint is
// under way; and the last only where the next would fill the volume.
func TestArchiveExcess(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(a *archiving)
		want   agentapi.GapCause
	}{
		{"the volume is short of disk space", func(*archiving) {}, agentapi.GapDiskSpace},
		{"the volume has room", func(a *archiving) { a.left = gibibyte }, ""},
		{"the size of the volume is not known", func(a *archiving) { a.excess.space = func() diskspace.Space { return diskspace.Space{} } }, ""},
		{"only one waits", func(a *archiving) { _ = os.Remove(a.sign(segmentName(1, 3))) }, ""},
		{"only one waits, and the next would fill the volume", func(a *archiving) { _ = os.Remove(a.sign(segmentName(1, 3))); a.left = 10 * mebibyte }, agentapi.GapDiskSpace},
		{"nothing waits", func(a *archiving) {
			_ = errors.Join(os.Remove(a.sign(segmentName(1, 2))), os.Remove(a.sign(segmentName(1, 3))))
			a.left = 10 * mebibyte
		}, ""},
		{"the store has taken one just now", func(a *archiving) { a.ledger.lastAt = time.Now().Add(time.Hour) }, ""},
		{"one was discarded just now", func(a *archiving) { a.run.discardedAt = time.Now().Add(time.Hour) }, ""},
		{"the database stopped just now", func(a *archiving) { a.run.stoppedAt = time.Now().Add(time.Hour) }, ""},
		{"a checkpoint is under way", func(a *archiving) { a.run.checkpointing = true }, ""},
		{"a checkpoint is under way, and the next segments would fill the volume", func(a *archiving) { a.run.checkpointing, a.left = true, 10*mebibyte }, agentapi.GapDiskSpace},
		{"one was discarded just now, and the next segments would fill the volume", func(a *archiving) {
			a.ledger.openGap, a.run.discardedAt, a.left = &agentapi.ArchiveGap{}, time.Now().Add(time.Hour), 10*mebibyte
		}, agentapi.GapDiskSpace},
		{"the database has files for WAL to come", func(a *archiving) {
			a.left = 190 * mebibyte
			for n := range uint64(20) {
				a.write(1, 5+n)
			}
		}, ""},
		{"what waits is more than the budget", func(a *archiving) { a.left, a.config.Budget = gibibyte, mebibyte }, agentapi.GapBudget},
	} {
		a := newArchiving(t)
		a.left, a.excess.pace.slow, a.excess.pace.urgent = 60*mebibyte, 0, 0
		a.ready(1, 2, 3)
		if c.change(a); a.excess.findExcess(a.config.Budget) != c.want {
			t.Errorf("%s: %q", c.name, a.excess.findExcess(a.config.Budget))
		}
	}
}

// A replica stores nothing, and keeps what its primary has not stored.
func TestArchiveOfAReplica(t *testing.T) {
	a := newArchiving(t)
	a.BeginRun(false)
	a.ready(1, 4, 5)
	asked := make(chan error, 1)
	ask := func(name string) { go func() { asked <- a.ask(name) }() }
	ask(segmentName(1, 4))
	a.RecordUpstream(nil, 1)
	a.RecordUpstream(&agentapi.ArchiveStatus{Last: segmentName(1, 3)}, 1)
	select {
	case err := <-asked:
		t.Fatalf("it lets go of what is not stored: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	a.RecordUpstream(&agentapi.ArchiveStatus{Last: segmentName(1, 4)}, 1)
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	ask(segmentName(1, 5))
	a.EndRun(false)
	if err := <-asked; !errors.Is(err, wal.ErrStopping) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(a.store, a.config.Prefix)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it has stored something: %v", err)
	}
	// It takes over, and stores what is not.
	a.BeginRun(true)
	a.asks(1, 5)
	a.holds(1, 5)
	// And has no more room than its primary.
	a.BeginRun(false)
	a.config.Budget = 4 * mebibyte
	a.ready(1, 6, 7, 8, 9, 10)
	a.asks(1, 6)
	if s := a.computeStatus(time.Now()); s != nil {
		t.Errorf("a replica says %+v", s)
	}
	if a.BeginRun(true); a.said.Load() == nil || a.said.Load().Gap != nil {
		t.Errorf("the gap was the primary's: %+v", a.said.Load())
	}
}

func TestCovers(t *testing.T) {
	last := segmentName(3, 0x1005)
	for name, want := range map[string]bool{
		segmentName(3, 0x1005): true, segmentName(2, 0x1004): true, segmentName(3, 0x1006): false, segmentName(3, 0x5): true, segmentName(2, 0x1006): false,
		segmentName(2, 0x1005) + ".partial": true, segmentName(3, 0x1006) + ".00000028.backup": false,
		"00000003.history": true, "00000004.history": false, "x": false, "": false,
		segmentName(4, 0x1004): false, segmentName(4, 0x1004) + ".partial": false, segmentName(3, 0x1005) + ".partial": false,
	} {
		if isCovered(last, name) != want {
			t.Errorf("%s: not %t", name, want)
		}
	}
	if isCovered("", segmentName(1, 1)) {
		t.Error("nothing covers something")
	}
}

// A store that takes nothing is asked for one file at a time.
func TestArchiveSparesAStoreThatAils(t *testing.T) {
	a := newArchiving(t)
	a.ready(1, 1)
	a.asks(1, 1)
	a.ready(1, 2, 3, 4)
	a.ledger.trouble = trouble{}.recordError(errors.New("no route to host"), 0)
	if a.storeAhead(a.destination.archive, segmentName(1, 2)); len(a.queue.jobs) != 0 {
		t.Errorf("%d more were begun", len(a.queue.jobs))
	}
	a.ledger.trouble = trouble{}
	a.storeAhead(a.destination.archive, segmentName(1, 2))
	a.queue.mu.Lock()
	begun := maps.Clone(a.queue.jobs)
	a.queue.mu.Unlock()
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
