package dataspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
)

// MeasureData is the size of what a copy of a data directory holds. Files come
// and go meanwhile.
func MeasureData(ctx context.Context, dir string) (int64, error) {
	isOmitted := func(path string, entry fs.DirEntry) bool {
		return entry.IsDir() && (path == filepath.Join(dir, "pg_wal") || strings.HasPrefix(entry.Name(), "pgsql_tmp"))
	}
	size, err := diskspace.MeasureFiles(ctx, dir, isOmitted)
	if err != nil {
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
		one, err := diskspace.MeasureFiles(ctx, target, isOmitted)
		if err != nil {
			return 0, err
		}
		size += one
	}
	return size, nil
}
