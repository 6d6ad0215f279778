package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recoverywatch"
)

// errStuck is the reason of a start in a term whose recovery made no progress.
var errStuck = errors.New("the crash recovery of this primary made no progress for " + recoverywatch.Limit.String() + ": the term ends, so that another member may lead")

// readMark reads how far a recovery of the server has come that is under way.
func (l *serverLife) readMark() recoverywatch.Mark { return recoverywatch.ReadMark(l.server.PID()) }

// isAlone reports whether the cluster declares no other member, which could lead.
func (a *postgresAgent) isAlone() bool {
	config := a.currentConfig()
	return config != nil && len(config.Members) < 2
}

// boundTerm ends a term in which no server answers and nothing brings one nearer,
// whatever the reason: an error of what a start is decided from, or a volume that hangs.
func (a *postgresAgent) boundTerm(ctx context.Context) {
	a.servers.FollowTerm(ctx, func(term int64) bool { return a.readView().Term == term && a.mayRunPrimary() && !a.isAlone() })
}

// startWatch follows the recovery of a server that starts.
type startWatch struct {
	life     *serverLife
	looked   time.Duration
	progress recoverywatch.Progress
}

func (l *serverLife) newStartWatch() *startWatch { return &startWatch{life: l} }

// isStuck looks at the recovery once a second, reports its progress, and reports whether
// that of a primary makes none. A standby keeps no other member from leading.
func (w *startWatch) isStuck() bool {
	now := clock.Boottime()
	if now-w.looked < time.Second {
		return false
	}
	w.looked = now
	if w.progress.Observe(now, w.life.readMark()) {
		w.life.a.servers.ReportProgress()
	}
	return w.life.term > 0 && !w.life.a.isAlone() && w.progress.IsStuck(now)
}

// followCrashes watches a primary that PostgreSQL starts again by itself after the crash
// of a session, and yields why its term has to end. It ends then, or with ctx.
func (l *serverLife) followCrashes(ctx context.Context, stuck chan<- error) {
	select {
	case <-ctx.Done():
		return
	case <-l.promoted:
	}
	var crashes recoverywatch.Crashes
	for clock.Sleep(ctx, time.Second) {
		err := l.pingServer(ctx)
		recovering := isRecovering(err)
		if l.a.servers.IsStopping() || err != nil && !recovering {
			continue // whether it hangs is another question
		}
		var mark recoverywatch.Mark
		if recovering {
			mark = l.readMark()
		}
		if reason := crashes.Observe(clock.Boottime(), recovering, mark); reason != "" && !l.a.isAlone() {
			stuck <- errors.New("the database of this primary crashed, and " + reason + ": the term ends, so that another member may lead")
			return
		}
	}
}

// isRecovering reports whether an answer of a server says that it accepts no session yet.
func isRecovering(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "57P03"
}
