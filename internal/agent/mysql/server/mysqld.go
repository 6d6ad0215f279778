package server

import (
	"context"
	"database/sql"
	"errors"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Mysqld is a running server.
type Mysqld struct {
	*process.Server
	mu   sync.Mutex
	last string // the last error in its text log
}

// StartMysqld starts the server with the settings in a file. Every line of its text log
// goes to standard error and to heard. Further arguments hold whatever the file says.
func (p Programs) StartMysqld(lock *volumelock.VolumeLock, file string, heard func(line string), args ...string) (*Mysqld, error) {
	m := &Mysqld{}
	listen := func(line string) {
		m.rememberError(line)
		heard(line)
	}
	var err error
	m.Server, err = p.Serve(lock, listen, "mysqld", append([]string{"--defaults-file=" + file}, args...)...)
	return m, err
}

var errorLine = regexp.MustCompile(`\[ERROR\] \[MY-\d+\] \[\w+\] (.*)$`)

func (m *Mysqld) rememberError(line string) {
	match := errorLine.FindStringSubmatch(line)
	if match == nil || match[1] == "Aborting" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = match[1]
}

// LastError is the last error in the server's text log; empty for none.
func (m *Mysqld) LastError() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// HasFailed says whether the server ended by itself, with an error. One that a signal ended,
// such as the kernel's where memory is short, has not.
func (m *Mysqld) HasFailed() bool {
	select {
	case <-m.Done():
	default:
		return false
	}
	exit := (*exec.ExitError)(nil)
	return errors.As(m.Err(), &exit) && exit.Exited()
}

// errEnded says that the server has ended before it was ready.
var errEnded = errors.New("mysqld ended before it was ready")

// AwaitReady waits until the server answers, as long as recovery of its data takes. It
// fails when the server ends, with the last error of its text log.
func (m *Mysqld) AwaitReady(ctx context.Context, db *sql.DB) error {
	for {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := db.PingContext(asking)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-m.Done():
			if last := m.LastError(); last != "" {
				return errors.Join(errEnded, errors.New(last))
			}
			return errors.Join(errEnded, m.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// StopInOrder stops the server, and where that takes longer than limit, at once. It says
// whether the server shut down in order and no process of it is left.
func (m *Mysqld) StopInOrder(limit time.Duration) (inOrder bool) {
	_ = m.Signal(syscall.SIGTERM)
	if m.Ended(limit) {
		inOrder = m.Err() == nil
	}
	return m.StopAtOnce() == nil && inOrder
}

// StopAtOnce kills the server: InnoDB recovers at the next start. It fails when processes
// of it are left after a while.
func (m *Mysqld) StopAtOnce() error { return m.Kill(syscall.SIGKILL) }
