package postgres

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/wal"
)

// course is what a decision comes to where a timeline matters.
type course struct {
	Action      action
	Hold        agentapi.Hold
	NewTimeline bool
	Request     string
}

const (
	starts, holdsBehind, waits = "starts", "holds", "waits"
	begins, asked              = "begins a timeline", "begins a timeline as requested"
)

var courses = map[string]course{
	starts:      {Action: actStartPrimary},
	holdsBehind: {Action: actHold, Hold: agentapi.HoldDataStale},
	waits:       {Action: actWait},
	begins:      {Action: actStartPrimary, NewTimeline: true},
	asked:       {Action: actStartPrimary, NewTimeline: true, Request: "now"},
}

// leads is a holder of the Lease whose data goes to 0/60, as the Lease says.
func leads() observation {
	o := observation{BinaryMajor: 17, ConfigKnown: true, Volume: restingAt(dataOf(ours), at(1, "0/50"))}
	o.Lease = leaseclient.Record{Claim: leaseclient.ClaimMine, SystemIdentifier: ours, Timeline: 1, Checkpoint: "0/50", Flushed: "0/60", Term: 4}
	o.End = lsn.Extent{Point: at(1, "0/60"), Reach: at(1, "0/60").Position}
	o.Leader = leaderRecord{Term: 4}
	o.PodUID, o.Boot = "uid-0", "boot"
	o.Members = []memberWAL{{Pod: "orders-1", Known: true, End: at(1, "0/60")}, {Pod: "orders-2", Known: true}}
	return o
}

func TestDecideTimeline(t *testing.T) {
	request := &postgresapi.OlderDataRequest{ID: "now", Pod: "orders-0"}
	silent := func(o *observation) { o.Members[0] = memberWAL{Pod: "orders-1"} }
	cases := []struct {
		name   string
		change func(*observation)
		want   string
	}{
		{"all answered, and no member has more", func(*observation) {}, starts},
		{"a cluster of one member asks no other", func(o *observation) { o.Members = nil }, starts},
		{"a member has more of the timeline", func(o *observation) { o.Members[0].End = at(1, "0/61") }, holdsBehind},
		{"a member is on a later timeline", func(o *observation) { o.Members[0].End = at(2, "0/10") }, holdsBehind},
		{"a member kept what was discarded on an earlier timeline",
			func(o *observation) {
				o.Volume.Control.Timeline, o.End.Timeline, o.Lease.Timeline = 2, 2, 2
				o.Members[0].End = at(1, "0/90")
			}, starts},
		{"what was flushed in the middle of a record is no more than the volume has",
			func(o *observation) {
				o.End.Position, o.End.Reach = 0x58, 0x60
			}, starts},
		{"a request that is carried out asks nothing of data that is stale anew",
			func(o *observation) {
				o.Members[0].End, o.Request, o.Leader.Request = at(1, "0/61"), request, "now"
			}, holdsBehind},
		{"a member that is held for its data has more",
			func(o *observation) {
				o.Members[0].End, o.Members[0].Without = at(1, "0/61"), at(1, "0/55")
			}, begins},
		{"a member that is held for its data has more, and nothing was exchanged since",
			func(o *observation) {
				o.Members[0].End, o.Members[0].Without, o.Continues = at(1, "0/61"), at(1, "0/55"), true
			}, starts},
		{"a member that is held for its data has no more", func(o *observation) { o.Members[0].Without = at(1, "0/55") }, starts},
		{"a member that is held for its data has more, and another one, too",
			func(o *observation) {
				o.Members[0].End, o.Members[0].Without, o.Members[1].End = at(1, "0/90"), at(1, "0/55"), at(1, "0/61")
			}, holdsBehind},
		{"a member that is held for its data has more, and a primary led without it that had more, too",
			func(o *observation) {
				o.Members[0].End, o.Members[0].Without = at(1, "0/61"), at(1, "0/90")
			}, holdsBehind},
		{"a request that is carried out asks nothing of a promotion that was interrupted later",
			func(o *observation) {
				o.Members[0].End, o.Request = at(1, "0/61"), request
				o.Leader = leaderRecord{Term: 4, Pending: 2, Reserved: 2, Request: "now"}
			}, holdsBehind},
		{"a member has more, and a request says to go on", func(o *observation) { o.Members[0].End, o.Request = at(1, "0/61"), request }, asked},
		{"the Lease has more", func(o *observation) { o.Lease.Flushed = "0/61" }, holdsBehind},
		{"the Lease has more, and a request says to go on", func(o *observation) { o.Lease.Flushed, o.Request = "0/61", request }, asked},
		{"the request was taken up, and its promotion interrupted",
			func(o *observation) {
				o.Lease.Flushed, o.Leader = "0/61", leaderRecord{Term: 4, Pending: 2, Reserved: 2, Request: "now", Requested: true}
			}, asked},
		{"a request asks nothing of data that is not stale", func(o *observation) { o.Request = request }, starts},
		{"a member does not answer yet", func(o *observation) { silent(o); o.Patient = true }, waits},
		{"a member does not answer", silent, begins},
		{"one member does not answer, and another has more", func(o *observation) { silent(o); o.Members[1].End = at(1, "0/70") }, holdsBehind},
		{"a member does not answer after a shutdown in order",
			func(o *observation) {
				silent(o)
				o.Patient, o.Volume.Control.State = true, server.StateShutDown
				o.Taken = leaseclient.Record{Timeline: 1, ShutdownPosition: "0/50"}
			}, starts},
		{"a member does not answer after another shutdown in order",
			func(o *observation) {
				silent(o)
				o.Volume.Control.State, o.Taken = server.StateShutDown, leaseclient.Record{Timeline: 1, ShutdownPosition: "0/40"}
			}, begins},
		{"a member does not answer, and the data ran after the shutdown",
			func(o *observation) {
				silent(o)
				o.Volume.Control.State, o.Taken = "in production", leaseclient.Record{Timeline: 1, ShutdownPosition: "0/50"}
			}, begins},
		{"a member does not answer when the agent starts again",
			func(o *observation) {
				silent(o)
				o.Taken = leaseclient.Record{HolderUID: "uid-0", Boot: "boot", Flushed: "0/60"}
			}, starts},
		{"a member does not answer after the node started again",
			func(o *observation) {
				silent(o)
				o.Taken = leaseclient.Record{HolderUID: "uid-0", Boot: "before", Flushed: "0/60"}
			}, begins},
		{"a member does not answer after a crash of the server alone", func(o *observation) { silent(o); o.Continues, o.Members = true, nil }, starts},
		{"a member is not there yet when data that was just made starts",
			func(o *observation) {
				silent(o)
				o.Patient, o.Leader, o.Lease.Flushed, o.Volume.Control.State = true, leaderRecord{}, "", server.StateShutDown
			}, starts},
		{"a member is not there when data that ran under an earlier version starts",
			func(o *observation) {
				silent(o)
				o.Leader, o.Lease.Flushed, o.Volume.Control.State = leaderRecord{}, "", "in production"
			}, begins},
		{"a promotion was interrupted", func(o *observation) { o.Leader.Pending = 2 }, begins},
		{"a promotion was interrupted, and a member has more by now",
			func(o *observation) {
				o.Leader.Pending, o.Members[0].End = 2, at(1, "0/70")
			}, holdsBehind},
		{"the record on the Lease was removed", func(o *observation) { o.Lease.Checkpoint, o.Lease.Flushed = "", "" }, begins},
		{"the record on the Lease was removed, and a member has more",
			func(o *observation) {
				o.Lease.Checkpoint, o.Lease.Flushed, o.Members[0].End = "", "", at(1, "0/70")
			}, holdsBehind},
		{"the Lease was put back to an earlier term", func(o *observation) { o.Lease.Term = 3 }, begins},
		{"data that has never led has no record to lose", func(o *observation) { o.Lease.Checkpoint, o.Lease.Flushed, o.Leader = "", "", leaderRecord{} }, starts},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := leads()
			c.change(&o)
			got := planNext(o)
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
		if got := planNext(o).Message; !strings.Contains(got, text) {
			t.Errorf("%q does not hold %s", got, text)
		}
	}
}

func TestNextTimelineIsHigherThanAnyKnown(t *testing.T) {
	for name, change := range map[string]func(*observation) map[uint32]wal.History{
		"of the Lease":              func(o *observation) map[uint32]wal.History { o.Lease.Timeline = 6; return nil },
		"reserved on the Lease":     func(o *observation) map[uint32]wal.History { o.Lease.Reserved = 6; return nil },
		"reserved on the volume":    func(o *observation) map[uint32]wal.History { o.Leader.Reserved = 6; return nil },
		"of a member":               func(o *observation) map[uint32]wal.History { o.Members[0].End.Timeline = 6; return nil },
		"of the data":               func(o *observation) map[uint32]wal.History { o.Volume.Control.Timeline = 6; return nil },
		"that the data has been on": func(o *observation) map[uint32]wal.History { o.End.Timeline = 6; return nil },
		"of a history":              func(*observation) map[uint32]wal.History { return map[uint32]wal.History{6: nil} },
	} {
		o := leads()
		if got := nextTimeline(o, change(&o)); got != 7 {
			t.Errorf("a timeline %s: %d", name, got)
		}
	}
}

func TestLeaderRecord(t *testing.T) {
	dir := t.TempDir()
	if r, err := readLeader(dir); err != nil || r != (leaderRecord{}) {
		t.Errorf("no record reads as %+v, %v", r, err)
	}
	want := leaderRecord{Term: 3, Reserved: 5, Pending: 5, Request: "now", Requested: true}
	if err := writeLeader(dir, want); err != nil {
		t.Fatal(err)
	}
	if r, err := readLeader(dir); err != nil || r != want {
		t.Errorf("it reads as %+v, %v", r, err)
	}
	if got := want.completeRecord(server.ControlData{Timeline: 4}); got != want {
		t.Errorf("complete before pg_control says so: %+v", got)
	}
	if got := want.completeRecord(server.ControlData{Timeline: 5}); got != (leaderRecord{Term: 3, Reserved: 5, Request: "now"}) {
		t.Errorf("not complete: %+v", got)
	}
	mustWrite(t, filepath.Join(dir, leaderName), "{")
	if _, err := readLeader(dir); err == nil {
		t.Error("half a record reads as one")
	}
}

// PostgreSQL takes the first timeline without a history.
func TestReserveHistories(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "00000003.history"), "1\t0/50\tkept\n")
	if err := reserveHistories(dir, 1, 5); err != nil {
		t.Fatal(err)
	}
	found, err := wal.ReadHistories(dir)
	want := map[uint32]wal.History{2: nil, 3: {{Timeline: 1, Position: 0x50}}, 4: nil}
	if diff := cmp.Diff(want, found); diff != "" || err != nil {
		t.Errorf("%s, %v", diff, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "00000005.history")); err == nil {
		t.Error("the timeline that is to begin has a history")
	}
}

// A renewal says how far the WAL is on the disk, and nothing of another timeline
// stays beside it.
func TestFlushedIsRecordedAtRenewal(t *testing.T) {
	var w flushedWAL
	annotations := map[string]string{leaseclient.AnnotationTimeline: "1", leaseclient.AnnotationCheckpoint: "0/90"}
	edit := w.annotateRenewal("boot")
	edit(annotations)
	if len(annotations) != 2 {
		t.Errorf("recorded before anything was observed: %v", annotations)
	}
	w.setPosition(at(1, "0/A0"))
	edit(annotations)
	want := map[string]string{leaseclient.AnnotationTimeline: "1", leaseclient.AnnotationCheckpoint: "0/90", leaseclient.AnnotationFlushed: "0/A0", leaseclient.AnnotationBoot: "boot"}
	if diff := cmp.Diff(want, annotations); diff != "" {
		t.Error(diff)
	}
	w.setPosition(at(2, "0/60"))
	edit(annotations)
	want = map[string]string{leaseclient.AnnotationTimeline: "2", leaseclient.AnnotationFlushed: "0/60", leaseclient.AnnotationBoot: "boot"}
	if diff := cmp.Diff(want, annotations); diff != "" {
		t.Error(diff)
	}
}

func TestWALOf(t *testing.T) {
	end := &postgresapi.WALPoint{Timeline: 2, Position: 0x60}
	for name, c := range map[string]struct {
		status agentapi.Status
		want   memberWAL
	}{
		"a member that does not know yet":       {agentapi.Status{SystemIdentifier: ours}, memberWAL{}},
		"a member with data":                    {agentapi.Status{SystemIdentifier: ours, Engine: postgresapi.ReplicationStatus{WALEnd: end}}, memberWAL{Known: true, End: at(2, "0/60")}},
		"a member that is held for it":          {agentapi.Status{SystemIdentifier: ours, Engine: postgresapi.ReplicationStatus{WALEnd: end, Diverged: &postgresapi.WALPoint{Timeline: 2, Position: 0x50}}}, memberWAL{Known: true, Without: at(2, "0/50"), End: at(2, "0/60")}},
		"a member without data":                 {agentapi.Status{Engine: postgresapi.ReplicationStatus{WALEnd: &postgresapi.WALPoint{}}}, memberWAL{Known: true}},
		"a member with another system's":        {agentapi.Status{SystemIdentifier: theirs, Engine: postgresapi.ReplicationStatus{WALEnd: end}}, memberWAL{Known: true}},
		"a member that has not observed it yet": {agentapi.Status{}, memberWAL{}},
	} {
		if got := walOf(c.status, ours); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
