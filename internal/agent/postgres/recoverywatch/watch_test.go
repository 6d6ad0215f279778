package recoverywatch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const second = time.Second

// A recovery that replays may take hours. One that stands still is ended after the limit.
func TestRule7RecoveryIsBoundedWithoutProgress(t *testing.T) {
	var c Crashes
	now := 100 * second
	for n := range uint64(7200) {
		now += second
		if reason := c.Observe(now, true, Mark{Segment: "s", Bytes: n / 20}); reason != "" { // every 20 s
			t.Fatalf("after %d s of progress: %s", n, reason)
		}
	}
	stuck := Mark{Segment: "s", Bytes: 1}
	_ = c.Observe(now, true, stuck)
	if reason := c.Observe(now+Limit-second, true, stuck); reason != "" {
		t.Errorf("before the limit: %s", reason)
	}
	if reason := c.Observe(now+Limit, true, stuck); reason == "" {
		t.Error("not ended at the limit")
	}
}

func TestRule7CrashesInARowAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		serves time.Duration
		ends   bool
	}{
		"it serves for a moment between": {5 * second, true},
		"it serves for a minute between": {60 * second, false},
	} {
		t.Run(name, func(t *testing.T) {
			var crashes Crashes
			now, ended := 100*second, false
			for n := uint64(0); n < 10 && !ended; n++ {
				for range 3 {
					ended = ended || crashes.Observe(now, true, Mark{Bytes: n}) != ""
					now += second
				}
				for at := time.Duration(0); at < c.serves; at += second {
					if crashes.Observe(now, false, Mark{}) != "" {
						t.Fatal("ended while it serves")
					}
					now += second
				}
			}
			if ended != c.ends {
				t.Errorf("ended %v", ended)
			}
		})
	}
}

// Processes as the kernel shows them.
func TestReadMark(t *testing.T) {
	for name, c := range map[string]struct {
		titles []string
		want   Mark
	}{
		"none is under way":                  {[]string{"postgres: checkpointer ", "postgres: walwriter "}, Mark{}},
		"it flushes the files":               {[]string{"postgres: startup "}, Mark{Bytes: 30, Waits: 7}},
		"it replays":                         {[]string{"postgres: startup recovering 000000010000000000000003"}, Mark{Segment: "000000010000000000000003", Bytes: 30}},
		"its checkpoint is written":          {[]string{"postgres: orders: startup recovering 000000010000000000000003", "postgres: orders: checkpointer "}, Mark{Segment: "000000010000000000000003", Bytes: 60}},
		"a session whose role has that name": {[]string{"postgres: startup app [local] idle"}, Mark{}},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			for i, title := range c.titles {
				writeProcess(t, proc, 10+i, 5, title)
			}
			writeProcess(t, proc, 99, 6, "postgres: startup recovering 000000010000000000000009") // of another server
			if got := readMark(proc, 5); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func writeProcess(t *testing.T, proc string, pid, parent int, title string) {
	t.Helper()
	dir := filepath.Join(proc, strconv.Itoa(pid))
	for file, text := range map[string]string{
		"cmdline": title + "\x00\x00", "io": "rchar: 10\nwchar: 20\nsyscr: 1\n",
		"status": fmt.Sprintf("Name:\tpostgres\nPPid:\t%d\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t1\n", parent),
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
