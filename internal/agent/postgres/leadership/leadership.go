package leadership

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// Options are what a Leadership is made of.
type Options struct {
	Log      *slog.Logger
	Identity identity.Identity
	// Volume of the member, and PGData, the data directory on it.
	Volume, PGData string
	Lease          *leaseclient.Lease
	Peers          Peers
	// Store takes what is reported.
	Store *statusserver.Store
}

// Leadership is what one process of an agent does about leading. It serves one
// goroutine, the loop's, apart from SetFlushed.
type Leadership struct {
	o    Options
	boot string
	// taken is the Lease as it was before this process claimed it, led says that
	// this process has led since, and askedSince when it began to ask the other
	// members; 0 before.
	taken      leaseclient.Record
	led        bool
	askedSince time.Duration
	flushed    flushedWAL
	// cluster is the UID in the first configuration: a pod of an earlier
	// cluster of the name that is about to go reads the next one's, too.
	cluster string
}

// NewLeadership has led with nothing yet. Renewals of the Lease say from now on how
// far the WAL of this member is flushed.
func NewLeadership(o Options) *Leadership {
	l := &Leadership{o: o, boot: readBootID()}
	o.Lease.RecordAtRenewal(l.flushed.annotateRenewal(l.boot))
	return l
}

// ReadLease reads the Lease. A holder that cannot read it goes by what it
// wrote: a crash of the database during an outage of the API server does not
// end the reign.
func (l *Leadership) ReadLease(ctx context.Context) leaseclient.Record {
	record, err := l.o.Lease.ReadRecord(ctx)
	if err != nil {
		l.o.Log.Info("the Lease cannot be read", "error", err.Error())
		record, _ = l.o.Lease.LastRecord()
	}
	l.o.Store.Update(reportLease(record))
	return record
}

// ClaimLease claims the Lease as it was observed, for the cluster of a UID; see
// leaseclient.Lease.ClaimLease.
func (l *Leadership) ClaimLease(ctx context.Context, observed leaseclient.Record, cluster string, forget bool) error {
	if err := l.o.Lease.ClaimLease(ctx, cluster, forget); err != nil {
		return err
	}
	record, _ := l.o.Lease.LastRecord()
	l.o.Store.Update(reportLease(record))
	l.taken, l.led, l.askedSince = observed, false, 0
	return nil
}

// RecordLed takes in whether the server that runs now is a primary.
func (l *Leadership) RecordLed(primary bool) { l.led = primary }

// SetFlushed takes in how far the WAL of a primary is on its disk, for renewals of
// the Lease; the zero value for unknown.
func (l *Leadership) SetFlushed(p lsn.Point) { l.flushed.setPosition(p) }

// ReadConfig reads what a start is decided from of the configuration, which is nil
// before the first.
func (l *Leadership) ReadConfig(config *agent.Config) startplan.Config {
	if config == nil {
		return startplan.Config{}
	}
	if l.cluster == "" {
		l.cluster = config.UID
	}
	return startplan.Config{
		Known: true, SystemIdentifier: config.SystemIdentifier,
		Cluster: config.UID, Fresh: config.Fresh && config.UID == l.cluster,
	}
}

// ObserveLeading collects what only a primary's start is decided from, beside the
// Lease: of a volume, for the configuration, which is nil before the first.
func (l *Leadership) ObserveLeading(ctx context.Context, lease leaseclient.Record, volume datavolume.Observation, config *agent.Config) (startplan.Leading, error) {
	leading := startplan.Leading{Taken: l.taken, Continues: l.led, PodUID: l.o.Identity.PodUID, Boot: l.boot}
	if volume.Content != datavolume.ContentData {
		return leading, nil
	}
	record, err := datavolume.ReadLeader(l.o.Volume)
	if err != nil {
		return leading, err
	}
	if leading.Leader = record.CompleteRecord(volume.Control); leading.Leader != record {
		if err := datavolume.WriteLeader(l.o.Volume, leading.Leader); err != nil {
			return leading, err
		}
	}
	l.o.Store.Update(reportRequest(leading.Leader))
	if config == nil {
		return leading, nil
	}
	if r := config.OlderData; r != nil && r.Pod == l.o.Identity.Pod && r.ID != "" {
		leading.Request = r
	}
	if lease.Claim == leaseclient.ClaimMine && !l.led {
		now := clock.Boottime()
		if l.askedSince == 0 {
			l.askedSince = now
		}
		leading.Members = askMembers(ctx, l.o.Peers, l.o.Identity.Pod, config.Members, volume.Control.SystemIdentifier)
		leading.Patient = now-l.askedSince < membersPatience
	}
	return leading, nil
}

// RecordBootstrap records the database system on the Lease before it runs for the
// first time. How far data goes that has led before is no measure of how far it went.
func (l *Leadership) RecordBootstrap(ctx context.Context, control server.ControlData, ledBefore bool) error {
	facts := map[string]string{v1alpha1.AnnotationSystemIdentifier: control.SystemIdentifier}
	if !ledBefore {
		facts[leaseclient.AnnotationTimeline] = fmt.Sprint(control.Timeline)
		facts[leaseclient.AnnotationCheckpoint] = control.Checkpoint
	}
	return l.o.Lease.AnnotateLease(ctx, facts)
}

// ReserveTimeline reserves a timeline, on the Lease and then on the volume,
// before anything is promoted to it. One that is not promoted to is never
// reserved again.
func (l *Leadership) ReserveTimeline(ctx context.Context, o startplan.Observation, p startplan.Plan) (int64, error) {
	histories, err := wal.ReadHistories(filepath.Join(l.o.PGData, "pg_wal"))
	if err != nil {
		return 0, err
	}
	next := startplan.ChooseTimeline(o, histories)
	if o.IsRecordLost() {
		// What was reserved before may be known to no one who answers.
		next += 16 + rand.Int64N(48) //nolint:gosec // it need not be secret
	}
	if err := l.o.Lease.AnnotateLease(ctx, map[string]string{leaseclient.AnnotationReserved: strconv.FormatInt(next, 10)}); err != nil {
		return 0, err
	}
	record := o.Leader
	record.Term, record.Reserved, record.Pending = o.Lease.Term, next, next
	record.Requested = p.Request != "" || o.Leader.Pending > 0 && o.Leader.Requested
	if p.Request != "" {
		record.Request = p.Request
	}
	l.o.Log.Warn("begins a timeline", "timeline", next, "reason", p.Message, "from", o.FindEnd().String())
	return next, datavolume.WriteLeader(l.o.Volume, record)
}

// RecordTerm keeps on the volume under which term it leads.
func (l *Leadership) RecordTerm(o startplan.Observation) error {
	if o.Leader.Term == o.Lease.Term {
		return nil
	}
	record := o.Leader
	record.Term = o.Lease.Term
	return datavolume.WriteLeader(l.o.Volume, record)
}

// ReleaseLease gives the Lease up after a stop in order, when pg_control confirms the
// shutdown.
func (l *Leadership) ReleaseLease(ctx context.Context, programs server.Programs) {
	control, err := programs.ReadControlData(ctx, l.o.PGData)
	if err == nil && control.State != server.StateShutDown {
		err = fmt.Errorf("pg_control says %q", control.State)
	}
	if err == nil {
		err = l.o.Lease.ReleaseLease(ctx, control.Timeline, control.Checkpoint)
	}
	if err != nil {
		l.o.Log.Warn("the Lease was not released, a successor has to wait for it", "error", err.Error())
		return
	}
	l.o.Store.Update(reportRelease)
	l.o.Log.Info("the Lease is released", "position", control.Checkpoint)
}

// reportLease reports what is known of the Lease.
func reportLease(r leaseclient.Record) func(*agentapi.Status) {
	var known *postgresapi.LeaseState
	if r.Claim != leaseclient.ClaimUnknown && r.Claim != leaseclient.ClaimMissing {
		known = &postgresapi.LeaseState{HolderUID: r.HolderUID, HolderPod: r.HolderPod, Term: r.Term}
	}
	return func(s *agentapi.Status) {
		agentapi.ChangeEngineStatus(s, func(own *postgresapi.ReplicationStatus) { own.Lease = known })
	}
}

// reportRelease reports that the Lease has no holder any more.
func reportRelease(s *agentapi.Status) {
	agentapi.ChangeEngineStatus(s, func(own *postgresapi.ReplicationStatus) {
		if own.Lease != nil {
			own.Lease = &postgresapi.LeaseState{HolderPod: own.Lease.HolderPod, Term: own.Lease.Term}
		}
	})
}

// reportRequest reports the request that was carried out last.
func reportRequest(r datavolume.LeaderRecord) func(*agentapi.Status) {
	return func(s *agentapi.Status) {
		if r.Pending == 0 {
			s.Recovered = r.Request
		}
	}
}
