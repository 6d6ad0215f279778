package postgresapi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The keys of the messages stay as they are: members of two versions elect together.
func TestElectionMessagesKeepTheirKeys(t *testing.T) {
	header := ElectionHeader{Format: ElectionFormat, Pod: "orders-1", From: "v1", To: "v0"}
	for _, c := range []struct {
		name          string
		message, into any
		wire          string
	}{
		{"vote request", &VoteRequest{ElectionHeader: header, Term: 3, Timeline: 4, Lease: ObservedLease{UID: "u", ResourceVersion: "12", Term: 2, Revision: 5}, Flushed: WALPoint{Timeline: 3, Position: 1<<64 - 1}},
			&VoteRequest{}, `{"format":1,"pod":"orders-1","from":"v1","to":"v0","term":3,"timeline":4,"lease":{"uid":"u","resourceVersion":"12","term":2,"revision":5},"flushed":{"timeline":3,"position":18446744073709551615}}`},
		{"vote reply", &VoteReply{ElectionHeader: header, Term: 3, Granted: true, Vetoed: true, KnownTerm: 2, KnownRevision: 5, HighestTerm: 6, HighestTimeline: 7,
			Flushed: WALPoint{Timeline: 3, Position: 96}, Timelines: []int64{1, 3}, NoFailover: true, SystemIdentifier: "7"},
			&VoteReply{}, `{"format":1,"pod":"orders-1","from":"v1","to":"v0","term":3,"granted":true,"vetoed":true,"knownTerm":2,"knownRevision":5,"highestTerm":6,"highestTimeline":7,"flushed":{"timeline":3,"position":96},"timelines":[1,3],"noFailover":true,"systemIdentifier":"7"}`},
		{"vote reply of a candidate", &VoteReply{ElectionHeader: header, Term: 3, Competes: true},
			&VoteReply{}, `{"format":1,"pod":"orders-1","from":"v1","to":"v0","term":3,"granted":false,"vetoed":false,"competes":true,"knownTerm":0,"knownRevision":0,"highestTerm":0,"highestTimeline":0,"flushed":{"timeline":0,"position":0},"timelines":null,"noFailover":false,"systemIdentifier":""}`},
		{"confirm request", &ConfirmRequest{ElectionHeader: header, Term: 3, Sent: 1<<62 + 1},
			&ConfirmRequest{}, `{"format":1,"pod":"orders-1","from":"v1","to":"v0","term":3,"sent":4611686018427387905}`},
		{"confirm reply", &ConfirmReply{ElectionHeader: header, Term: 3, Sent: 1<<62 + 1, Confirmed: true},
			&ConfirmReply{}, `{"format":1,"pod":"orders-1","from":"v1","to":"v0","term":3,"sent":4611686018427387905,"confirmed":true}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			written, err := json.Marshal(c.message)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.wire, string(written)); diff != "" {
				t.Error(diff)
			}
			if err := json.Unmarshal([]byte(c.wire), c.into); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.message, c.into); diff != "" {
				t.Error(diff)
			}
		})
	}
}
