package mysql

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/serving"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// labelLimit is how long a stop waits until the pod is out of the Services.
	labelLimit = 2 * time.Second
	// leaveLimit is how long a stop waits for the group: without a majority it does not
	// answer.
	leaveLimit = 10 * time.Second
	// idleStopLimit is how long a server may take to shut down that serves no client.
	idleStopLimit = 20 * time.Second
)

// stopPlanned stops in order: the lead to another member, out of the Services, out of the
// group, and only then the server. Finish ends what uses the server.
func (r *serverRun) stopPlanned(finish func()) {
	r.o.Log.Info("stops MySQL")
	finish() // what would bring the server back into the group
	r.Store.Update(func(s *agentapi.Status) {
		s.State, s.Message, s.Hold, s.Serving = agentapi.StateStopping, "", "", false
	})
	ctx, cancel := context.WithTimeout(context.Background(), switchTimeout)
	defer cancel()
	if o := r.member.current(); r.member.isUp() && serving.IsPrimary(o) && len(o.View.Members) > 1 {
		if err := r.switchOver(ctx, o, "", agent.StopInterval); err != nil {
			r.o.Log.Warn("the lead was not moved: the group elects another primary", "error", err.Error())
		}
	}
	r.leads.Store(false)
	r.SetRole(v1alpha1.RoleMember)
	label, done := context.WithTimeout(context.Background(), labelLimit)
	r.Labeller.WaitForLabel(label)
	done()
	r.leaveGroup()
	r.Store.Update(markDown)
	inOrder := r.mysqld.StopInOrder(r.stopLimit())
	r.o.Log.Info("MySQL has stopped", "inOrder", inOrder)
}

// stopLimit is how long the server may take to shut down. One that is about to join, or that
// recovers its data, serves no client, and may not answer for a minute: it is killed sooner.
func (r *serverRun) stopLimit() time.Duration {
	if r.member.current().State == group.Online {
		return r.o.StopTimeout
	}
	return min(r.o.StopTimeout, idleStopLimit)
}

// leaveGroup takes the server out of the group, so that the others need not expel it.
func (r *serverRun) leaveGroup() {
	if !r.member.isUp() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	if err := r.client().Leave(ctx); err != nil {
		r.o.Log.Info("the server did not leave the group", "error", err.Error())
	}
}
