package elector

import (
	"fmt"
	"log/slog"

	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// phaseNames are those of docs and of the text log.
var phaseNames = map[election.Phase]string{
	election.Standby: "Standby", election.Voting: "Voting", election.Stopping: "Stopping", election.Asking: "Asking",
	election.Claiming: "Claiming", election.Unsure: "Unsure", election.Promoting: "Promoting", election.Leading: "Leading",
	election.Ending: "Ending", election.Releasing: "Releasing",
}

// PhaseName is the name of a phase, as it is reported.
func PhaseName(p election.Phase) string { return phaseNames[p] }

// logPhase reports a change of the phase with its reason, and each fence.
func (c *core) logPhase(before election.State, in election.Input, effects []election.Effect) {
	for _, e := range effects {
		if _, is := e.(election.Fence); is {
			c.journal.writeLine(slog.LevelWarn, "the server is fenced", "term", before.Term(), "reason", explainFence(in))
		}
	}
	if c.state.Phase == before.Phase {
		return
	}
	c.journal.writeLine(slog.LevelInfo, "election: "+PhaseName(before.Phase)+" to "+PhaseName(c.state.Phase),
		"term", c.state.Term(), "reason", explainPhase(before, c.state, in))
}

// explainFence says why a server is fenced. What comes after the deadline is not read.
func explainFence(in election.Input) string {
	switch in := in.(type) {
	case election.ServerFailed:
		return "the server failed, or the volume or the guard did not let it lead"
	case election.LeaseRead:
		if in.Reading.Answer == lease.Done {
			return fmt.Sprintf("the Lease is that of %q in term %d, or the fence deadline has passed", in.Reading.Record.HolderUID, in.Reading.Record.Term)
		}
		return "the Lease is lost, or the fence deadline has passed"
	case election.ServerStopped:
		return "the server stopped on another timeline, or after the fence deadline"
	}
	return "the Lease was not renewed before the fence deadline, or the shutdown took too long"
}

// explainPhase says why the phase changed.
func explainPhase(before, after election.State, in election.Input) string {
	switch after.Phase {
	case election.Voting:
		r, _ := in.(election.VoteRequest)
		return fmt.Sprintf("volume %s asks for a vote in term %d", r.From, r.Term)
	case election.Stopping:
		if r, is := in.(election.ForceRequest); is {
			return "a person named this member, by request " + r.ID
		}
		return "the Lease is free: this member is a candidate"
	case election.Asking:
		return "the receiver has stopped: the volumes that may lead are asked for their votes"
	case election.Claiming:
		if before.Phase == election.Unsure {
			return "the claim was done: it is written once more"
		}
		return "the votes suffice"
	case election.Unsure:
		return "the API server did not answer the claim"
	case election.Promoting:
		return "this member won the term"
	case election.Leading:
		return "the server is the primary"
	case election.Ending:
		if _, is := in.(election.SwitchoverRequest); is {
			return "a switchover was requested"
		}
		return "the Lease was neither renewed nor confirmed by the other members in time"
	case election.Releasing:
		return "the server has stopped: the Lease is released"
	}
	return explainStandby(before, in)
}

// explainStandby says why a member went back to be a standby.
func explainStandby(before election.State, in election.Input) string {
	switch before.Phase {
	case election.Voting:
		return "the vote is given"
	case election.Stopping:
		return "the Lease changed, or this member may not lead with its data"
	case election.Asking:
		if r, is := in.(election.VoteReply); is {
			return fmt.Sprintf("the reply of volume %s ends the candidacy: granted %t, vetoed %t, WAL to %d/%d", r.From, r.Granted, r.Vetoed, r.WAL.Flushed.Timeline, r.WAL.Flushed.LSN)
		}
		return "the Lease changed, or too few members answered"
	case election.Claiming:
		if w, is := in.(election.LeaseWritten); is && w.Answer == lease.Done {
			return "the answer to the claim came too late to rely on"
		}
		return "another member changed the Lease first"
	case election.Unsure:
		return "the claim was not done"
	case election.Releasing:
		return "the Lease is released, or left to expire"
	}
	return explainFence(in)
}
