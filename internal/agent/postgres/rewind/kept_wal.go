package rewind

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// statusDir holds the marks of WAL that waits for the archive.
const statusDir = "archive_status"

const (
	// keptWAL is the directory of the files in one that keeps diverged WAL, as in the data,
	// and keptEnd holds where that WAL ends.
	keptWAL = "pg_wal"
	keptEnd = "end.json"
	// temporaryKept is a directory that is being filled.
	temporaryKept = "." + datavolume.KeptPrefix + "new"
)

// ReadKeptEnd reads where the WAL ends that a directory of ListKept keeps.
func ReadKeptEnd(kept string) (end lsn.Point, err error) {
	_, err = atomicfile.ReadJSON(filepath.Join(kept, keptEnd), &end)
	return end, err
}

// keptRange is the WAL that a rewind drops from the data, and what is before it since the
// last common checkpoint: a rewind that is repeated reads all of it.
type keptRange struct {
	timelines   []int64
	first, last uint64 // numbers of segments
	size        int64
}

// contains says whether a file of a pg_wal directory is kept. Histories are small, and
// all of them are.
func (k keptRange) contains(name string) bool {
	if wal.IsHistory(name) {
		return true
	}
	whole, _, _ := strings.Cut(name, ".")
	segment, ok := wal.ParseSegment(whole, k.size)
	return ok && segment.Number >= k.first && segment.Number <= k.last && slices.Contains(k.timelines, int64(segment.Timeline))
}

// measureSpace measures what keeping the files of a pg_wal directory needs: their size, and
// what the data needs to start afterwards.
func (k keptRange) measureSpace(walDir string) (int64, error) {
	waits, err := listWaiting(walDir)
	if err != nil {
		return 0, fmt.Errorf("measure the diverged WAL: %w", err)
	}
	entries, err := os.ReadDir(walDir)
	if err != nil {
		return 0, fmt.Errorf("measure the diverged WAL: %w", err)
	}
	needed := int64(dataspace.MinimumFree)
	for _, e := range entries {
		if !k.contains(e.Name()) && !slices.Contains(waits, e.Name()) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return 0, fmt.Errorf("measure the diverged WAL: %w", err)
		}
		needed += info.Size()
	}
	return needed, nil
}

// nameKept is the directory for WAL that diverged at a fork.
func nameKept(fork lsn.Point) string {
	return datavolume.KeptPrefix + strconv.FormatInt(fork.Timeline, 10) + "-" + strings.ReplaceAll(wal.FormatPosition(fork.Position), "/", "-")
}

// keepWAL copies WAL, and the marks of what waits for the archive, to a directory on the
// volume, and returns its name once all is on the disk. A directory that is there stays.
// A hard link would not do: pg_rewind writes over files in place, and PostgreSQL writes
// new WAL to old files. A file system that can shares the blocks.
func keepWAL(volume, walDir string, fork, end lsn.Point, k keptRange) (string, error) {
	temporary := filepath.Join(volume, temporaryKept)
	if err := os.RemoveAll(temporary); err != nil {
		return "", fmt.Errorf("keep the diverged WAL: %w", err)
	}
	waits, err := listWaiting(walDir)
	if err != nil {
		return "", fmt.Errorf("keep the diverged WAL: %w", err)
	}
	for _, dir := range []string{"", statusDir} {
		if err := copyKept(filepath.Join(walDir, dir), filepath.Join(temporary, keptWAL, dir), func(name string) bool {
			if dir == statusDir {
				return strings.HasSuffix(name, dataspace.ReadySuffix)
			}
			return k.contains(name) || slices.Contains(waits, name)
		}); err != nil {
			return "", errors.Join(fmt.Errorf("keep the diverged WAL: %w", err), os.RemoveAll(temporary))
		}
	}
	if err := atomicfile.WriteJSON(filepath.Join(temporary, keptEnd), end); err != nil {
		return "", errors.Join(fmt.Errorf("keep the diverged WAL: %w", err), os.RemoveAll(temporary))
	}
	name := nameKept(fork)
	for n := 2; ; n++ {
		if _, err := os.Lstat(filepath.Join(volume, name)); errors.Is(err, fs.ErrNotExist) {
			return name, atomicfile.Move(temporary, filepath.Join(volume, name))
		}
		name = nameKept(fork) + "-" + strconv.Itoa(n)
	}
}

// listWaiting lists the files of WAL that wait for the archive. A rewind removes those
// that the primary does not have, also of before the last common checkpoint.
func listWaiting(walDir string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(walDir, statusDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if name, ready := strings.CutSuffix(e.Name(), dataspace.ReadySuffix); ready {
			names = append(names, name)
		}
	}
	return names, err
}

// restoreWAL puts kept WAL back, so that a rewind that was interrupted can read it.
func restoreWAL(kept, walDir string) error {
	if err := copyKept(filepath.Join(kept, keptWAL), walDir, func(string) bool { return true }); err != nil {
		return fmt.Errorf("put the diverged WAL back: %w", err)
	}
	return nil
}

// copyKept copies the files of a directory that are wanted, each as a whole.
func copyKept(from, to string, wanted func(name string) bool) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !wanted(e.Name()) {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return atomicfile.SyncDir(to)
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	if err = errors.Join(err, target.Sync(), target.Close()); err != nil {
		return errors.Join(err, os.Remove(to+".tmp"))
	}
	return os.Rename(to+".tmp", to)
}

// ListKept lists the directories on the volume at dir that keep diverged WAL.
func ListKept(dir string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(dir, datavolume.KeptPrefix+"*"))
	if err != nil {
		return nil, fmt.Errorf("list the diverged WAL: %w", err)
	}
	return found, nil
}

// DropKept removes the diverged WAL that is kept on the volume at dir: a second healthy
// copy of the primary's data exists by now. That of a rewind that is not complete stays.
func DropKept(dir string) error {
	if mark, err := datavolume.FindRewindMark(dir); err != nil || mark != "" {
		return err
	}
	kept, err := ListKept(dir)
	for _, path := range kept {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		return fmt.Errorf("drop the diverged WAL: %w", err)
	}
	return nil
}
