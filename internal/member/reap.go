package member

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Processes starts commands, and collects the dead that nobody else waits for:
// as the first process of a container the agent inherits every orphan.
type Processes struct {
	mu  sync.Mutex
	own map[int]bool
}

// NewProcesses knows no process yet.
func NewProcesses() *Processes { return &Processes{own: map[int]bool{}} }

// Start starts a command and returns a function that waits for its end. The
// wait must be called.
func (p *Processes) Start(cmd *exec.Cmd) (wait func() error, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	p.own[pid] = true
	return func() error {
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.own, pid)
		return err
	}, nil
}

// Reap collects orphans until ctx ends. Only the first process of a container
// needs it.
func (p *Processes) Reap(ctx context.Context) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	// Signals of several deaths may arrive as one, and a death of our own
	// command may hide an orphan behind it: the ticker comes back to them.
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-died:
		case <-ticker.C:
		}
		for p.reapOne() {
		}
	}
}

// reapOne collects one orphan, and says whether to look for more. It looks at
// who died without collecting, so that it never steals a command's end from
// the one who waits for it.
func (p *Processes) reapOne() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil || info.Signo == 0 {
		return false
	}
	pid := sigchldPid(&info)
	if p.own[pid] {
		return false
	}
	_, err = unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return err == nil
}

// sigchldPid reads the process from a siginfo of SIGCHLD, where 64-bit Linux
// has it after three integers and their padding.
func sigchldPid(info *unix.Siginfo) int {
	const offset = 16
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(info), offset)))
}
