package leadership

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

const (
	// membersPatience is how long a member that would lead waits for the answers of
	// the others.
	membersPatience = 10 * time.Second
	// membersLimit is how long they have for one answer.
	membersLimit = time.Second
)

// Peers are the other members, which say what they are.
type Peers interface {
	Status(ctx context.Context, pod string) (agentapi.Status, error)
}

// askMembers asks all members but one, this one, at once how far their data goes.
func askMembers(ctx context.Context, peers Peers, own string, pods []string, systemIdentifier string) []startplan.MemberWAL {
	ctx, cancel := context.WithTimeout(ctx, membersLimit)
	defer cancel()
	var asked sync.WaitGroup
	answers := make([]startplan.MemberWAL, 0, len(pods))
	for _, pod := range pods {
		if pod != own {
			answers = append(answers, startplan.MemberWAL{Pod: pod})
		}
	}
	for i := range answers {
		asked.Go(func() {
			if status, err := peers.Status(ctx, answers[i].Pod); err == nil {
				answers[i] = readMemberWAL(status, systemIdentifier)
			}
		})
	}
	asked.Wait()
	return answers
}

// readMemberWAL is how far the data of a member goes, by what it says.
func readMemberWAL(s agentapi.Status, systemIdentifier string) startplan.MemberWAL {
	m := startplan.MemberWAL{Pod: s.Pod}
	own := agentapi.ReadEngineStatus[postgresapi.ReplicationStatus](&s)
	switch {
	case s.SystemIdentifier != "" && s.SystemIdentifier != systemIdentifier:
		m.Known = true // nothing of this database system
	case own.WALEnd != nil:
		m.Known, m.End = true, lsn.Point{Timeline: own.WALEnd.Timeline, Position: own.WALEnd.Position}
		if own.Diverged != nil {
			m.Without = lsn.Point{Timeline: own.Diverged.Timeline, Position: own.Diverged.Position}
		}
	}
	return m
}
