package elector

import (
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// Counts is what a member's part in the election has come to since its agent began.
type Counts struct {
	// Started counts the candidacies that began, Won those that won a term, and Lost
	// those that ended without one.
	Started, Won, Lost int64
	// Granted and Refused count the answers to requests for a vote.
	Granted, Refused int64
	// Confirmed counts the rounds without the API server in which every member that may
	// lead confirmed this primary, and Unconfirmed those in which one did not in time.
	Confirmed, Unconfirmed int64
	// Promised and Denied count the answers to a primary that asked for a confirmation.
	Promised, Denied int64
}

// tally counts steps of the state machine.
type tally struct {
	counts Counts
	// round says that a round of confirmations has no outcome yet.
	round bool
}

// countStep counts what became of a member by one input.
func (t *tally) countStep(before, after election.Phase, in election.Input, effects []election.Effect) {
	t.countCandidacy(before, after)
	asks, extends := false, false
	for _, e := range effects {
		switch e := e.(type) {
		case election.Vote:
			addOutcome(e.Reply.Granted, &t.counts.Granted, &t.counts.Refused)
		case election.Confirm:
			addOutcome(e.Reply.Confirmed, &t.counts.Promised, &t.counts.Denied)
		case election.AskConfirm:
			asks = true
		case election.ExtendGuard:
			extends = true
		}
	}
	t.countRound(after, in, asks, extends)
}

// countCandidacy counts where a candidacy begins and ends.
func (t *tally) countCandidacy(before, after election.Phase) {
	switch was, is := isCandidate(before), isCandidate(after); {
	case !was && is:
		t.counts.Started++
	case was && after == election.Promoting:
		t.counts.Won++
	case was && !is:
		t.counts.Lost++
	}
}

// countRound follows the rounds in which a primary asks for confirmations. A round that
// the API server's answer ends has no outcome.
func (t *tally) countRound(after election.Phase, in election.Input, asks, extends bool) {
	_, isReply := in.(election.ConfirmReply)
	written, isWritten := in.(election.LeaseWritten)
	switch {
	case isReply && extends:
		if t.round {
			t.counts.Confirmed++
		}
		t.round = false
	case isWritten && written.Answer == lease.Done:
		t.round = false
	case t.round && (asks || after != election.Leading):
		t.counts.Unconfirmed++
		t.round = asks
	case asks:
		t.round = true
	}
}

// isCandidate reports whether a member tries to win a term.
func isCandidate(p election.Phase) bool {
	return p == election.Stopping || p == election.Asking || p == election.Claiming || p == election.Unsure
}

func addOutcome(yes bool, granted, refused *int64) {
	if yes {
		*granted++
		return
	}
	*refused++
}
