package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/accounts"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// life is one run of the database server.
type life struct {
	*postgresAgent
	primary bool
	control server.ControlData
	server  *server.Postmaster
	// refused is the hash of a configuration that the server did not take.
	refused string
	// prepared is closed when a primary's accounts and slots were ensured.
	prepared chan struct{}
	once     sync.Once
	// reported carries troubles from the server's log; restart asks for another
	// run; both hold one.
	reported chan trouble
	// checkpointed is the checkpoint that was observed last, and since when.
	checkpointed   lsn.Point
	checkpointedAt time.Duration
	restart        chan struct{}
	health         *health.Health
	// alteredAt is the time of the settings of ALTER SYSTEM that hold nothing of
	// ours, and alteredTried when resetting them failed last; both are observe's.
	alteredAt, alteredTried time.Time
	// begins is the timeline that this life begins, 0 for none; promoting says
	// that the server was asked to, and promotion with which settings, which mean
	// nothing to a primary.
	begins    int64
	promoting bool
	promotion map[string]string
	// strays counts what the log says of timelines that are not the data's own;
	// the reader of the log's.
	strays int
}

// runServer runs the database until it ends, must end, or ctx does. A primary is
// only started by a holder of the Lease; it begins a timeline, unless that is 0.
func (a *postgresAgent) runServer(ctx context.Context, control server.ControlData, primary bool, begins int64) error {
	if held, _ := a.lease.CheckHeld(); primary && !held {
		return nil
	}
	l := &life{
		postgresAgent: a, primary: primary, control: control, begins: begins,
		prepared: make(chan struct{}), reported: make(chan trouble, 1), restart: make(chan struct{}, 1), health: health.NewHealth("PostgreSQL", a.log),
	}
	if err := l.prepareFiles(); err != nil {
		return err
	}
	a.withLocation((*primaryLocation).beginRun)
	a.measured, a.last = measuredWAL{}, lastRecord{}
	a.flushed.setPosition(lsn.Point{})
	a.ReportState(agentapi.StateRecovering, "", "starts the database")
	if err := l.startServer(ctx); err != nil {
		return err
	}
	return l.watchServer(ctx)
}

// prepareFiles writes what the server reads at its start, apart from the
// settings.
func (l *life) prepareFiles() error {
	return errors.Join(l.writeAccess(), l.writeTLS(), l.clearLocks(), os.Chmod(l.o.pgdataPath(), 0o700))
}

// startServer tries the declared parameters, then those that worked last, then none:
// a parameter that the server only refuses when it starts must not keep the
// database down.
func (l *life) startServer(ctx context.Context) error {
	config, _ := l.Config.Current()
	var refused error
	for i, parameters := range settings.CandidateParameters(config.Parameters, l.readProven()) {
		in := l.buildInput(parameters, l.control, l.primary)
		err := l.applySettings(ctx, in)
		if err == nil {
			err = l.startWith(ctx, in)
		}
		if err == nil || ctx.Err() != nil {
			l.reportParameters(config, i == 0, refused)
			return nil
		}
		if errors.Is(err, errHung) {
			return err // whatever the parameters
		}
		if refused == nil {
			refused = err
		}
		l.log.Warn("the database does not start with these parameters", "attempt", i, "error", err.Error())
	}
	return refused
}

// startWith starts the server and waits until it answers, with a replica's
// start as long as it takes to replay.
func (l *life) startWith(ctx context.Context, in settings.Input) error {
	if err := errors.Join(l.clearLocks(), l.dropAltered()); err != nil {
		return err
	}
	decisive := settings.ServerArguments(in)
	promotion, err := l.prepareTimeline(ctx)
	if err != nil {
		return err
	}
	l.archive.BeginRun(l.primary)
	maps.Copy(decisive, promotion)
	l.promotion = promotion
	started, err := l.programs.StartPostmaster(l.o.pgdataPath(), filepath.Join(l.o.RunDir, settingsFile), l.Lock, l.readLogLine, decisive)
	if err != nil {
		return err
	}
	l.server, started.Stopping = started, l.archive.EndRun
	_, lost := l.lease.CheckHeld()
	var silent health.Answers
	for since := clock.Boottime(); ; since = clock.Boottime() {
		err := l.pingServer(ctx)
		if err == nil {
			return l.recordFirstAnswer(ctx)
		}
		silent = silent.Observe(since, clock.Boottime(), server.IsAnswer(err))
		if silent.Silent() > startLimit && !l.Lock.WaitsForDisk() {
			return errors.Join(errHung, started.StopAtOnce())
		}
		select {
		case <-started.Done():
			err := started.StopAtOnce()
			return errors.Join(fmt.Errorf("the database does not start: %s", server.AddRemedy(started.EndReason(), settings.ComputeSettings(in))), err)
		case <-ctx.Done():
			return nil
		case <-l.lostLease(lost):
			return nil
		case t := <-l.reported:
			// A standby that cannot become consistent is left to watch.
			l.reportTrouble(t)
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// startLimit is how long a server that starts may give no answer at all, not
// even that it is starting: it removes what a crash left before it answers.
const startLimit = 10 * time.Minute

// errHung is the reason of a start that was ended because the server gave no
// answer.
var errHung = errors.New("PostgreSQL gave no answer for " + startLimit.String() + " while it started: it was killed, and is started again")

// recordFirstAnswer takes in that the server answers for the first time.
func (l *life) recordFirstAnswer(ctx context.Context) error {
	err := l.completeTimeline(ctx)
	if err != nil {
		return errors.Join(err, l.server.StopAtOnce())
	}
	l.led = l.primary
	return nil
}

// pingServer asks the server for anything.
func (l *life) pingServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return l.postgresAgent.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) })
}

// lostLease is the channel for a primary, and nothing for a replica.
func (l *life) lostLease(lost <-chan struct{}) <-chan struct{} {
	if l.primary {
		return lost
	}
	return nil
}

// reportParameters reports which parameters the server runs with.
func (l *life) reportParameters(config *agent.Config, declared bool, refused error) {
	if declared {
		l.recordProven(config.Parameters)
		l.reportInForce(config.Hash, settings.HeldBack(l.buildInput(config.Parameters, l.control, l.primary)))
		return
	}
	if refused != nil {
		l.Store.Update(func(s *agentapi.Status) { s.ConfigError = refused.Error() })
	}
	l.refused = config.Hash
}

// reportInForce reports the configuration that the server runs with. What is said of
// the archive is of that one by then: who reads both takes the last file of the
// destination before for one of the next otherwise.
func (l *life) reportInForce(hash string, waits []string) {
	l.archive.ReportStatus()
	l.Store.Update(func(s *agentapi.Status) { s.ConfigHash, s.ConfigError, s.WaitsForPrimary = hash, "", waits })
}

// watchServer looks after the running server, until it ends or must.
func (l *life) watchServer(ctx context.Context) error {
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { l.observeServer(helpers) })
	running.Go(func() { l.followChanges(helpers) })
	running.Go(func() { l.freeWAL(helpers) })
	running.Go(func() {
		l.health.Follow(helpers, l.Lock, func(ctx context.Context) error { return server.CheckConnection(ctx, l.o.RunDir, l.o.Port) })
	})
	if l.primary {
		running.Go(func() { l.measureData(helpers) })
	}
	finish := func() { stop(); running.Wait() }
	_, lost := l.lease.CheckHeld()
	select {
	case <-ctx.Done():
		finish()
		l.stopPlanned()
		return nil
	case <-l.lostLease(lost):
		err := l.server.StopAtOnce()
		finish()
		if err != nil {
			return fmt.Errorf("another member holds the Lease, and the database was killed: %w", err)
		}
		l.ReportState(agentapi.StateWaiting, "", "another member holds the Lease: the database was stopped at once")
		return nil
	case <-l.server.Done():
		finish()
		err := l.server.StopAtOnce()
		return errors.Join(fmt.Errorf("the database ended by itself: %s", l.server.EndReason()), err)
	case <-l.health.Hung():
		err := l.server.StopAtOnce()
		finish()
		return errors.Join(l.health.HungError(), err)
	case <-l.restart:
		finish()
		l.server.StopInOrder(l.o.StopTimeout)
		return nil
	case t := <-l.followTroubles(helpers, &running):
		finish()
		return l.repairReplica(ctx, t)
	}
}

// followChanges applies what changes outside: configuration, certificate, password,
// membership.
func (l *life) followChanges(ctx context.Context) {
	for {
		config, configChanged := l.Config.Current()
		bundle, certificateChanged := l.Certificates.Current()
		if bundle != nil {
			l.takeCertificate()
		}
		l.takeConfig(ctx, config)
		pause := 5 * time.Second
		if l.primary {
			if err := l.ensureAccounts(ctx, config); err != nil {
				l.log.Warn("accounts and slots", "error", err.Error())
				pause = time.Second
			} else {
				l.recordCheckpoint(ctx)
				l.once.Do(func() { close(l.prepared) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-configChanged:
		case <-certificateChanged:
		case <-l.moved:
			if err := l.followPrimary(ctx, config); err != nil {
				l.log.Warn("does not follow the primary to its new address", "error", err.Error())
			}
		case <-time.After(pause):
		}
	}
}

// checkpointAge is how old a checkpoint must be to be surely on the disk: it is
// read from a file that may not have been synchronised yet.
const checkpointAge = 4 * time.Second

// recordCheckpoint keeps on the Lease how far the data on the disk goes, so
// that an older volume is distinguished from this one.
func (l *life) recordCheckpoint(ctx context.Context) {
	var timeline int64
	var position string
	err := l.postgresAgent.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "select timeline_id::int8, checkpoint_lsn::text from pg_control_checkpoint()").Scan(&timeline, &position)
	})
	observed, now := lsn.Parse(timeline, position), clock.Boottime()
	if err != nil || observed != l.checkpointed {
		l.checkpointed, l.checkpointedAt = observed, now
		return
	}
	record, held := l.lease.LastRecord()
	// Another timeline is recorded by a renewal first, which forgets the checkpoint.
	if !held || now-l.checkpointedAt < checkpointAge || record.Timeline != timeline || !observed.Newer(lsn.Parse(timeline, record.Checkpoint)) {
		return
	}
	err = l.lease.AnnotateLease(ctx, map[string]string{leaseclient.AnnotationCheckpoint: position})
	if err != nil {
		l.log.Info("the checkpoint is not recorded yet", "error", err.Error())
	}
}

// followPrimary points a running replica at the primary's new address, with the
// parameters as they are.
func (l *life) followPrimary(ctx context.Context, config *agent.Config) error {
	var address string
	var due bool
	l.withLocation(func(w *primaryLocation) { address, due = w.nextAddress() })
	if !due || l.primary || config == nil || l.refused == config.Hash {
		return nil
	}
	in := l.buildInput(config.Parameters, l.control, l.primary)
	in.Upstream = l.o.primaryConnection(l.knownPrimary(), address, l.o.Identity.Pod)
	err := l.applySettings(ctx, in)
	if err == nil {
		err = l.reloadSettings(ctx)
	}
	if err == nil {
		l.withLocation(func(w *primaryLocation) { w.inForce = address })
		l.log.Info("looks for the primary elsewhere", "address", address)
	}
	return err
}

func (l *life) takeCertificate() {
	before := l.readTLS()
	err := l.writeTLS()
	if l.readTLS() != before {
		l.log.Info("the certificate has changed: reload")
		err = errors.Join(err, l.server.ReloadSettings())
	}
	if err != nil {
		l.log.Warn("the certificate is not taken up", "error", err.Error())
	}
}

// readTLS is what the server reads of certificates: not what only replicas
// read, whenever they connect.
func (l *life) readTLS() string {
	var all strings.Builder
	for _, name := range []string{"server.crt", "server.key", "ca.crt"} {
		data, _ := os.ReadFile(filepath.Join(l.o.RunDir, "tls", name))
		all.Write(data)
	}
	return all.String()
}

// takeConfig takes a new configuration up without a restart, as far as that
// goes.
func (l *life) takeConfig(ctx context.Context, config *agent.Config) {
	status := l.Store.Get()
	known := config != nil && status.ConfigHash == config.Hash
	if known && status.ConfigError != "" {
		// What is in force was declared again: going back repairs a refusal.
		l.refused = ""
		l.Store.Update(func(s *agentapi.Status) { s.ConfigError = "" })
	}
	if config == nil || known && len(status.WaitsForPrimary) == 0 || l.refused == config.Hash {
		return
	}
	in := l.buildInput(config.Parameters, l.readFloors(ctx), l.primary)
	waits := settings.HeldBack(in)
	if known && slices.Equal(waits, status.WaitsForPrimary) {
		return
	}
	err := l.applySettings(ctx, in)
	if err == nil {
		err = l.reloadSettings(ctx)
	}
	var refused *settings.Refusal
	switch {
	case err == nil:
		l.refused = ""
		l.observePending(ctx)
		l.reportInForce(config.Hash, waits)
		if len(l.Store.Get().PendingRestart) == 0 {
			l.recordProven(config.Parameters)
		}
		l.log.Info("configuration taken up", "hash", config.Hash)
	case errors.As(err, &refused):
		l.refused = config.Hash
		l.Store.Update(func(s *agentapi.Status) { s.ConfigError = err.Error() })
		l.log.Warn("configuration refused", "hash", config.Hash, "error", err.Error())
	default:
		l.log.Warn("configuration not taken up yet", "error", err.Error())
	}
}

// readFloors are what pg_control says now of the primary's settings: it follows
// what is replayed. What a life began with serves where it cannot be read.
func (l *life) readFloors(ctx context.Context) server.ControlData {
	if l.primary {
		return l.control
	}
	control, err := l.programs.ReadControlData(ctx, l.o.pgdataPath())
	if err != nil {
		return l.control
	}
	return control
}

// reloadSettings has the server read its settings again, and waits until it has.
func (l *life) reloadSettings(ctx context.Context) error {
	loaded := func() (t time.Time, err error) {
		err = l.postgresAgent.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
			return c.QueryRow(ctx, "select pg_conf_load_time()").Scan(&t)
		})
		return t, err
	}
	before, err := loaded()
	if err != nil {
		return err
	}
	if err := l.server.ReloadSettings(); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	for range 100 {
		waitFor(ctx, 20*time.Millisecond)
		if after, err := loaded(); err != nil || !after.Equal(before) {
			return err
		}
	}
	return errors.New("the database does not read its settings again")
}

// reportDetails reports what the data says of its first database.
func (l *life) reportDetails(found map[string]string) {
	l.Store.Update(func(s *agentapi.Status) {
		details := maps.Clone(s.Details)
		if details == nil {
			details = map[string]string{}
		}
		for _, key := range []string{postgresapi.DetailDatabase, postgresapi.DetailOwner, postgresapi.DetailAbsent} {
			delete(details, key)
		}
		maps.Copy(details, found)
		s.Details = details
	})
}

// ensureAccounts keeps roles, first database and slots of a primary.
func (l *life) ensureAccounts(ctx context.Context, config *agent.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	account, accountErr := l.readAccount()
	return l.postgresAgent.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		err := accounts.EnsureReplicationRole(ctx, c)
		if err == nil && config != nil {
			err = accounts.EnsureSlots(ctx, c, config.Members, l.o.Identity.Pod)
		}
		if err == nil && accountErr == nil {
			var details map[string]string
			if details, err = accounts.EnsureAccount(ctx, c, account); err == nil {
				l.reportDetails(details)
			}
		}
		return errors.Join(err, accountErr)
	})
}
