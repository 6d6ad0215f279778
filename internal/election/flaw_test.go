package election

import (
	"testing"

	"github.com/holdfast-db/holdfast/internal/lease"
)

// flaw breaks a rule on purpose, in what the simulator passes to Step and does with
// its effects.
type flaw int

const (
	flawNone flaw = iota
	flawNoFence
	flawDeadlineFromAnswer
	flawOldLease
	flawNoQuorum
	flawLessWAL
	flawConfirmOne
	flawSkipPersist
	flawNextTimeline
	flawStartAsPrimary
	flawShortExpiry
	flawVolumeByName
	flawNoCatchUp
	flawNeverStandsBack
	flawShortenAtOnce
	flawOwnDuration
	flawRelyUnknown
)

// listFaults are the kinds of faults that show a flaw, by their places in fail;
// empty for all of them.
func (f flaw) listFaults() []int {
	const crash, cutPeers, cutAPI, cutAll, failAPI, replace, split, majority = 0, 2, 4, 6, 9, 16, 18, 19
	switch f {
	case flawVolumeByName:
		return []int{crash, cutPeers, replace, replace, majority}
	case flawNoCatchUp:
		return []int{majority}
	case flawConfirmOne:
		return []int{cutPeers, cutAPI, failAPI, split, split}
	case flawShortenAtOnce, flawOwnDuration, flawRelyUnknown:
		return []int{cutAll, cutAll, cutPeers, cutAPI}
	}
	return nil
}

// mutateInput changes an input, or what the member knows when it comes.
func (f flaw) mutateInput(n *node, in Input) Input {
	switch f {
	case flawNoFence:
		n.state.leadership.deadlines.Fence, n.state.leadership.deadlines.Soft = 1<<62, 1<<62
	case flawNeverStandsBack:
		n.state.Disk.Failed = 0
	case flawOldLease:
		n.state.Disk.Known = lease.Record{}
	case flawNoQuorum:
		if n.state.Phase == Asking {
			n.state.lease.record.Quorum = withoutVotes(n.state.lease.record.Quorum)
		}
	}
	switch in := in.(type) {
	case LeaseRead:
		if f == flawShortExpiry {
			in.Reading.Received -= 8 * second
		}
		if f == flawOwnDuration {
			in.Reading.Record.Duration, n.state.Disk.Known.Duration = 0, 0
		}
		return in
	case Acknowledged:
		if f == flawNoCatchUp { // what the Lease says of it would keep most losers away
			in.Position = lease.Position{}
		}
		return in
	case VoteReply:
		if f == flawLessWAL {
			in.WAL.Flushed = lease.Position{}
		}
		return in
	case ConfirmReply:
		if f == flawConfirmOne && in.Confirmed {
			n.state.leadership.failsafe.asked = []string{in.From}
		}
		return in
	}
	return in
}

// withoutVotes has the candidate's own vote suffice.
func withoutVotes(q *lease.Quorum) *lease.Quorum {
	if q == nil {
		return nil
	}
	return &lease.Quorum{Volumes: q.Volumes, Write: len(q.Volumes)}
}

// mutateEffects drops or changes effects.
func (f flaw) mutateEffects(n *node, in Input, effects []Effect) []Effect {
	var kept []Effect
	for _, e := range effects {
		switch e := e.(type) {
		case WriteLease:
			if f == flawShortenAtOnce {
				e.Record.Duration = n.state.Config.Timing.Duration()
				n.state.requests.pending.Duration = e.Record.Duration
				kept = append(kept, e)
				continue
			}
		case Persist:
			if f == flawSkipPersist {
				continue
			}
		case ExtendGuard:
			if w, is := in.(LeaseWritten); is && f == flawDeadlineFromAnswer && w.Answer == lease.Done {
				n.state.leadership.deadlines = n.state.Pace().Deadlines(n.clock())
				kept = append(kept, ExtendGuard{n.state.leadership.deadlines.Fence})
				continue
			}
		}
		kept = append(kept, e)
	}
	return kept
}

func TestBrokenRulesAreFound(t *testing.T) {
	for _, c := range []struct {
		rule string
		flaw flaw
	}{
		{"rule 1: a former primary starts before it holds the lease", flawStartAsPrimary},
		{"rule 2: a lease expires too early", flawShortExpiry},
		{"rule 4: a volume is known by its pod's name", flawVolumeByName},
		{"rule 5: what was promised and written is not persisted", flawSkipPersist},
		{"rule 5: an older lease elects", flawOldLease},
		{"rule 6: no fence at the deadline", flawNoFence},
		{"rule 6: deadlines count from the answer", flawDeadlineFromAnswer},
		{"rule 10: a candidate does not need the quorum", flawNoQuorum},
		{"rule 10: a candidate with less WAL leads", flawLessWAL},
		{"rule 10: a member that fails to serve never stands back", flawNeverStandsBack},
		{"rule 11: a promotion takes the next timeline", flawNextTimeline},
		{"rule 15: a quorum counts before it has what was acknowledged", flawNoCatchUp},
		{"rule 2: a shorter duration is recorded before the deadline fits it", flawShortenAtOnce},
		{"rule 2: a member waits for its own duration only", flawOwnDuration},
		{"rule 2: a holder relies on a duration that a member does not know", flawRelyUnknown},
		{"rule 16: one confirmation is enough", flawConfirmOne},
	} {
		t.Run(c.rule, func(t *testing.T) {
			for seed := range countHistories() {
				w := newWorld(seed, c.flaw)
				w.run()
				if w.violation != "" {
					t.Logf("seed %d: %s", seed, w.violation)
					return
				}
			}
			t.Errorf("not found in %d histories", countHistories())
		})
	}
}
