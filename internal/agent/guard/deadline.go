package guard

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

// EnvDeadline is set by the guard for its agent: the number of the open file that
// holds the agent's deadline.
const EnvDeadline = "HOLDFAST_GUARD_DEADLINE"

const (
	// deadlineFile is that number: the first after the standard streams.
	deadlineFile = 3
	// deadlineSeals keep the size of the file as it is.
	deadlineSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
)

// page is memory that the guard shares with one agent.
//
// The deadline is one atomic number in it, so that neither side ever waits for
// the other. A guard that stands still blocks no agent. An agent that stands
// still, or ends at any instruction, leaves a whole number. A pipe or a socket
// does worse: it fills up behind a reader that hangs, it can carry half a
// message, and what waits in it is read late, as if it were new.
//
// Each agent gets a page of its own. So the deadline of an earlier agent means
// nothing for the next one, and a process that an earlier agent left reaches the
// earlier page at most. The agent closes the file before it starts any process,
// and a mapping does not survive exec: the database has neither.
//
// The size of the file is sealed and its memory is there from the beginning.
// Otherwise a read by the guard could end in SIGBUS.
type page struct {
	// until is the deadline in CLOCK_BOOTTIME; 0 is none.
	until atomic.Int64
	// fences counts how often a deadline has passed in this container.
	fences atomic.Int64
}

// createPageFile returns a file for one page, without a deadline.
func createPageFile() (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("holdfast-deadline", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3
		fd, err = unix.MemfdCreate("holdfast-deadline", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("create the agent's deadline: %w", err)
	}
	file := os.NewFile(uintptr(fd), "deadline")
	// Written, not only sized: a lack of memory is an error here, and a signal when
	// the page is touched for the first time.
	if _, err = file.Write(make([]byte, os.Getpagesize())); err == nil {
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, deadlineSeals)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("create the agent's deadline: %w", err)
	}
	return file, nil
}

// mapPage returns the page of a file, and the memory to unmap.
func mapPage(file *os.File) (*page, []byte, error) {
	memory, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map the agent's deadline: %w", err)
	}
	return (*page)(unsafe.Pointer(unsafe.SliceData(memory))), memory, nil
}

// Deadline is the moment at which the guard ends every process of the container,
// in CLOCK_BOOTTIME (see the clock package). An agent starts without one. A
// deadline that has passed stands: the guard is about to act on it, or stood
// still itself and acts when it runs again.
type Deadline struct{ page *page }

// OpenDeadline opens the deadline that the guard gave this process. It must be
// called before any process is started, since those would inherit the file. It
// fails where there is no guard: such an agent is not fenced by time.
func OpenDeadline() (*Deadline, error) {
	text := os.Getenv(EnvDeadline)
	if text == "" {
		return nil, fmt.Errorf("open the deadline of the guard: %s is not set", EnvDeadline)
	}
	if err := os.Unsetenv(EnvDeadline); err != nil {
		return nil, fmt.Errorf("open the deadline of the guard: %w", err)
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < deadlineFile {
		return nil, fmt.Errorf("open the deadline of the guard: %s=%q is not the number of a file", EnvDeadline, text)
	}
	// Any other file of that number is left alone.
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("open the deadline of the guard: read the seals of file %d: %w", fd, err)
	}
	if seals&deadlineSeals != deadlineSeals {
		return nil, fmt.Errorf("open the deadline of the guard: file %d is another one: its seals are %#x", fd, seals)
	}
	file := os.NewFile(uintptr(fd), "deadline")
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the deadline of the guard: %w", err)
	}
	if size := int64(os.Getpagesize()); info.Size() != size {
		return nil, fmt.Errorf("open the deadline of the guard: file %d has %d bytes, and a page %d", fd, info.Size(), size)
	}
	p, _, err := mapPage(file)
	if err != nil {
		return nil, err
	}
	return &Deadline{p}, nil
}

// Extend moves the deadline, never back. It fails if the deadline has passed.
func (d *Deadline) Extend(until time.Duration) bool {
	moment := max(int64(until), 1) // 0 would be none
	for {
		before := d.page.until.Load()
		switch {
		case before != 0 && int64(clock.Boottime()) >= before:
			return false
		case moment <= before, d.page.until.CompareAndSwap(before, moment):
			return true
		}
	}
}

// Clear removes the deadline, once no process is left that could commit as the
// primary. It fails if the deadline has passed. A later Extend is that of
// another term.
func (d *Deadline) Clear() bool {
	for {
		before := d.page.until.Load()
		switch {
		case before != 0 && int64(clock.Boottime()) >= before:
			return false
		case d.page.until.CompareAndSwap(before, 0):
			return true
		}
	}
}

// Fences is how often the deadline of an earlier agent of this container has
// passed.
func (d *Deadline) Fences() int64 { return d.page.fences.Load() }
