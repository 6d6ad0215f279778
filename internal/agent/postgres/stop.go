package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// stopPlanned stops in order: out of the Services, a checkpoint to make the
// shutdown short, the shutdown, and only then the Lease.
func (l *life) stopPlanned() {
	l.log.Info("stops the database")
	ctx, cancel := context.WithTimeout(context.Background(), l.o.StopTimeout)
	defer cancel()
	l.Store.Update(func(s *agentapi.Status) {
		s.State, s.Message, s.Role = agentapi.StateStopping, "", v1alpha1.RoleMember
	})
	l.Labeller.SetRole(v1alpha1.RoleMember)
	label, done := context.WithTimeout(ctx, time.Second)
	l.Labeller.WaitForLabel(label)
	done()
	if l.primary {
		l.shortenShutdown(ctx)
	}
	deadline, _ := ctx.Deadline()
	inOrder := l.server.StopInOrder(time.Until(deadline))
	l.Store.Update(func(s *agentapi.Status) { s.Serving = false })
	l.log.Info("the database has stopped", "inOrder", inOrder)
	if l.primary && inOrder {
		l.releaseLease()
	}
}

// shortenShutdown makes the shutdown that follows short. It may take half of the
// time that is left.
func (l *life) shortenShutdown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.o.StopTimeout/2)
	defer cancel()
	err := l.postgresAgent.control.Do(ctx, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "set statement_timeout = 0")
		if err == nil {
			_, err = c.Exec(ctx, "checkpoint")
		}
		return err
	})
	if err != nil {
		l.log.Info("no checkpoint before the stop", "error", err.Error())
	}
}

// releaseLease gives the Lease up when pg_control confirms the shutdown.
func (l *life) releaseLease() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	control, err := l.programs.ReadControlData(ctx, l.o.pgdataPath())
	if err == nil && control.State != server.StateShutDown {
		err = fmt.Errorf("pg_control says %q", control.State)
	}
	if err == nil {
		err = l.lease.ReleaseLease(ctx, control.Timeline, control.Checkpoint)
	}
	if err != nil {
		l.log.Warn("the Lease was not released, a successor has to wait for it", "error", err.Error())
		return
	}
	l.log.Info("the Lease is released", "position", control.Checkpoint)
}
