package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
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
	if l.isPrimary() && l.roles != nil && l.a.isLeading() {
		l.shortenShutdown(ctx)
		if len(l.a.directory.ListVolumes()) > 0 {
			host.Labeller.Withdraw(ctx, agent.StopInterval-switchTakes)
			l.shortenShutdown(ctx) // of what was written meanwhile
		}
		host.SetRole(v1alpha1.RoleMember) // replicas see no primary that is shut down
		l.switchOver(ctx)
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

// switchTakes is how long the shutdown of a primary and the promotion of another member
// take at least.
const switchTakes = 600 * time.Millisecond

// withdraw takes this primary out of its Service before another member leads.
func (a *postgresAgent) withdraw(ctx context.Context) (restore func()) {
	return a.Labeller.Withdraw(ctx, agent.ProxyInterval-switchTakes)
}

// releasePatience is how long the shutdown of a primary, and the release of its Lease,
// may take.
const releasePatience = 15 * time.Second

// switchOver has the election shut this primary down and release the Lease, and waits until
// it does not lead any more.
func (l *serverLife) switchOver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	l.awaitMembers(ctx)
	l.awaitCaughtUp(ctx)
	// It votes until it ends, and is no candidate any more.
	l.a.elector.RequestLimits(election.LimitsWanted{NoFailover: true})
	target := l.a.directory.ChooseSuccessor(l.a.reached.listReached(), strings.Split(l.a.readView().MayLead, ","), l.a.currentConfig())
	err := l.a.elector.RequestStop(ctx, target)
	if err != nil && target != "" {
		err = l.a.elector.RequestStop(ctx, "")
	}
	if err != nil {
		l.a.o.Log.Warn("the Lease is not released: another member waits until it expires", "error", err.Error())
		return
	}
	l.awaitView(ctx, func(v elector.View) bool { return v.Phase == election.Standby })
	l.a.servers.Detach() // what it holds is measured at rest from now on
	if len(l.a.directory.ListVolumes()) > 0 {
		ctx, cancel := context.WithTimeout(ctx, answerPatience)
		defer cancel()
		l.awaitView(ctx, func(v elector.View) bool { return v.Leader.UID != "" && v.Leader.UID != l.a.o.Identity.PodUID })
	}
}

// joinPatience is how long a member that stops waits for those that stream to join the
// volumes that may lead, and the synchronous quorum.
const joinPatience = 3 * time.Second

// awaitMembers waits until each member that streams may lead, and acknowledges commits in
// synchronous mode: without it, the commits of the next primary wait for this member.
func (l *serverLife) awaitMembers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	for ctx.Err() == nil {
		view, _ := l.a.elector.ReadView()
		if haveJoined(view, l.a.directory.ListVolumes(), l.a.reached.listReached()) {
			return
		}
		clock.Sleep(ctx, deadlineStep)
	}
}

// haveJoined reports whether the pods that stream may lead, and are in the quorum where there
// is one. The volumes are those of the other members, by pod.
func haveJoined(view elector.View, volumes map[string]string, streaming []string) bool {
	mayLead, quorum := strings.Split(view.MayLead, ","), strings.Split(view.Quorum, ",")
	return !slices.ContainsFunc(streaming, func(pod string) bool {
		volume := volumes[pod]
		return volume == "" || !slices.Contains(mayLead, volume) || view.Quorum != "" && !slices.Contains(quorum, volume)
	})
}

const (
	// catchUpPatience is how long a member that stops waits for a standby to come near,
	// and nearby how near, in bytes: a shutdown that waits for more takes too long.
	catchUpPatience = 30 * time.Second
	nearby          = 16 << 20
)

// awaitCaughtUp waits until a member that streams has almost all of this one's WAL.
func (l *serverLife) awaitCaughtUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, catchUpPatience)
	defer cancel()
	for ctx.Err() == nil {
		progress, err := l.roles.ReadProgress(ctx)
		isOther := func(s rolechange.StandbyStream) bool { return len(l.a.directory.ListStreaming([]string{s.Name})) == 0 }
		streams := slices.DeleteFunc(progress.Streams, isOther) // a copy is no successor
		isNear := func(s rolechange.StandbyStream) bool { return s.Flushed+nearby >= progress.Own.Position }
		if err != nil || len(streams) == 0 || slices.ContainsFunc(streams, isNear) {
			return
		}
		clock.Sleep(ctx, deadlineStep)
	}
	l.a.o.Log.Warn("no member has caught up: this one stops all the same")
}

// deadlineStep is between two checks of what a stop waits for.
const deadlineStep = 50 * time.Millisecond

// answerPatience is how long a member that has released the Lease stays to answer its
// successor, which waits for an answer longer than for its absence.
const answerPatience = 1500 * time.Millisecond

// awaitView waits for the election to come to a point, or for ctx to end.
func (l *serverLife) awaitView(ctx context.Context, is func(elector.View) bool) {
	for {
		view, changed := l.a.elector.ReadView()
		if is(view) {
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
