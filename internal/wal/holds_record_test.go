package wal

import (
	"os"
	"path/filepath"
	"testing"
)

// What is no pg_wal directory, or holds no segment, holds no record.
func TestHoldsRecordOfNothing(t *testing.T) {
	empty := t.TempDir()
	truncated := t.TempDir()
	if err := os.WriteFile(filepath.Join(truncated, "000000010000000000000001"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	zeroed := t.TempDir()
	if err := os.WriteFile(filepath.Join(zeroed, "000000010000000000000001"), make([]byte, usualSize), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"no directory": filepath.Join(empty, "absent"), "empty": empty, "truncated": truncated, "zeroed": zeroed} {
		if holds, err := HoldsRecord(dir, 1, 0x1000028); holds || err != nil {
			t.Errorf("%s: %v, %v", name, holds, err)
		}
	}
}
