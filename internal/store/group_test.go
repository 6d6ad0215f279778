package store

import (
	"os"
	"path/filepath"
	"testing"
)

// A restore runs as another user than who wrote the backup: they have a group
// in common, and others read nothing.
func TestGroupReadsDirectory(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Location{URL: "file://" + dir}, nil)
	if err := s.Put(t.Context(), "shop/orders/manifest.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"shop": 0o750, "shop/orders": 0o750, "shop/orders/manifest.json": 0o640} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has the mode %o, want %o", name, got, want)
		}
	}
}
