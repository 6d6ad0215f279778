package postgres

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// releaseLimit is how long the release of the Lease may take.
const releaseLimit = 5 * time.Second

// stopPlanned stops in order: out of the Services, a checkpoint to make the
// shutdown short, the shutdown, and only then the Lease.
func (l *serverLife) stopPlanned() {
	host, log := l.a.Host, l.a.o.Log
	log.Info("stops the database")
	ctx, cancel := context.WithTimeout(context.Background(), l.a.o.StopTimeout)
	defer cancel()
	host.Store.Update(func(s *agentapi.Status) {
		s.State, s.Message, s.Role = agentapi.StateStopping, "", v1alpha1.RoleMember
	})
	host.Labeller.SetRole(v1alpha1.RoleMember)
	label, done := context.WithTimeout(ctx, time.Second)
	host.Labeller.WaitForLabel(label)
	done()
	if l.isPrimary() {
		l.shortenShutdown(ctx)
	}
	deadline, _ := ctx.Deadline()
	inOrder := l.server.StopInOrder(time.Until(deadline))
	host.Store.Update(func(s *agentapi.Status) { s.Serving = false })
	log.Info("the database has stopped", "inOrder", inOrder)
	if l.isPrimary() && inOrder {
		ctx, cancel := context.WithTimeout(context.Background(), releaseLimit)
		defer cancel()
		l.a.leadership.ReleaseLease(ctx, l.a.programs)
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
