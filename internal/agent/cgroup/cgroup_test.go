package cgroup

import (
	"os"
	"testing"
	"testing/fstest"
	"time"

	"github.com/holdfast-db/holdfast/internal/sizing"
)

// Files of both versions of control groups are read in full. Those of version 1 were recorded:
// of a process with 96 MiB of its own memory and 48 MiB of shared memory, that reads a file of
// 160 MiB again and again, with a limit of 256 MiB and a fifth of a processor. Those of version
// 2 are as kernel 6.1 writes them.
func TestRead(t *testing.T) {
	page := int64(os.Getpagesize())
	for version, want := range map[string]sizing.Counters{
		"v2": {
			CPU: 5420123456 * time.Microsecond, Periods: 36015, Throttled: 4310,
			StalledCPU: 918273645 * time.Microsecond, StalledMemory: 1234567 * time.Microsecond,
			Anonymous: 301989888, Shared: 146800640, Kernel: 9437184 + 1064960 + 12582912 + 45056,
			ActiveFile: 713031680, ReadBack: 81920 * page, Limit: 2147483648, Kills: 1,
		},
		"v1": {
			CPU: 860970218, Periods: 46, Throttled: 39, StalledCPU: unknown, StalledMemory: unknown,
			Anonymous: 108785664, Shared: 50331648, ReadBack: 225024 * page, Limit: 268435456,
		},
	} {
		got, err := Read(os.DirFS("testdata/" + version))
		if err != nil || got != want {
			t.Errorf("%s: %v\n got %+v\nwant %+v", version, err, got, want)
		}
	}
}

// A container without a limit has none, and one of a kernel that does not say how long
// something waited does not.
func TestReadWithoutALimit(t *testing.T) {
	files := fstest.MapFS{
		"memory.current": {Data: []byte("1\n")},
		"memory.max":     {Data: []byte("max\n")},
		"memory.stat":    {Data: []byte("anon 4096\n")},
		"memory.events":  {Data: []byte("oom_kill 0\n")},
		"cpu.stat":       {Data: []byte("usage_usec 1000\n")},
	}
	got, err := Read(files)
	if want := (sizing.Counters{CPU: time.Millisecond, StalledCPU: unknown, StalledMemory: unknown, Anonymous: 4096}); err != nil || got != want {
		t.Errorf("%v %+v", err, got)
	}
}

// What cannot be read is an error, and no zero.
func TestUnreadable(t *testing.T) {
	stat := &fstest.MapFile{Data: []byte("anon many\n")}
	for name, files := range map[string]fstest.MapFS{
		"no control group":  {},
		"half of a group":   {"memory.current": {Data: []byte("1\n")}},
		"another format":    {"memory.current": {}, "memory.max": {Data: []byte("max\n")}, "memory.stat": stat, "memory.events": {}, "cpu.stat": {}},
		"half of version 1": {"memory/memory.stat": {Data: []byte("total_rss 1\n")}},
	} {
		if got, err := Read(files); err == nil {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
}

// The machine that runs the tests has control groups of one of the versions.
func TestReadOwn(t *testing.T) {
	got, err := Read(Own())
	if err != nil {
		t.Skipf("no control group is visible here: %v", err)
	}
	if got.CPU <= 0 || got.Anonymous <= 0 {
		t.Errorf("%+v", got)
	}
}
