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

// Pauses between two observations while the database does not run.
const (
	pauseWaiting = 300 * time.Millisecond
	pauseClaim   = time.Second
	pauseHeld    = time.Second
	pauseFull    = 2 * time.Second
)

// runLoop gathers, decides and does one thing, again and again, until ctx ends.
func (a *postgresAgent) runLoop(ctx context.Context) { a.RunLoop(ctx, a.o.DataDir, a.takeStep) }

func waitFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// takeStep does the next thing, and says how long to wait before the one after.
func (a *postgresAgent) takeStep(ctx context.Context) (time.Duration, error) { //nolint:gocyclo // an ordered switch: first match wins
	if err := tidyVolume(a.o.DataDir); err != nil {
		return 0, err
	}
	o, primary, err := a.observeMember(ctx)
	if err != nil {
		return 0, err
	}
	p := planNext(o)
	switch p.Action {
	case actHold:
		a.Store.Update(func(s *agentapi.Status) { s.DiskSpaceNeeded = p.DiskSpace })
		a.ReportState(agentapi.StateHeld, p.Hold, p.Message)
		if p.Hold == agentapi.HoldVolumeFull {
			if dataspace.IsFull(o.Volume.Space) && o.Volume.Control.SystemIdentifier != "" && a.archive.ReclaimSpace(ctx, o.describeStopped()) {
				return 0, nil
			}
			return pauseFull, nil
		}
		return pauseHeld, nil
	case actWait:
		a.ReportState(agentapi.StateWaiting, "", p.Message)
		if o.Ordinal == 0 && o.ConfigKnown {
			return pauseClaim, nil // each observation asks the API server
		}
		return pauseWaiting, nil
	case actClaim:
		a.ReportState(agentapi.StateWaiting, "", p.Message)
		if err := a.lease.ClaimLease(ctx, o.Cluster, o.isLeaseLeftBehind()); err != nil {
			a.log.Info("the Lease was not won", "error", err.Error())
			return pauseClaim, nil
		}
		a.taken, a.led, a.askedSince = o.Lease, false, 0
		return 0, nil
	case actBootstrap:
		a.ReportState(agentapi.StateInitializing, "", p.Message)
		return 0, a.initializeData(ctx)
	case actRecord:
		return 0, a.recordBootstrap(ctx, o.Volume.Control, o.Leader.Term > 0)
	case actClone, actCopyAgain:
		return a.cloneData(ctx, primary)
	case actMarkStandby:
		return 0, markStandby(a.o.pgdataPath())
	case actStartPrimary:
		return a.startPrimary(ctx, o, p)
	default:
		a.copyAgain = false // this run finds out whether it is still so
		return 0, a.runServer(ctx, o.Volume.Control, false, 0)
	}
}

// startPrimary starts the primary, on a timeline of its own where that is decided.
func (a *postgresAgent) startPrimary(ctx context.Context, o observation, p plan) (time.Duration, error) {
	var begins int64
	var err error
	if p.NewTimeline {
		a.ReportState(agentapi.StateRecovering, "", p.Message)
		begins, err = a.reserveTimeline(ctx, o, p)
	} else {
		err = a.recordTerm(o)
	}
	if err != nil {
		a.log.Warn("the start as the primary is not recorded yet", "error", err.Error())
		return pauseClaim, nil
	}
	return 0, a.runServer(ctx, o.Volume.Control, true, begins)
}

// observeMember collects what decide needs, and judges nothing.
func (a *postgresAgent) observeMember(ctx context.Context) (observation, agentapi.Status, error) {
	o := observation{Ordinal: a.ordinal, BinaryMajor: a.major, CopyAgain: a.copyAgain}
	var err error
	if o.Volume, err = inspectVolume(a.o.DataDir); err != nil {
		return o, agentapi.Status{}, err
	}
	o.Volume.Space = a.measureSpace()
	if dataspace.IsFull(o.Volume.Space) && o.Volume.Content == contentData {
		place, _ := a.archivePlace()
		o.Volume.ArchiveWaits = place != nil && a.archive.ReadBacklog().Segments > 0
	}
	o.CopyFilled = a.filled.MustWait(clock.Boottime(), o.Volume.Space.Total)
	if o.Volume.Content == contentData && o.Volume.Major == a.major {
		if o.Volume.Control, err = a.programs.ReadControlData(ctx, a.o.pgdataPath()); err != nil {
			return o, agentapi.Status{}, err
		}
	}
	a.Store.Update(func(s *agentapi.Status) {
		s.SystemIdentifier = o.Volume.Control.SystemIdentifier
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Timeline = o.Volume.Control.Timeline })
	})
	a.observeConfig(&o)
	var primary agentapi.Status
	if a.ordinal == 0 {
		err = a.observeLeading(ctx, &o)
	} else {
		primary, o.PrimaryKnown = a.findPrimary(ctx)
		o.PrimarySystemIdentifier = primary.SystemIdentifier
		o.Primary, o.PrimaryDataSize, o.PrimaryEnd = primary.Pod, primary.DataSize, pointOf(primary, o.Volume.Control.SystemIdentifier)
	}
	if err == nil {
		err = a.observeOwnWAL(&o)
	}
	if err == nil && a.ordinal != 0 {
		o.Contained, err = a.compareAtRest(ctx, o)
	}
	if err == nil && a.ordinal != 0 {
		o.DivergedMark, err = a.updateDivergedMark(o)
		a.reportDiverged(o)
	}
	return o, primary, err
}

// observeConfig collects what the cluster's configuration says, once it is known.
func (a *postgresAgent) observeConfig(o *observation) {
	config, _ := a.Config.Current()
	if config == nil {
		return
	}
	o.ConfigKnown, o.ConfigSystemIdentifier = true, config.SystemIdentifier
	if a.cluster == "" {
		a.cluster = config.UID
	}
	o.Cluster, o.Fresh = config.UID, config.Fresh && config.UID == a.cluster
}

// updateDivergedMark reads the mark of data that is ahead of its primary, and makes it
// once that is proven.
func (a *postgresAgent) updateDivergedMark(o observation) (*divergedMark, error) {
	now, own := clock.Boottime(), o.findEnd()
	a.proof = a.proof.recordPositions(now, own, o.PrimaryEnd)
	if ours := o.PrimarySystemIdentifier == o.Volume.Control.SystemIdentifier; o.PrimaryKnown && ours && a.proof.isProven(now) {
		if err := writeDivergedMark(a.o.DataDir, divergedMark{Own: own, Primary: o.PrimaryEnd}); err != nil {
			return nil, err
		}
	}
	return readDivergedMark(a.o.DataDir)
}

// reportDiverged reports of data that is marked where the primary was that led
// without it.
func (a *postgresAgent) reportDiverged(o observation) {
	var led *postgresapi.WALPoint
	if o.DivergedMark != nil && o.Volume.Content == contentData {
		led = &postgresapi.WALPoint{Timeline: o.DivergedMark.Primary.Timeline, Position: o.DivergedMark.Primary.Position}
	}
	a.Store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Diverged = led })
	})
}

// readLease reads the Lease. A holder that cannot read it goes by what it
// wrote: a crash of the database during an outage of the API server does not
// end the reign.
func (a *postgresAgent) readLease(ctx context.Context) leaseclient.Record {
	record, err := a.lease.ReadRecord(ctx)
	if err == nil {
		return record
	}
	a.log.Info("the Lease cannot be read", "error", err.Error())
	record, _ = a.lease.LastRecord()
	return record
}

// recordBootstrap records the database system before it runs for the first time.
// How far data goes that has led before is no measure of how far it went.
func (a *postgresAgent) recordBootstrap(ctx context.Context, control server.ControlData, ledBefore bool) error {
	facts := map[string]string{v1alpha1.AnnotationSystemIdentifier: control.SystemIdentifier}
	if !ledBefore {
		facts[leaseclient.AnnotationTimeline] = fmt.Sprint(control.Timeline)
		facts[leaseclient.AnnotationCheckpoint] = control.Checkpoint
	}
	err := a.lease.AnnotateLease(ctx, facts)
	if err != nil {
		a.log.Info("the bootstrap is not recorded yet", "error", err.Error())
		waitFor(ctx, pauseClaim)
		return nil
	}
	a.log.Info("bootstrap recorded", "systemIdentifier", control.SystemIdentifier)
	return nil
}

// cloneData makes the volume's data a copy of the primary's. A failure is no crash:
// the primary may have gone, or may not have made the slot yet.
func (a *postgresAgent) cloneData(ctx context.Context, primary agentapi.Status) (time.Duration, error) {
	a.ReportState(agentapi.StateCloning, "", "copies the data of "+primary.Pod)
	if err := a.writeTLS(); err != nil {
		return 0, err
	}
	err := a.copyPrimary(ctx, primary)
	switch {
	case err == nil:
	case dataspace.IsOwnVolumeFull(err):
		a.filled = a.filled.RecordFailure(clock.Boottime(), a.measureSpace().Total)
		a.log.Warn("the copy filled the volume", "error", err.Error())
		return 0, removeCopy(a.o.DataDir)
	case dataspace.IsPrimaryVolumeFull(err):
		a.ReportState(agentapi.StateCloning, "", "copying the data of "+primary.Pod+" failed, whose volume is full; it is tried again")
		return pauseClaim, nil
	default:
		a.ReportState(agentapi.StateCloning, "", "copying the data of "+primary.Pod+" failed, it is tried again: "+err.Error())
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
		filepath.Join(a.o.pgdataPath(), "postmaster.pid"),
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
