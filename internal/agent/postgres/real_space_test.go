//go:build postgres

package postgres

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// filledVolume is a volume of 512 MiB of which so much is free, less what its data
// grows by.
type filledVolume struct {
	dir   string
	total atomic.Int64
	limit atomic.Int64 // what the data may take; 0 while nothing limits it
}

func (w *world) filledVolume(dir string) *filledVolume {
	v := &filledVolume{dir: dir}
	v.total.Store(512 << 20)
	w.spaces = map[int]func(string) diskspace.Space{0: func(string) diskspace.Space { return v.space() }}
	return v
}

func (v *filledVolume) used() (used int64) {
	_ = filepath.WalkDir(v.dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				used += info.Size()
			}
		}
		return nil
	})
	return used
}

func (v *filledVolume) space() diskspace.Space {
	total := v.total.Load()
	if limit := v.limit.Load(); limit > 0 {
		return diskspace.Space{Free: limit - v.used(), Total: total}
	}
	return diskspace.Space{Free: total / 2, Total: total}
}

// leave limits the volume so that this much is free.
func (v *filledVolume) leave(free int64) { v.limit.Store(v.used() + free) }

// holdStore has the store hold every file until it is let go again.
func (r *run) holdStore() (release func()) {
	held := make(chan bool)
	r.archive.WrapPut(func(before archive.PutFile) archive.PutFile {
		return func(ctx context.Context, archive *wal.Archive, name string) error {
			select {
			case <-held:
			case <-ctx.Done():
				return ctx.Err()
			}
			return before(ctx, archive, name)
		}
	})
	return func() { close(held) }
}

// A store that holds every file, and a volume with 45 MiB left: the database goes
// on, the gap is known, and the archive goes on when the store does.
func TestRealSlowStore(t *testing.T) {
	w := newWorld(t, 1)
	w.archives()
	w.configure(func(c *agentapi.ClusterConfig) { c.VolumeSize = 512 << 20 })
	dir := t.TempDir()
	volume := w.filledVolume(dir)
	primary := w.start(0, dir, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.rows("before")
	primary.untilArchived(primary.segment())

	begun := primary.query("select pg_postmaster_start_time()::text")
	release := primary.holdStore()
	volume.leave(45 << 20)
	for range 12 {
		primary.segment()
		// The next segment needs a file that is there already, or disk space.
		for end := time.Now().Add(time.Minute); volume.space().Free < 16<<20 && primary.archive.PreparedSegments(16<<20) == 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				files, _ := filepath.Glob(filepath.Join(primary.o.pgdataPath(), "pg_wal", "0*"))
				t.Fatalf("WAL fills the volume: %d bytes are left, %v wait, %v are there", volume.space().Free, primary.archive.ReadBacklog().Names, files)
			}
		}
	}
	primary.rows("meanwhile")
	primary.untilArchive("a gap for disk space", func(s agentapi.ArchiveStatus) bool {
		return s.Gap != nil && s.Gap.Ended.IsZero() && s.GapCause == agentapi.GapDiskSpace
	})
	release()
	primary.untilArchived(primary.segment())
	if s := primary.untilArchive("a gap that has ended", func(s agentapi.ArchiveStatus) bool { return s.Gap != nil && !s.Gap.Ended.IsZero() }); s.GapCause != "" {
		t.Errorf("%+v", s)
	}
	if now := primary.query("select pg_postmaster_start_time()::text"); now != begun {
		t.Errorf("the database was started at %s, and again at %s", begun, now)
	}
}

// startFull starts a primary that archives, has WAL wait for a store that takes
// none until release is called, and is held because its volume is full.
func (w *world) startFull(dir string) (primary *run, release func()) {
	w.t.Helper()
	volume := w.filledVolume(dir)
	primary = w.start(0, dir, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.rows("before")
	primary.untilArchived(primary.segment())
	release = primary.holdStore()
	for range 6 {
		primary.segment()
	}
	primary.rows("meanwhile")
	primary.exec("checkpoint")
	primary.rows("last")
	volume.leave(4 << 20)
	primary.Lock.KillHolders()
	primary.untilHeld(agentapi.HoldVolumeFull)
	return primary, release
}

// A person's recovery may need all WAL: none is removed.
func TestRealFullVolumeInARecovery(t *testing.T) {
	w := newWorld(t, 1)
	w.archives()
	dir := t.TempDir()
	primary, _ := w.startFull(dir)
	primary.stop()

	mustWrite(t, filepath.Join(dir, datavolume.DataName, dataspace.RecoverySignal), "")
	person := w.start(0, dir, "uid-0b")
	person.untilHeld(agentapi.HoldVolumeFull)
	person.holdStore()
	time.Sleep(3 * time.Second)
	if s := person.Store.Get(); s.Hold != agentapi.HoldVolumeFull {
		t.Errorf("a person's recovery was gone on with: %+v", s)
	}
	person.stop()
}

// A database that stopped on a volume that WAL fills starts again by itself, with
// all of its rows: without the store, when WAL that crash recovery does not need
// is discarded; and without a gap, where the store takes it.
func TestRealFullVolume(t *testing.T) {
	for name, hangs := range map[string]bool{"the store hangs": true, "the store takes WAL": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.archives()
			dir := t.TempDir()
			primary, release := w.startFull(dir)
			if !hangs {
				release()
			}
			primary.untilRole(v1alpha1.RolePrimary)
			if got := primary.query("select string_agg(name, ' ' order by name) from public.kept"); got != "before last meanwhile" {
				t.Errorf("the rows are %s", got)
			}
			if hangs {
				release()
			}
			primary.untilArchived(primary.segment())
			s := primary.untilArchive("done", func(s agentapi.ArchiveStatus) bool { return s.Waiting == 0 })
			if gap := s.Gap != nil; gap != hangs {
				t.Errorf("the gap is %+v", s.Gap)
			}
		})
	}
}
