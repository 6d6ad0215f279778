package postgres

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

const (
	observeInterval = 500 * time.Millisecond
	// positionAge is how old a position in an answer may be.
	positionAge = 100 * time.Millisecond
	// pendingInterval is between two checks of settings that wait for a restart.
	pendingInterval = 10 * time.Second
)

// positionCache keeps a burst of questions off the database.
type positionCache struct {
	mu sync.Mutex
	at time.Time
}

// refreshPosition brings the position of a primary up to date; of a replica,
// how far its WAL goes.
func (a *postgresAgent) refreshPosition(ctx context.Context) {
	status := a.Store.Get()
	if !status.Serving {
		return
	}
	a.position.mu.Lock()
	defer a.position.mu.Unlock()
	if status.Role != v1alpha1.RolePrimary {
		a.refreshReceived(ctx)
		return
	}
	if time.Since(a.position.at) < positionAge {
		return
	}
	query, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var position int64
	err := a.positions.Do(query, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select (pg_current_wal_flush_lsn() - '0/0')::int8").Scan(&position)
	})
	if ctx.Err() != nil {
		return // the client that asked has gone
	}
	a.Store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.PositionOld = err != nil })
		if err == nil {
			s.Position, a.position.at = uint64(position), time.Now()
		}
	})
}

// flushRecord has a primary write a record to its WAL and flush it, and says
// whether it did. The session commits by its own disk alone, and is of no other
// use: it may wait for a disk that hangs.
func (a *postgresAgent) flushRecord(ctx context.Context) bool {
	if status := a.Store.Get(); !status.Serving || status.Role != v1alpha1.RolePrimary {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s := server.NewSession(a.o.RunDir, a.o.Port, "holdfast-flush")
	defer s.Close()
	err := s.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "select pg_logical_emit_message(true, 'holdfast', '')")
		return err
	})
	if err != nil {
		a.log.Warn("the primary did not flush a record that the operator asked for", "error", err.Error())
	}
	return err == nil
}

// refreshReceived brings up to date how far the WAL of a replica goes: a member
// that would lead asks for it.
func (a *postgresAgent) refreshReceived(ctx context.Context) {
	query, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	var received int64
	err := a.positions.Do(query, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select coalesce((greatest(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn()) - '0/0')::int8, 0)").Scan(&received)
	})
	if err != nil {
		return // what was observed last stands
	}
	a.Store.Update(func(s *agentapi.Status) {
		changeReplication(s, func(r *postgresapi.ReplicationStatus) {
			if r.WALEnd != nil {
				r.WALEnd = lsn.ChooseFurthest(r.WALEnd, lsn.Point{Timeline: r.WALEnd.Timeline, Position: uint64(received)})
			}
		})
	})
}

// serverObservation is what one look at the database shows.
type serverObservation struct {
	Recovery  bool
	Position  int64
	Received  int64 // of a replica: the end of its log, replayed or not
	Timeline  int64
	Receiving bool
}

const observationQuery = `select r.recovery,
	case when r.recovery then coalesce((pg_last_wal_replay_lsn() - '0/0')::int8, 0)
	     else (pg_current_wal_flush_lsn() - '0/0')::int8 end,
	case when r.recovery then coalesce((greatest(pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn()) - '0/0')::int8, 0) else 0 end,
	case when r.recovery then coalesce((select received_tli from pg_stat_wal_receiver), (select timeline_id from pg_control_checkpoint()))
	     else ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::int end::int8,
	exists (select from pg_stat_wal_receiver where status = 'streaming')
	from (select pg_is_in_recovery() as recovery) r`

func (l *life) queryServer(ctx context.Context) (serverObservation, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var o serverObservation
	err := l.postgresAgent.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, observationQuery).Scan(&o.Recovery, &o.Position, &o.Received, &o.Timeline, &o.Receiving)
	})
	return o, err
}

// observeServer reports what the database does until ctx ends.
func (l *life) observeServer(ctx context.Context) {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	var pending time.Time
	prepared := l.prepared
	for {
		observed, err := l.queryServer(ctx)
		if ctx.Err() != nil {
			return
		}
		if l.primary {
			l.observePrimary(observed, err)
		} else {
			l.observeReplica(ctx, observed, err)
		}
		if err == nil {
			l.watchAltered(ctx)
		}
		if err == nil && time.Since(pending) > pendingInterval {
			pending = time.Now()
			l.observePending(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-prepared:
			prepared = nil
		}
	}
}

func (l *life) isPrepared() bool {
	select {
	case <-l.prepared:
		return true
	default:
		return false
	}
}

// observePrimary: a primary serves once its accounts and slots are ensured.
func (l *life) observePrimary(observed serverObservation, err error) {
	prepared := l.isPrepared()
	if err == nil && !observed.Recovery {
		l.flushed.setPosition(lsn.Point{Timeline: observed.Timeline, Position: uint64(observed.Position)})
	}
	if serving, message := l.health.Serving(); !serving && prepared {
		l.reportHung(message)
		return
	}
	l.Store.Update(func(s *agentapi.Status) {
		s.Serving = err == nil && prepared
		switch {
		case err != nil:
			s.Message = "the database does not answer"
			return
		case !prepared:
			s.State, s.Message = agentapi.StateRecovering, "prepares accounts and slots"
			return
		}
		s.State, s.Message, s.Hold = agentapi.StateRunning, "", ""
		s.Position, s.Lag = uint64(observed.Position), 0
		changeReplication(s, func(r *postgresapi.ReplicationStatus) { r.Timeline = observed.Timeline })
	})
	if err == nil && prepared && l.Store.Get().Role != v1alpha1.RolePrimary {
		l.log.Info("takes writes")
		l.SetRole(v1alpha1.RolePrimary)
	}
}

// reportHung takes a server that accepts no new connection out of its Services.
func (l *life) reportHung(message string) {
	l.Store.Update(func(s *agentapi.Status) {
		s.State, s.Message, s.Serving = agentapi.StateHung, message, false
	})
	l.SetRole(v1alpha1.RoleMember)
}

// follower is what a replica knows of the primary that it follows.
type follower struct {
	tracker lagTracker
	silence silence
	primary lsn.Point // where its log ended when it was asked last
	// primaryUID is that of the pod that said so.
	primaryUID string
	before     uint64 // what the replica had replayed at the look before
	stall      stall
}

// followsPrimary says whether what a replica holds is surely the primary's. One that is
// ahead of what the primary says a moment later, or of one that sends nothing, or
// that receives a timeline which the primary has left, would serve what was never,
// or is no longer, true.
func (f *follower) followsPrimary(observed serverObservation) bool {
	switch {
	case f.before == 0, f.primary.Position > 0 && f.before > f.primary.Position:
		return false
	case observed.Receiving:
		return observed.Timeline == f.primary.Timeline
	default:
		return uint64(observed.Position) <= f.tracker.newest
	}
}

// observeReplica compares the replica with its primary.
func (l *life) observeReplica(ctx context.Context, observed serverObservation, err error) {
	view := l.askPrimary(ctx)
	now := clock.Boottime()
	f := &l.follower
	lag := lagReading{}
	if err != nil {
		l.proof, f.stall = divergedProof{}, stall{}
	} else {
		lag = f.tracker.readLag(now, uint64(observed.Position))
		l.watchStream(observed.Receiving)
	}
	same := err == nil && l.watchOwnData(ctx, now, observed, view == viewServing)
	lag.Known = lag.Known && view == viewServing && f.followsPrimary(observed) && same
	if err == nil {
		f.before = uint64(observed.Position)
	}
	if serving, message := l.health.Serving(); !serving {
		l.reportHung(message)
		return
	}
	before := l.Store.Get().Role
	role := chooseRole(before, err == nil, view, lag)
	source := l.knownPrimary()
	l.Store.Update(func(s *agentapi.Status) {
		s.Serving = err == nil
		s.State, s.Message = replicaState(err == nil, observed.Receiving, s.DiskFull, role, source)
		s.Role, s.Hold, s.Lag = role, "", -1
		if lag.Known {
			s.Lag = lag.Lag.Seconds()
		}
		if err == nil {
			s.Position = uint64(observed.Position)
		}
		changeReplication(s, func(r *postgresapi.ReplicationStatus) {
			if err == nil {
				r.Timeline = observed.Timeline
				r.WALEnd = lsn.ChooseFurthest(r.WALEnd, lsn.Point{Timeline: observed.Timeline, Position: uint64(observed.Received)})
			}
			r.Source = ""
			if observed.Receiving {
				r.Source = source
			}
		})
	})
	if role != before {
		l.log.Info("role", "role", role, "primary", int(view), "lagKnown", lag.Known, "lag", lag.Lag.String())
	}
	l.Labeller.SetRole(role)
	if err == nil && observed.Receiving {
		l.removeOldData()
	}
}

// watchOwnData compares what a replica holds with the primary's, and says whether
// nothing of it is in doubt.
func (l *life) watchOwnData(ctx context.Context, now time.Duration, observed serverObservation, serving bool) bool {
	own := l.findOwnEnd(observed)
	if !serving || !own.Known {
		l.proof = divergedProof{}
	} else {
		l.watchDiverged(now, own.Point)
	}
	l.watchHistory(ctx, now, own, observed.Receiving, serving)
	f := &l.follower
	half := own.Half && serving && f.primary.Position > own.Position && !l.Store.Get().DiskFull
	if f.stall = f.stall.recordObservation(now, observed, half); half && f.stall.isProven(now) {
		l.log.Warn("what it has of a record is not continued by the primary", "position", own.String())
		f.stall = stall{}
		l.reportTrouble(troubleHalf)
	}
	return len(l.evidence.Sums) == 0 && (observed.Receiving || l.isCompared(own))
}

// watchDiverged ends the run of a replica that is proven to be ahead of its
// primary: what it has must not be written over.
func (l *life) watchDiverged(now time.Duration, own lsn.Point) {
	l.proof = l.proof.recordPositions(now, own, l.follower.primary)
	if !l.proof.isProven(now) {
		return
	}
	m := divergedMark{Own: l.proof.mark, Primary: l.follower.primary}
	if err := writeDivergedMark(l.o.DataDir, m); err != nil {
		// It is not started again while it is ahead, mark or not.
		l.log.Error("data that is ahead of the primary is not marked", "error", err.Error())
	}
	l.log.Error("the data is ahead of the primary's: stops", "own", m.Own.String(), "primary", m.Primary.String())
	select {
	case l.restart <- struct{}{}:
	default:
	}
}

// replicaState puts a replica's situation into words.
func replicaState(serving, receiving, full bool, role, source string) (agentapi.State, string) {
	switch {
	case full && role != v1alpha1.RoleReplica:
		return agentapi.StateCatchingUp, "has no disk space left for what " + source + " sends"
	case !serving:
		return agentapi.StateRecovering, "replays what it has"
	case !receiving:
		return agentapi.StateDisconnected, "receives nothing from " + source
	case role == v1alpha1.RoleReplica:
		return agentapi.StateStreaming, ""
	default:
		return agentapi.StateCatchingUp, "follows " + source + ", and is behind"
	}
}

// askPrimary takes a sample of the primary's position.
func (l *life) askPrimary(ctx context.Context) primaryView {
	request, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
	defer cancel()
	asked := clock.Boottime()
	status, err := l.peers.Status(request, l.knownPrimary())
	f := &l.follower
	switch {
	case err == nil && status.Role == v1alpha1.RolePrimary && status.Serving:
		f.silence = silence{}
		f.tracker.recordSample(asked, status.Position)
		f.primary, f.primaryUID = pointOf(status, l.control.SystemIdentifier), status.PodUID
		l.recordPrimary(status)
		l.archive.RecordUpstream(status.Archive)
		return viewServing
	case err == nil:
		f.silence = silence{}
		return viewDown
	}
	if f.silence.since == 0 {
		f.silence = silence{since: asked, view: viewSilent}
		if f.tracker.begun {
			f.silence.since = f.tracker.last
		}
		l.log.Info("the primary does not answer", "error", err.Error())
	}
	if f.silence.gone = statusserver.Gone(err); f.silence.gone && f.silence.view == viewSilent {
		f.silence.view = viewDown
	}
	if now := clock.Boottime(); f.silence.mustCheck(now) {
		f.silence = l.askLease(ctx, f.silence, now)
	}
	return f.silence.view
}

// askLease asks the Lease what the primary's silence means.
func (l *life) askLease(ctx context.Context, s silence, now time.Duration) silence {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	record, err := l.lease.ReadRecord(ctx)
	if err != nil || record.Claim == leaseclient.ClaimMissing {
		return s.recordUnreadable(now)
	}
	if record.Claim == leaseclient.ClaimReleased {
		s.view = viewDown // it shut down in order
		return s
	}
	l.locatePrimary(record)
	return s.recordLease(now, record.Version, time.Since(record.RenewTime))
}

// observePending finds what waits for a restart, and what a client set with
// ALTER SYSTEM.
func (l *life) observePending(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var pending, altered []string
	err := l.postgresAgent.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, `select
			coalesce(array_agg(name order by name) filter (where pending_restart), '{}'),
			coalesce(array_agg(name order by name) filter (where sourcefile like '%/postgresql.auto.conf'), '{}')
			from pg_settings`).Scan(&pending, &altered)
	})
	if err != nil {
		return
	}
	pending = slices.DeleteFunc(pending, func(name string) bool {
		_, ours := l.promotion[name]
		return ours
	})
	slices.Sort(pending)
	l.Store.Update(func(s *agentapi.Status) {
		s.PendingRestart = pending
		if len(pending) == 0 {
			s.PendingRestart = nil
		}
		details := maps.Clone(s.Details)
		if details == nil {
			details = map[string]string{}
		}
		delete(details, "alterSystem")
		if len(altered) > 0 {
			details["alterSystem"] = strings.Join(altered, ",")
		}
		if len(details) == 0 {
			details = nil
		}
		s.Details = details
	})
}
