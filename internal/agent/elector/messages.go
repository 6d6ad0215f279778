package elector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// askVote sends a request for a vote beside the loop. An answer that does not come in
// time, or not from that volume, is lost.
func (c *core) askVote(e election.AskVote) {
	limit := c.state.Pace().VoteWait()
	if since, silent := c.o.Directory.FindSilence(e.To); silent && c.o.Now()-since >= c.state.Config.Timing.Silence() {
		c.mail.post(func() { c.step(election.VoterSilent{Volume: e.To, Term: e.Request.Term}, replies{}) })
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, limit)
		defer cancel()
		message := encodeVoteRequest(e.Request)
		var reply postgresapi.VoteReply
		if err := c.exchange(ctx, postgresapi.VotePath, e.To, &message.ElectionHeader, &message, &reply, &reply.ElectionHeader); err == nil {
			c.mail.post(func() { c.step(decodeVoteReply(reply), replies{}) })
		}
	})
}

// askConfirm sends a request for a confirmation. It counts only until the next round.
func (c *core) askConfirm(e election.AskConfirm) {
	limit := c.state.Pace().Renewal() / 2
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, limit)
		defer cancel()
		message := postgresapi.ConfirmRequest{Term: e.Request.Term, Sent: int64(e.Request.Sent)}
		message.From = e.Request.From
		var reply postgresapi.ConfirmReply
		if err := c.exchange(ctx, postgresapi.ConfirmPath, e.To, &message.ElectionHeader, &message, &reply, &reply.ElectionHeader); err == nil {
			c.mail.post(func() { c.step(decodeConfirmReply(reply), replies{}) })
		}
	})
}

// exchange sends a message to the pod that runs on a volume, and checks whose answer it
// is: a pod may run on another volume by now.
func (c *core) exchange(ctx context.Context, path, volume string, header *postgresapi.ElectionHeader, message, reply any, answered *postgresapi.ElectionHeader) error {
	pod, known := c.o.Directory.FindPod(volume)
	if !known {
		return fmt.Errorf("no pod is known to run on volume %s", volume)
	}
	header.Format, header.Pod, header.To = postgresapi.ElectionFormat, c.o.Identity.Pod, volume
	if err := c.o.Peers.PostPeer(ctx, pod, path, message, reply); err != nil {
		return err
	}
	switch {
	case answered.Format != postgresapi.ElectionFormat:
		return fmt.Errorf("pod %s answers in format %d, and this agent knows %d", pod, answered.Format, postgresapi.ElectionFormat)
	case answered.From != volume || answered.Pod != pod || answered.To != header.From:
		return fmt.Errorf("asked pod %s on volume %s, and %s on %s answers %s", pod, volume, answered.Pod, answered.From, answered.To)
	}
	return nil
}

// errInvalid says that a message cannot be one of a member's.
var errInvalid = errors.New("a term, a timeline or a volume is missing")

func encodeVoteRequest(r election.VoteRequest) postgresapi.VoteRequest {
	return postgresapi.VoteRequest{
		ElectionHeader: postgresapi.ElectionHeader{From: r.From}, Term: r.Term, Timeline: r.Timeline,
		Lease:   postgresapi.ObservedLease{UID: r.Base.UID, ResourceVersion: r.Base.Resource, Term: r.BaseAge.Term, Revision: r.BaseAge.Revision},
		Flushed: encodePosition(r.Flushed),
	}
}

func decodeVoteRequest(m postgresapi.VoteRequest) (election.VoteRequest, error) {
	if m.From == "" || m.Term < 1 || m.Timeline < 1 {
		return election.VoteRequest{}, errInvalid
	}
	return election.VoteRequest{
		From: m.From, Term: m.Term, Timeline: m.Timeline,
		Base:    lease.Version{UID: m.Lease.UID, Resource: m.Lease.ResourceVersion},
		BaseAge: lease.Age{Term: m.Lease.Term, Revision: m.Lease.Revision}, Flushed: decodePosition(m.Flushed),
	}, nil
}

func encodeVoteReply(r election.VoteReply) postgresapi.VoteReply {
	return postgresapi.VoteReply{
		Term: r.Term, Granted: r.Granted, Vetoed: r.Vetoed, Competes: r.Competes, KnownTerm: r.Known.Term, KnownRevision: r.Known.Revision,
		HighestTerm: r.Promised, HighestTimeline: r.Timeline, Flushed: encodePosition(r.WAL.Flushed), Timelines: r.WAL.Timelines,
		NoFailover: r.NoFailover, SystemIdentifier: r.SystemIdentifier,
	}
}

func decodeVoteReply(m postgresapi.VoteReply) election.VoteReply {
	return election.VoteReply{
		From: m.From, Term: m.Term, Granted: m.Granted, Vetoed: m.Vetoed, Competes: m.Competes, Known: lease.Age{Term: m.KnownTerm, Revision: m.KnownRevision},
		Promised: m.HighestTerm, Timeline: m.HighestTimeline, WAL: election.WAL{Flushed: decodePosition(m.Flushed), Timelines: m.Timelines},
		NoFailover: m.NoFailover, SystemIdentifier: m.SystemIdentifier,
	}
}

func decodeConfirmRequest(m postgresapi.ConfirmRequest) (election.ConfirmRequest, error) {
	if m.From == "" || m.Term < 1 {
		return election.ConfirmRequest{}, errInvalid
	}
	return election.ConfirmRequest{From: m.From, Term: m.Term, Sent: time.Duration(m.Sent)}, nil
}

func decodeConfirmReply(m postgresapi.ConfirmReply) election.ConfirmReply {
	return election.ConfirmReply{From: m.From, Term: m.Term, Sent: time.Duration(m.Sent), Confirmed: m.Confirmed, Promised: time.Duration(m.Promised)}
}

func encodePosition(p lease.Position) postgresapi.WALPoint {
	return postgresapi.WALPoint{Timeline: p.Timeline, Position: p.LSN}
}

func decodePosition(p postgresapi.WALPoint) lease.Position {
	return lease.Position{Timeline: p.Timeline, LSN: p.Position}
}
