package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/serving"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

const (
	// switchLimit is how long running transactions may hold a switchover before they are
	// ended, and switchTimeout how long all of it may take.
	switchLimit   = 10 * time.Second
	switchTimeout = 30 * time.Second
	// switchRetry is between two attempts.
	switchRetry = 5 * time.Second
)

// requests carries out what is requested of a primary.
type requests struct{ run *serverRun }

func newRequests(r *serverRun) *requests { return &requests{r} }

func (q *requests) follow(ctx context.Context) {
	for pause := time.Duration(0); clock.Sleep(ctx, pause); {
		pause = q.step(ctx)
	}
}

func (q *requests) step(ctx context.Context) time.Duration {
	o := q.run.member.current()
	config := q.run.currentConfig()
	if config == nil || config.GroupReplication == nil || !serving.IsPrimary(o) {
		if o.State == group.Online {
			q.run.reportRefused("", "")
		}
		return time.Second
	}
	request := config.GroupReplication.Switchover
	if request == nil || request.From != o.UUID {
		q.run.reportRefused("", "")
		return time.Second
	}
	if err := q.run.switchOver(ctx, o, request.Target, agent.ProxyInterval); err != nil {
		q.run.reportRefused(request.ID, err.Error())
		return switchRetry
	}
	return time.Second
}

// reportRefused reports a request that cannot be carried out now; none without a reason.
func (r *serverRun) reportRefused(id, reason string) {
	if reason == "" {
		id = ""
	}
	if now := readReport(r.Store.Get()); now.Refused == id && now.RefusedReason == reason {
		return
	}
	r.Store.Update(func(s *agentapi.Status) {
		changeReport(s, func(m *mysqlapi.MemberReport) { m.Refused, m.RefusedReason = id, reason })
	})
}

// switchOver moves the lead to a pod; to the one that is the furthest where none is named. The
// wait is that of Labeller.Withdraw.
func (r *serverRun) switchOver(ctx context.Context, o group.Observation, target string, wait time.Duration) error {
	successors, err := findSuccessors(o, r.peers.askAll(ctx, group.Record{}), target)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, switchTimeout)
	defer cancel()
	r.peers.announceSwitchover(ctx, successors)
	restore := r.Labeller.Withdraw(ctx, wait)
	defer func() { r.member.endSwitchover(restore) }()
	for _, s := range successors {
		r.o.Log.Info("moves the lead", "to", s.Pod)
		if err = r.client().SetPrimary(ctx, s.UUID, switchLimit); err == nil {
			return nil
		}
		r.o.Log.Warn("the lead was not moved", "to", s.Pod, "error", err.Error())
	}
	return err
}

// findSuccessors are the members to which the lead can be moved. The server refuses that while
// any member joins, or is not reached.
func findSuccessors(o group.Observation, found []peer, target string) ([]peer, error) {
	for _, m := range o.View.Members {
		if m.State != group.Online {
			return nil, fmt.Errorf("member %s of the group is %s: the lead can be moved when all are ONLINE", m.Address, m.State)
		}
	}
	return chooseSuccessors(o, found, target)
}

// chooseSuccessors are the members that may lead next, the one with the most transactions
// first. Each answers, and is online in the view of the primary.
func chooseSuccessors(o group.Observation, found []peer, target string) ([]peer, error) {
	found = slices.DeleteFunc(slices.Clone(found), func(p peer) bool {
		m, listed := o.View.Find(p.UUID)
		return !listed || m.State != group.Online || p.Phase != group.InGroup || p.UUID == o.UUID || p.Status.State == agentapi.StateStopping
	})
	slices.SortStableFunc(found, func(a, b peer) int { return int(b.Executed.Count() - a.Executed.Count()) })
	if target == "" {
		if len(found) == 0 {
			return nil, errors.New("no other member is online")
		}
		return found, nil
	}
	i := slices.IndexFunc(found, func(p peer) bool { return p.Pod == target })
	if i < 0 {
		return nil, fmt.Errorf("%s is not online in the group, or its agent does not answer", target)
	}
	return found[i : i+1], nil
}
