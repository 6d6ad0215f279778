package archive

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// reservedSpace is the disk space that WAL which waits for the store must
// leave: a full volume would stop the database.
func reservedSpace(s diskspace.Space) int64 {
	return min(max(s.Total/50, 2*dataspace.MinimumFree), 1<<30)
}

// excess says why the oldest file that waits for the store is to be discarded;
// empty while it is kept.
func (s *Archiver) findExcess(budget int64) agentapi.GapCause {
	b := s.ReadBacklog()
	size := s.segmentSize(b)
	switch {
	case b.Segments*size > budget:
		return agentapi.GapBudget
	case b.Segments > 0 && s.shortOfSpace(b, size):
		return agentapi.GapDiskSpace
	}
	return ""
}

// shortOfSpace says whether the database is about to run out of disk space for
// WAL while the store takes nothing. It asks nothing of the store: one that is
// slow, or holds a request for ever, reports no error. The last segment that waits
// is kept as long as others fit beside it.
func (s *Archiver) shortOfSpace(b backlog, size int64) bool {
	space := s.space()
	if space.Total == 0 || space.Free >= reservedSpace(space) {
		return false
	}
	left := space.Free + s.PreparedSegments(size)*size
	s.mu.Lock()
	stopped, checkpointing := !s.stoppedAt.IsZero(), s.checkpointing
	s.mu.Unlock()
	now := time.Now()
	switch {
	case left < dataspace.MinimumFree+size && !stopped:
		return s.hasOpenGap() || s.measureIdle(b, now) >= s.pace.urgent
	case left < reservedSpace(space) && b.Segments > 1:
		return !checkpointing && s.measureIdle(b, now) >= s.pace.slow
	}
	return false
}

// letsGo says whether a gap goes on: the store has taken nothing since.
func (s *Archiver) hasOpenGap() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openGap != nil
}

// idle is how long the store has had for what waits, and has taken nothing.
func (s *Archiver) measureIdle(b backlog, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := b.oldest
	for _, at := range []time.Time{s.lastAt, s.discardedAt, s.stoppedAt} {
		if at.After(since) {
			since = at
		}
	}
	return now.Sub(since)
}

// PreparedSegments is the number of files that the database has ready for WAL
// to come: they take no more disk space when they are written.
func (s *Archiver) PreparedSegments(size int64) int64 {
	newest := uint64(0)
	entries, _ := os.ReadDir(filepath.Join(s.pgdata, "pg_wal", "archive_status"))
	for _, e := range entries {
		name, _ := strings.CutSuffix(strings.TrimSuffix(e.Name(), ".done"), dataspace.ReadySuffix)
		if complete, ok := wal.ParseSegment(name, size); ok {
			newest = max(newest, complete.Number)
		}
	}
	if newest == 0 {
		return 0
	}
	prepared := int64(0)
	entries, _ = os.ReadDir(filepath.Join(s.pgdata, "pg_wal"))
	for _, e := range entries {
		// The one after the newest that is complete is being written.
		if segment, ok := wal.ParseSegment(e.Name(), size); ok && segment.Number > newest+1 {
			prepared++
		}
	}
	return prepared
}

// RecordCheckpoint says that the checkpoint that was asked for is done, or failed:
// what it frees shows in the disk space.
func (s *Archiver) RecordCheckpoint() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkpointing = false
}

// discard lets the database go on without a file.
func (s *Archiver) discard(name string, cause agentapi.GapCause) {
	s.mu.Lock()
	if j := s.jobs[name]; j != nil {
		j.cancel()
		delete(s.jobs, name)
	}
	if s.primary && wal.IsSegment(name) {
		s.counts.discarded++
		if s.openGap == nil {
			s.openGap = &agentapi.ArchiveGap{From: name, After: s.sound, Begun: s.soundSince}
			s.openGapCause = cause
			s.log.Error("WAL that waits for the store is no longer kept: moments since then cannot be restored", "from", name, "cause", cause)
		}
	}
	s.discardedAt = time.Now()
	free := cause == agentapi.GapDiskSpace && !s.checkpointing && s.stoppedAt.IsZero()
	s.checkpointing = s.checkpointing || free
	s.mu.Unlock()
	if free {
		s.checkpoint()
	}
	s.ReportStatus()
}
