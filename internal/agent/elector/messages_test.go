package elector

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// All of a reply arrives but how far replay may reach, which the candidate does not need.
func TestVoteReplyArrivesWhole(t *testing.T) {
	reply := election.VoteReply{
		Term: 2, Granted: true, Vetoed: true, Competes: true, Known: lease.Age{Term: 3, Revision: 4}, Promised: 5, Timeline: 6,
		WAL: election.WAL{Flushed: lease.Position{Timeline: 7, LSN: 8}, Timelines: []int64{1, 7}}, NoFailover: true, SystemIdentifier: "s",
	}
	for i, value := 0, reflect.ValueOf(reply); i < value.NumField(); i++ {
		if name := value.Type().Field(i).Name; name != "From" && value.Field(i).IsZero() {
			t.Errorf("this test does not send %s", name)
		}
	}
	if diff := cmp.Diff(reply, decodeVoteReply(encodeVoteReply(reply))); diff != "" {
		t.Error(diff)
	}
}
