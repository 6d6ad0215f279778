package postgres

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/archive"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datacopy"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/divergence"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leadership"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leaderview"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/replica"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/slots"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// replicaDuty is what a running server is looked after for while it follows a primary.
type replicaDuty struct {
	log    *slog.Logger
	host   *agent.Host
	health *health.Health
	// systemIdentifier of the data.
	systemIdentifier string
	lease            leadership.LeaseStore
	view             *leaderview.View
	follower         *replica.Follower
	comparer         *divergence.Comparer
	copies           *datacopy.Copies
	archive          *archive.Archiver
	// session is the reserved connection, pod this member's, and ends is how far the
	// WAL of the others goes.
	session *server.Session
	pod     string
	ends    func() map[string]lsn.Point
	// stalled is why no member is elected; empty for no reason.
	stalled func() string
	// restart asks for the end of the run, and trouble for a repair.
	restart func()
	trouble func(trouble)
}

func newReplicaDuty(a *postgresAgent, l *serverLife) *replicaDuty {
	return &replicaDuty{
		log: a.o.Log, host: a.Host, health: l.health, systemIdentifier: l.control.SystemIdentifier, lease: a.lease, view: a.view,
		follower: a.follower, comparer: a.comparer, copies: a.copies, archive: a.archive,
		session: a.control, pod: a.o.Identity.Pod, ends: a.directory.ListEnds,
		stalled: func() string { return a.readView().Stalled }, restart: l.requestRestart, trouble: l.troubles.reportTrouble,
	}
}

// observeReplica compares the replica with its primary, and reports what it does.
func (d *replicaDuty) observeReplica(ctx context.Context, observed server.Observation, err error) {
	view := d.askPrimary(ctx, observed)
	now := clock.Boottime()
	lag := replica.Lag{}
	if err != nil {
		d.comparer.ForgetProof()
		d.follower.ForgetStall()
	} else {
		lag = d.follower.ReadLag(now, uint64(observed.Position))
	}
	same := err == nil && d.watchOwnData(ctx, now, observed, view == replica.ViewServing)
	lag.Known = lag.Known && view == replica.ViewServing && d.follower.FollowsPrimary(observed) && same
	if err == nil {
		d.follower.RecordReplayed(uint64(observed.Position))
	}
	if serving, message := d.health.Serving(); !serving {
		reportHung(d.host, message)
		return
	}
	before := d.host.Store.Get().Role
	role := replica.ChooseRole(before, err == nil, view, lag)
	d.reportReplica(observed, err == nil, role, lag)
	if role != before {
		d.log.Info("role", "role", role, "primary", int(view), "lagKnown", lag.Known, "lag", lag.Behind.String())
	}
	d.host.Labeller.SetRole(role)
	if err == nil && observed.Receiving {
		d.copies.RemoveOldData()
	}
}

// reportReplica reports what an observation showed, and the role that it comes to.
func (d *replicaDuty) reportReplica(observed server.Observation, serving bool, role string, lag replica.Lag) {
	source := d.view.PrimaryPod()
	d.host.Store.Update(func(s *agentapi.Status) {
		s.Serving = serving
		s.State, s.Message = replica.DescribeState(serving, observed.Receiving, s.DiskFull, role, source)
		s.Role, s.Hold, s.Lag = role, "", -1
		if reason := d.stalled(); strings.HasPrefix(reason, election.OlderVolume) {
			s.State, s.Hold, s.Message = agentapi.StateHeld, agentapi.HoldDataStale, describeOlder(reason)
		}
		if lag.Known {
			s.Lag = lag.Behind.Seconds()
		}
		if serving {
			s.Position = uint64(observed.Position)
		}
		changeReplication(s, func(r *postgresapi.ReplicationStatus) {
			if serving {
				r.Timeline = observed.Timeline
				r.WALEnd = lsn.ChooseFurthest(r.WALEnd, lsn.Point{Timeline: observed.Timeline, Position: uint64(observed.Received)})
			}
			r.Source = ""
			if observed.Receiving {
				r.Source = source
			}
		})
	})
}

// slotsLimit is how long it may take to keep the slots.
const slotsLimit = 5 * time.Second

// keepSlots keeps slots for the other members, so that these go on from this member,
// should it be promoted.
func (d *replicaDuty) keepSlots(ctx context.Context, config *agent.Config) {
	status := d.host.Store.Get()
	if config == nil || len(config.Members) == 0 || !status.Serving {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, slotsLimit)
	defer cancel()
	own := slots.Own{Member: d.pod, Timeline: agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&status).Timeline}
	err := d.session.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return slots.KeepSlots(ctx, c, config.Members, own, d.ends())
	})
	if err != nil && ctx.Err() == nil {
		d.log.Info("slots for the other members", "error", err.Error())
	}
}

// describeOlder says what to do about a volume that is older than the one that led.
func describeOlder(reason string) string {
	return reason + ". Bring the newer volume back, or let a member lead that has more (see spec.failover.noFailover); or, to discard what was written since and go on with this data on a new timeline, annotate the PostgresCluster with " +
		v1alpha1.AnnotationContinueWithOlderData + "=<an ID that was not used before>"
}

// watchOwnData compares what a replica holds with the primary's, and says whether
// nothing of it is in doubt.
func (d *replicaDuty) watchOwnData(ctx context.Context, now time.Duration, observed server.Observation, serving bool) bool {
	end, primaryUID := d.follower.PrimaryEnd()
	own := d.comparer.FindOwnEnd(observed)
	if !serving || !own.Known {
		d.comparer.ForgetProof()
	} else if d.comparer.WatchAhead(now, own.Point, end) {
		d.restart() // what it has must not be written over
	}
	r := divergence.RunningReplica{Own: own, Receiving: observed.Receiving, Serving: serving, Primary: d.view.PrimaryPod(), PrimaryUID: primaryUID}
	if d.comparer.WatchHistory(ctx, now, r) {
		d.restart()
	}
	half := own.Half && serving && end.Position > own.Position && !d.host.Store.Get().DiskFull
	if d.follower.WatchStall(now, observed, half) {
		d.log.Warn("what it has of a record is not continued by the primary", "position", own.String())
		d.trouble(troubleHalf)
	}
	return !d.comparer.HasEvidence() && (observed.Receiving || d.comparer.IsCompared(r))
}

// askPrimary takes a sample of the primary's position.
func (d *replicaDuty) askPrimary(ctx context.Context, observed server.Observation) replica.PrimaryView {
	request, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
	defer cancel()
	asked := clock.Boottime()
	status, err := d.view.AskPrimary(request)
	switch {
	case err == nil && status.Role == v1alpha1.RolePrimary && status.Serving:
		d.follower.RecordAnswer(asked, replica.Answer{Position: status.Position, End: leaderview.ReadEnd(status, d.systemIdentifier), PodUID: status.PodUID})
		received := int64(0)
		if observed.Receiving {
			received = observed.Timeline
		}
		d.archive.RecordUpstream(status.Archive, received)
		return replica.ViewServing
	case err == nil:
		d.follower.RecordDown()
		return replica.ViewDown
	}
	if d.follower.RecordSilence(asked, statusserver.Gone(err)) {
		d.log.Info("the primary does not answer", "error", err.Error())
	}
	if now := clock.Boottime(); d.follower.MustCheckLease(now) {
		d.askLease(ctx, now)
	}
	return d.follower.SilentView()
}

// askLease asks the Lease what the primary's silence means.
func (d *replicaDuty) askLease(ctx context.Context, now time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	reading, err := d.lease.ReadLease(ctx)
	switch {
	case err != nil || reading.Answer != lease.Done:
		d.follower.RecordUnreadable(now)
	case reading.Record.IsReleased():
		d.follower.RecordReleased()
	default:
		d.follower.RecordLease(now, reading.Version.Resource, time.Since(d.lease.ReadFacts().Renewed))
	}
}
