package postgres

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
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

// takeStep does the next thing, and says how long to wait before the one after.
func (a *postgresAgent) takeStep(ctx context.Context) (time.Duration, error) {
	if err := datavolume.TidyVolume(a.o.DataDir); err != nil {
		return 0, err
	}
	o, primary, err := a.observeMember(ctx)
	if err != nil {
		return 0, err
	}
	p := startplan.PlanNext(o)
	switch p.Action {
	case startplan.ActHold:
		return a.holdData(ctx, o, p), nil
	case startplan.ActWait:
		a.ReportState(agentapi.StateWaiting, "", p.Message)
		if o.Ordinal == 0 && o.Config.Known {
			return pauseClaim, nil // each observation asks the API server
		}
		return pauseWaiting, nil
	case startplan.ActClaim:
		a.ReportState(agentapi.StateWaiting, "", p.Message)
		if err := a.leadership.ClaimLease(ctx, o.Lease, o.Config.Cluster, o.IsLeaseLeftBehind()); err != nil {
			a.o.Log.Info("the Lease was not won", "error", err.Error())
			return pauseClaim, nil
		}
		return 0, nil
	case startplan.ActBootstrap:
		a.ReportState(agentapi.StateInitializing, "", p.Message)
		return 0, a.copies.InitializeData(ctx)
	case startplan.ActRecord:
		a.recordBootstrap(ctx, o)
		return 0, nil
	case startplan.ActClone, startplan.ActCopyAgain:
		return a.cloneData(ctx, primary)
	case startplan.ActMarkStandby:
		return 0, datavolume.MarkStandby(a.o.pgdataPath())
	case startplan.ActStartPrimary:
		return a.startPrimary(ctx, o, p)
	default:
		a.copies.WithdrawRequest() // this run finds out whether it is still so
		return 0, a.runServer(ctx, o.Volume.Control, false, 0)
	}
}

// holdData holds what is on the volume, and frees disk space on a full one.
func (a *postgresAgent) holdData(ctx context.Context, o startplan.Observation, p startplan.Plan) time.Duration {
	a.Store.Update(func(s *agentapi.Status) { s.DiskSpaceNeeded = p.DiskSpace })
	a.ReportState(agentapi.StateHeld, p.Hold, p.Message)
	if p.Hold != agentapi.HoldVolumeFull {
		return pauseHeld
	}
	if dataspace.IsFull(o.Volume.Space) && o.Volume.Control.SystemIdentifier != "" && a.archive.ReclaimSpace(ctx, describeStopped(o)) {
		return 0
	}
	return pauseFull
}

// describeStopped is what the archiver needs to know of data that does not run.
func describeStopped(o startplan.Observation) archive.StoppedDatabase {
	return archive.StoppedDatabase{Control: o.Volume.Control, Promoting: o.Leader.Pending > 0, Primary: !o.Volume.Standby, MayArchive: o.MayArchive()}
}

// startPrimary starts the primary, on a timeline of its own where that is decided.
func (a *postgresAgent) startPrimary(ctx context.Context, o startplan.Observation, p startplan.Plan) (time.Duration, error) {
	var begins int64
	var err error
	if p.NewTimeline {
		a.ReportState(agentapi.StateRecovering, "", p.Message)
		begins, err = a.leadership.ReserveTimeline(ctx, o, p)
	} else {
		err = a.leadership.RecordTerm(o)
	}
	if err != nil {
		a.o.Log.Warn("the start as the primary is not recorded yet", "error", err.Error())
		return pauseClaim, nil
	}
	return 0, a.runServer(ctx, o.Volume.Control, true, begins)
}

// recordBootstrap records the database system before it runs for the first time.
func (a *postgresAgent) recordBootstrap(ctx context.Context, o startplan.Observation) {
	control := o.Volume.Control
	if err := a.leadership.RecordBootstrap(ctx, control, o.Leader.Term > 0); err != nil {
		a.o.Log.Info("the bootstrap is not recorded yet", "error", err.Error())
		clock.Sleep(ctx, pauseClaim)
		return
	}
	a.o.Log.Info("bootstrap recorded", "systemIdentifier", control.SystemIdentifier)
}

// cloneData makes the volume's data a copy of the primary's. A failure is no crash:
// the primary may have gone, or may not have made the slot yet.
func (a *postgresAgent) cloneData(ctx context.Context, primary agentapi.Status) (time.Duration, error) {
	a.ReportState(agentapi.StateCloning, "", "copies the data of "+primary.Pod)
	bundle, _ := a.Certificates.Current()
	if err := a.files.WriteTLS(bundle); err != nil {
		return 0, err
	}
	err := a.copies.CopyPrimary(ctx, primary)
	switch {
	case err == nil:
	case dataspace.IsOwnVolumeFull(err):
		a.o.Log.Warn("the copy filled the volume", "error", err.Error())
		return 0, a.copies.DropFilled()
	case dataspace.IsPrimaryVolumeFull(err):
		a.ReportState(agentapi.StateCloning, "", "copying the data of "+primary.Pod+" failed, whose volume is full; it is tried again")
		return pauseClaim, nil
	default:
		a.ReportState(agentapi.StateCloning, "", "copying the data of "+primary.Pod+" failed, it is tried again: "+err.Error())
		return pauseWaiting, nil
	}
	return 0, a.copies.AdoptCopy()
}
