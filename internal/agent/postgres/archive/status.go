package archive

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

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/metrics"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Counts are for metrics.
type Counts struct{ archived, Failures, discarded float64 }

// trouble is why nothing is stored. The zero value is none.
type trouble struct {
	err       error
	class     string
	permanent bool
	since     time.Duration
}

// meet takes in another failure. What is said stays as it was first while the
// reason is the same: a store gives each of its errors a number.
func (t trouble) recordError(err error, now time.Duration) trouble {
	class, permanent := classifyError(err)
	if t.err == nil {
		t.since = now
	}
	if t.err == nil || t.class != class {
		t.err, t.class, t.permanent = err, class, permanent
	}
	return t
}

func classifyError(err error) (class string, permanent bool) {
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
func (s *Archiver) recordFailure(name string, err error) {
	s.mu.Lock()
	before := s.trouble
	s.trouble = before.recordError(err, clock.Boottime())
	s.counts.Failures++
	fresh := before.class != s.trouble.class || before.err == nil
	s.mu.Unlock()
	if fresh {
		s.log.Warn("the archive does not accept WAL", "file", name, "error", err.Error())
	}
	s.ReportStatus()
}

// backlog is what waits for the store.
type backlog struct {
	Names    []string // in the order in which the database asks for them
	Segments int64
	oldest   time.Time
}

// ReadBacklog reads what waits.
func (s *Archiver) ReadBacklog() backlog {
	var b backlog
	entries, _ := os.ReadDir(filepath.Join(s.pgdata, "pg_wal", "archive_status"))
	for _, e := range entries {
		name, ready := strings.CutSuffix(e.Name(), dataspace.ReadySuffix)
		if !ready {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it was archived meanwhile
		}
		b.Names = append(b.Names, name)
		if wal.IsSegment(name) {
			b.Segments++
		}
		if b.oldest.IsZero() || info.ModTime().Before(b.oldest) {
			b.oldest = info.ModTime()
		}
	}
	slices.SortFunc(b.Names, func(a, b string) int {
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
func (s *Archiver) segmentSize(b backlog) int64 {
	for _, name := range b.Names {
		if info, err := os.Stat(s.walPath(name)); wal.IsSegment(name) && err == nil {
			return info.Size()
		}
	}
	return 16 << 20
}

// ReportStatus says how the archive gets on.
func (s *Archiver) ReportStatus() {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	status := s.computeStatus(time.Now())
	s.mu.Lock()
	silent := status == nil && !s.reported
	s.reported = status != nil
	s.mu.Unlock()
	if !silent {
		s.report(status)
	}
}

func (s *Archiver) computeStatus(now time.Time) *agentapi.ArchiveStatus {
	place, _ := s.place()
	if place == nil || !s.isPrimary() {
		return nil
	}
	b := s.ReadBacklog()
	s.mu.Lock()
	defer s.mu.Unlock()
	elsewhere := s.opened.Prefix != "" && !s.opened.isSamePlace(*place)
	status := &agentapi.ArchiveStatus{Last: s.last, LastTime: s.lastAt, Waiting: len(b.Names), Oldest: b.oldest.UTC().Truncate(time.Minute)}
	if b.oldest.IsZero() {
		status.Oldest = time.Time{}
	}
	if elsewhere {
		status.Last, status.LastTime = "", time.Time{}
	}
	status.Late = len(b.Names) > 0 && now.Sub(b.oldest) > agentapi.ArchivePatience
	if t := s.trouble; t.err != nil && (t.permanent || status.Late || s.openGap != nil) {
		status.Error, status.Permanent = t.err.Error(), t.permanent
	}
	if !elsewhere {
		s.reportGap(status)
	}
	return status
}

// reportGap says what is missing in the archive, and why while it grows; the
// caller holds mu.
func (s *Archiver) reportGap(status *agentapi.ArchiveStatus) {
	for _, gap := range []*agentapi.ArchiveGap{s.gap, s.openGap} {
		if gap != nil {
			last := *gap
			status.Gap = &last
		}
	}
	if status.Gap != nil && status.Gap.Ended.IsZero() {
		status.GapCause = s.openGapCause
	}
}

// watch opens the archive before anything is to be stored, so that what is
// wrong with it is known, and says from time to time how it gets on.
func (s *Archiver) watchArchive(ctx context.Context) {
	for ctx.Err() == nil {
		if place, _ := s.place(); place != nil && s.isPrimary() {
			_, err := s.openArchive(ctx, *place)
			s.mu.Lock()
			idle := len(s.jobs) == 0
			s.mu.Unlock()
			switch {
			case err != nil && ctx.Err() == nil:
				s.recordFailure("", err)
			case err == nil && idle && len(s.ReadBacklog().Names) == 0:
				s.mu.Lock()
				s.trouble = trouble{}
				s.mu.Unlock()
			}
		}
		s.ReportStatus()
		waitFor(ctx, s.pace.refresh)
	}
}

func listenUnix(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for what is to be archived: %w", err)
	}
	return listener, os.Chmod(path, 0o600)
}

// Families are of a primary that archives.
var Families = []metrics.Family{
	metrics.NewGauge("archive_lag_seconds", "How long the oldest WAL file has waited for the store; 0 if none waits."),
	metrics.NewGauge("archive_waiting_files", "WAL files that wait for the store."),
	metrics.NewGauge("archive_gap", "Whether the archive has a gap, now or as last recorded."),
	metrics.NewCounter("archive_archived_total", "WAL files that the store has accepted."),
	metrics.NewCounter("archive_failures_total", "Failed attempts to archive."),
	metrics.NewCounter("archive_discarded_total", "WAL segments that were discarded because the budget was used up."),
}

// ReadMetrics is what archiveMetrics are now; nil of a member that archives nothing.
func (s *Archiver) ReadMetrics(now time.Time) []float64 {
	status := s.computeStatus(now)
	if status == nil {
		return nil
	}
	lag := 0.0
	if b := s.ReadBacklog(); !b.oldest.IsZero() {
		lag = max(0, now.Sub(b.oldest).Seconds())
	}
	n := s.ReadCounts()
	return []float64{lag, float64(status.Waiting), metrics.BoolValue(status.Gap != nil), n.archived, n.Failures, n.discarded}
}

// ReadCounts returns how much was archived and how often that failed.
func (s *Archiver) ReadCounts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}
