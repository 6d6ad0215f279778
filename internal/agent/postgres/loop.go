package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// Pauses between two looks while the database does not run.
const (
	pauseWaiting = 300 * time.Millisecond
	pauseClaim   = time.Second
	pauseHeld    = time.Second
	pauseFull    = 2 * time.Second
)

// loop gathers, decides and does one thing, again and again, until ctx ends.
func (a *postgresAgent) loop(ctx context.Context) { a.Loop(ctx, a.o.DataDir, a.step) }

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// step does the next thing, and says how long to wait before the one after.
func (a *postgresAgent) step(ctx context.Context) (time.Duration, error) { //nolint:gocyclo // an ordered switch: first match wins
	if err := tidy(a.o.DataDir); err != nil {
		return 0, err
	}
	f, primary, err := a.gather(ctx)
	if err != nil {
		return 0, err
	}
	d := decide(f)
	switch d.Action {
	case actHold:
		a.Store.Update(func(s *agentapi.Status) { s.RoomNeeded = d.Room })
		a.Report(agentapi.StateHeld, d.Hold, d.Message)
		if d.Hold == agentapi.HoldVolumeFull {
			if dataspace.IsFull(f.Volume.Space) && f.Volume.Control.SystemIdentifier != "" && a.archive.ReclaimSpace(ctx, f.stopped()) {
				return 0, nil
			}
			return pauseFull, nil
		}
		return pauseHeld, nil
	case actWait:
		a.Report(agentapi.StateWaiting, "", d.Message)
		if f.Ordinal == 0 && f.ConfigKnown {
			return pauseClaim, nil // each look asks the API server
		}
		return pauseWaiting, nil
	case actClaim:
		a.Report(agentapi.StateWaiting, "", d.Message)
		if err := a.lease.ClaimLease(ctx, f.Cluster, f.leftBehind()); err != nil {
			a.log.Info("the Lease was not won", "error", err.Error())
			return pauseClaim, nil
		}
		a.taken, a.led, a.askedSince = f.Lease, false, 0
		return 0, nil
	case actBirth:
		a.Report(agentapi.StateInitializing, "", d.Message)
		return 0, a.initdb(ctx)
	case actRecord:
		return 0, a.recordBirth(ctx, f.Volume.Control, f.Leader.Term > 0)
	case actClone, actCopyAgain:
		return a.clone(ctx, primary)
	case actMarkStandby:
		return 0, markStandby(a.o.pgdata())
	case actStartPrimary:
		return a.lead(ctx, f, d)
	default:
		a.copyAgain = false // this run finds out whether it is still so
		return 0, a.serve(ctx, f.Volume.Control, false, 0)
	}
}

// lead starts the primary, on a timeline of its own where that is decided.
func (a *postgresAgent) lead(ctx context.Context, f facts, d decision) (time.Duration, error) {
	var begins int64
	var err error
	if d.NewTimeline {
		a.Report(agentapi.StateRecovering, "", d.Message)
		begins, err = a.reserveTimeline(ctx, f, d)
	} else {
		err = a.recordTerm(f)
	}
	if err != nil {
		a.log.Warn("the start as the primary is not recorded yet", "error", err.Error())
		return pauseClaim, nil
	}
	return 0, a.serve(ctx, f.Volume.Control, true, begins)
}

// gather collects what decide needs, and judges nothing.
func (a *postgresAgent) gather(ctx context.Context) (facts, agentapi.Status, error) {
	f := facts{Ordinal: a.ordinal, BinaryMajor: a.major, CopyAgain: a.copyAgain}
	var err error
	if f.Volume, err = inspect(a.o.DataDir); err != nil {
		return f, agentapi.Status{}, err
	}
	f.Volume.Space = a.space()
	if dataspace.IsFull(f.Volume.Space) && f.Volume.Content == contentData {
		place, _ := a.archivePlace()
		f.Volume.ArchiveWaits = place != nil && a.archive.ReadBacklog().Segments > 0
	}
	f.CopyFilled = a.filled.MustWait(clock.Boottime(), f.Volume.Space.Total)
	if f.Volume.Content == contentData && f.Volume.Major == a.major {
		if f.Volume.Control, err = a.programs.ReadControlData(ctx, a.o.pgdata()); err != nil {
			return f, agentapi.Status{}, err
		}
	}
	a.Store.Update(func(s *agentapi.Status) {
		s.SystemIdentifier = f.Volume.Control.SystemIdentifier
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Timeline = f.Volume.Control.Timeline })
	})
	a.gatherConfig(&f)
	var primary agentapi.Status
	if a.ordinal == 0 {
		err = a.gatherLeading(ctx, &f)
	} else {
		primary, f.PrimaryKnown = a.findPrimary(ctx)
		f.PrimarySystemIdentifier = primary.SystemIdentifier
		f.Primary, f.PrimaryDataSize, f.PrimaryEnd = primary.Pod, primary.DataSize, pointOf(primary, f.Volume.Control.SystemIdentifier)
	}
	if err == nil {
		err = a.gatherOwnWAL(&f)
	}
	if err == nil && a.ordinal != 0 {
		f.Contained, err = a.compareAtRest(ctx, f)
	}
	if err == nil && a.ordinal != 0 {
		f.Ahead, err = a.lookAhead(f)
		a.reportDiverged(f)
	}
	return f, primary, err
}

// gatherConfig collects what the cluster's configuration says, once it is known.
func (a *postgresAgent) gatherConfig(f *facts) {
	config, _ := a.Config.Current()
	if config == nil {
		return
	}
	f.ConfigKnown, f.ConfigSystemIdentifier = true, config.SystemIdentifier
	if a.cluster == "" {
		a.cluster = config.UID
	}
	f.Cluster, f.Fresh = config.UID, config.Fresh && config.UID == a.cluster
}

// lookAhead reads the mark of data that is ahead of its primary, and makes it
// once that is proven.
func (a *postgresAgent) lookAhead(f facts) (*aheadMark, error) {
	now, own := clock.Boottime(), f.end()
	a.proof = a.proof.saw(now, own, f.PrimaryEnd)
	if ours := f.PrimarySystemIdentifier == f.Volume.Control.SystemIdentifier; f.PrimaryKnown && ours && a.proof.over(now) {
		if err := markAhead(a.o.DataDir, aheadMark{Own: own, Primary: f.PrimaryEnd}); err != nil {
			return nil, err
		}
	}
	return readAhead(a.o.DataDir)
}

// reportDiverged reports of data that is marked where the primary was that led
// without it.
func (a *postgresAgent) reportDiverged(f facts) {
	var led *postgresapi.WALPoint
	if f.Ahead != nil && f.Volume.Content == contentData {
		led = &postgresapi.WALPoint{Timeline: f.Ahead.Primary.Timeline, Position: f.Ahead.Primary.Position}
	}
	a.Store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Diverged = led })
	})
}

// lookLease reads the Lease. A holder that cannot read it goes by what it
// wrote: a crash of the database during an outage of the API server does not
// end the reign.
func (a *postgresAgent) lookLease(ctx context.Context) leaseclient.Record {
	record, err := a.lease.ReadRecord(ctx)
	if err == nil {
		return record
	}
	a.log.Info("the Lease cannot be read", "error", err.Error())
	record, _ = a.lease.LastRecord()
	return record
}

// recordBirth records the database system before it runs for the first time.
// How far data goes that has led before is no measure of how far it went.
func (a *postgresAgent) recordBirth(ctx context.Context, control server.ControlData, ledBefore bool) error {
	facts := map[string]string{v1alpha1.AnnotationSystemIdentifier: control.SystemIdentifier}
	if !ledBefore {
		facts[leaseclient.AnnotationTimeline] = fmt.Sprint(control.Timeline)
		facts[leaseclient.AnnotationCheckpoint] = control.Checkpoint
	}
	err := a.lease.AnnotateLease(ctx, facts)
	if err != nil {
		a.log.Info("the bootstrap is not recorded yet", "error", err.Error())
		wait(ctx, pauseClaim)
		return nil
	}
	a.log.Info("bootstrap recorded", "systemIdentifier", control.SystemIdentifier)
	return nil
}

// clone makes the volume's data a copy of the primary's. A failure is no crash:
// the primary may have gone, or may not have made the slot yet.
func (a *postgresAgent) clone(ctx context.Context, primary agentapi.Status) (time.Duration, error) {
	a.Report(agentapi.StateCloning, "", "copies the data of "+primary.Pod)
	if err := a.writeTLS(); err != nil {
		return 0, err
	}
	err := a.copyPrimary(ctx, primary)
	switch {
	case err == nil:
	case dataspace.IsOwnVolumeFull(err):
		a.filled = a.filled.RecordFailure(clock.Boottime(), a.space().Total)
		a.log.Warn("the copy filled the volume", "error", err.Error())
		return 0, removeCopy(a.o.DataDir)
	case dataspace.IsPrimaryVolumeFull(err):
		a.Report(agentapi.StateCloning, "", "copying the data of "+primary.Pod+" failed, whose volume is full; it is tried again")
		return pauseClaim, nil
	default:
		a.Report(agentapi.StateCloning, "", "copying the data of "+primary.Pod+" failed, it is tried again: "+err.Error())
		return pauseWaiting, nil
	}
	a.copyAgain, a.filled = false, dataspace.FilledCopy{}
	return 0, a.adoptCopy()
}

// clearLocks removes what a killed server left. The lock on the volume says
// that no server runs; the process number in these files says nothing, for
// numbers begin again in a new container.
func (a *postgresAgent) clearLocks() error {
	stale := []string{
		filepath.Join(a.o.pgdata(), "postmaster.pid"),
		filepath.Join(a.o.RunDir, fmt.Sprintf(".s.PGSQL.%d.lock", a.o.Port)),
		filepath.Join(a.o.RunDir, fmt.Sprintf(".s.PGSQL.%d", a.o.Port)),
	}
	for _, path := range stale {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove a stale lock: %w", err)
		}
	}
	return nil
}
