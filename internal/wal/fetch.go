package wal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// fetchedAtOnce is how many segments a recovery gets at once: the one that it
// asks for, and those after it.
const fetchedAtOnce = 4

// ErrMissing says that the archive does not hold a file, nor any that would
// come after it: the WAL ends here.
var ErrMissing = errors.New("the archive holds no such file")

// FetchFile writes a file of the archive to a path. Segments that a recovery will
// ask for next are fetched at the same time, into a directory of its own, where
// each is found then.
//
// A store that does not answer is not the end of the WAL, and nor is a hole in
// it: both are other errors than ErrMissing.
func (a *Archive) FetchFile(ctx context.Context, name, to, scratch string) error {
	if !IsSegment(name) {
		err := a.fetchOne(ctx, name, to)
		if store.NotFound(err) {
			return a.checkMissing(ctx)
		}
		return err
	}
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return err
	}
	clearBefore(scratch, name)
	if err := moveFile(filepath.Join(scratch, name), to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	group, fetching := errgroup.WithContext(ctx)
	group.Go(func() error { return a.fetchOne(fetching, name, to) })
	next := name
	for range fetchedAtOnce - 1 {
		next = nextSegment(next)
		ahead := next
		group.Go(func() error {
			_ = a.fetchOne(fetching, ahead, filepath.Join(scratch, ahead)) // it is asked for again
			return nil
		})
	}
	err := group.Wait()
	if store.NotFound(err) {
		if err := a.checkMissing(ctx); !errors.Is(err, ErrMissing) {
			return err
		}
		return a.atEnd(ctx, name)
	}
	return err
}

// moveFile also moves from one file system to another.
func moveFile(from, to string) error {
	err := os.Rename(from, to)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := writeFile(f, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// clearBefore removes what was fetched for a recovery that did not ask for it:
// it lies before what it asks for now.
func clearBefore(scratch, name string) {
	entries, _ := os.ReadDir(scratch)
	for _, e := range entries {
		if !IsSegment(e.Name()) || e.Name()[8:] < name[8:] {
			_ = os.Remove(filepath.Join(scratch, e.Name()))
		}
	}
}

// usualSize is that of a segment, in bytes.
const usualSize = 16 << 20

// nextSegment returns the name that comes next, where segments have the usual size: of
// others some are fetched in vain.
func nextSegment(name string) string {
	s, ok := ParseSegment(name, usualSize)
	if !ok {
		return name
	}
	s.Number++
	return s.Name(usualSize)
}

// fetchOne writes one file, which gets its name when it is whole.
func (a *Archive) fetchOne(ctx context.Context, name, to string) error {
	return a.readStored(ctx, name, func(r io.Reader) error { return writeFile(r, to) })
}

func writeFile(from io.Reader, to string) error {
	temporary := to + ".fetching"
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err = errors.Join(err, f.Close()); err == nil {
		return os.Rename(temporary, to)
	}
	return errors.Join(err, os.Remove(temporary))
}

// checkMissing distinguishes an archive that does not hold a file from none.
func (a *Archive) checkMissing(ctx context.Context) error {
	_, err := a.ReadOwner(ctx)
	if store.NotFound(err) {
		return &Refusal{Message: fmt.Sprintf("there is no archive at %s", a.Prefix)}
	}
	if err != nil {
		return err
	}
	return ErrMissing
}

// atEnd says whether the WAL ends before a segment, or goes on behind a hole: what
// was discarded, or what another client removed. A timeline that others came from
// may hold more than any of them goes on from.
func (a *Archive) atEnd(ctx context.Context, name string) error {
	gaps, err := a.ListGaps(ctx)
	if err != nil {
		return err
	}
	for _, gap := range gaps {
		if isInGap(gap, name) {
			return &Refusal{Message: fmt.Sprintf("the WAL from %s to %s was discarded while the store accepted none: nothing after %s can be recovered from this backup, only from one that was begun after %s", gap.From, gap.To, gap.Begun, gap.Ended)}
		}
	}
	timelines, err := a.Store.ListDirs(ctx, a.Prefix)
	if err != nil {
		return err
	}
	own, _ := strconv.ParseUint(name[:8], 16, 32)
	for _, dir := range timelines {
		if t, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(dir, a.Prefix), "/"), 16, 32); err == nil && t > own {
			return ErrMissing
		}
	}
	stored, err := a.ListSegments(ctx, uint32(own))
	if err != nil {
		return err
	}
	// Some are stored at once: the last few may have holes between them.
	later := 0
	for other := range stored {
		if other > name {
			later++
		}
	}
	if later >= StoredAtOnce {
		return &Refusal{Message: fmt.Sprintf("the archive at %s lacks %s and goes on after it: another client has removed it", a.Prefix, name)}
	}
	return ErrMissing
}

// isInGap says whether a segment was discarded in a gap, which is a stretch of
// numbers on a stretch of timelines.
func isInGap(gap agentapi.ArchiveGap, name string) bool {
	between := func(from, part, to string) bool { return from <= part && part <= to }
	return IsSegment(gap.From) && IsSegment(gap.To) &&
		between(gap.From[:8], name[:8], gap.To[:8]) && between(gap.From[8:], name[8:], gap.To[8:])
}

// StoredAtOnce is how many segments an agent may have under way: so many, less
// one, may lie behind one that was never stored.
const StoredAtOnce = 4
