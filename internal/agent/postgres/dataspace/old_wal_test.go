package dataspace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// What a server that crashed has left goes before anything else.
func TestRemoveTemporary(t *testing.T) {
	pgdata := t.TempDir()
	keep, drop := []string{"base/5/16384", "pg_wal/000000010000000000000001", "base/pgsql_tmp/other"}, []string{"base/pgsql_tmp/pgsql_tmp77.0", "pg_wal/xlogtemp.77"}
	for _, name := range append(append([]string{}, keep...), drop...) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(pgdata, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, filepath.Join(pgdata, name), "x")
	}
	if !RemoveTemporary(pgdata) || RemoveTemporary(pgdata) {
		t.Error("it does not say what it removed")
	}
	for _, name := range keep {
		if _, err := os.Stat(filepath.Join(pgdata, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range drop {
		if _, err := os.Stat(filepath.Join(pgdata, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
