package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// archiveCounts are for metrics.
type archiveCounts struct{ archived, failures, givenUp float64 }

// archiveTrouble is why nothing is stored. The zero value is none.
type archiveTrouble struct {
	err       error
	class     string
	permanent bool
	since     time.Duration
}

// meet takes in another failure. What is said stays as it was first while the
// reason is the same: a store gives each of its errors a number.
func (t archiveTrouble) meet(err error, now time.Duration) archiveTrouble {
	class, permanent := classOf(err)
	if t.err == nil {
		t.since = now
	}
	if t.err == nil || t.class != class {
		t.err, t.class, t.permanent = err, class, permanent
	}
	return t
}

func classOf(err error) (class string, permanent bool) {
	var refused *wal.Refusal
	var known *store.Error
	switch {
	case errors.As(err, &refused):
		return refused.Message, true
	case errors.As(err, &known):
		return known.Field + "|" + known.Remedy, known.Permanent
	default:
		return "", false
	}
}

// failed takes in that a file was not stored.
func (s *archiver) failed(name string, err error) {
	s.mu.Lock()
	before := s.trouble
	s.trouble = before.meet(err, member.Boottime())
	s.counts.failures++
	fresh := before.class != s.trouble.class || before.err == nil
	s.mu.Unlock()
	if fresh {
		s.log.Warn("the archive does not take the log", "file", name, "error", err.Error())
	}
	s.refresh()
}

// backlog is what waits for the store.
type backlog struct {
	names    []string // in the order in which the database asks for them
	segments int64
	oldest   time.Time
}

const readySuffix = ".ready"

// waiting reads what waits.
func (s *archiver) waiting() backlog {
	var b backlog
	entries, _ := os.ReadDir(filepath.Join(s.pgdata, "pg_wal", "archive_status"))
	for _, e := range entries {
		name, ready := strings.CutSuffix(e.Name(), readySuffix)
		if !ready {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it was archived meanwhile
		}
		b.names = append(b.names, name)
		if wal.IsSegment(name) {
			b.segments++
		}
		if b.oldest.IsZero() || info.ModTime().Before(b.oldest) {
			b.oldest = info.ModTime()
		}
	}
	slices.SortFunc(b.names, func(a, b string) int {
		if wal.IsHistory(a) != wal.IsHistory(b) {
			if wal.IsHistory(a) {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	return b
}

// segmentSize is that of the files that wait.
func (s *archiver) segmentSize(b backlog) int64 {
	for _, name := range b.names {
		if info, err := os.Stat(s.path(name)); wal.IsSegment(name) && err == nil {
			return info.Size()
		}
	}
	return 16 * mebibyte
}

// refresh says how the archive gets on.
func (s *archiver) refresh() {
	s.telling.Lock()
	defer s.telling.Unlock()
	status := s.status(time.Now())
	s.mu.Lock()
	silent := status == nil && !s.told
	s.told = status != nil
	s.mu.Unlock()
	if !silent {
		s.tell(status)
	}
}

func (s *archiver) status(now time.Time) *memberapi.ArchiveStatus {
	place, _ := s.place()
	if place == nil || !s.leads() {
		return nil
	}
	b := s.waiting()
	s.mu.Lock()
	defer s.mu.Unlock()
	elsewhere := s.opened.Prefix != "" && !s.opened.same(*place)
	status := &memberapi.ArchiveStatus{Last: s.last, LastTime: s.lastAt, Waiting: len(b.names), Oldest: b.oldest.UTC().Truncate(time.Minute)}
	if b.oldest.IsZero() {
		status.Oldest = time.Time{}
	}
	if elsewhere {
		status.Last, status.LastTime = "", time.Time{}
	}
	status.Late = len(b.names) > 0 && now.Sub(b.oldest) > memberapi.ArchivePatience
	if t := s.trouble; t.err != nil && (t.permanent || status.Late || s.giving != nil) {
		status.Error, status.Permanent = t.err.Error(), t.permanent
	}
	if !elsewhere {
		s.reportGap(status)
	}
	return status
}

// reportGap says what is missing in the archive, and why while it grows; the
// caller holds mu.
func (s *archiver) reportGap(status *memberapi.ArchiveStatus) {
	for _, gap := range []*memberapi.ArchiveGap{s.gap, s.giving} {
		if gap != nil {
			last := *gap
			status.Gap = &last
		}
	}
	if status.Gap != nil && status.Gap.Ended.IsZero() {
		status.GapCause = s.givingFor
	}
}

// watch opens the archive before anything is to be stored, so that what is
// wrong with it is known, and says from time to time how it gets on.
func (s *archiver) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if place, _ := s.place(); place != nil && s.leads() {
			_, err := s.open(ctx, *place)
			s.mu.Lock()
			idle := len(s.jobs) == 0
			s.mu.Unlock()
			switch {
			case err != nil && ctx.Err() == nil:
				s.failed("", err)
			case err == nil && idle && len(s.waiting().names) == 0:
				s.mu.Lock()
				s.trouble = archiveTrouble{}
				s.mu.Unlock()
			}
		}
		s.refresh()
		wait(ctx, s.pace.refresh)
	}
}

func listenUnix(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for what is to be archived: %w", err)
	}
	return listener, os.Chmod(path, 0o600)
}

// archiveMetrics are of a primary that archives.
var archiveMetrics = []family{
	gauge("archive_lag_seconds", "How long the oldest file of the log has waited for the store; 0 while none does."),
	gauge("archive_waiting_files", "Files of the log that wait for the store."),
	gauge("archive_gap", "Whether the archive lacks log: as of now, or as was last recorded."),
	counter("archive_archived_total", "Files of the log that the store has taken."),
	counter("archive_failures_total", "Tries to archive that failed."),
	counter("archive_given_up_total", "Segments that were given up because the budget was used up."),
}

// measure is what archiveMetrics are now; nil of a member that archives nothing.
func (s *archiver) measure(now time.Time) []float64 {
	status := s.status(now)
	if status == nil {
		return nil
	}
	lag := 0.0
	if b := s.waiting(); !b.oldest.IsZero() {
		lag = max(0, now.Sub(b.oldest).Seconds())
	}
	n := s.numbers()
	return []float64{lag, float64(status.Waiting), truth(status.Gap != nil), n.archived, n.failures, n.givenUp}
}

func (s *archiver) numbers() archiveCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}
