package archive

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// walFiles are the files of WAL in a data directory, with the marks of those that wait
// to be archived.
type walFiles struct{ pgdata string }

// walPath is that of a file of WAL.
func (f walFiles) walPath(name string) string { return filepath.Join(f.pgdata, "pg_wal", name) }

// backlog is what waits for the store.
type backlog struct {
	Names    []string // in the order in which the database asks for them
	Segments int64
	oldest   time.Time
}

// readBacklog reads what waits.
func (f walFiles) readBacklog() backlog {
	var b backlog
	entries, _ := os.ReadDir(filepath.Join(f.pgdata, "pg_wal", "archive_status"))
	for _, e := range entries {
		name, ready := strings.CutSuffix(e.Name(), dataspace.ReadySuffix)
		if !ready {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it was archived meanwhile
		}
		b.Names = append(b.Names, name)
		if wal.IsSegment(name) {
			b.Segments++
		}
		if b.oldest.IsZero() || info.ModTime().Before(b.oldest) {
			b.oldest = info.ModTime()
		}
	}
	slices.SortFunc(b.Names, func(a, b string) int {
		if wal.IsHistory(a) != wal.IsHistory(b) {
			if wal.IsHistory(a) {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return b
}

// segmentSize is that of the files that wait.
func (f walFiles) segmentSize(b backlog) int64 {
	for _, name := range b.Names {
		if info, err := os.Stat(f.walPath(name)); wal.IsSegment(name) && err == nil {
			return info.Size()
		}
	}
	return 16 << 20
}

// preparedSegments is the number of files that the database has ready for WAL
// to come: they take no more disk space when they are written.
func (f walFiles) preparedSegments(size int64) int64 {
	newest := uint64(0)
	entries, _ := os.ReadDir(filepath.Join(f.pgdata, "pg_wal", "archive_status"))
	for _, e := range entries {
		name, _ := strings.CutSuffix(strings.TrimSuffix(e.Name(), ".done"), dataspace.ReadySuffix)
		if complete, ok := wal.ParseSegment(name, size); ok {
			newest = max(newest, complete.Number)
		}
	}
	if newest == 0 {
		return 0
	}
	prepared := int64(0)
	entries, _ = os.ReadDir(filepath.Join(f.pgdata, "pg_wal"))
	for _, e := range entries {
		// The one after the newest that is complete is being written.
		if segment, ok := wal.ParseSegment(e.Name(), size); ok && segment.Number > newest+1 {
			prepared++
		}
	}
	return prepared
}

// findHistory finds the history of a timeline, from the volume or the archive, which gets it too.
func (f walFiles) findHistory(ctx context.Context, archive *wal.Archive, timeline uint32) (wal.History, error) {
	if timeline <= 1 {
		return nil, nil
	}
	name := wal.HistoryName(timeline)
	data, err := os.ReadFile(f.walPath(name))
	if errors.Is(err, os.ErrNotExist) {
		h, err := archive.ReadHistory(ctx, timeline)
		if store.NotFound(err) {
			return nil, nil // data that began on this timeline, as far as anybody knows
		}
		return h, err
	}
	if err != nil {
		return nil, err
	}
	if err := archive.StoreFile(ctx, f.walPath(name), name); err != nil {
		return nil, err
	}
	return wal.ParseHistory(data)
}
