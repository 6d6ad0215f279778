package etcd

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// An order to go on alone was given while nobody led. It is obeyed only while
// that is still so: by what the member's own etcd hears, which is started for
// it, and by what every other member says.

// electionsMissed is how many election time-outs etcd must have run without a
// leader before the group counts as without one.
const electionsMissed = 5

// defaultElection is etcd's own election time-out.
const defaultElection = time.Second

// hearing is what etcd has heard of a leader since it was started.
type hearing struct {
	// Leader is the ID that it hears of now.
	Leader string
	// Sole says that it leads itself, and that nobody else has a vote.
	Sole bool
	// Since when it has run without a leader, by Boottime; 0 while it has one
	// or says nothing.
	Since time.Duration
	// Answered says that it has answered clients: from then on it does so with
	// or without a leader.
	Answered bool
}

// with takes in a sight.
func (h hearing) with(s sight, now time.Duration) hearing {
	next := hearing{Answered: h.Answered || s.Status != nil, Since: h.Since}
	switch {
	case s.Status == nil && (s.Members == nil || h.Answered || s.Led):
		next.Since = 0
	case s.Status != nil && s.Status.Leader != 0:
		next.Leader, next.Since = hex(s.Status.Leader), 0
		next.Sole = leads(s.Status) && voters(s.Members) == 1
	case h.Since == 0:
		next.Since = now
	}
	return next
}

func voters(list []etcdapi.GroupMember) int {
	count := 0
	for _, m := range list {
		if !m.Learner {
			count++
		}
	}
	return count
}

// objection to dropping the other members; empty for none.
func (h hearing) objection(now, election time.Duration) string {
	switch {
	case h.Leader != "":
		return "the quorum is back: " + h.Leader + " leads"
	case h.Since == 0 || now-h.Since < electionsMissed*election:
		return "it is not sure yet that no member leads"
	}
	return ""
}

// election time-out that etcd runs with.
func (c choice) election() time.Duration {
	if n, err := strconv.Atoi(c.Parameters["election-timeout"]); err == nil && n > 0 {
		return time.Duration(n) * time.Millisecond
	}
	return defaultElection
}

// othersObject asks every other member whether somebody leads the group of the
// data; empty when nobody says so. Those that think that it is this one are
// behind.
func othersObject(ctx context.Context, others []string, data logState, ask func(ctx context.Context, pod string) (agentapi.Status, error)) string {
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

// obey asks for another run when the member is ordered to go on alone, and
// nothing speaks against it.
func (l *life) obey(ctx context.Context, d decision, f facts) {
	objection := ""
	if f.recovers() && d.Action == actStart {
		l.mu.Lock()
		heard := l.heard
		l.mu.Unlock()
		if heard.Sole {
			l.finishAlone(ctx, *f.Recovery)
			return
		}
		if objection = heard.objection(clock.Boottime(), l.choice.election()); objection == "" {
			objection = l.gate.object(ctx, f.Volume.Log)
		}
		if objection == "" {
			l.log.Warn("stops to go on alone", "order", f.Recovery.Token)
			l.gate.leaderless = f.Recovery.Token
			l.again()
			return
		}
		objection = "does not go on alone as ordered: " + objection
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.objection != objection && objection != "" {
		l.log.Warn(objection, "order", f.Recovery.Token)
	}
	l.objection = objection
}

// finishAlone brings an order to its end that was cut off: whoever is the only
// one with a vote has gone on alone. Clients may have written since, so etcd is
// not forced again: that drops what it does not know to be agreed on after a
// crash, and whoever leads alone has told clients of that, too.
func (l *life) finishAlone(ctx context.Context, order etcdapi.Recovery) {
	l.mu.Lock()
	l.objection = ""
	l.mu.Unlock()
	look, cancel := context.WithTimeout(ctx, dropLimit)
	defer cancel()
	_, list, err := l.local.members(look, l.local.peer)
	if err != nil || voters(list) != 1 || !l.dropOthers(ctx, order.MemberID) {
		return // the next look tries again
	}
	if err := recovered(l.o.DataDir, order.Token); err != nil {
		l.log.Warn("cannot mark the order as carried out", "error", err.Error())
		return
	}
	l.log.Warn("has gone on alone", "order", order.Token)
	l.Store.Update(func(s *agentapi.Status) { s.Recovered = order.Token })
}
