package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// StoreSuperseded stores what waits for the archive of WAL that its member is about to
// drop, since another one was elected without it: in the data directory, or in a
// directory that keeps such WAL. The segment in which that WAL ends is stored as partial;
// end is zero where that is not wanted. No name is one that the new primary gives to
// other content: it stores its own part of the segment in which it left as partial, and
// what the archive holds is never replaced. It does nothing where nothing is archived.
// The database of the data does not run.
func (s *Archiver) StoreSuperseded(ctx context.Context, dir string, end wal.Turn) error {
	files := walFiles{pgdata: dir}
	waiting := files.readBacklog()
	place, err := s.place()
	if place == nil || len(waiting.Names) == 0 && end.Position == 0 {
		return err
	}
	archive, err := s.destination.openArchive(ctx, *place)
	if err != nil {
		return fmt.Errorf("store superseded WAL: %w", err)
	}
	stored := 0
	for _, name := range waiting.Names {
		if err := s.storeSuperseded(files.putFile(ctx, archive, name), name); err != nil {
			return err
		}
		if err := os.Rename(files.signPath(name, dataspace.ReadySuffix), files.signPath(name, ".done")); err != nil {
			return fmt.Errorf("mark superseded WAL as stored: %w", err)
		}
		stored++
	}
	if name := files.nameHalf(end); name != "" {
		if err := s.storeSuperseded(archive.StoreFile(ctx, files.walPath(name), name+partialSuffix), name); err != nil {
			return err
		}
		stored++
	}
	if stored > 0 {
		s.log.Info("stored WAL that another member was elected without", "files", stored, "timeline", end.Timeline, "end", wal.FormatPosition(end.Position))
	}
	return nil
}

// storeSuperseded judges the end of storing one file: what can never be stored holds
// nothing up.
func (s *Archiver) storeSuperseded(err error, name string) error {
	var refused *wal.Refusal
	switch {
	case errors.As(err, &refused), errors.Is(err, fs.ErrNotExist):
		s.log.Warn("superseded WAL cannot be stored", "file", name, "error", err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("store superseded WAL %s: %w", name, err)
	}
	return nil
}

// nameHalf names the segment in which WAL ends, if it has a part of that only.
func (f walFiles) nameHalf(end wal.Turn) string {
	size := f.segmentSize(f.readBacklog())
	if entries, err := os.ReadDir(f.walDir()); err == nil {
		for _, e := range entries {
			if info, err := e.Info(); err == nil && wal.IsSegment(e.Name()) {
				size = info.Size()
				break
			}
		}
	}
	if end.Position == 0 || size <= 0 || end.Position%uint64(size) == 0 {
		return ""
	}
	return wal.Segment{Timeline: end.Timeline, Number: end.Position / uint64(size)}.Name(size)
}

// signPath is the mark of a file that waits for the archive, or is stored.
func (f walFiles) signPath(name, suffix string) string {
	return f.walPath("archive_status/" + name + suffix)
}
