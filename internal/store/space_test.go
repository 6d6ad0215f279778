package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where the storage enforces no sizes, a volume takes what it was asked for and
// leaves the disk to the others on it.
func TestSpace(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	cases := []struct {
		name             string
		size, free, held int64
		taken, total     int64
		says             string // nothing where it is written
	}{
		{"space on a disk that others use", 10 * mib, 90 * gib, 7 * mib, 10 * gib, 100 * gib, ""},
		{"more than its size", 10 * mib, 90 * gib, 9 * mib, 10 * gib, 100 * gib, "it holds 9Mi of 10Mi"},
		{"the disk is nearly full", 10 * mib, gib, 0, 99 * gib, 100 * gib, "only 1Gi of the disk that it is on are free"},
		{"a small one, too", 10 * mib, 49 * mib, 0, 975 * mib, gib, "only 49Mi"},
		{"a node's that is hardly larger than the volume", 40 * gib, 60 * mib, mib, 37 * gib, 38 * gib, "only 60Mi"},
		{"and one that is smaller", 100 * gib, 5 * mib, 0, 49 * gib, 50 * gib, "only 5Mi"},
		{"a file system of its own", 10 * mib, 2 * mib, 9 * mib, 9 * mib, 11 * mib, ""},
		{"nothing is known of the disk", 10 * mib, 0, 9 * mib, 0, 0, "it holds 9Mi"},
	}
	for _, tc := range cases {
		dir := t.TempDir()
		s, err := Open(t.Context(), Location{URL: "file://" + dir, Volume: "orders-backups", Size: tc.size}, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.space.disk = func(string) disk { return disk{tc.free, tc.taken, tc.total} }
		if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, tc.held), 0o600); err != nil {
			t.Fatal(err)
		}
		err = s.Put(t.Context(), "a/part", make([]byte, 2*mib))
		var e *Error
		if tc.says == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if !errors.As(err, &e) || !e.Permanent || !strings.Contains(err.Error(), tc.says) ||
			!strings.Contains(err.Error(), "the volume orders-backups") ||
			strings.Contains(err.Error(), "spec.backup.volume.size") != strings.HasPrefix(tc.says, "it holds") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// What is written counts, and what has been removed does so no more.
func TestSpaceIsCounted(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), Location{URL: "file://" + dir, Volume: "v", Size: 4 << 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.space.disk = func(string) disk { return disk{1 << 40, 0, 1 << 40} }
	part := make([]byte, 3<<19)
	for _, key := range []string{"a", "b"} {
		if err := s.Put(t.Context(), key, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(t.Context(), "c", part); err == nil {
		t.Error("more is written than there is space for")
	}
	if err := os.Remove(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "c", part); err != nil {
		t.Error(err)
	}
}
