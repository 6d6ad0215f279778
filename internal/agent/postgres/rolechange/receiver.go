package rolechange

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
)

// StopReceiver has a standby receive no more WAL, whatever holds its replay, and
// measures what its volume holds by then. It receives again when it follows a
// primary. After an error it may receive still.
func (s *Server) StopReceiver(ctx context.Context) (HeldWAL, error) {
	if err := s.applySettings(ctx, Live{SynchronousNames: s.live.SynchronousNames}); err != nil {
		return HeldWAL{}, fmt.Errorf("stop the WAL receiver: %w", err)
	}
	resume, err := s.pauseReplay(ctx)
	if err != nil {
		return HeldWAL{}, fmt.Errorf("stop the WAL receiver: %w", err)
	}
	defer resume()
	if err := s.endReceiver(ctx); err != nil {
		return HeldWAL{}, fmt.Errorf("stop the WAL receiver: %w", err)
	}
	return s.MeasureWAL(ctx)
}

// readersGrace is how long readers may hold replay before they are ended.
const readersGrace = 300 * time.Millisecond

// pauseReplay pauses replay, and returns when it is paused: the startup process, which
// alone starts a receiver, has read the settings before it says so. While it waits
// for readers it reads none.
func (s *Server) pauseReplay(ctx context.Context) (resume func(), err error) {
	const read = "select pg_get_wal_replay_pause_state()"
	var state string
	if err := s.query(ctx, read, &state); err != nil {
		return nil, err
	}
	if state == "not paused" {
		s.paused = true
		if err := s.exec(ctx, "select pg_wal_replay_pause()"); err != nil {
			s.resumeReplay()
			return nil, err
		}
	}
	for since := time.Now(); state != "paused"; {
		if time.Since(since) > readersGrace {
			s.endReaders(ctx)
		}
		err := s.query(ctx, read, &state)
		if err == nil && !clock.Sleep(ctx, poll) {
			err = errors.New("replay does not come to a record's end: the disk may be slow, or one record may take long")
		}
		if err != nil {
			s.resumeReplay()
			return nil, err
		}
	}
	return s.resumeReplay, nil
}

// resumeReplay resumes replay that was paused here, also where the caller's time is
// over. What a person or the server itself has paused stays so.
func (s *Server) resumeReplay() {
	if !s.paused {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := s.exec(ctx, "select pg_wal_replay_resume()"); err != nil {
		s.o.Log.Warn("replay is not resumed yet", "error", err.Error())
		return
	}
	s.paused = false
}

// endReceiver ends the WAL receiver and waits until there is none. A receiver flushes
// what it has written before it ends.
func (s *Server) endReceiver(ctx context.Context) error {
	// One that was asked for just before the pause is forked by now: the postmaster
	// has done what was asked of it before it reads its settings again.
	for range 2 {
		if err := s.reload(ctx); err != nil {
			return err
		}
	}
	for {
		receivers, settled := s.listReceivers()
		shown := true
		if err := s.query(ctx, "select exists (select from pg_stat_wal_receiver) or exists (select from pg_stat_activity where backend_type = 'walreceiver')", &shown); err != nil {
			return err
		}
		if settled && len(receivers) == 0 && !shown {
			return nil
		}
		for _, pid := range receivers {
			terminateReceiver(pid)
		}
		if !clock.Sleep(ctx, poll) {
			return fmt.Errorf("the WAL receiver does not end (processes %v): the disk may not answer; check the node's storage, or stop the server", receivers)
		}
	}
}

// listReceivers lists the server's WAL receivers. It is not settled while a process
// does not say yet what it is.
func (s *Server) listReceivers() (pids []int, settled bool) {
	unnamed := 0
	for _, pid := range s.o.Lock.Holders() {
		switch title := readTitle(pid); {
		case isReceiver(title):
			pids = append(pids, pid)
		case isUnnamed(title):
			unnamed++ // the postmaster is one
		}
	}
	return pids, unnamed <= 1
}

// isUnnamed reports whether a title is still the postmaster's. An archive_command that
// waits for its store is a process of the server, too, and never becomes a receiver.
func isUnnamed(title string) bool {
	program, _, _ := strings.Cut(title, "\x00")
	return filepath.Base(program) == "postgres"
}

// readTitle reads what a process says that it is; empty for one that has ended.
func readTitle(pid int) string {
	title, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	return string(title)
}

func isReceiver(title string) bool {
	return strings.HasPrefix(title, "postgres: ") && strings.Contains(title, "walreceiver")
}

// terminateReceiver asks a receiver to end; by a handle, so that another process which
// got its number meanwhile is not meant.
func terminateReceiver(pid int) {
	process, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	defer func() { _ = process.Release() }()
	if isReceiver(readTitle(pid)) {
		_ = process.Signal(syscall.SIGTERM)
	}
}
