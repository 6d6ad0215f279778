package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/parameters"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/dataspace"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/servercontrol"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	observeInterval = 500 * time.Millisecond
	// pendingInterval is between two checks of settings that wait for a restart.
	pendingInterval = 10 * time.Second
)

// serverLife is one run of the database server, from its start to its stop. It begins
// as a standby, or as the primary that it was before it crashed, and may be promoted.
// What it does as a primary, and as a replica, stands in its duty.
type serverLife struct {
	a *postgresAgent
	// control is what pg_control said before the start, and term that in which the
	// server was a primary before; 0 for a standby.
	control  server.ControlData
	term     int64
	server   *server.Postmaster
	health   *health.Health
	settings *liveSettings
	altered  *alteredSettings
	troubles *troubleWatch
	roles    *rolechange.Server
	// unattached are the settings of a server that did not answer when its watch began;
	// nil for none.
	unattached *settings.Input
	// rewound is data that is not consistent yet since it was rewound; nil for other data.
	rewound *rewoundData
	// restart asks for another run; it holds one. promoted is closed at a promotion.
	restart  chan struct{}
	promoted chan struct{}
	// primary is the duty of a primary; nil before it is one. replica is that of a
	// replica.
	primary atomic.Pointer[primaryDuty]
	replica *replicaDuty
}

// newLife prepares a run as a standby, or, after a crash, as the primary of a term.
func (a *postgresAgent) newLife(control server.ControlData, term int64) *serverLife {
	l := &serverLife{
		a: a, control: control, term: term, health: health.NewHealth("PostgreSQL", a.o.Log),
		restart: make(chan struct{}, 1), promoted: make(chan struct{}),
	}
	reload := func() error { return l.server.ReloadSettings() }
	l.settings = &liveSettings{
		log: a.o.Log, host: a.Host, files: a.files, session: a.control, archive: a.archive,
		reload: reload, restart: l.requestRestart, leads: l.isPrimary, control: control,
		readControl: func(ctx context.Context) (server.ControlData, error) {
			return a.programs.ReadControlData(ctx, a.o.pgdataPath())
		},
	}
	l.altered = &alteredSettings{log: a.o.Log, store: a.Store, files: a.files, session: a.control, major: a.programs.Major, reload: reload}
	l.troubles = &troubleWatch{
		reported: make(chan trouble, 1), session: a.control, floors: control.Floors, readControl: l.settings.readControl,
	}
	l.replica = newReplicaDuty(a, l)
	if term > 0 {
		l.primary.Store(newPrimaryDuty(a, l))
		close(l.promoted)
	}
	return l
}

// isPrimary says whether the server runs as a primary now.
func (l *serverLife) isPrimary() bool { return l.primary.Load() != nil }

// requestRestart asks for another run.
func (l *serverLife) requestRestart() {
	select {
	case l.restart <- struct{}{}:
	default:
	}
}

// runServer runs the database until it ends, must end, or ctx does.
func (a *postgresAgent) runServer(ctx context.Context, l *serverLife) error {
	term := l.term
	fences, may := a.servers.BeginStart(term)
	if !may {
		return nil // the term has ended: what to start is decided anew
	}
	defer a.servers.Detach()
	bundle, _ := a.Certificates.Current()
	if err := a.files.PrepareStart(bundle); err != nil {
		return err
	}
	leader, known := a.servers.ReadFollowing()
	switch {
	case l.rewound != nil:
		l.settings.role.Upstream = a.connectLeader(l.rewound.leader).ForRewound().String()
	case known && term == 0 && leader.Pod != "":
		l.settings.role.Upstream = a.findUpstream(ctx, leader)
	}
	if term > 0 { // commits wait for the quorum of the term, from the first on
		l.settings.role.SynchronousNames = a.quorum.String()
	}
	defer l.keepQuorum()
	a.comparer.BeginRun()
	a.ReportState(agentapi.StateRecovering, "", l.describeStart())
	if err := l.startServer(ctx, fences); err != nil {
		return err
	}
	return l.watchServer(ctx)
}

// startServer tries the declared parameters, then those that worked last, as far as they are
// still tuned like that, then none: a parameter that the server only refuses when it starts
// must not keep the database down.
func (l *serverLife) startServer(ctx context.Context, fences int64) error {
	config, _ := l.a.Config.Current()
	var refused error
	proven := l.a.files.ReadProven().Follow(config.Parameters, config.Tuned)
	for i, candidate := range parameters.ListCandidates(config.Parameters, proven.Parameters) {
		in, err := l.settings.applyParameters(ctx, candidate, l.control)
		if err == nil {
			err = l.startWith(ctx, in, fences)
		}
		if err == nil || ctx.Err() != nil {
			l.settings.reportParameters(config, i == 0, refused)
			return nil
		}
		if errors.Is(err, errHung) || errors.Is(err, errStuck) || errors.Is(err, errFenced) || errors.Is(err, errRejoin) || errors.Is(err, errOtherLeader) {
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
func (l *serverLife) startWith(ctx context.Context, in settings.Input, fences int64) error {
	if err := errors.Join(l.a.files.ClearLocks(), l.altered.dropAltered()); err != nil {
		return err
	}
	l.a.archive.BeginRun(l.isPrimary())
	started, err := l.a.programs.StartPostmaster(l.a.o.pgdataPath(), l.a.files.SettingsPath(), l.a.Lock, l.readLogLine, settings.ServerArguments(in))
	if err != nil {
		return err
	}
	l.server, started.Stopping = started, l.a.archive.EndRun
	if l.a.servers.IsFencedSince(fences) {
		return errors.Join(errFenced, started.StopAtOnce())
	}
	var silent health.Answers
	watch, troubles := l.newStartWatch(), l.troubles.reported
	if l.term > 0 {
		troubles = nil // they are a replica's
	}
	for since := clock.Boottime(); ; since = clock.Boottime() {
		err := l.pingServer(ctx)
		if attached, failed := l.takeAnswer(ctx, in, err); failed != nil {
			return errors.Join(failed, started.StopAtOnce())
		} else if attached {
			return nil
		}
		silent = silent.Observe(since, clock.Boottime(), server.IsAnswer(err))
		if silent.Silent() > startLimit && !l.a.Lock.WaitsForDisk() {
			return errors.Join(errHung, started.StopAtOnce())
		}
		if watch.isStuck() {
			l.a.reports.ReportFailed(l.term)
			return errors.Join(errStuck, started.StopAtOnce())
		}
		select {
		case <-started.Done():
			return l.explainFailedStart(in, fences)
		case <-ctx.Done():
			return nil
		case t := <-troubles:
			return l.takeTrouble(t, in)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// takeTrouble takes a trouble that a standby reported while it started. One that cannot
// become consistent is left to watch; data that was rewound is not.
func (l *serverLife) takeTrouble(t trouble, in settings.Input) error {
	if l.rewound != nil {
		return errors.Join(l.judgeRewoundTrouble(t), l.server.StopAtOnce())
	}
	l.troubles.reportTrouble(t)
	l.unattached = &in
	return nil
}

// explainFailedStart says why a server ended that was starting.
func (l *serverLife) explainFailedStart(in settings.Input, fences int64) error {
	err := l.server.StopAtOnce()
	if l.a.servers.IsFencedSince(fences) {
		return errors.Join(errFenced, err)
	}
	return errors.Join(fmt.Errorf("the database does not start: %s", server.AddRemedy(l.server.EndReason(), settings.ComputeSettings(in))), err)
}

// takeAnswer gives a server that answers to the election, once its data is whole, and says
// so. It fails where the server is not to go on.
func (l *serverLife) takeAnswer(ctx context.Context, in settings.Input, answer error) (attached bool, err error) {
	if answer != nil {
		return false, l.checkRewound()
	}
	if err := l.completeRewind(ctx); err != nil {
		return false, err
	}
	l.attachServer(in)
	return true, nil
}

// startLimit is how long a server that starts may give no answer at all, not
// even that it is starting: it removes what a crash left before it answers.
const startLimit = 10 * time.Minute

var (
	// errHung is the reason of a start that was ended because the server gave no
	// answer.
	errHung = errors.New("PostgreSQL gave no answer for " + startLimit.String() + " while it started: it was killed, and is started again")
	// errFenced is the reason of a start that ended with the term of its server.
	errFenced = errors.New("the database was fenced while it started")
)

// attachServer gives a server that answers to the election.
func (l *serverLife) attachServer(in settings.Input) {
	l.roles = rolechange.NewServer(rolechange.Options{
		Log: l.a.o.Log, PGData: l.a.o.pgdataPath(), Programs: l.a.programs, Postmaster: l.server, Lock: l.a.Lock,
		Session: l.a.control, RunDir: l.a.o.RunDir, Port: l.a.o.Port,
		Started:   rolechange.Live{Upstream: in.Upstream, SynchronousNames: in.SynchronousNames},
		Configure: l.settings.configureRole,
	})
	if duty := l.primary.Load(); duty != nil {
		l.roles.AssumeQuorum(l.a.quorum)
		duty.roles = l.roles
	}
	l.a.answered = clock.Boottime()
	l.a.servers.Attach(&servercontrol.Run{
		Server: l.roles, Term: l.term, Ended: l.server.Done(), BecomePrimary: l.becomePrimary, GiveUp: l.giveUpFollowing, ReadMark: l.readMark,
	})
}

// attachLate gives a server to the election that answers only now: a trouble that was
// reported while it started may not be one. Without that its member would not vote in
// this run.
func (l *serverLife) attachLate(ctx context.Context) {
	if l.unattached == nil {
		return
	}
	for l.pingServer(ctx) != nil {
		if !clock.Sleep(ctx, observeInterval) {
			return
		}
	}
	l.attachServer(*l.unattached)
}

// keepQuorum keeps the quorum of a server for the next run in its term. It may have been
// promoted, and have ended before that is known here.
func (l *serverLife) keepQuorum() {
	if l.roles != nil {
		l.a.quorum = l.roles.CurrentQuorum()
	}
}

// becomePrimary takes in that the server was promoted.
func (l *serverLife) becomePrimary(p rolechange.Promoted) {
	l.a.promoted.Store(&p)
	l.a.reached.recordReached(nil)
	l.a.comparer.ForgetProof()
	l.primary.Store(newPrimaryDuty(l.a, l))
	l.a.archive.ChangeRole(true)
	l.a.checkpoints.requestCheckpoint() // pg_control shows the new timeline from then on
	close(l.promoted)
}

// giveUpFollowing ends a run whose data cannot follow the leader. What becomes of the
// data is decided at rest.
func (l *serverLife) giveUpFollowing(reason error) {
	l.a.o.Log.Warn("this data does not follow the leader", "error", reason.Error())
	var problem *rolechange.FollowError
	if errors.As(reason, &problem) {
		l.troubles.reportTrouble(troubleCopy)
		return
	}
	l.requestRestart()
}

// pingServer asks the server for anything.
func (l *serverLife) pingServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return l.a.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error { return c.Ping(ctx) })
}

// readLogLine hears the server's text log. It does not wait: the server would.
func (l *serverLife) readLogLine(line string) {
	l.a.Insights.Hear(line)
	if dataspace.MentionsFullVolume(line) {
		l.a.Space.SuspectFull()
	}
	l.a.logins.HearLine(line)
	l.troubles.readLogLine(line)
}

// watchServer looks after the running server, until it ends or must.
func (l *serverLife) watchServer(ctx context.Context) error {
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { l.attachLate(helpers) })
	running.Go(func() { l.observeServer(helpers) })
	running.Go(func() { l.followChanges(helpers) })
	running.Go(func() { l.freeWAL(helpers) })
	running.Go(func() { l.dropKept(helpers) })
	running.Go(func() {
		l.health.Follow(helpers, l.a.Lock, server.NewConnectionCheck(helpers, l.a.o.RunDir, l.a.o.Port).Check)
	})
	running.Go(func() { l.measureWhilePrimary(helpers) })
	stuck := make(chan error, 1)
	running.Go(func() { l.followCrashes(helpers, stuck) })
	finish := func() { stop(); running.Wait() }
	select {
	case <-ctx.Done():
		finish()
		l.stopPlanned()
		return nil
	case <-l.server.Done():
		finish()
		return l.explainEnd()
	case <-l.health.Hung():
		if l.isPrimary() {
			l.a.reports.ReportFailed(l.a.servers.LedTerm())
		}
		err := l.server.StopAtOnce()
		finish()
		return errors.Join(l.health.HungError(), err)
	case reason := <-stuck:
		l.a.reports.ReportFailed(l.a.servers.LedTerm())
		err := l.server.StopAtOnce()
		finish()
		return errors.Join(reason, err)
	case <-l.restart:
		finish()
		l.server.StopInOrder(l.a.o.StopTimeout)
		return nil
	case t := <-l.followTroubles(helpers, &running):
		finish()
		return l.newRepair().repairReplica(ctx, t)
	}
}

// explainEnd says why a server ended that was not asked to: nothing where the election
// stopped it.
func (l *serverLife) explainEnd() error {
	stopped := l.a.servers.IsStopping()
	err := l.server.StopAtOnce()
	if stopped {
		l.a.ReportState(agentapi.StateRecovering, "", "does not lead any more")
		return err
	}
	return errors.Join(fmt.Errorf("the database ended by itself: %s", l.server.EndReason()), err)
}

// measureWhilePrimary reports how much a copy of a primary's data takes.
func (l *serverLife) measureWhilePrimary(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-l.promoted:
		l.primary.Load().measureData(ctx, l.a.o.pgdataPath())
	}
}

// followTroubles yields a trouble of a replica once it is proven, and nothing of a
// primary.
func (l *serverLife) followTroubles(ctx context.Context, running *sync.WaitGroup) <-chan trouble {
	proven := make(chan trouble, 1)
	if l.isPrimary() {
		return proven
	}
	ctx, cancel := context.WithCancel(ctx)
	running.Go(func() {
		select {
		case <-l.promoted:
		case <-ctx.Done():
		}
		cancel()
	})
	running.Go(func() { l.troubles.followTroubles(ctx, proven) })
	return proven
}

// observeServer reports what the database does until ctx ends.
func (l *serverLife) observeServer(ctx context.Context) {
	ticker := time.NewTicker(observeInterval)
	defer ticker.Stop()
	var pending time.Time
	promoted := (<-chan struct{})(l.promoted)
	for {
		observed, err := server.ObserveServer(ctx, l.a.control)
		if ctx.Err() != nil {
			return
		}
		var prepared <-chan struct{}
		if l.isPrimary() && !l.a.mayRunPrimary() {
			l.a.o.Log.Error("a primary runs outside of its term: it is killed", "term", l.a.servers.LedTerm())
			_ = l.server.StopAtOnce()
			return
		}
		if duty := l.primary.Load(); duty != nil {
			duty.observePrimary(ctx, observed, err)
			prepared = duty.awaitPrepared()
			promoted = nil
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
		case <-promoted:
		}
	}
}

// followChanges applies what changes outside: configuration, certificate, password,
// membership.
func (l *serverLife) followChanges(ctx context.Context) {
	promoted := (<-chan struct{})(l.promoted)
	for {
		config, configChanged := l.a.Config.Current()
		bundle, certificateChanged := l.a.Certificates.Current()
		pause := 5 * time.Second
		if duty := l.primary.Load(); duty != nil {
			promoted = nil
			if !duty.prepareServing(ctx, config) {
				pause = time.Second
			}
		} else {
			l.replica.keepSlots(ctx, config)
		}
		if bundle != nil {
			l.settings.takeCertificate()
		}
		l.settings.takeConfig(ctx, config)
		select {
		case <-ctx.Done():
			return
		case <-configChanged:
		case <-certificateChanged:
		case <-promoted:
		case <-time.After(pause):
		}
	}
}
