package agent

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Pauses of Loop.
const (
	pauseInUse  = time.Second
	pauseFailed = time.Second
	pauseMost   = 15 * time.Second
	// longRun is how long a step must have gone well before its failure counts
	// as the first.
	longRun = time.Minute
)

// RunLoop waits for the lock on the volume, and then does one step after the other
// until ctx ends. A step says how long to wait before the next. One that fails
// is reported and done again, after pauses that grow. A new configuration ends
// any pause.
func (h *Host) RunLoop(ctx context.Context, volume string, step func(context.Context) (time.Duration, error)) {
	failures := 0
	for ctx.Err() == nil {
		began := time.Now()
		pause, err := h.stepLocked(ctx, volume, step)
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			h.Store.Update(func(s *agentapi.Status) { s.Failures++ })
			h.ReportState(agentapi.StateFailed, "", err.Error())
		}
		failures, pause = pacePause(failures, pause, err, time.Since(began))
		_, changed := h.Config.Current()
		select {
		case <-ctx.Done():
		case <-changed:
		case <-time.After(pause):
		}
	}
}

// stepLocked does a step once the lock on the volume is held.
func (h *Host) stepLocked(ctx context.Context, volume string, step func(context.Context) (time.Duration, error)) (time.Duration, error) {
	if h.Lock == nil {
		lock, err := volumelock.LockVolume(volume)
		if errors.Is(err, volumelock.ErrVolumeInUse) {
			h.ReportState(agentapi.StateHeld, agentapi.HoldVolumeInUse, "another process uses the volume: a pod of this member may still run on another node")
			return pauseInUse, nil
		}
		if err != nil {
			return 0, err
		}
		h.Lock = lock
	}
	if alive, err := h.Lock.DatabaseAlive(); err != nil || alive {
		// Left by a stop that could not end it: nothing is done beside it.
		h.Lock.KillHolders()
		h.ReportState(agentapi.StateHeld, agentapi.HoldVolumeInUse, volumelock.LeftoverError(h.Lock.Holders()).Error())
		return pauseInUse, err
	}
	return step(ctx)
}

// pacePause is the number of failures in a row, and the pause, after a step that
// asked for a pause or failed, and took a while.
func pacePause(failures int, pause time.Duration, err error, took time.Duration) (int, time.Duration) {
	if err == nil {
		return 0, pause
	}
	if took > longRun {
		failures = 0
	}
	return failures + 1, min(pauseFailed<<min(failures, 10), pauseMost)
}
