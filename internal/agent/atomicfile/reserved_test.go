package atomicfile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReservedReplacesAFile(t *testing.T) {
	dir := t.TempDir()
	r := Reserved{Path: filepath.Join(dir, "record.json"), Size: 4096}
	if err := os.WriteFile(r.Path, []byte("of an earlier version"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second", "second", "third", strings.Repeat("long", 4096), "fourth"} {
		if err := r.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(r.Path)
		if err != nil || strings.TrimRight(string(got), " ") != text {
			t.Errorf("it holds %.20q, not %.20q: %v", got, text, err)
		}
		if info, err := os.Stat(r.spare()); err != nil || info.Size() < 4096 {
			t.Errorf("after %.20q nothing is reserved: %v", text, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("there are %v: %v", entries, err)
	}
}

// A write that a crash cut off leaves the file as it was.
func TestReservedIsWholeAfterACrash(t *testing.T) {
	r := Reserved{Path: filepath.Join(t.TempDir(), "record.json"), Size: 64}
	if err := r.Write([]byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.spare(), []byte("half of wh"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(r.Path); err != nil || strings.TrimRight(string(got), " ") != "before" {
		t.Errorf("it holds %q: %v", got, err)
	}
	if err := r.Write([]byte("after")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(r.Path); err != nil || strings.TrimRight(string(got), " ") != "after" {
		t.Errorf("it holds %q: %v", got, err)
	}
}

// On a file system that is full, a reserved file can be replaced, and another cannot.
func TestReservedIsWrittenOnAFullVolume(t *testing.T) {
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			dir := mountSmall(t, kind)
			r := Reserved{Path: filepath.Join(dir, "record.json"), Size: 16 << 10}
			if err := r.Write([]byte("first")); err != nil {
				t.Fatal(err)
			}
			if err := r.Write([]byte("second")); err != nil {
				t.Fatal(err)
			}
			fillVolume(t, dir)
			if err := WriteDurably(filepath.Join(dir, "other.json"), []byte(strings.Repeat("x", 16<<10))); !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("the volume is not full: %v", err)
			}
			for _, text := range []string{"third", "fourth", "fifth"} {
				if err := r.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(r.Path); err != nil || strings.TrimRight(string(got), " ") != text {
					t.Errorf("it holds %.20q: %v", got, err)
				}
			}
		})
	}
}

// mountSmall mounts a small file system.
func mountSmall(t *testing.T, kind string) string {
	t.Helper()
	dir := t.TempDir()
	source, options := "none", []string{"-t", kind, "-o", "size=1m"}
	if kind != "tmpfs" {
		source, options = filepath.Join(t.TempDir(), "image"), []string{"-t", kind, "-o", "loop"}
		if err := os.WriteFile(source, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(source, 16<<20); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mkfs."+kind, "-q", source).CombinedOutput(); err != nil {
			t.Skipf("mkfs.%s: %v: %s", kind, err, out)
		}
	}
	if out, err := exec.Command("mount", append(options, source, dir)...).CombinedOutput(); err != nil {
		t.Skipf("mount needs root: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	return dir
}

// fillVolume writes until nothing more fits, down to single bytes.
func fillVolume(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for size := 1 << 20; size > 0; {
		if _, err = file.Write(make([]byte, size)); err == nil {
			err = file.Sync()
		}
		if err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the volume is not full: %v", err)
	}
}
