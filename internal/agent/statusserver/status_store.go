package statusserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"math/bits"
	"reflect"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Store holds what the member says of itself, and wakes those who wait for it
// to change.
type Store struct {
	boot string
	// omit leaves out of a status what moves all the time of the engine's own; nil
	// for nothing.
	omit func(*agentapi.Status)

	mu      sync.Mutex
	status  agentapi.Status
	counter int
	changed chan struct{}
}

// NewStore starts with the given status. Revisions of two stores never match,
// so that a restart of the agent is a change.
func NewStore(initial agentapi.Status) *Store { return NewEngineStore(initial, nil) }

// NewEngineStore is NewStore for an engine that reports what moves all the time:
// omit leaves that out, and it makes no new revision.
func NewEngineStore(initial agentapi.Status, omit func(*agentapi.Status)) *Store {
	s := &Store{boot: rand.Text()[:8], omit: omit, status: initial, changed: make(chan struct{})}
	s.status.DownSince = findDownSince(initial)
	s.status.Revision = s.nextRevision()
	return s
}

// findDownSince is since when a member does not serve.
func findDownSince(s agentapi.Status) time.Time {
	switch {
	case s.Serving:
		return time.Time{}
	case s.DownSince.IsZero():
		return time.Now().UTC().Truncate(time.Millisecond)
	default:
		return s.DownSince
	}
}

// Get returns the status as of now.
func (s *Store) Get() agentapi.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeSnapshot()
}

// Update lets change edit the status. A new revision is given only when
// something differs afterwards that Revision speaks of. The maps and slices of
// the status are to be replaced, not edited in place.
func (s *Store) Update(change func(*agentapi.Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.status
	change(&s.status)
	s.status.Revision = before.Revision
	s.status.DownSince = findDownSince(s.status)
	if s.status.Serving {
		s.status.Failures = 0
	}
	if reflect.DeepEqual(s.omitMoving(before), s.omitMoving(s.status)) {
		return
	}
	s.counter++
	s.status.Revision = s.nextRevision()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Changed returns the status, and a channel that is closed at its next
// revision.
func (s *Store) Changed() (agentapi.Status, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeSnapshot(), s.changed
}

// Wait returns the status as soon as its revision is not after, and at the
// latest when wait is over or ctx ends.
func (s *Store) Wait(ctx context.Context, after string, wait time.Duration) agentapi.Status {
	status, changed := s.Changed()
	if status.Revision != after || wait <= 0 {
		return status
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	return s.Get()
}

func (s *Store) takeSnapshot() agentapi.Status {
	status := s.status
	status.Time = time.Now()
	return status
}

func (s *Store) nextRevision() string { return fmt.Sprintf("%s-%d", s.boot, s.counter) }

// omitMoving leaves out what moves all the time.
func (s *Store) omitMoving(status agentapi.Status) agentapi.Status {
	status.Time, status.Position, status.Lag, status.DataSize = time.Time{}, 0, 0, 0
	if s.omit != nil {
		s.omit(&status)
	}
	status.VolumeRate = pressingRate(status)
	status.VolumeUsed, status.VolumeSize = filledPercent(status), coarsenSize(status.VolumeSize)
	status.Archive = omitProgress(status.Archive)
	return status
}

// omitProgress is what of an archive anybody waits for.
func omitProgress(a *agentapi.ArchiveStatus) *agentapi.ArchiveStatus {
	if a == nil {
		return nil
	}
	w := &agentapi.ArchiveStatus{Late: a.Late, Error: a.Error, Permanent: a.Permanent, Gap: a.Gap, GapCause: a.GapCause}
	if a.Late && (a.Gap == nil || !a.Gap.Ended.IsZero()) { // in a gap that goes on, the first moves along
		w.Oldest = a.Oldest
	}
	if a.Last != "" {
		w.Last = "some" // which one, no client waits for
	}
	return w
}

// coarsenSize is a size to its first six binary digits: that of a file system which
// shares a pool with others moves all the time.
func coarsenSize(size int64) int64 {
	less := max(0, bits.Len64(uint64(max(0, size)))-6)
	return size >> less << less
}

// pressingRate is the rate at which a volume fills that would be full before it can
// grow, to a power of two; 0 of any other.
func pressingRate(s agentapi.Status) int64 {
	if s.VolumeRate <= 0 || s.VolumeUsed+s.VolumeRate*int64(agentapi.GrowthLead/time.Second) < s.VolumeSize {
		return 0
	}
	return 1 << bits.Len64(uint64(s.VolumeRate))
}

// leastFilled is the lowest level, in percent, of a volume that anybody waits
// for: below it, how full it is wakes no one.
const leastFilled = 50

// filledPercent is how full the volume is, in percent, rounded down.
func filledPercent(s agentapi.Status) int64 {
	if s.VolumeSize <= 0 {
		return 0
	}
	return max(leastFilled, int64(100*float64(s.VolumeUsed)/float64(s.VolumeSize)))
}
