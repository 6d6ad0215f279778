package elector

import (
	"time"

	"github.com/holdfast-db/holdfast/internal/election"
)

// outbox keeps the order between the record on the volume and what relies on it.
//
// The state machine advances at once, in memory. Persist is written beside the loop,
// one write at a time. An effect that relies on what is persisted waits here until the
// volume has it, in order, behind every Persist of its own step and of earlier ones:
//
//   - A promise is never sent before it is durable. A vote, a confirmation, a claim and a
//     promotion come after all that the member knew when it gave them.
//   - No later effect overtakes an earlier one of these, so no later vote does.
//   - A later Persist holds all of an earlier one. If several wait, only the newest is
//     written, and its success is that of all before it.
//   - After a failed write nothing is taken from the outbox. The newest record is
//     written again until the volume takes it.
//
// To the other members an effect that waits is a slow message, and to the server a slow
// one. The protocol holds with both. When an effect leaves the outbox it is judged by
// the state of that moment: the promotion, the claim or the quorum of a term that ended
// meanwhile is dropped. So a fence ends all that waits.
//
// Other effects do not wait, even behind a Persist of their own step (see isFree). What
// they do is safe if the member crashes and forgets what it was to persist: a reading,
// a renewal or a release of a term whose claim was durable before it was sent, a fence, a
// shutdown, the guard's deadline, a question to others, and a refusal. So a volume that
// hangs does not stop them.
type outbox struct {
	entries []entry
	// writing says that a write is under way, which covers that many entries.
	writing bool
	covers  int
	// since is when the oldest record that is not on the volume was given.
	since time.Duration
	// failure is why the last write failed, and retryAt when the next is due.
	failure string
	retryAt time.Duration
}

// entry is a Persist, an effect that waits, or a client that does. Exactly one of disk,
// effect and done is set.
type entry struct {
	disk   *election.Persistent
	effect election.Effect
	// term is that of the state when the effect was given, and replies takes the answer
	// that the effect is.
	term    int64
	replies replies
	done    chan<- error
}

// isFree reports whether an effect does not rely on what is persisted. What is not
// listed waits.
func isFree(e election.Effect, phase election.Phase) bool {
	switch e := e.(type) {
	case election.Fence, election.StopServer, election.ExtendGuard,
		election.ReadLease, election.AskConfirm, election.RefuseSwitchover, election.Stall:
		return true
	case election.WriteLease:
		return phase != election.Claiming // a renewal or a release
	case election.Vote:
		return !e.Reply.Granted
	case election.Confirm:
		return !e.Reply.Confirmed
	}
	return false
}

// isEmpty reports whether everything that was persisted is on the volume.
func (b *outbox) isEmpty() bool { return len(b.entries) == 0 }

func (b *outbox) addEntry(e entry, now time.Duration) {
	if b.isEmpty() {
		b.since = now
	}
	b.entries = append(b.entries, e)
}

// startWrite is the record to write now, nil for none.
func (b *outbox) startWrite(now time.Duration) *election.Persistent {
	if b.writing || b.failure != "" && now < b.retryAt {
		return nil
	}
	for i := len(b.entries) - 1; i >= 0; i-- {
		if disk := b.entries[i].disk; disk != nil {
			b.writing, b.covers = true, i+1
			return disk
		}
	}
	return nil
}

// endWrite takes what waited for the write, up to the next record that is not on the
// volume.
func (b *outbox) endWrite(now time.Duration) []entry {
	n := b.covers
	for n < len(b.entries) && b.entries[n].disk == nil {
		n++
	}
	durable := b.entries[:n:n]
	b.entries = b.entries[n:]
	b.writing, b.failure, b.since = false, "", now
	return durable
}

// failWrite keeps all that waits, apart from clients, which it returns.
func (b *outbox) failWrite(reason string, retryAt time.Duration) []entry {
	b.writing, b.failure, b.retryAt = false, reason, retryAt
	var kept, clients []entry
	for _, e := range b.entries {
		if e.done != nil {
			clients = append(clients, e)
		} else {
			kept = append(kept, e)
		}
	}
	b.entries = kept
	return clients
}

// isLate reports whether the volume has not taken a record for that long.
func (b *outbox) isLate(now, limit time.Duration) bool {
	return !b.isEmpty() && now-b.since >= limit
}
