package postgres

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leadership"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// electionParts are what an agent has of the election.
type electionParts struct {
	// running is the elector; nil before the lock on the volume is held.
	running  atomic.Pointer[elector.Elector]
	elector  *elector.Elector // the same, for what runs after that
	reports  elector.Reports
	handlers atomic.Pointer[map[string]http.Handler]
	// promoted is how the timeline began that a server of this process was promoted to
	// last.
	promoted atomic.Pointer[rolechange.Promoted]
	reached  reachedMembers
	// quorum is the one of the last run as a primary.
	quorum rolechange.Quorum
	// volume is what was found on the volume last.
	volume atomic.Pointer[datavolume.Observation]
	// ledBefore says that the volume was in an election before this process.
	ledBefore bool
	// crashed is since when the database of a primary is down that is started again; 0
	// while it runs.
	crashed time.Duration
	// answered is when a server of this process answered first after its last start.
	answered time.Duration
	// heldFor is why the member does not lead, as it was reported, and recorded says that
	// this process made the first record of the Lease.
	heldFor  election.Held
	recorded bool
	// parts run until outer ends, which outlives the loop.
	parts sync.WaitGroup
	outer context.Context //nolint:containedctx // the loop's context ends before the election does
}

// startElection takes part in the election from now on, until the loop has ended. It
// needs the lock on the volume.
func (a *postgresAgent) startElection(ctx context.Context) error {
	if a.elector != nil {
		return nil
	}
	file, recorded, err := datavolume.OpenElection(a.o.DataDir)
	if err != nil {
		return err
	}
	if recorded, err = a.completeRecord(ctx, file, recorded); err != nil {
		return err
	}
	a.ledBefore = recorded.Known.Term > 0
	own := leadership.OwnLease{LeaseStore: a.lease, KnowsRecord: func() bool { return a.readView().Leader.Term > 0 }, Config: a.currentConfig, Volume: func() datavolume.Observation { return *a.volume.Load() }}
	e, err := elector.New(elector.Options{
		Log: a.o.Log, Identity: a.o.Identity, Config: election.Config{Timing: defaultTiming}, Recorded: recorded,
		Volume: file, Lease: own, Guard: a.o.Guard, Server: a.servers, Peers: a.peers, Directory: a.directory,
	})
	if err != nil {
		return err
	}
	a.elector, a.reports = e, e.Reports()
	a.servers.SetReports(a.reports)
	a.servers.SetLock(a.Lock)
	handlers := e.NewHandlers()
	a.handlers.Store(&handlers)
	a.running.Store(e)
	duty := leadership.NewDuty(leadership.DutyOptions{
		Log: a.o.Log, Pod: a.o.Identity.Pod, Elector: e, Directory: a.directory, Peers: a.peers, Config: a.Config.Current,
		Store: a.Store, Checkpoint: a.checkpointBeforeStop, Withdraw: a.withdraw, Reached: a.reached.listReached, SetTiming: a.lease.SetTiming, Fences: a.o.Fences,
	})
	for _, run := range []func(context.Context){e.Run, a.servers.Work, a.boundTerm, duty.Follow, a.followEarlier} {
		a.parts.Go(func() { run(a.outer) })
	}
	return nil
}

// completeRecord records what lies on a volume that was never in an election, and on
// one whose data was replaced completely when its agent ended.
func (a *postgresAgent) completeRecord(ctx context.Context, file *datavolume.ElectionFile, recorded election.Persistent) (election.Persistent, error) {
	volume := a.volume.Load()
	if volume.Content == datavolume.ContentData {
		switch mark, err := datavolume.FindRewindMark(a.o.DataDir); {
		case err != nil:
			return recorded, err
		case mark != "": // what the data holds is not known before its rewind is complete
			before := recorded.Rewinding
			if recorded.Rewinding = true; before {
				return recorded, nil
			}
			return recorded, file.WriteRecord(recorded)
		}
	}
	if volume.Content != datavolume.ContentData || volume.Control.SystemIdentifier == "" || recorded.SystemIdentifier != "" && !recorded.Rewinding {
		return recorded, nil
	}
	recorded.SystemIdentifier, recorded.Rewinding = volume.Control.SystemIdentifier, false
	recorded.Timelines = a.measureTimelines(ctx, volume.Control)
	return recorded, file.WriteRecord(recorded)
}

// measureTimelines lists the timelines of data at rest: by its WAL, which may have later
// ones than pg_control says, and by pg_control where that cannot be measured.
func (a *postgresAgent) measureTimelines(ctx context.Context, control server.ControlData) []int64 {
	timelines := listTimelines(filepath.Join(a.o.pgdataPath(), "pg_wal"), control)
	if held, err := rolechange.MeasureWALAtRest(ctx, a.programs, a.o.pgdataPath()); err == nil {
		timelines = append(timelines, held.Timelines...)
	}
	slices.Sort(timelines)
	return slices.Compact(timelines)
}

// completeElection records data that is whole and of which the election does not know
// that: what should have recorded it was interrupted.
func (a *postgresAgent) completeElection(ctx context.Context, o startplan.Observation, p startplan.Plan) error {
	view, control := a.readView(), o.Volume.Control
	isWhole := p.Action == startplan.ActStartStandby || p.Action == startplan.ActRecord || p.MayVote
	if !isWhole || control.SystemIdentifier == "" || !view.Rewinding && view.SystemIdentifier == control.SystemIdentifier {
		return nil
	}
	if mark, err := datavolume.FindRewindMark(a.o.DataDir); err != nil || mark != "" {
		return err // a rewind is under way: what the data holds is not known
	}
	return a.reports.EndRewind(ctx, control.SystemIdentifier, a.measureTimelines(ctx, control))
}

// mayRunPrimary reports whether the server of this member may run as a primary now.
func (a *postgresAgent) mayRunPrimary() bool {
	phase := a.readView().Phase
	return phase == election.Promoting || phase == election.Leading || phase == election.Ending
}

// listTimelines lists the timelines that data went through, by pg_control.
func listTimelines(dir string, control server.ControlData) []int64 {
	current := max(control.Timeline, control.RecoveryTimeline)
	timelines := []int64{current}
	histories, err := wal.ReadHistories(dir)
	if err != nil {
		return timelines
	}
	timeline := uint32(current) //nolint:gosec // PostgreSQL's are so long
	for _, t := range wal.FindHistory(histories, timeline).ListHeld(timeline) {
		timelines = append(timelines, int64(t))
	}
	slices.Sort(timelines)
	return slices.Compact(timelines)
}

// electionHandlers answer the other members, once this one takes part in the election.
func (a *postgresAgent) electionHandlers() map[string]http.Handler {
	handlers := map[string]http.Handler{}
	for _, path := range []string{postgresapi.VotePath, postgresapi.ConfirmPath, postgresapi.ReleasePath, postgresapi.ReleasedPath} {
		handlers[path] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if running := a.handlers.Load(); running != nil {
				(*running)[path].ServeHTTP(w, r)
				return
			}
			http.Error(w, "this member does not take part in the election yet", http.StatusServiceUnavailable)
		})
	}
	return handlers
}

// readView is the member's view of the election; the zero value before it takes part.
func (a *postgresAgent) readView() elector.View {
	e := a.running.Load()
	if e == nil {
		return elector.View{}
	}
	view, _ := e.ReadView()
	return view
}

// readLeader is the leader by the Lease, as this member knows it.
func (a *postgresAgent) readLeader() elector.Leader {
	leader := a.readView().Leader
	if leader.Term == 0 {
		leader, _ = a.readEarlier()
	}
	return leader
}

// isLeading says whether this member's server takes writes as the primary of its term.
func (a *postgresAgent) isLeading() bool { return a.readView().IsLeading(clock.Boottime()) }

// leaderAddress is the IP address that the Lease gives of a leader's pod.
func (a *postgresAgent) leaderAddress(leader elector.Leader) string {
	if facts := a.lease.ReadFacts(); facts.HolderUID == leader.UID {
		return facts.Address
	}
	return ""
}

// connectLeader is how this member streams from a leader.
func (a *postgresAgent) connectLeader(leader elector.Leader) settings.PrimaryConnection {
	c := a.o.leaderConnection(leader.Pod, a.leaderAddress(leader))
	c.Application = a.directory.NameStream(leader.Pod, a.readView().Volume)
	return c
}

func (a *postgresAgent) currentConfig() *agent.Config {
	config, _ := a.Config.Current()
	return config
}

func (a *postgresAgent) clusterUID() string {
	if config := a.currentConfig(); config != nil {
		return config.UID
	}
	return ""
}

// mostSuperseded is how much WAL, in bytes, is given up for a copy of the leader's data
// without a person. A member with more did not reach the others for long before.
const mostSuperseded = 1 << 30

// isSuperseded says whether data that the leader's history has left only holds what the
// leader was elected without. What a person had another member lead without is kept.
func (a *postgresAgent) isSuperseded(own lsn.Point, left uint64, leader int64) bool {
	return isWALSuperseded(own, left, leader, a.readLeader())
}

func isWALSuperseded(own lsn.Point, left uint64, leader int64, known elector.Leader) bool {
	return left > 0 && own.Timeline < leader && known.Timeline == leader && known.ForcedTimeline <= own.Timeline && own.Position-left <= mostSuperseded
}

// findUpstream is how the data at rest may stream from a leader from its start: it is a
// part of what that leader has. It is empty where it may not.
func (a *postgresAgent) findUpstream(ctx context.Context, leader elector.Leader) string {
	connection := a.connectLeader(leader)
	held, err := rolechange.MeasureWALAtRest(ctx, a.programs, a.o.pgdataPath())
	if err == nil {
		err = rolechange.CheckTarget(ctx, held, rolechange.Target{Connection: connection, Timeline: leader.Timeline})
	}
	if err == nil {
		err = a.reports.RecordTimeline(ctx, leader.Timeline)
	}
	if err != nil {
		return ""
	}
	return connection.String()
}

// adoptCopy puts a complete copy in the place of the data, and records that of the
// election.
func (a *postgresAgent) adoptCopy(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if err := a.reports.BeginRewind(ctx); err != nil {
		return err
	}
	replaced := datavolume.FindLeftovers(a.o.DataDir).Data
	adopted := a.copies.AdoptCopy()
	if adopted == nil && replaced {
		a.rejoin.copied.Add(1)
	}
	a.rejoin.forget()
	control, err := a.programs.ReadControlData(ctx, a.o.pgdataPath())
	if err != nil {
		return errors.Join(adopted, err)
	}
	timelines := listTimelines(filepath.Join(a.o.pgdataPath(), "pg_wal"), control)
	return errors.Join(adopted, a.reports.EndRewind(ctx, control.SystemIdentifier, timelines))
}

// checkpointBeforeStop makes the shutdown that follows short.
func (a *postgresAgent) checkpointBeforeStop(ctx context.Context) {
	s := server.NewSession(a.o.RunDir, a.o.Port, "holdfast-switchover")
	defer s.Close()
	if err := makeCheckpoint(ctx, s); err != nil {
		a.o.Log.Info("no checkpoint before the switchover", "error", err.Error())
	}
}
