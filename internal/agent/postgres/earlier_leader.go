package postgres

import (
	"context"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/elector"
)

// earlierInterval is between two checks of the Lease of an earlier version.
const earlierInterval = time.Second

// readEarlier is the leader by a Lease that an agent of an earlier version holds, which
// no election knows. There is one while the agents of a cluster are replaced.
func (a *postgresAgent) readEarlier() (elector.Leader, bool) {
	facts := a.lease.ReadFacts()
	if !facts.Known || facts.HasRecord || facts.HolderUID == "" || facts.Earlier.Term == 0 || facts.Earlier.HolderPod == a.o.Identity.Pod {
		return elector.Leader{}, false
	}
	return elector.Leader{UID: facts.HolderUID, Pod: facts.Earlier.HolderPod, Term: facts.Earlier.Term, Timeline: facts.Earlier.Timeline}, true
}

// followEarlier follows such a leader, until an election knows another one, or ctx ends.
func (a *postgresAgent) followEarlier(ctx context.Context) {
	var followed elector.Leader
	for clock.Sleep(ctx, earlierInterval) && a.readView().Leader.Term == 0 {
		if leader, known := a.readEarlier(); known && leader != followed {
			followed = leader
			a.servers.Follow(leader)
		}
	}
}
