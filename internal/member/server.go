package member

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
)

// Server is a running database server, with the lock on its volume.
type Server struct {
	process *os.Process
	lock    *VolumeLock
	// done is closed when the server's first process has ended; err says how.
	done chan struct{}
	err  error
}

// Serve starts a server that inherits the lock of the volume. Every line of its
// log goes to standard error and to heard.
func (p Programs) Serve(lock *VolumeLock, heard func(line string), name string, args ...string) (*Server, error) {
	inherited, err := lock.ForDatabase()
	if err != nil {
		return nil, err
	}
	defer func() { _ = inherited.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the database: %w", err)
	}
	// Not bound to a context: a server is only ever stopped in order.
	cmd := p.command(context.Background(), name, args...)
	cmd.Stdout, cmd.Stderr = write, write
	cmd.ExtraFiles = []*os.File{inherited}
	wait, err := p.Processes.Start(cmd)
	_ = write.Close()
	if err != nil {
		_ = read.Close()
		return nil, fmt.Errorf("start the database: %w", err)
	}
	s := &Server{process: cmd.Process, lock: lock, done: make(chan struct{})}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		passOn(read, heard)
	}()
	go func() {
		err := wait()
		// A child that outlives the server may keep the log open.
		select {
		case <-logged:
		case <-time.After(200 * time.Millisecond):
		}
		s.err = err
		close(s.done)
	}()
	return s, nil
}

func passOn(log io.ReadCloser, heard func(string)) {
	defer func() { _ = log.Close() }()
	lines := bufio.NewReaderSize(log, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			_, _ = os.Stderr.WriteString(line)
			heard(strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

// Done is closed when the server's first process has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err says how the server ended, once Done is closed: nil when in order.
func (s *Server) Err() error { return s.err }

// Signal sends a signal to the server's first process.
func (s *Server) Signal(signal syscall.Signal) error { return s.process.Signal(signal) }

// Ended says whether the server's first process ends within the limit.
func (s *Server) Ended(limit time.Duration) bool {
	select {
	case <-s.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// Kill returns when no process of the server is left: after the signal and a
// while, its first process is killed, and sweep is to kill those that outlive
// it.
func (s *Server) Kill(signal syscall.Signal, sweep func()) {
	_ = s.process.Signal(signal)
	if !s.Ended(2 * time.Second) {
		_ = s.process.Kill()
	}
	for !s.lock.WaitDatabaseDead(time.Second) {
		sweep()
	}
	<-s.done
}
