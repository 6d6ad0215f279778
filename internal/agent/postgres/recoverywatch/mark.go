package recoverywatch

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Mark is how far a recovery has come. Two marks differ if there was progress between
// them, and are the same if there was none. The zero value is that of a server without
// a startup process: none is under way.
type Mark struct {
	// Segment of WAL that is being replayed; empty before the first.
	Segment string
	// Bytes that were read and written: WAL, pages, and the checkpoint at the end.
	Bytes uint64
	// Waits of the startup process that have ended, before it reads WAL: it flushes each
	// file of the data then.
	Waits uint64
}

// titlePattern is that of the processes that do the work, in PostgreSQL 14 to 18.
var titlePattern = regexp.MustCompile(`^postgres: (?:\S+: )?(startup|checkpointer)(?: recovering ([0-9A-F]{24}))?(?: waiting)?\s*$`)

// ReadMark reads the mark of the server with that first process.
func ReadMark(postmaster int) Mark { return readMark("/proc", postmaster) }

func readMark(proc string, postmaster int) Mark {
	var m Mark
	var found bool
	entries, err := os.ReadDir(proc)
	if err != nil {
		return m
	}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		dir := filepath.Join(proc, entry.Name())
		title := titlePattern.FindStringSubmatch(readTitle(dir))
		if title == nil || readNumber(dir, "status", "PPid") != uint64(postmaster) { //nolint:gosec // a process ID
			continue
		}
		m.Bytes += readNumber(dir, "io", "rchar") + readNumber(dir, "io", "wchar")
		if title[1] == "startup" {
			found, m.Segment = true, title[2]
			if m.Segment == "" {
				m.Waits = readNumber(dir, "status", "voluntary_ctxt_switches")
			}
		}
	}
	if !found {
		return Mark{}
	}
	return m
}

// readTitle is the process's title as PostgreSQL sets it.
func readTitle(dir string) string {
	data, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return "" // it has ended
	}
	return strings.TrimRight(strings.ReplaceAll(string(data), "\x00", " "), " ")
}

// readNumber reads a number of one of the kernel's files on a process; 0 without it.
func readNumber(dir, file, name string) uint64 {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if value, is := strings.CutPrefix(line, name+":"); is {
			n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}
