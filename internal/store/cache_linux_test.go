package store

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What is read after it was written comes from the disk.
func TestWrittenIsForgotten(t *testing.T) {
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		t.Skipf("%s is in memory: %v", dir, err)
	}
	s := open(t, Location{URL: "file://" + dir}, nil)
	if err := s.Put(t.Context(), "a", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var stat unix.Cachestat_t
	if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &stat, 0); err != nil {
		t.Skipf("this kernel does not say: %v", err)
	}
	if stat.Cache != 0 {
		t.Errorf("%d pages are still in memory", stat.Cache)
	}
}
