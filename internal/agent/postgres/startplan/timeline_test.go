package startplan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// course is what a decision comes to where a timeline matters.
type course struct {
	Action      Action
	Hold        agentapi.Hold
	NewTimeline bool
	Request     string
}

const (
	starts, holdsBehind, waits = "starts", "holds", "waits"
	begins, asked              = "begins a timeline", "begins a timeline as requested"
)

var courses = map[string]course{
	starts:      {Action: ActStartPrimary},
	holdsBehind: {Action: ActHold, Hold: agentapi.HoldDataStale},
	waits:       {Action: ActWait},
	begins:      {Action: ActStartPrimary, NewTimeline: true},
	asked:       {Action: ActStartPrimary, NewTimeline: true, Request: "now"},
}

// leads is a holder of the Lease whose data goes to 0/60, as the Lease says.
func leads() Observation {
	o := Observation{BinaryMajor: 17, Config: Config{Known: true}, Volume: restingAt(dataOf(ours), at(1, "0/50"))}
	o.Lease = leaseclient.Record{Claim: leaseclient.ClaimMine, SystemIdentifier: ours, Timeline: 1, Checkpoint: "0/50", Flushed: "0/60", Term: 4}
	o.End = lsn.Extent{Point: at(1, "0/60"), Reach: at(1, "0/60").Position}
	o.Leader = datavolume.LeaderRecord{Term: 4}
	o.PodUID, o.Boot = "uid-0", "boot"
	o.Members = []MemberWAL{{Pod: "orders-1", Known: true, End: at(1, "0/60")}, {Pod: "orders-2", Known: true}}
	return o
}

func TestDecideTimeline(t *testing.T) {
	request := &postgresapi.OlderDataRequest{ID: "now", Pod: "orders-0"}
	silent := func(o *Observation) { o.Members[0] = MemberWAL{Pod: "orders-1"} }
	cases := []struct {
		name   string
		change func(*Observation)
		want   string
	}{
		{"all answered, and no member has more", func(*Observation) {}, starts},
		{"a cluster of one member asks no other", func(o *Observation) { o.Members = nil }, starts},
		{"a member has more of the timeline", func(o *Observation) { o.Members[0].End = at(1, "0/61") }, holdsBehind},
		{"a member is on a later timeline", func(o *Observation) { o.Members[0].End = at(2, "0/10") }, holdsBehind},
		{"a member kept what was given up on an earlier timeline",
			func(o *Observation) {
				o.Volume.Control.Timeline, o.End.Timeline, o.Lease.Timeline = 2, 2, 2
				o.Members[0].End = at(1, "0/90")
			}, starts},
		{"what was flushed in the middle of a record is no more than the volume has",
			func(o *Observation) {
				o.End.Position, o.End.Reach = 0x58, 0x60
			}, starts},
		{"a request that is carried out asks nothing of data that is stale anew",
			func(o *Observation) {
				o.Members[0].End, o.Request, o.Leader.Request = at(1, "0/61"), request, "now"
			}, holdsBehind},
		{"a member that is held for its data has more",
			func(o *Observation) {
				o.Members[0].End, o.Members[0].Without = at(1, "0/61"), at(1, "0/55")
			}, begins},
		{"a member that is held for its data has more, and nothing was exchanged since",
			func(o *Observation) {
				o.Members[0].End, o.Members[0].Without, o.Continues = at(1, "0/61"), at(1, "0/55"), true
			}, starts},
		{"a member that is held for its data has no more", func(o *Observation) { o.Members[0].Without = at(1, "0/55") }, starts},
		{"a member that is held for its data has more, and another one, too",
			func(o *Observation) {
				o.Members[0].End, o.Members[0].Without, o.Members[1].End = at(1, "0/90"), at(1, "0/55"), at(1, "0/61")
			}, holdsBehind},
		{"a member that is held for its data has more, and a primary led without it that had more, too",
			func(o *Observation) {
				o.Members[0].End, o.Members[0].Without = at(1, "0/61"), at(1, "0/90")
			}, holdsBehind},
		{"a request that is carried out asks nothing of a promotion that was interrupted later",
			func(o *Observation) {
				o.Members[0].End, o.Request = at(1, "0/61"), request
				o.Leader = datavolume.LeaderRecord{Term: 4, Pending: 2, Reserved: 2, Request: "now"}
			}, holdsBehind},
		{"a member has more, and a request says to go on", func(o *Observation) { o.Members[0].End, o.Request = at(1, "0/61"), request }, asked},
		{"the Lease has more", func(o *Observation) { o.Lease.Flushed = "0/61" }, holdsBehind},
		{"the Lease has more, and a request says to go on", func(o *Observation) { o.Lease.Flushed, o.Request = "0/61", request }, asked},
		{"the request was taken up, and its promotion interrupted",
			func(o *Observation) {
				o.Lease.Flushed, o.Leader = "0/61", datavolume.LeaderRecord{Term: 4, Pending: 2, Reserved: 2, Request: "now", Requested: true}
			}, asked},
		{"a request asks nothing of data that is not stale", func(o *Observation) { o.Request = request }, starts},
		{"a member does not answer yet", func(o *Observation) { silent(o); o.Patient = true }, waits},
		{"a member does not answer", silent, begins},
		{"one member does not answer, and another has more", func(o *Observation) { silent(o); o.Members[1].End = at(1, "0/70") }, holdsBehind},
		{"a member does not answer after a shutdown in order",
			func(o *Observation) {
				silent(o)
				o.Patient, o.Volume.Control.State = true, server.StateShutDown
				o.Taken = leaseclient.Record{Timeline: 1, ShutdownPosition: "0/50"}
			}, starts},
		{"a member does not answer after another shutdown in order",
			func(o *Observation) {
				silent(o)
				o.Volume.Control.State, o.Taken = server.StateShutDown, leaseclient.Record{Timeline: 1, ShutdownPosition: "0/40"}
			}, begins},
		{"a member does not answer, and the data ran after the shutdown",
			func(o *Observation) {
				silent(o)
				o.Volume.Control.State, o.Taken = "in production", leaseclient.Record{Timeline: 1, ShutdownPosition: "0/50"}
			}, begins},
		{"a member does not answer when the agent starts again",
			func(o *Observation) {
				silent(o)
				o.Taken = leaseclient.Record{HolderUID: "uid-0", Boot: "boot", Flushed: "0/60"}
			}, starts},
		{"a member does not answer after the node started again",
			func(o *Observation) {
				silent(o)
				o.Taken = leaseclient.Record{HolderUID: "uid-0", Boot: "before", Flushed: "0/60"}
			}, begins},
		{"a member does not answer after a crash of the server alone", func(o *Observation) { silent(o); o.Continues, o.Members = true, nil }, starts},
		{"a member is not there yet when data that was just made starts",
			func(o *Observation) {
				silent(o)
				o.Patient, o.Leader, o.Lease.Flushed, o.Volume.Control.State = true, datavolume.LeaderRecord{}, "", server.StateShutDown
			}, starts},
		{"a member is not there when data that ran under an earlier version starts",
			func(o *Observation) {
				silent(o)
				o.Leader, o.Lease.Flushed, o.Volume.Control.State = datavolume.LeaderRecord{}, "", "in production"
			}, begins},
		{"a promotion was interrupted", func(o *Observation) { o.Leader.Pending = 2 }, begins},
		{"a promotion was interrupted, and a member has more by now",
			func(o *Observation) {
				o.Leader.Pending, o.Members[0].End = 2, at(1, "0/70")
			}, holdsBehind},
		{"the record on the Lease was removed", func(o *Observation) { o.Lease.Checkpoint, o.Lease.Flushed = "", "" }, begins},
		{"the record on the Lease was removed, and a member has more",
			func(o *Observation) {
				o.Lease.Checkpoint, o.Lease.Flushed, o.Members[0].End = "", "", at(1, "0/70")
			}, holdsBehind},
		{"the Lease was put back to an earlier term", func(o *Observation) { o.Lease.Term = 3 }, begins},
		{"data that has never led has no record to lose", func(o *Observation) {
			o.Lease.Checkpoint, o.Lease.Flushed, o.Leader = "", "", datavolume.LeaderRecord{}
		}, starts},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := leads()
			c.change(&o)
			got := PlanNext(o)
			if diff := cmp.Diff(courses[c.want], course{got.Action, got.Hold, got.NewTimeline, got.Request}); diff != "" {
				t.Errorf("(-want +got):\n%s\nmessage: %s", diff, got.Message)
			}
		})
	}
}

// A hold for older data names the member and both positions.
func TestDecideTimelineNamesWhoHasMore(t *testing.T) {
	o := leads()
	o.Members[0].End = at(1, "0/7A")
	for _, text := range []string{"orders-1", "0/60 on timeline 1", "0/7A on timeline 1", "holdfast.dev/continue-with-older-data"} {
		if got := PlanNext(o).Message; !strings.Contains(got, text) {
			t.Errorf("%q does not hold %s", got, text)
		}
	}
}

func TestNextTimelineIsHigherThanAnyKnown(t *testing.T) {
	for name, change := range map[string]func(*Observation) map[uint32]wal.History{
		"of the Lease":              func(o *Observation) map[uint32]wal.History { o.Lease.Timeline = 6; return nil },
		"reserved on the Lease":     func(o *Observation) map[uint32]wal.History { o.Lease.Reserved = 6; return nil },
		"reserved on the volume":    func(o *Observation) map[uint32]wal.History { o.Leader.Reserved = 6; return nil },
		"of a member":               func(o *Observation) map[uint32]wal.History { o.Members[0].End.Timeline = 6; return nil },
		"of the data":               func(o *Observation) map[uint32]wal.History { o.Volume.Control.Timeline = 6; return nil },
		"that the data has been on": func(o *Observation) map[uint32]wal.History { o.End.Timeline = 6; return nil },
		"of a history":              func(*Observation) map[uint32]wal.History { return map[uint32]wal.History{6: nil} },
	} {
		o := leads()
		if got := ChooseTimeline(o, change(&o)); got != 7 {
			t.Errorf("a timeline %s: %d", name, got)
		}
	}
}
