package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// minimumFree is what a start needs: a segment of the log, and some more.
const minimumFree = 24 << 20

// space of a volume, in bytes. The zero value is unknown.
type space struct{ Free, Total int64 }

func (a *agent) space() space {
	if a.o.space != nil {
		return a.o.space(a.o.DataDir)
	}
	return spaceOf(a.o.DataDir)
}

func spaceOf(dir string) space {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return space{}
	}
	return space{Free: int64(s.Bavail) * s.Bsize, Total: int64(s.Blocks) * s.Bsize}
}

// full says whether too little is left to start a database.
func (s space) full() bool { return s.Total > 0 && s.Free < minimumFree }

// roomFor is what a copy of so much data needs: the log of the time that the
// copying takes comes on top, and what the copy needs to start.
func roomFor(size int64) int64 {
	return size + min(size/10, gibibyte) + 2*16*mebibyte + minimumFree
}

// fits says whether a copy of so much data fits. An unknown size fits: that
// the volume filled up is seen then.
func (s space) fits(size int64) bool { return size == 0 || s.Total == 0 || s.Free >= roomFor(size) }

// missing says what a copy lacks, in round numbers: they move with every row.
func (s space) missing(primary string, size int64) string {
	return fmt.Sprintf("a copy of the data of %s needs %s and the volume has %s left: set spec.storage.size to %s or more",
		primary, roundUp(roomFor(size)), roundDown(s.Free), roundUp(s.Total-s.Free+roomFor(size)))
}

// unit in which a size is told.
func unit(n int64) int64 {
	if n >= gibibyte {
		return gibibyte
	}
	return 16 * mebibyte
}

func roundUp(n int64) string {
	u := unit(n)
	return resource.NewQuantity((n+u-1)/u*u, resource.BinarySI).String()
}

func roundDown(n int64) string {
	u := unit(n)
	return resource.NewQuantity(n/u*u, resource.BinarySI).String()
}

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

// outOfSpace says whether a program failed because the volume was full.
func outOfSpace(err error) bool {
	var failed *member.Failure
	if !errors.As(err, &failed) {
		return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
	}
	return strings.Contains(failed.Stderr, "No space left on device") || strings.Contains(failed.Stderr, "Disk quota exceeded")
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
