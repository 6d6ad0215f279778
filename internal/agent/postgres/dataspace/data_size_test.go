package dataspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A copy holds everything but the WAL of the primary's past, tablespaces too.
func TestDataSize(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	for name, size := range map[string]int{
		filepath.Join(dir, "base", "5", "1249"): 1000, filepath.Join(dir, "PG_VERSION"): 3,
		filepath.Join(dir, "pg_wal", "000000010000000000000001"): 5000, filepath.Join(dir, "base", "pgsql_tmp", "x"): 700,
		filepath.Join(elsewhere, "PG_17", "5", "1"): 200,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, name, strings.Repeat("x", size))
	}
	if err := os.MkdirAll(filepath.Join(dir, "pg_tblspc"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(dir, "pg_tblspc", "16384")); err != nil {
		t.Fatal(err)
	}
	got, err := MeasureData(t.Context(), dir)
	if err != nil || got != 1203 {
		t.Errorf("size %d, %v; want 1203", got, err)
	}
}
