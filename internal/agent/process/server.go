package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
)

// Server is a running database server, with the lock on its volume.
type Server struct {
	process *os.Process
	lock    *volumelock.VolumeLock
	// done is closed when the server's first process has ended; err says how.
	done chan struct{}
	err  error
	// limit of Kill; KillLimit where it is zero.
	limit time.Duration
}

// Serve starts a server that inherits the lock of the volume. Every line of its
// text log goes to standard error as it is, and up to longestHeard bytes of it to
// heard, which must not wait: the server would wait for it.
func (p Programs) Serve(lock *volumelock.VolumeLock, heard func(line string), name string, args ...string) (*Server, error) {
	inherited, err := lock.ForDatabase()
	if err != nil {
		return nil, err
	}
	defer func() { _ = inherited.Close() }()
	read, write, err := newPipe()
	if err != nil {
		return nil, fmt.Errorf("start the database: %w", err)
	}
	// Not bound to a context: a server is only ever stopped in order.
	cmd := p.newCommand(context.Background(), name, args...)
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
		passOn(&gathering{pipe: read}, os.Stderr, heard)
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

const (
	// longestHeard is how much of a line is heard: what is looked for stands in front of
	// what a client chose.
	longestHeard = 16 << 10
	// longestWritten is how long a line may be that is written as a whole, so that no
	// other line stands in it. Longer ones are written in parts.
	longestWritten = 1 << 20
)

// newPipe is a pipe whose reader blocks a thread. One that the runtime polls, as that of
// [os.Pipe] does, would be woken by each write, also while it does not wait to read.
func newPipe() (read, write *os.File, err error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(ends[0]), "|0"), os.NewFile(uintptr(ends[1]), "|1"), nil //nolint:gosec // descriptors
}

// gatherTime is how long lines gather that come right after others.
const gatherTime = time.Millisecond

// gathering reads a pipe, but not more often than each gatherTime while it has not filled what
// is read into. So a server that logs thousands of lines a second wakes its reader for many
// at once, and a line that comes alone is read at once.
type gathering struct {
	pipe io.ReadCloser
	// next is when to read again.
	next time.Time
}

func (g *gathering) Read(into []byte) (int, error) {
	time.Sleep(time.Until(g.next))
	n, err := g.pipe.Read(into)
	g.next = time.Time{}
	if n < len(into) {
		g.next = time.Now().Add(gatherTime)
	}
	return n, err //nolint:wrapcheck // a reader, whose end is io.EOF itself
}

func (g *gathering) Close() error { return g.pipe.Close() } //nolint:wrapcheck // as Read

// passOn writes every line of a text log, and has it heard. Lines that came together are
// written together. Its memory is bounded, however long a line is.
func passOn(log io.ReadCloser, out io.Writer, heard func(string)) {
	defer func() { _ = log.Close() }()
	lines, written := bufio.NewReaderSize(log, 64<<10), bufio.NewWriterSize(out, 64<<10)
	var begun []byte // what was read of a line that goes on
	inParts := false // the line's first part was written and heard
	for {
		part, err := lines.ReadSlice('\n')
		goesOn := errors.Is(err, bufio.ErrBufferFull)
		if begun != nil || goesOn {
			begun = append(begun, part...)
			part = begun
		}
		if goesOn && len(part) < longestWritten {
			continue
		}
		if len(part) > 0 {
			_, _ = written.Write(part) // whole: no more than a read has gathers
			if !inParts {
				heard(string(firstBytes(bytes.TrimSuffix(part, []byte("\n")), longestHeard)))
			}
		}
		if begun, inParts = nil, goesOn; !hasLine(lines) {
			flush(written, out)
		}
		if err != nil && !goesOn {
			return
		}
	}
}

// flush writes what has gathered. What cannot be written is lost, as a line to a broken
// standard error is, and what comes later is tried again.
func flush(gathered *bufio.Writer, out io.Writer) {
	if gathered.Flush() != nil {
		gathered.Reset(out)
	}
}

// hasLine says whether a whole line was read and not returned yet.
func hasLine(lines *bufio.Reader) bool {
	read, _ := lines.Peek(lines.Buffered())
	return bytes.IndexByte(read, '\n') >= 0
}

func firstBytes(text []byte, most int) []byte { return text[:min(len(text), most)] }

// PID is that of the server's first process.
func (s *Server) PID() int { return s.process.Pid }

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

// KillLimit is how long a killed process may take to end. One that waits for a
// disk that does not answer ends only when the disk does.
const KillLimit = 20 * time.Second

// Kill ends every process of the server: after the signal and a while the first
// one is killed, and with it every process that holds the lock of the volume,
// wherever it works. It fails when some are left after a limit: no database can
// be started on the volume then.
func (s *Server) Kill(signal syscall.Signal) error {
	_ = s.process.Signal(signal)
	if !s.Ended(2 * time.Second) {
		_ = s.process.Kill()
	}
	limit := s.limit
	if limit == 0 {
		limit = KillLimit
	}
	for deadline := time.Now().Add(limit); ; {
		if s.lock.WaitDatabaseDead(200*time.Millisecond) && s.Ended(time.Until(deadline)) {
			return nil
		}
		if time.Now().After(deadline) {
			return volumelock.LeftoverError(s.lock.Holders())
		}
		s.lock.KillHolders()
	}
}
