package postgres

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/member"
)

// postmaster is a running database server.
type postmaster struct {
	*member.Server
	pgdata string
	// stopping is told before the server is: at once, or in order.
	stopping func(atOnce bool)

	mu    sync.Mutex
	fatal string // the last FATAL or PANIC line
}

// startPostmaster starts the server with the settings in file, and with decisive
// ones, which hold whatever ALTER SYSTEM has left. Every line of its log goes to
// standard error and to heard.
func (p programs) startPostmaster(pgdata, file string, lock *member.VolumeLock, heard func(line string), decisive map[string]string) (*postmaster, error) {
	m := &postmaster{pgdata: pgdata, stopping: func(bool) {}}
	listen := func(line string) {
		m.remember(line)
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
func (m *postmaster) reload() error { return m.Signal(syscall.SIGHUP) }

// stop stops the server: fast, and where that takes longer than limit, at
// once. It says whether the server shut down in order and no process of it is
// left.
func (m *postmaster) stop(limit time.Duration) (inOrder bool) {
	m.stopping(false)
	_ = m.Signal(syscall.SIGINT)
	if m.Ended(limit) {
		inOrder = m.Err() == nil
	}
	return m.kill() == nil && inOrder
}

// kill stops the server at once. It fails when processes of it are left after a
// while.
func (m *postmaster) kill() error {
	m.stopping(true)
	return m.Kill(syscall.SIGQUIT)
}
