package server

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Postmaster is a running database server.
type Postmaster struct {
	*process.Server
	pgdata string
	// Stopping is called before the server is asked to stop: at once, or in order.
	Stopping func(atOnce bool)

	mu    sync.Mutex
	fatal string // the last FATAL or PANIC line
}

// StartPostmaster starts the server with the settings in file, and with decisive
// ones, which hold whatever ALTER SYSTEM has left. Every line of its log goes to
// standard error and to heard.
func (p Programs) StartPostmaster(pgdata, file string, lock *volumelock.VolumeLock, heard func(line string), decisive map[string]string) (*Postmaster, error) {
	m := &Postmaster{pgdata: pgdata, Stopping: func(bool) {}}
	listen := func(line string) {
		m.rememberFatal(line)
		heard(line)
	}
	args := []string{"-D", pgdata, "-c", "config_file=" + file}
	for _, name := range slices.Sorted(maps.Keys(decisive)) {
		args = append(args, "-c", name+"="+decisive[name])
	}
	var err error
	m.Server, err = p.Serve(lock, listen, "postgres", args...)
	return m, err
}

func (m *Postmaster) rememberFatal(line string) {
	for _, level := range []string{"FATAL:  ", "PANIC:  "} {
		_, message, found := strings.Cut(line, level)
		// The message for a session while the server starts is no reason.
		if found && !strings.HasPrefix(message, "the database system is") {
			m.mu.Lock()
			m.fatal = message
			m.mu.Unlock()
		}
	}
}

// lastFatal is the last FATAL or PANIC message of the server's log.
func (m *Postmaster) lastFatal() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fatal
}

// ReloadSettings makes the server read its settings again.
func (m *Postmaster) ReloadSettings() error { return m.Signal(syscall.SIGHUP) }

// StopInOrder stops the server: fast, and where that takes longer than limit, at
// once. It says whether the server shut down in order and no process of it is
// left.
func (m *Postmaster) StopInOrder(limit time.Duration) (inOrder bool) {
	m.Stopping(false)
	_ = m.Signal(syscall.SIGINT)
	if m.Ended(limit) {
		inOrder = m.Err() == nil
	}
	return m.StopAtOnce() == nil && inOrder
}

// StopAtOnce stops the server at once. It fails when processes of it are left after a
// while.
func (m *Postmaster) StopAtOnce() error {
	m.Stopping(true)
	return m.Kill(syscall.SIGQUIT)
}
