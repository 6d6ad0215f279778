package dataspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// MeasureData is the size of what a copy of a data directory holds. Files come
// and go meanwhile.
func MeasureData(ctx context.Context, dir string) (int64, error) {
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
