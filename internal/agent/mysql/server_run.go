package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/archiver"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/membership"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// serverRun is one run of the server.
type serverRun struct {
	*mysqlAgent
	// name of the group that the data belongs to.
	name   string
	mysqld *server.Mysqld
	db     *sql.DB
	// observing is the session that observes the group: it must not wait for one of the others,
	// for then the server would seem not to answer.
	observing *sql.DB
	health    *health.Health
	settings  *liveSettings
	persisted *membership.Persisted
	member    *memberState

	// endings asks for the end of the run; it holds one.
	endings chan ending
	began   time.Duration
}

// ending is why a run is to end.
type ending struct {
	// inOrder says that the server is to shut down; otherwise it is killed.
	inOrder bool
	replace *replacement
	err     error
}

// end asks for the end of the run. Only the first request counts.
func (r *serverRun) end(e ending) {
	select {
	case r.endings <- e:
	default:
	}
}

func (r *serverRun) client() group.Client { return group.Client{DB: r.db} }

func (r *serverRun) observer() group.Client { return group.Client{DB: r.observing} }

// runServer runs the server until it ends, must end, or ctx does, and says how long to wait
// before the next step.
func (a *mysqlAgent) runServer(ctx context.Context, v datavolume.Observation) (time.Duration, error) {
	a.ReportState(agentapi.StateRecovering, "", "starts MySQL")
	if _, err := a.writeCertificates(); err != nil {
		return 0, err
	}
	r := &serverRun{
		mysqlAgent: a, name: v.Mark.Group, health: health.NewHealth("MySQL", a.o.Log),
		endings: make(chan ending, 1), began: clock.Boottime(),
	}
	var err error
	if r.persisted, err = membership.OpenPersisted(a.o.DataDir); err != nil {
		return 0, err
	}
	r.member = newMemberState(r)
	if r.settings, err = a.startSettings(ctx, r.name); err != nil {
		return 0, err
	}
	if r.db, err = server.OpenSocket(a.o.socket()); err != nil {
		return 0, err
	}
	defer func() { _ = r.db.Close() }()
	if r.observing, err = server.OpenSocket(a.o.socket()); err != nil {
		return 0, err
	}
	defer func() { _ = r.observing.Close() }()
	r.observing.SetMaxOpenConns(1)
	if r.mysqld, err = a.programs.StartMysqld(a.Lock, a.o.settingsFile(), r.readLogLine); err != nil {
		return 0, err
	}
	return 0, r.supervise(ctx)
}

// supervise supervises the running server, until it ends or must.
func (r *serverRun) supervise(ctx context.Context) error {
	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { r.lookAfter(helpers, &running) })
	running.Go(func() { r.health.Follow(helpers, r.Lock, r.connectAnew) })
	finish := func() { stop(); running.Wait() }
	select {
	case <-ctx.Done():
		r.stopPlanned(finish)
		return nil
	case e := <-r.endings:
		if e.inOrder {
			r.stopPlanned(finish)
		} else {
			r.killServer()
			finish()
		}
		r.leads.Store(false)
		r.replace = e.replace
		return e.err
	case <-r.health.Hung():
		err := r.health.HungError() // the kill changes what is wrong
		r.killServer()
		finish()
		return err
	case <-r.mysqld.Done():
		finish()
		r.killServer()
		return r.judgeEnd()
	}
}

// lookAfter waits until the server answers, and then starts what uses it.
func (r *serverRun) lookAfter(ctx context.Context, running *sync.WaitGroup) {
	if err := r.mysqld.AwaitReady(ctx, r.db); err != nil {
		return // its end says more
	}
	r.member.setUp()
	r.settings.db = r.db
	loop := newGroupLoop(r)
	running.Go(func() { loop.follow(ctx) })
	running.Go(func() { newRecordWriter(r).follow(ctx) })
	running.Go(func() { newRequests(r).follow(ctx) })
	running.Go(func() { newUpkeep(r).follow(ctx) })
	running.Go(func() { r.archiver.Follow(ctx, archiver.NewServer(r.db, r.o.mysqlDir()), archiveRole{r}) })
}

// connectAnew tries a new connection, and fails also while the server accepts one and does not
// say where it stands in its group: then it is not known whether it leads. Before the server has
// answered once it may be silent for as long as it recovers.
func (r *serverRun) connectAnew(ctx context.Context) error {
	if !r.member.isUp() {
		return nil
	}
	if err := server.CheckConnection(ctx, r.o.socket()); err != nil {
		return err
	}
	return r.member.checkAnswers()
}

// killServer ends the server at once. Nothing is done on its volume before it has gone.
func (r *serverRun) killServer() {
	r.leads.Store(false)
	if err := r.mysqld.StopAtOnce(); err != nil {
		r.o.Log.Error("MySQL was killed", "error", err.Error())
	}
}

// judgeEnd says what it means that the server ended by itself.
func (r *serverRun) judgeEnd() error {
	reason := r.mysqld.LastError()
	if reason == "" {
		reason = fmt.Sprint(r.mysqld.Err())
	}
	if !r.member.isUp() {
		r.crashes++
		r.refused = "MySQL does not start with the declared parameters: " + reason
	}
	return errors.New("MySQL ended by itself: " + reason)
}

// fullVolume is what the server writes when a file cannot grow.
var fullVolume = newMatcher(`(?i)no space left|disk is full|disk full|errno: 28\b|error: 28\b`)

// readLogLine reads a line of the server's text log. It does not wait: the server would.
func (r *serverRun) readLogLine(line string) {
	r.Insights.Hear(line)
	if fullVolume(line) {
		r.Space.SuspectFull()
	}
}
