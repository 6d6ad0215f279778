package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteReplacesAFile(t *testing.T) {
	for name, write := range map[string]func(string, []byte) error{"atomically": WriteFile, "durably": WriteDurably} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "record.json")
			// A write that a crash cut off.
			if err := os.WriteFile(filepath.Join(dir, ".record.json.tmp"), []byte("much longer than what follows"), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{"first", "second"} {
				if err := write(path, []byte(text)); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(path); err != nil || string(got) != text {
					t.Errorf("it holds %q, not %q: %v", got, text, err)
				}
			}
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := write(path, []byte("second")); err != nil {
				t.Fatal(err)
			}
			after, err := os.Stat(path)
			if err != nil || !os.SameFile(before, after) {
				t.Errorf("a file that is the same was replaced: %v", err)
			}
			if after.Mode().Perm() != 0o600 {
				t.Errorf("others may read it: %s", after.Mode())
			}
			if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
				t.Errorf("%v is left beside it: %v", names, err)
			}
			err = write(filepath.Join(dir, "missing", "record.json"), nil)
			if err == nil || !strings.Contains(err.Error(), "record.json") {
				t.Errorf("a folder that does not exist: %v", err)
			}
		})
	}
}

// A record whose directory was not flushed is not on the disk, and does not count as that
// at the next try either.
func TestRecordThatIsNotFlushedIsFlushedAtTheNextTry(t *testing.T) {
	failed := errors.New("the disk does not answer")
	flush := flushDir
	t.Cleanup(func() { flushDir = flush })
	dir := t.TempDir()
	reserved := Reserved{Path: filepath.Join(dir, "reserved.json"), Size: 64}
	for name, write := range map[string]func([]byte) error{
		"a file":          func(data []byte) error { return WriteDurably(filepath.Join(dir, "record.json"), data) },
		"a reserved file": reserved.Write,
	} {
		t.Run(name, func(t *testing.T) {
			for _, text := range []string{"first", "second"} {
				flushDir = func(*os.File) error { return failed }
				for range 2 {
					if err := write([]byte(text)); !errors.Is(err, failed) {
						t.Errorf("%s: %v", text, err)
					}
				}
				flushes := 0
				flushDir = func(d *os.File) error { flushes++; return flush(d) }
				if err := write([]byte(text)); err != nil || flushes == 0 {
					t.Errorf("%s: flushed %d times: %v", text, flushes, err)
				}
			}
		})
	}
}
