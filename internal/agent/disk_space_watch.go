package agent

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// spaceInterval is between two checks of a volume that fills: it is all the
// warning that an operator has of one that is about to be full.
const spaceInterval = 2 * time.Second

const (
	// probeBelow this many free bytes it is tried whether disk space can be had.
	probeBelow = 16 << 20
	// spaceAgain is what must be free before a volume that was full counts as one
	// with disk space, and fullFor how long ago the last failure must be: what is freed
	// for a moment does not count.
	spaceAgain = 24 << 20
	fullFor    = 15 * time.Second
)

// fullness judges whether writes fail for want of disk space. It does not move
// back and forth with what a failing database frees. The zero value has space.
type fullness struct {
	full bool
	last time.Duration // the last failure
}

// observeCheck takes in a check of the volume: whether disk space could not be had.
func (f fullness) observeCheck(now time.Duration, s diskspace.Space, failed bool) fullness {
	switch {
	case failed:
		return fullness{true, now}
	case f.full && s.Fits(spaceAgain) && now-f.last >= fullFor:
		return fullness{}
	}
	return f
}

// fillTime is over which time the rate is taken at which a volume fills.
const fillTime = 20 * time.Second

// usage is how much of a volume was used at a time.
type usage struct {
	at   time.Duration
	used int64
}

// filling is the rate at which a volume fills. The zero value knows none.
type filling struct{ history []usage }

// observeUsage takes in what is used now, and is the rate in bytes per second; 0 where
// the volume does not fill, or has not been observed for long enough.
func (f *filling) observeUsage(now time.Duration, used int64) int64 {
	f.history = append(f.history, usage{now, used})
	for len(f.history) > 1 && now-f.history[1].at >= fillTime {
		f.history = f.history[1:]
	}
	first := f.history[0]
	if took := now - first.at; took >= fillTime/2 {
		return max(0, int64(float64(used-first.used)/took.Seconds()))
	}
	return 0
}

// SpaceWatch reports how full a volume is, and whether writes to it fail.
type SpaceWatch struct {
	// Measure measures the volume, and Allocate says whether a file on it can grow;
	// nil where that is not tried.
	Measure  func() diskspace.Space
	Allocate func() error
	// Suspected holds one when the database has reported that it got no disk
	// space. What it reports is tried before it is believed.
	Suspected chan struct{}

	state   fullness
	filling filling
}

// SuspectFull has the volume checked soon.
func (w *SpaceWatch) SuspectFull() {
	select {
	case w.Suspected <- struct{}{}:
	default:
	}
}

// Follow reports until ctx ends. It waits for the disk, and nothing waits for it:
// neither what renews a Lease nor what answers a probe.
func (w *SpaceWatch) Follow(ctx context.Context, store *statusserver.Store) {
	for suspected := false; ctx.Err() == nil; {
		w.reportSpace(store, suspected)
		select {
		case <-ctx.Done():
		case <-w.Suspected:
			suspected = true
			clock.Sleep(ctx, spaceInterval/4) // an error comes with others
		case <-time.After(spaceInterval):
			suspected = false
		}
	}
}

func (w *SpaceWatch) reportSpace(store *statusserver.Store, suspected bool) {
	space, now := w.Measure(), clock.Boottime()
	failed := w.Allocate != nil && (suspected || !space.Fits(probeBelow)) && diskspace.OutOfSpace(w.Allocate())
	w.state = w.state.observeCheck(now, space, failed)
	rate := w.filling.observeUsage(now, space.Total-space.Free)
	store.Update(func(s *agentapi.Status) {
		s.VolumeSize, s.VolumeUsed, s.VolumeRate = space.Total, space.Total-space.Free, rate
		s.DiskFull = w.state.full
	})
}
