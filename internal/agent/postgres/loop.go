package postgres

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recoverywatch"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rewind"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/election"
)

// Pauses between two observations while the database does not run.
const (
	pauseWaiting = 300 * time.Millisecond
	pauseRecord  = time.Second
	pauseHeld    = time.Second
	pauseFull    = 2 * time.Second
	// crashLimit is how long a primary may crash again and again, or fail to start, while
	// other members may lead. A recovery that makes progress may take longer.
	crashLimit = recoverywatch.Limit
)

// runLoop gathers, decides and does one thing, again and again, until ctx ends.
func (a *postgresAgent) runLoop(ctx context.Context) { a.RunLoop(ctx, a.o.DataDir, a.takeStep) }

// takeStep does the next thing, and says how long to wait before the one after.
func (a *postgresAgent) takeStep(ctx context.Context) (time.Duration, error) {
	if err := datavolume.TidyVolume(a.o.DataDir); err != nil {
		return 0, err
	}
	if err := a.rejoin.withdrawRewind(); err != nil {
		return 0, err
	}
	o, primary, err := a.observeMember(ctx)
	if err != nil {
		return 0, err
	}
	p := startplan.PlanNext(o)
	a.reportHeld(o, p)
	if err := a.completeElection(ctx, o, p); err != nil {
		return 0, err
	}
	switch p.Action {
	case startplan.ActHold:
		return a.holdData(ctx, o, p), nil
	case startplan.ActWait:
		a.ReportState(agentapi.StateWaiting, "", p.Message)
		return pauseWaiting, nil
	case startplan.ActBootstrap:
		a.ReportState(agentapi.StateInitializing, "", p.Message)
		return 0, a.bootstrapData(ctx)
	case startplan.ActRecord:
		return a.recordFirst(ctx, o), nil
	case startplan.ActClone, startplan.ActCopyAgain:
		a.rejoin.archiveFirst(ctx, o, func(doing string) { a.ReportState(agentapi.StateCloning, "", doing) })
		return a.cloneData(ctx, primary, p)
	case startplan.ActRewind:
		return a.rejoin.rewindData(ctx, o)
	case startplan.ActStartRewound:
		return a.rejoin.startRewound(ctx, o)
	case startplan.ActContinue:
		return a.continueLeading(ctx, o)
	default:
		a.copies.WithdrawRequest() // this run finds out whether it is still so
		a.rejoin.forget()
		return 0, a.startStandby(ctx, o)
	}
}

// reportHeld has a member whose data is held not lead. Only data that is whole votes. A primary whose
// volume is full keeps its term: another member's would fill up, too.
func (a *postgresAgent) reportHeld(o startplan.Observation, p startplan.Plan) {
	if p.Action == startplan.ActHold && p.Hold != agentapi.HoldVolumeFull && o.Leads {
		a.reports.ReportFailed(a.servers.LedTerm())
	}
	if p.Action == startplan.ActHold && p.Hold == agentapi.HoldVolumeFull && o.Leads {
		a.servers.ReportProgress() // it keeps its term for as long as it is looked after
	}
	var held election.Held
	if p.Action == startplan.ActHold {
		held = election.Held{Reason: "this member is held: " + p.Message, Votes: p.MayVote}
	}
	if held != a.heldFor {
		a.heldFor = held
		a.reports.ReportHeld(held)
	}
}

// holdData holds what is on the volume, and frees disk space on a full one.
func (a *postgresAgent) holdData(ctx context.Context, o startplan.Observation, p startplan.Plan) time.Duration {
	a.Store.Update(func(s *agentapi.Status) { s.DiskSpaceNeeded = p.DiskSpace })
	a.ReportState(agentapi.StateHeld, p.Hold, p.Message)
	if p.Hold != agentapi.HoldVolumeFull {
		return pauseHeld
	}
	// Of data whose rewind is not complete, what is needed is not known.
	if dataspace.IsFull(o.Volume.Space) && o.Rewind.Stage == rewind.StageNone && o.Volume.Control.SystemIdentifier != "" && a.archive.ReclaimSpace(ctx, a.describeStopped(o)) {
		return 0
	}
	return pauseFull
}

// describeStopped is what the archiver needs to know of data that does not run. The last
// primary's WAL is its own to archive until another member leads.
func (a *postgresAgent) describeStopped(o startplan.Observation) archive.StoppedDatabase {
	view := a.readView()
	return archive.StoppedDatabase{
		Control: o.Volume.Control, Primary: view.Leader.Volume == view.Volume, MayArchive: view.Leader.Term > 0,
	}
}

// bootstrapData creates the database system, which no election knows yet.
func (a *postgresAgent) bootstrapData(ctx context.Context) error {
	if err := a.copies.InitializeData(ctx); err != nil {
		return err
	}
	control, err := a.programs.ReadControlData(ctx, a.o.pgdataPath())
	if err != nil {
		return err
	}
	return a.reports.EndRewind(ctx, control.SystemIdentifier, []int64{control.Timeline})
}

// recordFirst makes the first record of the Lease, before the database runs.
func (a *postgresAgent) recordFirst(ctx context.Context, o startplan.Observation) time.Duration {
	a.ReportState(agentapi.StateWaiting, "", "records the database system on the Lease")
	held, err := a.servers.ReadWAL(ctx)
	if err == nil {
		err = a.first.WriteRecord(ctx, a.readView().Volume, o.Volume.Control.SystemIdentifier, held)
	}
	if err != nil {
		a.o.Log.Info("the bootstrap is not recorded yet", "error", err.Error())
		return pauseRecord
	}
	a.recorded = true
	return 0
}

// startStandby starts the database as a standby, whatever ended it before.
func (a *postgresAgent) startStandby(ctx context.Context, o startplan.Observation) error {
	a.crashed = 0
	if _, err := rolechange.PrepareStandby(ctx, a.programs, a.o.pgdataPath()); err != nil {
		return err
	}
	return a.runServer(ctx, a.newLife(o.Volume.Control, 0))
}

// continueLeading starts the database of a primary that has crashed again, in the same
// term. If that takes too long, the term ends.
func (a *postgresAgent) continueLeading(ctx context.Context, o startplan.Observation) (time.Duration, error) {
	now := clock.Boottime()
	term := a.servers.LedTerm()
	switch {
	case a.crashed == 0:
		a.crashed = now
	case now-a.crashed > crashLimit && !o.Alone:
		a.o.Log.Warn("the database of this primary does not come back: the term ends", "term", term)
		a.reports.ReportFailed(term)
		a.crashed = 0
		return pauseRecord, nil
	}
	a.o.Log.Info("starts the database again in the same term", "term", term)
	err := a.runServer(ctx, a.newLife(o.Volume.Control, term))
	if a.answered > now && clock.Boottime()-a.answered > crashLimit { // it served: the next crash is another one
		a.crashed = 0
	}
	return 0, err
}

// cloneData makes the volume's data a copy of the primary's. A failure is no crash:
// the primary may have gone, or may not have made the slot yet.
func (a *postgresAgent) cloneData(ctx context.Context, primary agentapi.Status, p startplan.Plan) (time.Duration, error) {
	a.ReportState(agentapi.StateCloning, "", "copies the data of "+primary.Pod+p.Reason)
	if err := a.writeTLS(); err != nil {
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
		return pauseRecord, nil
	default:
		a.ReportState(agentapi.StateCloning, "", "copying the data of "+primary.Pod+" failed, it is tried again: "+err.Error())
		return pauseWaiting, nil
	}
	return 0, a.adoptCopy(ctx)
}
