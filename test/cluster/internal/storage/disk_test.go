package storage

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A frozen disk is read and takes no write; it takes it once it goes on. Without the
// disk its folder is not there.
func TestDisk(t *testing.T) {
	if _, err := os.Stat("/dev/loop-control"); os.Geteuid() != 0 || err != nil {
		t.Skip("needs root and loop devices")
	}
	d, err := NewDisk(t.TempDir(), "orders-0")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Make(resource.MustParse("32Mi")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Remove() })
	file := filepath.Join(d.Path(), "file")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Freeze(); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(filepath.Join(d.Path(), "other"), []byte("after"), 0o600) }()
	select {
	case err := <-written:
		t.Errorf("a frozen disk takes a write: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "before" {
		t.Errorf("a frozen disk has %q: %v", content, err)
	}
	for range 2 { // a disk that goes on already is fine
		if err := d.Thaw(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-written; err != nil {
		t.Errorf("the write fails later: %v", err)
	}
	if err := d.Make(resource.MustParse("32Mi")); err == nil {
		t.Error("a disk is made over another one")
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "before" {
		t.Fatalf("the other one has %q: %v", content, err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Path()); !os.IsNotExist(err) {
		t.Errorf("its folder: %v", err)
	}
	if _, err := NewDisk(t.TempDir(), "../x"); err == nil {
		t.Error("a path is accepted as a name")
	}
}
