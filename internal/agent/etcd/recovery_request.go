package etcd

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// A request to go on alone was made while no member led. It is followed only while
// that is still so: by what the member's own etcd hears, which is started for it,
// and by what every other member says.

// electionsMissed is how many election time-outs etcd must have run without a
// leader before the group counts as without one.
const electionsMissed = 5

// defaultElection is etcd's own election time-out.
const defaultElection = time.Second

// leaderHistory is what etcd has heard of a leader since it was started.
type leaderHistory struct {
	// Leader is the ID that it hears of now.
	Leader string
	// Sole says that it leads itself, and that no other member has a vote.
	Sole bool
	// Since when it has run without a leader, by Boottime; 0 while it has one
	// or says nothing.
	Since time.Duration
	// Answered says that it has answered clients: from then on it does so with
	// or without a leader.
	Answered bool
}

// withObservation adds an observation.
func (h leaderHistory) withObservation(s serverObservation, now time.Duration) leaderHistory {
	next := leaderHistory{Answered: h.Answered || s.Status != nil, Since: h.Since}
	switch {
	case s.Status == nil && (s.Members == nil || h.Answered || s.Led):
		next.Since = 0
	case s.Status != nil && s.Status.Leader != 0:
		next.Leader, next.Since = formatID(s.Status.Leader), 0
		next.Sole = isLeading(s.Status) && countVoters(s.Members) == 1
	case h.Since == 0:
		next.Since = now
	}
	return next
}

func countVoters(list []etcdapi.GroupMember) int {
	count := 0
	for _, m := range list {
		if !m.Learner {
			count++
		}
	}
	return count
}

// describeObjection says why not to drop the other members; empty when nothing
// speaks against it.
func (h leaderHistory) describeObjection(now, election time.Duration) string {
	switch {
	case h.Leader != "":
		return "the quorum is back: " + h.Leader + " leads"
	case h.Since == 0 || now-h.Since < electionsMissed*election:
		return "it is not sure yet that no member leads"
	}
	return ""
}

// electionTimeout is the one that etcd runs with.
func (c choice) electionTimeout() time.Duration {
	if n, err := strconv.Atoi(c.Parameters["election-timeout"]); err == nil && n > 0 {
		return time.Duration(n) * time.Millisecond
	}
	return defaultElection
}

// findOthersObjection asks every other member whether the group of the data has a
// leader; empty when none says so. Those that think that it is this one are behind.
func findOthersObjection(ctx context.Context, others []string, data raftLogState, ask func(ctx context.Context, pod string) (agentapi.Status, error)) string {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answers := make(chan string)
	for _, pod := range others {
		go func() {
			s, err := ask(ctx, pod)
			if err != nil || s.SystemIdentifier != data.Cluster || readGroup(s).Group == nil || readGroup(s).Group.Leader == "" || readGroup(s).Group.Leader == data.Member {
				answers <- ""
				return
			}
			answers <- "the quorum is back: " + pod + " says that " + readGroup(s).Group.Leader + " leads"
		}()
	}
	objection := ""
	for range others {
		if answer := <-answers; answer != "" {
			objection = answer
		}
	}
	return objection
}

// followRecoveryRequest asks for another run when the member is requested to go on
// alone, and nothing speaks against it.
func (l *etcdRun) followRecoveryRequest(ctx context.Context, d plan, f observation) {
	objection := ""
	if f.mustRecover() && d.Action == actStart {
		l.mu.Lock()
		heard := l.heard
		l.mu.Unlock()
		if heard.Sole {
			l.finishRecovery(ctx, *f.Recovery)
			return
		}
		if objection = heard.describeObjection(clock.Boottime(), l.choice.electionTimeout()); objection == "" {
			objection = l.guard.findObjection(ctx, f.Volume.RaftLog)
		}
		if objection == "" {
			l.log.Warn("stops to go on alone", "request", f.Recovery.Token)
			l.guard.leaderless = f.Recovery.Token
			l.requestRestart()
			return
		}
		objection = "does not go on alone as requested: " + objection
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objection != objection && objection != "" {
		l.log.Warn(objection, "request", f.Recovery.Token)
	}
	l.objection = objection
}

// finishRecovery brings a request to its end that was cut off: a member that is the
// only one with a vote has gone on alone. Clients may have written since, so etcd is
// not forced again: that drops what it does not know to be agreed on after a crash,
// and a member that leads alone has confirmed that to clients, too.
func (l *etcdRun) finishRecovery(ctx context.Context, request etcdapi.Recovery) {
	l.mu.Lock()
	l.objection = ""
	l.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, dropLimit)
	defer cancel()
	_, list, err := l.local.fetchMembers(asking, l.local.peer)
	if err != nil || countVoters(list) != 1 || !l.dropOthers(ctx, request.MemberID) {
		return // the next check tries again
	}
	if err := markRecovered(l.o.DataDir, request.Token); err != nil {
		l.log.Warn("cannot mark the order as carried out", "error", err.Error())
		return
	}
	l.log.Warn("has gone on alone", "request", request.Token)
	l.Store.Update(func(s *agentapi.Status) { s.Recovered = request.Token })
}
