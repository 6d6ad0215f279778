package waltail

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

const size = 1 << 20 // of a segment: the smallest that PostgreSQL has

func writeSegments(t *testing.T, names ...string) (pgdata string) {
	t.Helper()
	pgdata = t.TempDir()
	if err := os.Mkdir(filepath.Join(pgdata, "pg_wal"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(pgdata, "pg_wal", name), bytes.Repeat([]byte("x"), size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pgdata
}

// written is how many bytes of a segment are left; -1 of one that is gone.
func written(t *testing.T, pgdata, name string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(pgdata, "pg_wal", name))
	if os.IsNotExist(err) {
		return -1
	}
	if err != nil || len(content) != size {
		t.Fatalf("%s has %d bytes: %v", name, len(content), err)
	}
	return len(bytes.TrimRight(content, "\x00"))
}

func TestDrop(t *testing.T) {
	names := []string{"000000020000000100000002", "000000020000000100000003", "000000020000000100000004", "000000010000000100000004", "00000002.history"}
	pgdata := writeSegments(t, names...)
	dropped, err := Drop(pgdata, 2, "1/300100")
	if err != nil || dropped != 2*size-0x100 {
		t.Errorf("dropped %d: %v", dropped, err)
	}
	for n, want := range []int{size, 0x100, -1, size, size} {
		if have := written(t, pgdata, names[n]); have != want {
			t.Errorf("%s has %d bytes, want %d", names[n], have, want)
		}
	}
}

func TestDropRefuses(t *testing.T) {
	pgdata := writeSegments(t, "000000020000000100000003")
	for _, test := range []struct {
		timeline int64
		position string
	}{{2, "1/900000"}, {2, "1/100000"}, {3, "1/300100"}, {2, "300100"}, {2, "1/x"}, {2, ""}} {
		if _, err := Drop(pgdata, test.timeline, test.position); err == nil {
			t.Errorf("%d %q is accepted", test.timeline, test.position)
		}
	}
	if have := written(t, pgdata, "000000020000000100000003"); have != size {
		t.Errorf("%d bytes are left", have)
	}
}
