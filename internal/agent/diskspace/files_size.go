package diskspace

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
)

// MeasureFiles is the size in bytes of the regular files below a directory, without those
// that are omitted, and without all that is in a directory that is. Files come and go
// meanwhile.
func MeasureFiles(ctx context.Context, dir string, isOmitted func(path string, entry fs.DirEntry) bool) (int64, error) {
	var size int64
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case entry.IsDir() && isOmitted(path, entry):
			return fs.SkipDir
		case !entry.Type().IsRegular() || isOmitted(path, entry):
			return nil
		}
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size, err
}
