package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// archiving is a directory of PostgreSQL's, an archiver, and its store.
type archiving struct {
	*Archiver
	t     *testing.T
	store string // directory
	// config says where the WAL goes; it may be unknown.
	config  agentapi.ArchiveConfig
	unknown atomic.Bool
	nowhere atomic.Bool
	// system is the identifier of the database.
	system string
	left   int64 // on the volume
	// hangs says that the store holds each file, and answers nothing.
	hangs       atomic.Bool
	checkpoints atomic.Int64
	// inFlight are the files that are being stored now.
	inFlight atomic.Int64
	said     atomic.Pointer[agentapi.ArchiveStatus]
	// placed counts how often it was asked where the WAL goes.
	placed atomic.Int64
}

func newArchiving(t *testing.T) *archiving {
	t.Helper()
	a := &archiving{t: t, store: t.TempDir(), system: "7", left: 10 * gibibyte}
	a.config = agentapi.ArchiveConfig{Store: agentapi.BackupStore{URL: "file://" + a.store}, Prefix: "shop/orders/u/wal/", Budget: 64 * mebibyte}
	a.Archiver = a.another(t.TempDir())
	return a
}

// another archiver, of another member or process, on a data directory.
func (a *archiving) another(pgdata string) *Archiver {
	if err := os.MkdirAll(filepath.Join(pgdata, "pg_wal", "archive_status"), 0o700); err != nil {
		a.t.Fatal(err)
	}
	s := New(Options{
		Log: slog.New(slog.DiscardHandler), DataDirectory: pgdata, CredentialsDir: filepath.Join(pgdata, "none"),
		Place:      a.findPlace,
		Space:      func() diskspace.Space { return diskspace.Space{Total: 10 * gibibyte, Free: a.left} },
		Report:     func(status *agentapi.ArchiveStatus) { a.said.Store(status) },
		Checkpoint: func() { a.checkpoints.Add(1) },
	})
	s.excess.pace = pace{look: time.Millisecond, refresh: time.Millisecond, first: time.Millisecond, longest: 5 * time.Millisecond, grace: time.Hour, slow: time.Hour, urgent: time.Hour}
	s.run.primary = true
	s.queue.limitLife(a.t.Context())
	s.WrapPut(func(before PutFile) PutFile {
		return func(ctx context.Context, archive *wal.Archive, name string) error {
			a.inFlight.Add(1)
			defer a.inFlight.Add(-1)
			if a.hangs.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return before(ctx, archive, name)
		}
	})
	a.t.Cleanup(func() { // what is on its way must not meet directories that go
		s.queue.mu.Lock()
		under := slices.Collect(maps.Values(s.queue.jobs))
		s.queue.mu.Unlock()
		for _, j := range under {
			<-j.done
		}
	})
	return s
}

// findPlace is where the WAL goes.
func (a *archiving) findPlace() (*Place, error) {
	a.placed.Add(1)
	if a.unknown.Load() {
		return nil, errUnknownPlace
	}
	if a.nowhere.Load() {
		return nil, nil
	}
	return &Place{a.config, wal.Owner{ClusterUID: "u", SystemIdentifier: a.system}}, nil
}

func segmentName(timeline uint32, number uint64) string {
	return wal.Segment{Timeline: timeline, Number: number}.Name(mebibyte)
}

// write makes segments as the database leaves them.
func (a *archiving) write(timeline uint32, numbers ...uint64) {
	a.t.Helper()
	for _, n := range numbers {
		var data bytes.Buffer
		head := struct {
			Magic, Info       uint16
			Timeline          uint32
			Position          uint64
			Rest, Pad         uint32
			System            uint64
			Segment, BlockLen uint32
		}{0xd110, 2, timeline, n * uint64(mebibyte), 0, 0, 7, uint32(mebibyte), 8192}
		if err := binary.Write(&data, binary.NativeEndian, head); err != nil {
			a.t.Fatal(err)
		}
		data.Write(make([]byte, int(mebibyte)-data.Len()))
		mustWrite(a.t, a.files.walPath(segmentName(timeline, n)), data.String())
	}
}

// ready writes segments and says that they are to be archived.
func (a *archiving) ready(timeline uint32, numbers ...uint64) {
	a.t.Helper()
	a.write(timeline, numbers...)
	for _, n := range numbers {
		mustWrite(a.t, a.sign(segmentName(timeline, n)), "")
	}
}

func (a *archiving) sign(name string) string {
	return filepath.Join(a.files.pgdata, "pg_wal", "archive_status", name+dataspace.ReadySuffix)
}

// ask archives a file as the database does.
func (a *archiving) ask(name string) error {
	err := a.archiveFile(a.t.Context(), name)
	if err == nil {
		_ = os.Rename(a.sign(name), a.sign(name)+".done")
	}
	return err
}

func (a *archiving) asks(timeline uint32, numbers ...uint64) {
	a.t.Helper()
	for _, n := range numbers {
		if err := a.ask(segmentName(timeline, n)); err != nil {
			a.t.Fatalf("segment %d: %v", n, err)
		}
	}
}

// down takes the store away, and up gives it back.
func (a *archiving) down() {
	a.t.Helper()
	if err := os.Rename(a.store, a.store+".away"); err != nil {
		a.t.Fatal(err)
	}
	mustWrite(a.t, a.store, "no directory")
}

func (a *archiving) up() {
	a.t.Helper()
	// In one step: the archiver makes a directory as soon as nothing stands there.
	err := unix.Renameat2(unix.AT_FDCWD, a.store+".away", unix.AT_FDCWD, a.store, unix.RENAME_EXCHANGE)
	if err := errors.Join(err, os.Remove(a.store+".away")); err != nil {
		a.t.Fatal(err)
	}
}

// settles waits until nothing is being stored for a moment: what was discarded may
// have been read already, and would be stored as soon as the store is back.
func (a *archiving) settles() {
	a.t.Helper()
	for idle := 0; idle < 20; idle++ {
		if a.inFlight.Load() > 0 {
			idle = 0
		}
		time.Sleep(time.Millisecond)
	}
}

// holds says what of the WAL is in the store.
func (a *archiving) holds(timeline uint32, numbers ...uint64) {
	a.t.Helper()
	archive, err := wal.Open(a.t.Context(), a.config.Store, a.config.Prefix, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	found, err := archive.ListSegments(a.t.Context(), timeline)
	want := map[string]bool{}
	for _, n := range numbers {
		want[segmentName(timeline, n)] = true
	}
	got := map[string]bool{}
	for name := range found {
		got[name] = true
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		a.t.Errorf("%v; in the store of timeline %d (-want +got):\n%s", err, timeline, diff)
	}
}

// gaps says what is known to be missing, as from and to.
func (a *archiving) gaps(want ...[2]uint64) {
	a.t.Helper()
	archive, err := wal.Open(a.t.Context(), a.config.Store, a.config.Prefix, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	found, err := archive.ListGaps(a.t.Context())
	var got [][2]uint64
	for _, gap := range found {
		from, _ := wal.ParseSegment(gap.From, mebibyte)
		to, _ := wal.ParseSegment(gap.To, mebibyte)
		got = append(got, [2]uint64{from.Number, to.Number})
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		a.t.Errorf("%v; gaps (-want +got):\n%s", err, diff)
	}
}

// says waits for what the member says of its archive.
func (a *archiving) says(what string, is func(*agentapi.ArchiveStatus) bool) agentapi.ArchiveStatus {
	a.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		a.ReportStatus()
		if s := a.said.Load(); s != nil && is(s) {
			return *s
		}
		time.Sleep(time.Millisecond)
	}
	a.t.Fatalf("it never says %s: %+v", what, a.said.Load())
	return agentapi.ArchiveStatus{}
}

const (
	mebibyte = int64(1) << 20
	gibibyte = int64(1) << 30
)

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
