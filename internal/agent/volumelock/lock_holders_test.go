package volumelock

import (
	"os"
	"path/filepath"
	"testing"
)

// The states of all threads are read, not only that of the first one.
func TestStatesOfThreads(t *testing.T) {
	states := listThreadStates(os.Getpid())
	if len(states) < 2 {
		t.Errorf("a Go program has threads beside the first one: %q", states)
	}
	if states := listThreadStates(1 << 30); len(states) != 0 {
		t.Errorf("no such process: %q", states)
	}
	file := filepath.Join(t.TempDir(), "stat")
	for text, want := range map[string]byte{"7 (my (sql) D) D 1 7": 'D', "7 (mysqld) S 1 7": 'S', "7 (mysqld)": 0} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readState(file); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
