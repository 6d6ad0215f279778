package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// minimumFree is what a start needs: a segment of the log, and some more.
const minimumFree = 24 << 20

func (a *agent) space() member.Space {
	if a.o.space != nil {
		return a.o.space(a.o.DataDir)
	}
	return member.SpaceOf(a.o.DataDir)
}

// allocate says whether a file on the volume can grow.
func (a *agent) allocate() error {
	if a.o.allocate != nil {
		return a.o.allocate(a.o.DataDir)
	}
	return member.AllocateIn(a.o.DataDir)
}

// full says whether too little is left to start a database.
func full(s member.Space) bool { return !s.Fits(minimumFree) }

// roomFor is what a copy of so much data needs: the log of the time that the
// copying takes comes on top, and what the copy needs to start.
func roomFor(size int64) int64 {
	return size + min(size/10, gibibyte) + 2*16*mebibyte + minimumFree
}

// copyFits says whether a copy of so much data fits. An unknown size fits: that
// the volume filled up is seen then.
func copyFits(s member.Space, size int64) bool { return size == 0 || s.Fits(roomFor(size)) }

// missing says what a copy lacks, in round numbers: they move with every row.
func missing(s member.Space, primary string, size int64) string {
	return fmt.Sprintf("a copy of the data of %s needs %s and the volume has %s left: set spec.storage.size to %s or more",
		primary, quantity(roundUp(roomFor(size))), quantity(roundDown(s.Free)), quantity(roundUp(s.Total-s.Free+roomFor(size))))
}

// roomAfter is what a copy needs at least for which the space was not enough.
func roomAfter(s member.Space) int64 { return roundUp(s.Free + s.Free/10) }

// unit in which a size is told.
func unit(n int64) int64 {
	if n >= gibibyte {
		return gibibyte
	}
	return 16 * mebibyte
}

func roundUp(n int64) int64 {
	u := unit(n)
	return (n + u - 1) / u * u
}

func roundDown(n int64) int64 { return n / unit(n) * unit(n) }

func quantity(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// filledCopy remembers a copy that filled the volume although it should have
// fitted. Another one is not tried until the volume is larger, or a pause that
// doubles each time is over. The zero value is none.
type filledCopy struct {
	total    int64
	until    time.Duration
	failures int
}

func (c filledCopy) failed(now time.Duration, total int64) filledCopy {
	pause := min(time.Minute<<min(c.failures, 10), 30*time.Minute)
	return filledCopy{total: total, until: now + pause, failures: c.failures + 1}
}

func (c filledCopy) waits(now time.Duration, total int64) bool {
	return c.failures > 0 && total == c.total && now < c.until
}

// outOfSpace says whether a program failed because this member's volume was
// full.
func outOfSpace(err error) bool {
	var failed *member.Failure
	if !errors.As(err, &failed) {
		return member.OutOfSpace(err)
	}
	own, _ := whoseVolume(failed)
	return own
}

// primaryOutOfSpace says whether a program failed because the primary that it
// spoke to had a full volume.
func primaryOutOfSpace(err error) bool {
	var failed *member.Failure
	if !errors.As(err, &failed) {
		return false
	}
	_, primary := whoseVolume(failed)
	return primary
}

// saysOutOfSpace says whether a line speaks of a full volume.
func saysOutOfSpace(line string) bool {
	return strings.Contains(line, "No space left on device") || strings.Contains(line, "Disk quota exceeded")
}

// serverSays are the words that a server's lines begin with in what a client
// prints: a client's own are in small letters.
var serverSays = regexp.MustCompile(`\b(ERROR|FATAL|PANIC|WARNING|DETAIL|CONTEXT): {1,2}`)

// whoseVolume was full, by a program's own account: this member's, or that of
// the server it spoke to.
func whoseVolume(f *member.Failure) (own, server bool) {
	for line := range strings.Lines(f.Stderr) {
		switch {
		case !saysOutOfSpace(line):
		case serverSays.MatchString(line):
			server = true
		default:
			own = true
		}
	}
	return own, server
}

// measureInterval is between two measurements of a primary's data.
const measureInterval = 30 * time.Second

// measure reports how much a copy of a primary's data takes.
func (l *life) measure(ctx context.Context) {
	for ctx.Err() == nil {
		if size, err := dataSize(ctx, l.o.pgdata()); err == nil {
			l.Store.Update(func(s *memberapi.Status) { s.DataSize = size })
		} else if ctx.Err() == nil {
			l.log.Info("the size of the data is not known", "error", err.Error())
		}
		wait(ctx, measureInterval)
	}
}

// dataSize is the size of what a copy of a data directory holds. Files come
// and go meanwhile.
func dataSize(ctx context.Context, dir string) (int64, error) {
	var size int64
	walk := func(root string) error {
		return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case entry.IsDir() && (path == filepath.Join(dir, "pg_wal") || strings.HasPrefix(entry.Name(), "pgsql_tmp")):
				return fs.SkipDir
			case !entry.Type().IsRegular():
				return nil
			}
			if info, err := entry.Info(); err == nil {
				size += info.Size()
			}
			return nil
		})
	}
	if err := walk(dir); err != nil {
		return 0, err
	}
	tablespaces, err := os.ReadDir(filepath.Join(dir, "pg_tblspc"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for _, entry := range tablespaces {
		target, err := filepath.EvalSymlinks(filepath.Join(dir, "pg_tblspc", entry.Name()))
		if err != nil {
			continue
		}
		if err := walk(target); err != nil {
			return 0, err
		}
	}
	return size, nil
}
