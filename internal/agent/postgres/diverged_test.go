package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

func at(timeline int64, position string) lsn.Point { return lsn.Parse(timeline, position) }

func TestIsAhead(t *testing.T) {
	cases := []struct {
		name         string
		own, primary lsn.Point
		want         bool
	}{
		{"behind on one timeline", at(1, "0/10"), at(1, "0/20"), false},
		{"equal", at(1, "0/20"), at(1, "0/20"), false},
		{"beyond on one timeline", at(1, "0/30"), at(1, "0/20"), true},
		{"beyond across the high word", at(1, "1/0"), at(1, "0/FFFFFFFF"), true},
		{"of a timeline that the primary does not have", at(2, "0/10"), at(1, "0/20"), true},
		{"of an older timeline", at(1, "0/30"), at(2, "0/20"), false},
		{"a primary that does not say where it is", at(1, "0/30"), lsn.Point{Timeline: 1}, false},
	}
	for _, c := range cases {
		if got := isAhead(c.own, c.primary); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// What a primary says counts only while it can query its database, and only of its own system.
func TestPointOf(t *testing.T) {
	a := &postgresAgent{
		Host: &agent.Host{Store: statusserver.NewStore(agentapi.Status{
			Role: v1alpha1.RolePrimary, Serving: true, SystemIdentifier: ours, Position: 0x20, Engine: postgresapi.ReplicationStatus{Timeline: 1},
		})},
		positions: server.NewSession(t.TempDir(), 1, "none"), // no server answers
	}
	if got := pointOf(a.Store.Get(), ours); got != at(1, "0/20") {
		t.Errorf("it ends at %v", got)
	}
	if got := pointOf(a.Store.Get(), "another"); isAhead(at(1, "0/30"), got) {
		t.Errorf("ahead of another system's %v", got)
	}
	a.refreshPosition(t.Context())
	if got := pointOf(a.Store.Get(), ours); isAhead(at(1, "0/30"), got) {
		t.Errorf("ahead of what may be old, %v", got)
	}
}

func TestDivergedProof(t *testing.T) {
	s := time.Second
	var p divergedProof
	p = p.recordPositions(1*s, at(1, "0/30"), at(1, "0/20"))
	if p.isProven(1 * s) {
		t.Error("one observation proves")
	}
	// A busy cluster: the primary's answer is old, and passes what was observed.
	p = p.recordPositions(2*s, at(1, "0/60"), at(1, "0/40"))
	p = p.recordPositions(7*s, at(1, "0/90"), at(1, "0/70"))
	if p.isProven(8 * s) {
		t.Error("a primary that moves on is taken for one that is behind")
	}
	p = divergedProof{}.recordPositions(1*s, at(1, "0/30"), at(1, "0/20")).recordPositions(5*s, at(1, "0/30"), at(1, "0/28"))
	if p.isProven(5*s) || !p.isProven(6*s) {
		t.Error("five seconds behind are the proof")
	}
	if p = p.recordPositions(7*s, at(1, "0/30"), at(1, "0/30")); p.isProven(20 * s) {
		t.Error("a primary that has caught up is behind still")
	}
}

func TestFloor(t *testing.T) {
	cases := []struct {
		name   string
		record leaseclient.Record
		want   lsn.Point
	}{
		{"nothing recorded", leaseclient.Record{Timeline: 1}, lsn.Point{}},
		{"a checkpoint", leaseclient.Record{Timeline: 2, Checkpoint: "0/50"}, at(2, "0/50")},
		{"a shutdown that an older agent recorded", leaseclient.Record{Timeline: 1, ShutdownPosition: "0/60"}, at(1, "0/60")},
		{"a renewal", leaseclient.Record{Timeline: 1, Checkpoint: "0/50", Flushed: "0/70"}, at(1, "0/70")},
		{"the later of both", leaseclient.Record{Timeline: 1, Checkpoint: "0/50", ShutdownPosition: "0/60"}, at(1, "0/60")},
	}
	for _, c := range cases {
		if got := readFloor(c.record); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// at rest is a volume whose data goes as far as a point.
func restingAt(v volume, p lsn.Point) volume {
	v.Control.Timeline, v.Control.Checkpoint = p.Timeline, strings.Fields(p.String())[0]
	return v
}

func TestDecideOlderData(t *testing.T) {
	recorded := leaseclient.Record{SystemIdentifier: ours, Timeline: 1, Checkpoint: "0/50"}
	claims := []leaseclient.ClaimState{leaseclient.ClaimMine, leaseclient.ClaimLapsed, leaseclient.ClaimHeld, leaseclient.ClaimReleased, leaseclient.ClaimExpired}
	for _, claim := range claims {
		recorded.Claim = claim
		o := observation{BinaryMajor: 17, ConfigKnown: true, Lease: recorded}
		o.Volume = restingAt(dataOf(ours), at(1, "0/40"))
		check(t, planNext(o), verdict{actHold, agentapi.HoldDataStale})
		for _, text := range []string{"0/40", "0/50", v1alpha1.AnnotationContinueWithOlderData} {
			if got := planNext(o).Message; !strings.Contains(got, text) {
				t.Errorf("message %q does not hold %s", got, text)
			}
		}
		for _, enough := range []lsn.Point{at(1, "0/50"), at(1, "0/60"), at(2, "0/40")} {
			o.Volume = restingAt(dataOf(ours), enough)
			if got := planNext(o); got.Action == actHold {
				t.Errorf("claim %v at %v is held: %s", claim, enough, got.Message)
			}
		}
	}
}

func TestDecideNewerReplica(t *testing.T) {
	o := observation{Ordinal: 1, BinaryMajor: 17, ConfigKnown: true, PrimaryKnown: true, PrimarySystemIdentifier: ours, Primary: "orders-0", PrimaryEnd: at(1, "0/50")}
	hold := verdict{actHold, agentapi.HoldDataDiverged}
	cases := []struct {
		name   string
		change func(*observation)
		want   verdict
	}{
		{"a standby that is behind starts", func(o *observation) { o.Volume = restingAt(standbyOf(ours), at(1, "0/40")) }, verdict{Action: actStartStandby}},
		{"a standby that is ahead is held", func(o *observation) { o.Volume = restingAt(standbyOf(ours), at(1, "0/60")) }, hold},
		{"what a standby had replayed counts",
			func(o *observation) {
				o.Volume = restingAt(standbyOf(ours), at(1, "0/40"))
				o.Volume.Control.Recovery, o.Volume.Control.RecoveryTimeline = "0/60", 1
			}, hold},
		{"a former primary's data that is ahead is held", func(o *observation) { o.Volume = restingAt(dataOf(ours), at(1, "0/60")) }, hold},
		{"data that is ahead is not copied over",
			func(o *observation) { o.Volume, o.CopyAgain = restingAt(standbyOf(ours), at(1, "0/60")), true }, hold},
		{"a mark holds although the primary has passed it",
			func(o *observation) {
				o.Volume = restingAt(standbyOf(ours), at(1, "0/40"))
				o.DivergedMark = &divergedMark{Own: at(1, "0/40"), Primary: at(1, "0/30")}
			}, hold},
		{"a mark holds without a primary, too",
			func(o *observation) {
				o.Volume, o.PrimaryKnown = restingAt(standbyOf(ours), at(1, "0/40")), false
				o.DivergedMark = &divergedMark{}
			}, hold},
		{"a mark on an empty volume says nothing", func(o *observation) { o.DivergedMark = &divergedMark{} }, verdict{Action: actClone}},
		{"without a primary a standby starts",
			func(o *observation) {
				o.Volume, o.PrimaryKnown, o.PrimaryEnd = restingAt(standbyOf(ours), at(1, "0/60")), false, lsn.Point{}
			}, verdict{Action: actStartStandby}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := o
			c.change(&o)
			check(t, planNext(o), c.want)
		})
	}
}

func TestMark(t *testing.T) {
	dir := t.TempDir()
	if m, err := readDivergedMark(dir); m != nil || err != nil {
		t.Errorf("no mark reads as %v, %v", m, err)
	}
	want := divergedMark{Own: at(1, "0/60"), Primary: at(1, "0/50")}
	if err := writeDivergedMark(dir, want); err != nil {
		t.Fatal(err)
	}
	if m, err := readDivergedMark(dir); err != nil || m == nil || *m != want {
		t.Errorf("the mark reads as %v, %v", m, err)
	}
	mustWrite(t, dir+"/"+divergedMarkName, "{")
	if m, err := readDivergedMark(dir); err != nil || m == nil {
		t.Errorf("half a mark reads as %v, %v", m, err)
	}
}

// The mark goes before the copy comes: a crash between the two leaves no copy
// that passes for the marked data.
func TestCopyForgetsTheMarkOfDataThatIsGone(t *testing.T) {
	dir := t.TempDir()
	if err := writeDivergedMark(dir, divergedMark{}); err != nil {
		t.Fatal(err)
	}
	a := &postgresAgent{
		o:        Options{DataDir: dir, DatabaseAddress: func(pod string) string { return pod + ":5432" }},
		programs: server.Programs{Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}}, // none there: the copy fails
	}
	if err := a.copyPrimary(t.Context(), agentapi.Status{Pod: "orders-0"}); err == nil {
		t.Fatal("a copy without a program")
	}
	if m, err := readDivergedMark(dir); m != nil || err != nil {
		t.Errorf("the mark is there: %v, %v", m, err)
	}
}

// Words of a server whose history differs are never a reason to copy.
func TestTroubleOfHistories(t *testing.T) {
	for line, want := range map[string]trouble{
		"FATAL:  could not receive data from WAL stream: ERROR:  requested WAL segment 000000010000000000000003 has already been removed":         troubleCopy,
		"DETAIL:  This server's history forked from timeline 1; requested starting point 0/3000000 on timeline 1 is not in this server's history": troubleDiverged,
		"FATAL:  highest timeline 1 of the primary is behind recovery timeline 2":                                                                 troubleDiverged,
		"LOG:  new timeline 2 forked off current database system timeline 1 before current recovery point 0/3000060":                              troubleDiverged,
		"FATAL:  requested timeline 2 is not a child of this server's history":                                                                    troubleDiverged,
		"FATAL:  requested timeline 2 does not contain minimum recovery point 0/3000060 on timeline 1":                                            troubleDiverged,
		"FATAL:  requested timeline 1 is not in this server's history":                                                                            troubleDiverged,
		"FATAL:  could not start WAL streaming: ERROR:  requested starting point 0/7000000 on timeline 2 is not in this server's history":         troubleDiverged,
		"LOG:  new timeline 3 is not a child of database system timeline 2":                                                                       troubleStray,
		// A replica says so when it follows its primary to the next timeline.
		"LOG:  primary server contains no more WAL on requested timeline 1":                                      troubleNone,
		"ERROR:  requested starting point 0/7000000 is ahead of the WAL flush position of this server 0/3000148": troubleDiverged,
	} {
		if got := readTrouble(line); got != want {
			t.Errorf("%q is %v, want %v", line, got, want)
		}
	}
}

// A timeline that did not come of the data's own is a trouble when it is said
// again: history files are fetched one by one.
func TestStrayTimelineIsATroubleWhenItIsSaidAgain(t *testing.T) {
	l := &life{}
	for said, want := range []trouble{troubleNone, troubleStray, troubleStray} {
		if got := l.requireRepeated(readTrouble("LOG:  new timeline 3 is not a child of database system timeline 2")); got != want {
			t.Errorf("said %d times before, it is %v, want %v", said, got, want)
		}
	}
	if got := l.requireRepeated(readTrouble("FATAL:  requested timeline 57 is not in this server's history")); got != troubleDiverged {
		t.Errorf("another trouble is %v", got)
	}
}
