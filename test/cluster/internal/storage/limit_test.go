package storage

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A limited folder takes no more than its size, takes more once it has grown,
// keeps what is in it, and goes.
func TestLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	path := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := limitFolder(path, resource.MustParse("1Mi")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = removeFolder(path) })
	write := func(name string, size int) error {
		return os.WriteFile(filepath.Join(path, name), make([]byte, size), 0o600)
	}
	if err := write("first", 512<<10); err != nil {
		t.Fatal(err)
	}
	if err := write("second", 768<<10); err == nil {
		t.Error("a volume of 1Mi holds more")
	}
	if err := changeLimit(path, resource.MustParse("2Mi")); err != nil {
		t.Fatal(err)
	}
	if err := write("second", 768<<10); err != nil {
		t.Errorf("after it grew: %v", err)
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil || int64(fs.Blocks)*fs.Bsize != 2<<20 {
		t.Errorf("the file system has %d blocks: %v", fs.Blocks, err)
	}
	if found, err := os.ReadFile(filepath.Join(path, "first")); err != nil || len(found) != 512<<10 {
		t.Errorf("what it held is gone: %v", err)
	}
	if err := removeFolder(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the folder is still there")
	}
}
