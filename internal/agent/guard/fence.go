package guard

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

const (
	// fencePause is the longest pause between two checks of a deadline. One that is set
	// less than that ahead is noticed up to that much late: a renewal of the Lease
	// sets it seconds ahead. Each pod pays for the checks with processor time.
	fencePause = 500 * time.Millisecond
	// fenceReport is the readiness after a fence, until the next agent reports.
	fenceReport = "the Lease was not renewed in time: every process was stopped"
)

// fence kills every process of the container when the deadline of one agent
// passes.
//
// It depends on nothing that can stand still while the database runs: it asks no
// agent, writes no log, opens no file, allocates nothing, and waits for no
// goroutine that blocks. Its clock counts a suspension of the machine.
//
// Its memory is not locked: an unprivileged container may not lock the whole
// binary, and Go's runtime reserves more address space than any limit. Instead
// each check makes the system call of the kill, with a signal that does nothing.
// So the code of a fence is in use all the time, and is the last that the kernel
// would drop and have to read from a disk.
type fence struct {
	file   *os.File
	memory []byte
	// passed is closed when the deadline has passed and the signal is sent.
	passed chan struct{}

	// mu is held for a check, and by none for longer. It keeps a check from
	// killing the processes of the next agent.
	mu    sync.Mutex
	page  *page
	late  time.Duration
	fired bool
	ended bool
}

// newFence returns the fence of an agent that is to be started, after that many
// fences. With an error it returns one that has no deadline.
func newFence(fences int64) (*fence, error) {
	f := &fence{passed: make(chan struct{}), page: &page{}}
	file, err := createPageFile()
	if err != nil {
		return f, err
	}
	shared, memory, err := mapPage(file)
	if err != nil {
		_ = file.Close()
		return f, err
	}
	f.file, f.page, f.memory = file, shared, memory
	f.page.fences.Store(fences)
	return f, nil
}

// startAgent starts a process that inherits the deadline.
func (f *fence) startAgent(path string, args, env []string) (*os.Process, error) {
	files := []*os.File{nil, os.Stdout, os.Stderr}
	if f.file != nil {
		files = append(files, f.file)
		env = append(env[:len(env):len(env)], fmt.Sprintf("%s=%d", EnvDeadline, deadlineFile))
		defer func() { _ = f.file.Close() }() // the mapping stays
	}
	return os.StartProcess(path, args, &os.ProcAttr{Env: env, Files: files})
}

// watchDeadline checks the deadline until the fence has ended.
func (f *fence) watchDeadline() {
	for {
		next, ended := f.checkDeadline(clock.Boottime())
		if ended {
			return
		}
		clock.SleepUntil(next)
	}
}

// checkDeadline kills every process but this one if the deadline has passed, and
// says when to check again. After a fence it does so at each check: `kubectl exec`
// may have started another process.
func (f *fence) checkDeadline(now time.Duration) (next time.Duration, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return 0, true
	}
	until := time.Duration(f.page.until.Load())
	passed := until != 0 && now >= until
	target, signal := os.Getpid(), syscall.Signal(0)
	// Only the first process of a container may do this: elsewhere -1 is the whole
	// machine.
	if passed && target == 1 {
		target, signal = -1, syscall.SIGKILL
	}
	_ = syscall.Kill(target, signal)
	if passed && !f.fired {
		f.fired, f.late = true, clock.Boottime()-until
		close(f.passed)
	}
	if now += fencePause; until != 0 && !passed {
		return min(now, until), false
	}
	return now, false
}

// endFence ends the watch after the agent. It says whether the deadline had
// passed, and how long after that moment the processes were killed.
func (f *fence) endFence() (fired bool, late time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	if f.memory != nil {
		_ = unix.Munmap(f.memory)
		f.page, f.memory = nil, nil
	}
	return f.fired, f.late
}
