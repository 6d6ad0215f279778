package postgres

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/member"
)

// postmaster is a running database server.
type postmaster struct {
	process *os.Process
	pgdata  string
	lock    *member.VolumeLock
	// done is closed when the server's first process has ended; err says how.
	done chan struct{}
	err  error

	mu    sync.Mutex
	fatal string // the last FATAL or PANIC line
}

// startPostmaster starts the server with the settings in file. Every line of
// its log goes to standard error and to heard.
func (p programs) startPostmaster(pgdata, file string, lock *member.VolumeLock, heard func(line string)) (*postmaster, error) {
	inherited, err := lock.ForDatabase()
	if err != nil {
		return nil, err
	}
	defer func() { _ = inherited.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the database: %w", err)
	}
	// Not bound to a context: the server is only ever stopped in order.
	cmd := p.command(context.Background(), "postgres", "-D", pgdata, "-c", "config_file="+file)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.ExtraFiles = []*os.File{inherited}
	wait, err := p.processes.Start(cmd)
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		return nil, fmt.Errorf("start the database: %w", err)
	}
	m := &postmaster{process: cmd.Process, pgdata: pgdata, lock: lock, done: make(chan struct{})}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		m.passOn(read, heard)
	}()
	go func() {
		err := wait()
		// A child that outlives the server may keep the log open.
		select {
		case <-logged:
		case <-time.After(200 * time.Millisecond):
		}
		m.err = err
		close(m.done)
	}()
	return m, nil
}

func (m *postmaster) passOn(log io.ReadCloser, heard func(string)) {
	defer func() { _ = log.Close() }()
	lines := bufio.NewReaderSize(log, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			_, _ = os.Stderr.WriteString(line)
			line = strings.TrimSuffix(line, "\n")
			m.remember(line)
			heard(line)
		}
		if err != nil {
			return
		}
	}
}

func (m *postmaster) remember(line string) {
	for _, level := range []string{"FATAL:  ", "PANIC:  "} {
		_, message, found := strings.Cut(line, level)
		// What a session is told while the server starts is no reason.
		if found && !strings.HasPrefix(message, "the database system is") {
			m.mu.Lock()
			m.fatal = message
			m.mu.Unlock()
		}
	}
}

// lastFatal is the last FATAL or PANIC message of the server's log.
func (m *postmaster) lastFatal() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fatal
}

// reload makes the server read its settings again.
func (m *postmaster) reload() error { return m.process.Signal(syscall.SIGHUP) }

// stop stops the server: fast, and where that takes longer than limit, at
// once. It returns when no process of the server is left, and says whether the
// server shut down in order.
func (m *postmaster) stop(limit time.Duration) (inOrder bool) {
	_ = m.process.Signal(syscall.SIGINT)
	if m.ended(limit) {
		inOrder = m.err == nil
	}
	m.kill()
	return inOrder
}

// kill stops the server at once and returns when no process of it is left.
func (m *postmaster) kill() {
	_ = m.process.Signal(syscall.SIGQUIT)
	if !m.ended(2 * time.Second) {
		_ = m.process.Kill()
	}
	for !m.lock.WaitDatabaseDead(time.Second) {
		killInside(m.pgdata)
	}
	<-m.done
}

func (m *postmaster) ended(limit time.Duration) bool {
	select {
	case <-m.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// killInside kills every process that works inside the data directory:
// children of a server that died before them.
func killInside(pgdata string) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if cwd, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd")); err == nil && cwd == pgdata {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
