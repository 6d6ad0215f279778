package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leadership"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	observeInterval = 500 * time.Millisecond
	// pendingInterval is between two checks of settings that wait for a restart.
	pendingInterval = 10 * time.Second
)

// serverLife is one run of the database server, from its start to its stop. What it
// does as a primary, and as a replica, stands in its duty.
type serverLife struct {
	a *postgresAgent
	// control is what pg_control said before the start.
	control  server.ControlData
	server   *server.Postmaster
	health   *health.Health
	settings *liveSettings
	altered  *alteredSettings
	troubles *troubleWatch
	// restart asks for another run; it holds one.
	restart chan struct{}
	// promotion is to the timeline that this run begins, if it begins one.
	promotion *leadership.Promotion
	// primary is the duty of a primary, and replica that of a replica: one of them
	// is nil.
	primary *primaryDuty
	replica *replicaDuty
}

// newLife prepares a run as a primary or as a replica, which begins a timeline, unless
// that is 0.
func (a *postgresAgent) newLife(control server.ControlData, primary bool, begins int64) *serverLife {
	l := &serverLife{
		a: a, control: control, health: health.NewHealth("PostgreSQL", a.o.Log),
		restart: make(chan struct{}, 1), promotion: a.leadership.NewPromotion(a.programs, begins),
	}
	reload := func() error { return l.server.ReloadSettings() }
	l.settings = &liveSettings{
		log: a.o.Log, host: a.Host, files: a.files, session: a.control, view: a.view, archive: a.archive,
		connection: a.o.primaryConnection, reload: reload, leads: l.isPrimary, control: control,
		readControl: func(ctx context.Context) (server.ControlData, error) {
			return a.programs.ReadControlData(ctx, a.o.pgdataPath())
		},
	}
	l.altered = &alteredSettings{log: a.o.Log, store: a.Store, files: a.files, session: a.control, major: a.programs.Major, reload: reload}
	l.troubles = &troubleWatch{
		reported: make(chan trouble, 1), session: a.control, floors: control.Floors, readControl: l.settings.readControl,
	}
	if primary {
		l.primary = newPrimaryDuty(a, l.health)
	} else {
		l.replica = newReplicaDuty(a, l)
	}
	return l
}

// isPrimary says whether the server runs as a primary now.
func (l *serverLife) isPrimary() bool { return l.primary != nil }

// requestRestart asks for another run.
func (l *serverLife) requestRestart() {
	select {
	case l.restart <- struct{}{}:
	default:
	}
}

// runServer runs the database until it ends, must end, or ctx does. A primary is
// only started by a holder of the Lease; it begins a timeline, unless that is 0.
func (a *postgresAgent) runServer(ctx context.Context, control server.ControlData, primary bool, begins int64) error {
	if held, _ := a.lease.CheckHeld(); primary && !held {
		return nil
	}
	l := a.newLife(control, primary, begins)
	bundle, _ := a.Certificates.Current()
	if err := a.files.PrepareStart(bundle); err != nil {
		return err
	}
	a.view.BeginRun()
	a.comparer.BeginRun()
	a.leadership.SetFlushed(lsn.Point{})
	a.ReportState(agentapi.StateRecovering, "", "starts the database")
	if err := l.startServer(ctx); err != nil {
		return err
	}
	return l.watchServer(ctx)
}

// startServer tries the declared parameters, then those that worked last, then none:
// a parameter that the server only refuses when it starts must not keep the
// database down.
func (l *serverLife) startServer(ctx context.Context) error {
	config, _ := l.a.Config.Current()
	var refused error
	for i, parameters := range settings.CandidateParameters(config.Parameters, l.a.files.ReadProven()) {
		in := l.settings.buildInput(parameters, l.control)
		err := l.a.files.ApplySettings(ctx, in)
		if err == nil {
			err = l.startWith(ctx, in)
		}
		if err == nil || ctx.Err() != nil {
			l.settings.reportParameters(config, i == 0, refused)
			return nil
		}
		if errors.Is(err, errHung) {
			return err // whatever the parameters
		}
		if refused == nil {
			refused = err
		}
		l.a.o.Log.Warn("the database does not start with these parameters", "attempt", i, "error", err.Error())
	}
	return refused
}

// startWith starts the server and waits until it answers, with a replica's
// start as long as it takes to replay.
func (l *serverLife) startWith(ctx context.Context, in settings.Input) error {
	if err := errors.Join(l.a.files.ClearLocks(), l.altered.dropAltered()); err != nil {
		return err
	}
	decisive := settings.ServerArguments(in)
	promotion, err := l.promotion.PrepareTimeline(ctx)
	if err != nil {
		return err
	}
	l.a.archive.BeginRun(l.isPrimary())
	maps.Copy(decisive, promotion)
	l.settings.promotion = promotion
	started, err := l.a.programs.StartPostmaster(l.a.o.pgdataPath(), l.a.files.SettingsPath(), l.a.Lock, l.readLogLine, decisive)
	if err != nil {
		return err
	}
	l.server, started.Stopping = started, l.a.archive.EndRun
	_, lost := l.a.lease.CheckHeld()
	var silent health.Answers
	for since := clock.Boottime(); ; since = clock.Boottime() {
		err := l.pingServer(ctx)
		if err == nil {
			return l.recordFirstAnswer(ctx)
		}
		silent = silent.Observe(since, clock.Boottime(), server.IsAnswer(err))
		if silent.Silent() > startLimit && !l.a.Lock.WaitsForDisk() {
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
		case t := <-l.troubles.reported:
			// A standby that cannot become consistent is left to watch.
			l.troubles.reportTrouble(t)
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
func (l *serverLife) recordFirstAnswer(ctx context.Context) error {
	err := l.promotion.CompleteTimeline(ctx)
	if err != nil {
		return errors.Join(err, l.server.StopAtOnce())
	}
	l.a.leadership.RecordLed(l.isPrimary())
	return nil
}

// pingServer asks the server for anything.
func (l *serverLife) pingServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return l.a.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) })
}

// lostLease is the channel for a primary, and nothing for a replica.
func (l *serverLife) lostLease(lost <-chan struct{}) <-chan struct{} {
	if l.isPrimary() {
		return lost
	}
	return nil
}

// readLogLine hears the server's log.
func (l *serverLife) readLogLine(line string) {
	if dataspace.MentionsFullVolume(line) {
		l.a.Space.SuspectFull()
	}
	l.troubles.readLogLine(line)
}

// watchServer looks after the running server, until it ends or must.
func (l *serverLife) watchServer(ctx context.Context) error {
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { l.observeServer(helpers) })
	running.Go(func() { l.followChanges(helpers) })
	running.Go(func() { l.freeWAL(helpers) })
	running.Go(func() {
		l.health.Follow(helpers, l.a.Lock, func(ctx context.Context) error { return server.CheckConnection(ctx, l.a.o.RunDir, l.a.o.Port) })
	})
	if l.isPrimary() {
		running.Go(func() { l.primary.measureData(helpers, l.a.o.pgdataPath()) })
	}
	finish := func() { stop(); running.Wait() }
	_, lost := l.a.lease.CheckHeld()
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
		l.a.ReportState(agentapi.StateWaiting, "", "another member holds the Lease: the database was stopped at once")
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
		l.server.StopInOrder(l.a.o.StopTimeout)
		return nil
	case t := <-l.followTroubles(helpers, &running):
		finish()
		return l.newRepair().repairReplica(ctx, t)
	}
}

// followTroubles yields a trouble of a replica once it is proven, and nothing of a
// primary.
func (l *serverLife) followTroubles(ctx context.Context, running *sync.WaitGroup) <-chan trouble {
	proven := make(chan trouble, 1)
	if !l.isPrimary() {
		running.Go(func() { l.troubles.followTroubles(ctx, proven) })
	}
	return proven
}

// observeServer reports what the database does until ctx ends.
func (l *serverLife) observeServer(ctx context.Context) {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	var pending time.Time
	var prepared <-chan struct{}
	if l.isPrimary() {
		prepared = l.primary.prepared
	}
	for {
		observed, err := server.ObserveServer(ctx, l.a.control)
		if ctx.Err() != nil {
			return
		}
		if l.isPrimary() {
			l.primary.observePrimary(observed, err)
		} else {
			l.replica.observeReplica(ctx, observed, err)
		}
		if err == nil {
			l.altered.watchAltered(ctx)
		}
		if err == nil && time.Since(pending) > pendingInterval {
			pending = time.Now()
			l.settings.observePending(ctx)
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

// followChanges applies what changes outside: configuration, certificate, password,
// membership.
func (l *serverLife) followChanges(ctx context.Context) {
	for {
		config, configChanged := l.a.Config.Current()
		bundle, certificateChanged := l.a.Certificates.Current()
		if bundle != nil {
			l.settings.takeCertificate()
		}
		l.settings.takeConfig(ctx, config)
		pause := 5 * time.Second
		if l.isPrimary() && !l.primary.prepareServing(ctx, config) {
			pause = time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-configChanged:
		case <-certificateChanged:
		case <-l.a.view.Moved():
			if err := l.settings.followPrimary(ctx, config); err != nil {
				l.a.o.Log.Warn("does not follow the primary to its new address", "error", err.Error())
			}
		case <-time.After(pause):
		}
	}
}
