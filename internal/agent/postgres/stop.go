package postgres

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/election"
)

// stopPlanned stops in order. A primary gives the Lease up with the end of its WAL, so
// that another member leads at once; one that cannot stops all the same.
func (l *serverLife) stopPlanned() {
	host, log := l.a.Host, l.a.o.Log
	log.Info("stops the database")
	ctx, cancel := context.WithTimeout(context.Background(), l.a.o.StopTimeout)
	defer cancel()
	host.Store.Update(func(s *agentapi.Status) { s.State, s.Message = agentapi.StateStopping, "" })
	if l.isPrimary() && l.a.isLeading() {
		l.shortenShutdown(ctx)
		host.SetRole(v1alpha1.RoleMember)
		l.handOff(ctx)
	}
	host.SetRole(v1alpha1.RoleMember)
	deadline, _ := ctx.Deadline()
	inOrder := l.server.StopInOrder(time.Until(deadline))
	host.Store.Update(func(s *agentapi.Status) { s.Serving = false })
	log.Info("the database has stopped", "inOrder", inOrder)
	label, done := context.WithTimeout(ctx, time.Second)
	defer done()
	host.Labeller.WaitForLabel(label)
}

// releasePatience is how long the shutdown of a primary, and the release of its Lease,
// may take.
const releasePatience = 15 * time.Second

// handOff has the election shut this primary down and release the Lease, and waits until
// it does not lead any more.
func (l *serverLife) handOff(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	if err := l.a.elector.RequestSwitchover(ctx, ""); err != nil {
		l.a.o.Log.Warn("the Lease is not released: another member waits until it expires", "error", err.Error())
		return
	}
	for {
		view, changed := l.a.elector.ReadView()
		if view.Phase == election.Standby {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// shortenShutdown makes the shutdown that follows short. It may take half of the
// time that is left.
func (l *serverLife) shortenShutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.a.o.StopTimeout/2)
	defer cancel()
	if err := makeCheckpoint(ctx, l.a.control); err != nil {
		l.a.o.Log.Info("no checkpoint before the stop", "error", err.Error())
	}
}
