// Package cgroup reads what the kernel says of the agent's own container, in which the
// database runs, too. It knows version 2 of control groups, and version 1, which has less.
package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/sizing"
)

// Mount is where a container finds its own control group. Every file there is readable, and
// none can be written.
const Mount = "/sys/fs/cgroup"

// unknown is a time that the kernel does not say.
const unknown = time.Duration(-1)

// Own are the files of the container that the process runs in.
func Own() fs.FS { return os.DirFS(Mount) }

// Read reads the counters of a container.
func Read(files fs.FS) (sizing.Counters, error) {
	r := &reader{files: files}
	var c sizing.Counters
	switch {
	case r.hasFile("memory.current"):
		c = r.readUnified()
	case r.hasFile("memory/memory.stat"):
		c = r.readSplit()
	default:
		return c, errors.New("the container has no control group of its own, or may not see it")
	}
	return c, r.err
}

// reader reads files, and keeps the first error.
type reader struct {
	files fs.FS
	err   error
}

func (r *reader) hasFile(name string) bool {
	_, err := fs.Stat(r.files, name)
	return err == nil
}

// readUnified reads version 2.
func (r *reader) readUnified() sizing.Counters {
	processor, memory, events := r.readFlat("cpu.stat"), r.readFlat("memory.stat"), r.readFlat("memory.events")
	return sizing.Counters{
		CPU:           time.Duration(processor["usage_usec"]) * time.Microsecond,
		StalledCPU:    r.readPressure("cpu.pressure"),
		StalledMemory: r.readPressure("memory.pressure"),
		Periods:       processor["nr_periods"], Throttled: processor["nr_throttled"],
		Anonymous:  memory["anon"],
		Shared:     memory["shmem"],
		Kernel:     memory["slab_unreclaimable"] + memory["kernel_stack"] + memory["pagetables"] + memory["sock"],
		ActiveFile: memory["active_file"],
		ReadBack:   memory["workingset_refault_file"] * int64(os.Getpagesize()),
		Limit:      r.readLimit("memory.max"),
		Kills:      events["oom_kill"],
	}
}

// readSplit reads version 1, which does not say how long something waited, nor what of the
// kernel's own memory it can free.
func (r *reader) readSplit() sizing.Counters {
	processor, memory := r.readFlat("cpu/cpu.stat"), r.readFlat("memory/memory.stat")
	return sizing.Counters{
		CPU:        time.Duration(r.readNumber("cpuacct/cpuacct.usage")),
		StalledCPU: unknown, StalledMemory: unknown,
		Periods: processor["nr_periods"], Throttled: processor["nr_throttled"],
		Anonymous:  memory["total_rss"],
		Shared:     memory["total_shmem"],
		ActiveFile: memory["total_active_file"],
		ReadBack:   memory["total_workingset_refault_file"] * int64(os.Getpagesize()),
		Limit:      r.readLimit("memory/memory.limit_in_bytes"),
		Kills:      r.readFlat("memory/memory.oom_control")["oom_kill"],
	}
}

// readFlat reads a file with a name and a number in each line.
func (r *reader) readFlat(name string) map[string]int64 {
	values := map[string]int64{}
	lines := bufio.NewScanner(bytes.NewReader(r.readFile(name)))
	for lines.Scan() {
		key, text, _ := strings.Cut(lines.Text(), " ")
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			r.keepError(name, err)
			return values
		}
		values[key] = value
	}
	return values
}

func (r *reader) readNumber(name string) int64 {
	value, err := strconv.ParseInt(string(bytes.TrimSpace(r.readFile(name))), 10, 64)
	if err != nil {
		r.keepError(name, err)
	}
	return value
}

// readLimit reads a number of bytes; 0 for none: version 2 says max then, and version 1 the
// largest number of whole pages.
func (r *reader) readLimit(name string) int64 {
	text := string(bytes.TrimSpace(r.readFile(name)))
	if text == "max" {
		return 0
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.keepError(name, err)
	}
	if value > math.MaxInt64/2 {
		return 0
	}
	return value
}

// readPressure is how long something waited, in all; unknown where the kernel was built or
// started without that.
func (r *reader) readPressure(name string) time.Duration {
	content, err := fs.ReadFile(r.files, name)
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(content)) {
		rest, found := strings.CutPrefix(line, "some ")
		if !found {
			continue
		}
		_, total, _ := strings.Cut(rest, "total=")
		if micros, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64); err == nil {
			return time.Duration(micros) * time.Microsecond
		}
	}
	return unknown
}

func (r *reader) readFile(name string) []byte {
	content, err := fs.ReadFile(r.files, name)
	if err != nil {
		r.keepError(name, err)
	}
	return content
}

func (r *reader) keepError(name string, err error) {
	if r.err == nil {
		r.err = fmt.Errorf("read %s of the control group: %w", name, err)
	}
}
