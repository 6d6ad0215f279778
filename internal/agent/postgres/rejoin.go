package postgres

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/divergence"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rewind"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

const (
	// rewindPause is between two tries of a rewind, or to start rewound data.
	rewindPause = 2 * time.Second
	// rewindPatience is how long they may fail before the data is copied again.
	rewindPatience = 5 * time.Minute
	// archivePatience is how long a rewind waits for the archive to take the WAL that it
	// drops. What is not taken by then waits in the directory that keeps that WAL.
	archivePatience = time.Minute
	// leaderCheck is between two checks whether the primary still leads that data is
	// rewound to.
	leaderCheck = 500 * time.Millisecond
	// keptCheck is between two checks whether WAL that a rewind dropped is still needed.
	keptCheck = 5 * time.Second
)

// rejoin is what this process remembers of the rewind of its data. The loop uses it alone,
// but for the counts.
type rejoin struct {
	a *postgresAgent
	// refused is why the data is copied, and not rewound; empty for no reason.
	refused string
	// failing is since when it fails; 0 for not.
	failing time.Duration
	// diskSpace is what has to be free for the WAL that is dropped, in bytes; 0 where that is
	// not known.
	diskSpace int64
	// archived says that the archive has taken the WAL that is dropped.
	archived bool
	// rewound and copied count, for metrics, how often the data followed again after that.
	rewound, copied atomic.Int64
}

// recordFailure takes in that a rewind failed, or the start of what it left.
func (r *rejoin) recordFailure(now time.Duration, reason string) {
	if r.failing == 0 {
		r.failing = now
	}
	if now-r.failing > rewindPatience {
		r.refused = reason
	}
}

// forget takes in that the data is other data now, or whole.
func (r *rejoin) forget() { r.refused, r.failing, r.diskSpace, r.archived = "", 0, 0, false }

// withdrawRewind removes the mark of a rewind that an earlier process began, and that has
// changed nothing.
func (r *rejoin) withdrawRewind() error {
	progress, err := rewind.ReadProgress(r.a.o.DataDir)
	if err != nil || progress.Stage != rewind.StagePrepared || !datavolume.FindLeftovers(r.a.o.DataDir).Data {
		return err
	}
	r.a.o.Log.Info("a rewind was interrupted before it changed anything")
	return rewind.Withdraw(r.a.o.DataDir)
}

// observeRewind collects how far a rewind of the data has come, and whether the primary's
// WAL leads to where it is consistent.
func (r *rejoin) observeRewind(ctx context.Context, o *startplan.Observation) (err error) {
	o.Rewind.Refused, o.Rewind.DiskSpace = r.refused, r.diskSpace
	if o.Volume.Content != datavolume.ContentData {
		return nil
	}
	if o.Rewind.RewindProgress, err = rewind.ReadProgress(r.a.o.DataDir); err != nil || o.Rewind.Stage == rewind.StageNone {
		return err
	}
	if o.DivergedMark, err = datavolume.ReadDivergedMark(r.a.o.DataDir); err != nil {
		return err
	}
	r.a.reportWALEnd(*o) // it is not known
	if _, err := r.a.comparer.CompareAtRest(ctx, divergence.DataAtRest{}, o.Primary); err != nil {
		return err
	}
	leader, known := r.a.view.FindLeader()
	if o.Rewind.Stage != rewind.StageRewound || !o.Primary.Known || !known || leader.Pod != o.Primary.Pod {
		return nil
	}
	if err := r.a.writeTLS(); err != nil {
		return err
	}
	leads, err := rolechange.LeadsThrough(ctx, r.a.targetLeader(leader), o.Rewind.Consistent)
	if err != nil {
		r.a.o.Log.Info("whether rewound data can follow is not known yet", "error", err.Error())
		return nil
	}
	o.Rewind.Reachable, o.Rewind.Lost = leads, !leads
	return nil
}

func (a *postgresAgent) writeTLS() error {
	bundle, _ := a.Certificates.Current()
	return a.files.WriteTLS(bundle)
}

func (a *postgresAgent) targetLeader(leader elector.Leader) rolechange.Target {
	return rolechange.Target{Connection: a.connectLeader(leader), Timeline: leader.Timeline}
}

// rewindData makes the data of a former primary follow its successor again. The WAL that
// it drops is archived first, and kept on the volume.
func (r *rejoin) rewindData(ctx context.Context, o startplan.Observation) (time.Duration, error) {
	leader, known := r.a.view.FindLeader()
	if !known || leader.Pod != o.Primary.Pod {
		return pauseWaiting, nil
	}
	report := func(doing string) {
		r.a.ReportState(agentapi.StateRewinding, "", "rewinds its data to that of "+leader.Pod+", which was elected without the newest WAL of this member: "+doing)
	}
	if err := r.a.writeTLS(); err != nil {
		return 0, err
	}
	if o.Rewind.Stage == rewind.StageNone {
		r.archiveFirst(ctx, o, report)
	}
	report("begins")
	if err := r.a.reports.BeginRewind(ctx); err != nil {
		return 0, err
	}
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	go awaitOtherTerm(work, r.a.readLeader, leader.Term, cancel)
	outcome, err := r.newRewinder(report).RewindData(work, r.a.targetLeader(leader))
	switch {
	case ctx.Err() != nil:
		return 0, nil
	case err != nil && work.Err() != nil:
		return pauseWaiting, nil // another member leads
	case err != nil:
		return 0, err
	}
	return r.judgeRewind(leader, outcome), nil
}

// archiveFirst has the archive, where there is one, take the WAL that a rewind or a copy
// drops.
func (r *rejoin) archiveFirst(ctx context.Context, o startplan.Observation, report func(string)) {
	place, _ := r.a.archivePlace()
	if place == nil || !o.Superseded {
		return
	}
	err := r.storeOnce(ctx, report, func(ctx context.Context) error {
		return r.a.archive.StoreSuperseded(ctx, r.a.o.pgdataPath(), nameEnd(o.End.Point))
	})
	if err != nil {
		r.a.o.Log.Warn("the WAL that is dropped is not archived yet: it waits on the volume", "error", err.Error())
	}
}

// storeOnce stores the WAL that is dropped, unless the archive has taken it already.
func (r *rejoin) storeOnce(ctx context.Context, report func(string), store func(context.Context) error) error {
	if r.archived {
		return nil
	}
	report("archives that WAL first")
	ctx, cancel := context.WithTimeout(ctx, archivePatience)
	defer cancel()
	err := store(ctx)
	r.archived = err == nil
	return err
}

// nameEnd is the end of WAL as the archive takes it.
func nameEnd(end lsn.Point) wal.Turn {
	return wal.Turn{Timeline: uint32(end.Timeline), Position: end.Position} //nolint:gosec // PostgreSQL's are so long
}

// awaitOtherTerm calls a function once another term than one is known.
func awaitOtherTerm(ctx context.Context, leader func() elector.Leader, term int64, found func()) {
	for clock.Sleep(ctx, leaderCheck) && ctx.Err() == nil {
		if leader().Term != term {
			found()
			return
		}
	}
}

func (r *rejoin) newRewinder(report func(string)) *rewind.Rewinder {
	return rewind.NewRewinder(rewind.Options{
		Log: r.a.o.Log, Volume: r.a.o.DataDir, PGData: r.a.o.pgdataPath(), RunDir: r.a.o.RunDir, Programs: r.a.programs, Lock: r.a.Lock, Space: r.a.o.measureSpace, Report: report,
		Settings: func(control server.ControlData) map[string]string {
			in := r.a.files.BuildInput(r.a.currentConfig(), r.a.files.ReadProven().Parameters, control, false)
			return settings.ComputeSettings(in)
		},
		Led: func() []rewind.Term {
			led, err := datavolume.ReadLeader(r.a.o.DataDir)
			if err != nil || led.Term == 0 {
				return nil
			}
			return []rewind.Term{{Term: led.Term, Timeline: led.Timeline}}
		},
	})
}

// judgeRewind takes in what became of a rewind, and says how long to wait.
func (r *rejoin) judgeRewind(leader elector.Leader, outcome rewind.Outcome) time.Duration {
	switch outcome.Result {
	case rewind.Rewound:
		r.a.o.Log.Info("the data is rewound", "primary", leader.Pod, "timeline", leader.Timeline, "kept", outcome.Kept)
		r.forget()
		return 0
	case rewind.Failed:
		r.recordFailure(clock.Boottime(), outcome.Reason)
		r.a.ReportState(agentapi.StateRewinding, "", "rewinding the data to that of "+leader.Pod+" failed, it is tried again: "+outcome.Reason)
		return rewindPause
	case rewind.NoSpace:
		r.a.o.Log.Warn("the data is not rewound yet", "reason", outcome.Reason)
		r.diskSpace = outcome.DiskSpace
		return 0
	}
	r.a.o.Log.Warn("the data is not rewound: it is copied again", "result", outcome.Result.String(), "reason", outcome.Reason)
	r.refused = outcome.Reason
	return 0
}

// rewoundData is data that was rewound, in a run that makes it whole.
type rewoundData struct {
	// leader that it receives from, and the point at which it is consistent.
	leader     elector.Leader
	consistent lsn.Point
}

// errOtherLeader ends the start of rewound data whose primary does not lead any more, and
// errRejoin that of one which cannot follow.
var (
	errOtherLeader = errors.New("another member leads than the one that the data receives from")
	errRejoin      = errors.New("data that was rewound does not follow the primary")
)

// startRewound starts data that was rewound. It receives from the primary from the first
// on, and serves, votes and leads once it is consistent.
func (r *rejoin) startRewound(ctx context.Context, o startplan.Observation) (time.Duration, error) {
	leader, known := r.a.view.FindLeader()
	if !known || leader.Pod != o.Primary.Pod {
		return pauseWaiting, nil
	}
	if err := r.a.reports.BeginRewind(ctx); err != nil {
		return 0, err
	}
	if err := r.a.reports.RecordTimeline(ctx, leader.Timeline); err != nil {
		return 0, err
	}
	if err := rolechange.PrepareRewound(ctx, r.a.programs, r.a.o.pgdataPath()); err != nil {
		r.recordFailure(clock.Boottime(), err.Error())
		return 0, err
	}
	l := r.a.newLife(o.Volume.Control, 0)
	l.rewound = &rewoundData{leader, o.Rewind.Consistent}
	err := r.a.runServer(ctx, l)
	switch {
	case errors.Is(err, errOtherLeader):
		r.a.o.Log.Info("rewound data waits for another primary", "reason", err.Error())
		return 0, nil
	case l.rewound != nil && err != nil && ctx.Err() == nil:
		r.recordFailure(clock.Boottime(), err.Error())
	}
	return 0, err
}

// checkRewound fails where rewound data has to be started anew, or given up.
func (l *serverLife) checkRewound() error {
	if l.rewound == nil {
		return nil
	}
	if now := l.a.readLeader(); now.Term != l.rewound.leader.Term {
		return errOtherLeader
	}
	return nil
}

// judgeRewoundTrouble is the end of a start of rewound data whose log says that it cannot
// follow. Nothing but the server itself writes to that: no client can connect yet.
func (l *serverLife) judgeRewoundTrouble(t trouble) error {
	if t == troubleCopy {
		l.a.rejoin.refused = "the primary no longer has the WAL that it needs"
	}
	return fmt.Errorf("%w: see the log of the database", errRejoin)
}

// completeRewind takes in that rewound data is consistent, before anything is served or
// reported of it. PostgreSQL accepts no connection before.
func (l *serverLife) completeRewind(ctx context.Context) error {
	if l.rewound == nil {
		return nil
	}
	passed := false
	err := l.a.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select pg_is_in_recovery() and pg_last_wal_replay_lsn() - '0/0'::pg_lsn >= $1::text::numeric", fmt.Sprint(l.rewound.consistent.Position)).Scan(&passed)
	})
	if err != nil {
		return fmt.Errorf("complete the rewind: %w", err)
	}
	if !passed {
		return fmt.Errorf("%w: it accepts connections, and has not replayed the WAL up to %s", errRejoin, l.rewound.consistent)
	}
	control, err := l.a.programs.ReadControlData(ctx, l.a.o.pgdataPath())
	if err != nil {
		return err
	}
	if err := rewind.Complete(l.a.o.DataDir); err != nil {
		return err
	}
	timelines := append(listTimelines(filepath.Join(l.a.o.pgdataPath(), "pg_wal"), control), l.rewound.leader.Timeline)
	slices.Sort(timelines)
	if err := l.a.reports.EndRewind(ctx, control.SystemIdentifier, slices.Compact(timelines)); err != nil {
		return err
	}
	l.a.o.Log.Info("data that was rewound is consistent and follows", "primary", l.rewound.leader.Pod, "consistent", l.rewound.consistent.String())
	l.rewound = nil
	l.a.rejoin.forget()
	l.a.rejoin.rewound.Add(1)
	return nil
}

// dropKept drops the WAL that a rewind kept, once a second copy of the primary's data is
// there, and the archive has what waited for it. A volume that fills up waits for no
// archive.
func (l *serverLife) dropKept(ctx context.Context) {
	for clock.Sleep(ctx, keptCheck) && ctx.Err() == nil {
		kept, err := rewind.ListKept(l.a.o.DataDir)
		if err == nil && len(kept) == 0 {
			return
		}
		if err != nil || !l.hasSecondCopy() || !l.isKeptArchived(ctx, kept) {
			continue
		}
		l.a.o.Log.Info("drops the WAL that a rewind kept: a second copy of the primary's data is there", "directories", len(kept))
		if err := rewind.DropKept(l.a.o.DataDir); err != nil {
			l.a.o.Log.Warn("WAL that a rewind kept is not dropped", "error", err.Error())
		}
	}
}

// hasSecondCopy says whether this member streams, or another one does from it.
func (l *serverLife) hasSecondCopy() bool {
	status := l.a.Store.Get()
	if l.isPrimary() {
		return status.Serving && len(l.a.reached.listReached()) > 0
	}
	return status.Serving && readReplication(status).Source != ""
}

// isKeptArchived has the archive take what waits for it in directories that keep WAL, and
// says whether it did, or cannot be waited for.
func (l *serverLife) isKeptArchived(ctx context.Context, kept []string) bool {
	ctx, cancel := context.WithTimeout(ctx, archivePatience)
	defer cancel()
	for _, dir := range kept {
		end, err := rewind.ReadKeptEnd(dir)
		if err == nil {
			err = l.a.archive.StoreSuperseded(ctx, dir, nameEnd(end))
		}
		if err != nil {
			l.a.o.Log.Info("WAL that a rewind kept still waits for the archive", "directory", dir, "error", err.Error())
			return dataspace.IsFull(l.a.o.measureSpace())
		}
	}
	return true
}

// describeStart says what a start of the server does, for a person.
func (l *serverLife) describeStart() string {
	if l.rewound == nil {
		return "starts the database"
	}
	return "the data was rewound: receives the WAL of " + l.rewound.leader.Pod + " up to " + l.rewound.consistent.String() + ", from where on it is consistent"
}
