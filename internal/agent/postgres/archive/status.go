package archive

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/metricfamily"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// statusReport reports how the archive gets on, each time in the order in which it was
// observed.
type statusReport struct {
	report func(*agentapi.ArchiveStatus)

	mu       sync.Mutex
	reported bool
}

// reportStatus reports what compute says; nil where nothing is archived, once.
func (r *statusReport) reportStatus(compute func(time.Time) *agentapi.ArchiveStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := compute(time.Now())
	silent := status == nil && !r.reported
	r.reported = status != nil
	if !silent {
		r.report(status)
	}
}

// ReportStatus says how the archive gets on.
func (s *Archiver) ReportStatus() { s.status.reportStatus(s.computeStatus) }

func (s *Archiver) computeStatus(now time.Time) *agentapi.ArchiveStatus {
	place, _ := s.place()
	if place == nil || !s.run.isPrimary() {
		return nil
	}
	b := s.files.readBacklog()
	status := &agentapi.ArchiveStatus{Waiting: len(b.Names)}
	if !b.oldest.IsZero() {
		status.Oldest = b.oldest.UTC().Truncate(time.Minute)
	}
	status.Late = len(b.Names) > 0 && now.Sub(b.oldest) > agentapi.ArchivePatience
	s.ledger.fillStatus(status, *place)
	return status
}

// watchArchive opens the archive before anything is to be stored, so that what is
// wrong with it is known, and says from time to time how it gets on.
func (s *Archiver) watchArchive(ctx context.Context) {
	for ctx.Err() == nil {
		if place, _ := s.place(); place != nil && s.run.isPrimary() {
			_, err := s.destination.openArchive(ctx, *place)
			idle := s.queue.isIdle()
			switch {
			case err != nil && ctx.Err() == nil:
				s.recordFailure("", err)
			case err == nil && idle && len(s.files.readBacklog().Names) == 0:
				s.ledger.forgetTrouble()
			}
		}
		s.ReportStatus()
		clock.Sleep(ctx, s.excess.pace.refresh)
	}
}

// ReadMetrics is what metricfamily.ArchiveFamilies are now; nil of a member that archives
// nothing.
func (s *Archiver) ReadMetrics(now time.Time) []float64 {
	status := s.computeStatus(now)
	if status == nil {
		return nil
	}
	lag := 0.0
	if b := s.files.readBacklog(); !b.oldest.IsZero() {
		lag = max(0, now.Sub(b.oldest).Seconds())
	}
	n := s.ReadCounts()
	return []float64{lag, float64(status.Waiting), metricfamily.BoolValue(status.Gap != nil), n.archived, n.Failures, n.discarded}
}

// ReadCounts returns how much was archived and how often that failed.
func (s *Archiver) ReadCounts() Counts { return s.ledger.readCounts() }

// ReadBacklog reads what waits for the store.
func (s *Archiver) ReadBacklog() backlog { return s.files.readBacklog() }

// PreparedSegments is the number of files, of a size in bytes, that the database has
// ready for WAL to come: they take no more disk space when they are written.
func (s *Archiver) PreparedSegments(size int64) int64 { return s.files.preparedSegments(size) }
