package elector

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// countedStep is one step of the state machine, from the phase that the one before it
// led to.
type countedStep struct {
	to      election.Phase
	in      election.Input
	effects []election.Effect
}

func TestStepsAreCounted(t *testing.T) {
	extend := []election.Effect{election.ExtendGuard{}}
	ask := []election.Effect{election.AskConfirm{To: "v1"}, election.AskConfirm{To: "v2"}}
	confirm := countedStep{election.Leading, election.ConfirmReply{Confirmed: true}, extend}
	vote := func(granted bool) []election.Effect {
		return []election.Effect{election.Vote{Reply: election.VoteReply{Granted: granted}}}
	}
	for name, test := range map[string]struct {
		from  election.Phase
		steps []countedStep
		want  Counts
	}{
		"a candidacy that wins is one": {election.Standby, []countedStep{
			{election.Stopping, election.Tick{}, nil}, {election.Asking, election.ReceiverStopped{}, nil}, {election.Claiming, election.VoteReply{}, nil},
			{election.Unsure, election.Tick{}, nil}, {election.Claiming, election.LeaseRead{}, nil}, {election.Promoting, election.LeaseWritten{}, extend}, {election.Leading, election.Promoted{}, nil},
		}, Counts{Started: 1, Won: 1}},
		"one that another member's ends, too": {election.Standby, []countedStep{
			{election.Stopping, election.Tick{}, nil}, {election.Asking, election.ReceiverStopped{}, nil}, {election.Voting, election.VoteRequest{}, nil},
			{election.Standby, election.ReceiverStopped{}, vote(true)}, {election.Stopping, election.Tick{}, nil}, {election.Standby, election.LeaseRead{}, nil},
		}, Counts{Started: 2, Lost: 2, Granted: 1}},
		"votes": {election.Standby, []countedStep{
			{election.Standby, election.VoteRequest{}, vote(false)}, {election.Voting, election.VoteRequest{}, nil}, {election.Standby, election.ReceiverStopped{}, vote(true)}, {election.Standby, election.VoteRequest{}, vote(false)},
		}, Counts{Granted: 1, Refused: 2}},
		"rounds that are confirmed": {election.Leading, []countedStep{
			{election.Leading, election.Tick{}, ask}, {election.Leading, election.ConfirmReply{Confirmed: true}, nil}, confirm,
			{election.Leading, election.Tick{}, ask}, confirm,
		}, Counts{Confirmed: 2}},
		"rounds that another one follows, or a fence": {election.Leading, []countedStep{
			{election.Leading, election.Tick{}, ask}, {election.Leading, election.Tick{}, ask}, confirm, {election.Leading, election.Tick{}, ask}, {election.Standby, election.Tick{}, []election.Effect{election.Fence{}}},
		}, Counts{Confirmed: 1, Unconfirmed: 2}},
		"a round that the API server makes superfluous has no outcome": {election.Leading, []countedStep{
			{election.Leading, election.Tick{}, ask}, {election.Leading, election.LeaseWritten{Answer: lease.Done}, extend}, {election.Leading, election.Tick{}, ask}, confirm,
		}, Counts{Confirmed: 1}},
		"answers to a primary that asks": {election.Standby, []countedStep{
			{election.Standby, election.ConfirmRequest{}, []election.Effect{election.Confirm{Reply: election.ConfirmReply{Confirmed: true}}}},
			{election.Standby, election.ConfirmRequest{}, []election.Effect{election.ReadLease{}, election.Confirm{}}},
		}, Counts{Promised: 1, Denied: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			counted, before := tally{}, test.from
			for _, s := range test.steps {
				counted.countStep(before, s.to, s.in, s.effects)
				before = s.to
			}
			if diff := cmp.Diff(test.want, counted.counts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What the members of a cluster count fits together, through an outage of the API
// server, too, and counting wakes no reader.
func TestMembersCountTheirElections(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, leader := startCluster(t, testRecord)
		started := Counts{}
		for _, m := range c.members {
			started.Won += m.view().Counts.Won
			started.Granted += m.view().Counts.Granted
		}
		if v := leader.view(); started.Won != 1 || started.Granted != 2 || v.Counts.Started < 1 || v.Counts.Won != 1 {
			t.Errorf("the first election counted %+v, and its winner %+v", started, v.Counts)
		}
		renewed := leader.view().Renewed
		if age := c.now() - renewed; age < 0 || age > 3*time.Second {
			t.Errorf("renewed %s ago", age)
		}
		_, changed := leader.elector.ReadView()
		for _, m := range c.members {
			m.lease.set(func(l *fakeLease) { l.cut = true })
		}
		time.Sleep(20 * time.Second)
		v := leader.view()
		if !v.IsLeading(c.now()) || v.Renewed-renewed > 3*time.Second || v.Counts.Confirmed < 10 {
			t.Errorf("after 20 s without the API server: %+v", v)
		}
		select {
		case <-changed:
			t.Error("counting is a change")
		default:
		}
		for _, m := range c.members {
			if m != leader && m.view().Counts.Promised < 10 {
				t.Errorf("%s counted %+v", m.pod, m.view().Counts)
			}
		}
		for _, m := range c.members {
			if m != leader {
				c.setLink(leader, m, false)
			}
		}
		leader.await("the end of its term", func() bool { return leader.view().Phase == election.Standby })
		if v := leader.view(); v.Counts.Unconfirmed < 1 || v.Renewed != 0 {
			t.Errorf("after its term: %+v", v)
		}
	})
}
