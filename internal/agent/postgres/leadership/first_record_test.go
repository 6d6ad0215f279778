package leadership

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/startplan"
	"github.com/holdfast-db/holdfast/internal/agent/primarylease"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// fakeLease is a Lease that says what a test sets.
type fakeLease struct {
	reading lease.Reading
	err     error
	facts   primarylease.Facts
	// written is what was written last, over which state.
	written *lease.Record
	base    lease.Version
}

func (f *fakeLease) ReadLease(context.Context) (lease.Reading, error) { return f.reading, f.err }

func (f *fakeLease) SetTiming(lease.Timing) {}

func (f *fakeLease) ReadFacts() primarylease.Facts { return f.facts }

func (f *fakeLease) WriteLease(_ context.Context, base lease.Version, r lease.Record) (lease.Answer, lease.Version, error) {
	if f.err != nil {
		return lease.Unanswered, lease.Version{}, f.err
	}
	f.written, f.base = &r, base
	return lease.Done, lease.Version{}, nil
}

func configOf(uid, systemIdentifier string, fresh bool) *agent.Config {
	return &agent.Config{ClusterConfig: agentapi.ClusterConfig{UID: uid, SystemIdentifier: systemIdentifier, Fresh: fresh}}
}

var (
	stateOne  = lease.Version{UID: "u", Resource: "1"}
	emptyVol  = datavolume.Observation{Content: datavolume.ContentEmpty}
	dataVol   = datavolume.Observation{Content: datavolume.ContentData}
	restored  = datavolume.Observation{Content: datavolume.ContentData, RestoredFor: "new"}
	strangers = datavolume.Observation{Content: datavolume.ContentUnknown}
)

func newFirst(store LeaseStore) *FirstRecord {
	return NewFirstRecord(identity.Identity{Pod: "orders-0", PodUID: "p0"}, store, slog.New(slog.DiscardHandler))
}

func TestIsLeftBehind(t *testing.T) {
	for _, c := range []struct {
		name   string
		of     string
		config *agent.Config
		volume datavolume.Observation
		want   bool
	}{
		{"nothing is known of the cluster", "old", nil, emptyVol, false},
		{"the Lease does not say whose it is", "", configOf("new", "", true), emptyVol, false},
		{"it is this cluster's", "new", configOf("new", "", true), emptyVol, false},
		{"an empty volume of a new cluster", "old", configOf("new", "", true), emptyVol, true},
		{"an empty volume of a cluster with older volumes", "old", configOf("new", "", false), emptyVol, false},
		{"an empty volume of a cluster that was bootstrapped", "old", configOf("new", "7", true), emptyVol, false},
		{"data of a new cluster", "old", configOf("new", "", true), dataVol, true},
		{"data that may be the earlier cluster's", "old", configOf("new", "", false), dataVol, false},
		{"data of a database system on record", "old", configOf("new", "7", true), dataVol, false},
		{"data that was restored for this cluster", "old", configOf("new", "7", false), restored, true},
		{"data that was restored for another one", "old", configOf("other", "7", false), restored, false},
		{"files that are no data", "old", configOf("new", "", true), strangers, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := IsLeftBehind(primarylease.Facts{Cluster: c.of}, c.config, c.volume); got != c.want {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

func TestObserveLease(t *testing.T) {
	earlier := primarylease.EarlierRecord{HolderPod: "orders-0", SystemIdentifier: "7", Term: 4}
	stopped := earlier
	stopped.Shutdown = "0/3000028"
	for _, c := range []struct {
		name  string
		store fakeLease
		want  startplan.Lease
	}{
		{"there is none", fakeLease{reading: lease.Reading{Answer: lease.Missing}}, startplan.Lease{State: startplan.LeaseMissing}},
		{"the API server does not answer", fakeLease{reading: lease.Reading{Answer: lease.Unanswered}, err: errors.New("away")}, startplan.Lease{State: startplan.LeaseUnknown}},
		{"an election has a record", fakeLease{facts: primarylease.Facts{HasRecord: true, Cluster: "new", Earlier: earlier}}, startplan.Lease{State: startplan.LeaseRecorded, SystemIdentifier: "7", Holder: "orders-0"}},
		{"an earlier cluster has left it", fakeLease{facts: primarylease.Facts{HasRecord: true, Cluster: "old", Earlier: earlier}}, startplan.Lease{State: startplan.LeaseLeftBehind}},
		{"it was edited", fakeLease{facts: primarylease.Facts{Cluster: "new"}}, startplan.Lease{State: startplan.LeaseDamaged}},
		{"an earlier version may hold it", fakeLease{facts: primarylease.Facts{Cluster: "new", HolderUID: "p9", Earlier: earlier}}, startplan.Lease{State: startplan.LeaseEarlierHeld, SystemIdentifier: "7", Holder: "orders-0"}},
		{"an earlier version has released it", fakeLease{facts: primarylease.Facts{Cluster: "new", Earlier: stopped}}, startplan.Lease{State: startplan.LeaseEarlierFree, SystemIdentifier: "7", Holder: "orders-0"}},
		{"its holder was removed by hand", fakeLease{facts: primarylease.Facts{Cluster: "new", Earlier: earlier}}, startplan.Lease{State: startplan.LeaseEarlierHeld, SystemIdentifier: "7", Holder: "orders-0"}},
		{"an earlier container of this pod held it", fakeLease{facts: primarylease.Facts{Cluster: "new", HolderUID: "p0", Earlier: earlier}}, startplan.Lease{State: startplan.LeaseEarlierFree, SystemIdentifier: "7", Holder: "orders-0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.store.reading.Answer == (lease.Reading{}).Answer && c.store.err == nil {
				c.store.reading = lease.Reading{Answer: lease.Done, Version: stateOne}
			}
			got := newFirst(&c.store).ObserveLease(t.Context(), configOf("new", "", true), emptyVol)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The Lease of an earlier version is free once it was read for its duration without a
// change, and without an outage in between.
func TestRule2EarlierLeaseExpires(t *testing.T) {
	store := &fakeLease{
		reading: lease.Reading{Answer: lease.Done, Version: stateOne},
		facts:   primarylease.Facts{Cluster: "new", HolderUID: "p9", Earlier: primarylease.EarlierRecord{Term: 4}},
	}
	f := newFirst(store)
	observe := func() startplan.LeaseState {
		return f.ObserveLease(t.Context(), configOf("new", "", true), dataVol).State
	}
	expect := func(when string, want startplan.LeaseState) {
		t.Helper()
		if got := observe(); got != want {
			t.Errorf("%s: state %d, want %d", when, got, want)
		}
	}
	pass := func() { f.since = clock.Boottime() - lease.DefaultDuration }

	expect("at first", startplan.LeaseEarlierHeld)
	pass()
	expect("unchanged for its duration", startplan.LeaseEarlierFree)

	store.reading.Version.Resource = "2"
	expect("renewed", startplan.LeaseEarlierHeld)
	pass()
	store.reading.Answer, store.err = lease.Unanswered, errors.New("away")
	expect("in an outage", startplan.LeaseUnknown)
	store.reading.Answer, store.err = lease.Done, nil
	expect("after an outage", startplan.LeaseEarlierHeld)
	pass()
	expect("unchanged for its duration since", startplan.LeaseEarlierFree)

	store.reading.Version.UID = "another"
	expect("another Lease of the name", startplan.LeaseEarlierHeld)
}

func TestBuildFirstRecord(t *testing.T) {
	at := func(timeline int64, position uint64) lease.Position {
		return lease.Position{Timeline: timeline, LSN: position}
	}
	record := func(term, timeline, highest int64, acknowledged lease.Position) lease.Record {
		return lease.Record{
			HolderVolume: "v0", Term: term, Timeline: timeline, HighestTimeline: highest, ReachedTimeline: timeline,
			SystemIdentifier: "7", Volumes: []string{"v0"}, Acknowledged: acknowledged, Shutdown: &acknowledged,
		}
	}
	earlier := func(e primarylease.EarlierRecord) primarylease.Facts {
		e.SystemIdentifier = "7"
		return primarylease.Facts{Earlier: e}
	}
	for _, c := range []struct {
		name   string
		facts  primarylease.Facts
		before lease.Record
		end    lease.Position
		want   lease.Record
	}{
		{"after a bootstrap", primarylease.Facts{}, lease.Record{}, at(1, 0x300), record(1, 1, 1, at(1, 0x300))},
		{"of restored data", primarylease.Facts{}, lease.Record{}, at(5, 0x300), record(1, 5, 5, at(5, 0x300))},
		{"of an earlier version, with all that it recorded", earlier(primarylease.EarlierRecord{Term: 4, Timeline: 2, Checkpoint: "0/200", Flushed: "0/300"}), lease.Record{}, at(2, 0x300), record(5, 2, 2, at(2, 0x300))},
		{"timelines that an earlier version reserved are not used again", earlier(primarylease.EarlierRecord{Term: 4, Timeline: 2, Reserved: 6}), lease.Record{}, at(2, 0x300), record(5, 2, 6, at(2, 0x300))},
		{"a volume that is older than the flushed position", earlier(primarylease.EarlierRecord{Term: 4, Timeline: 2, Checkpoint: "0/200", Flushed: "0/400"}), lease.Record{}, at(2, 0x300), record(5, 2, 2, at(2, 0x400))},
		{"a volume that is older than the shutdown", earlier(primarylease.EarlierRecord{Term: 4, Timeline: 2, Flushed: "0/200", Shutdown: "0/500"}), lease.Record{}, at(2, 0x300), record(5, 2, 2, at(2, 0x500))},
		{"a volume of an earlier timeline", earlier(primarylease.EarlierRecord{Term: 4, Timeline: 3, Flushed: "0/200"}), lease.Record{}, at(2, 0x300), record(5, 3, 3, at(3, 0x200))},
		{"an unreadable position says nothing", earlier(primarylease.EarlierRecord{Term: 4, Timeline: 2, Flushed: "soon"}), lease.Record{}, at(2, 0x300), record(5, 2, 2, at(2, 0x300))},
		{"positions of another database system say nothing", primarylease.Facts{Earlier: primarylease.EarlierRecord{SystemIdentifier: "8", Term: 4, Timeline: 2, Flushed: "0/900"}}, lease.Record{}, at(2, 0x300), record(5, 2, 2, at(2, 0x300))},
		{"over the record that an earlier cluster left", primarylease.Facts{HasRecord: true, Earlier: primarylease.EarlierRecord{SystemIdentifier: "7", Timeline: 2, Flushed: "0/900"}}, lease.Record{Term: 9, Timeline: 9, HighestTimeline: 9}, at(2, 0x300), record(10, 2, 9, at(2, 0x300))},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := buildFirstRecord(c.facts, c.before, "v0", "7", c.end)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := got.Validate(); err != nil || !got.IsReleased() {
				t.Errorf("%v, released %v", err, got.IsReleased())
			}
		})
	}
	for _, end := range []lease.Position{{}, {Timeline: 1}, {LSN: 0x300}} {
		if got, err := buildFirstRecord(primarylease.Facts{}, lease.Record{}, "v0", "7", end); err == nil {
			t.Errorf("of %+v: %+v", end, got)
		}
	}
}

// The first record replaces the state that was read, and no other one.
func TestWriteRecordReplacesWhatWasRead(t *testing.T) {
	held := election.WAL{Flushed: lease.Position{Timeline: 1, LSN: 0x300}}
	store := &fakeLease{reading: lease.Reading{Answer: lease.Missing}}
	f := newFirst(store)
	f.ObserveLease(t.Context(), configOf("new", "", true), dataVol)
	if err := f.WriteRecord(t.Context(), "v0", "7", held); err != nil || store.base != (lease.Version{}) || store.written.Term != 1 {
		t.Errorf("%+v over %+v, %v", store.written, store.base, err)
	}

	store.reading = lease.Reading{Answer: lease.Done, Version: stateOne}
	store.facts = primarylease.Facts{Cluster: "new", Earlier: primarylease.EarlierRecord{Term: 4, SystemIdentifier: "7"}}
	f.ObserveLease(t.Context(), configOf("new", "", true), dataVol)
	if err := f.WriteRecord(t.Context(), "v0", "7", held); err != nil || store.base != stateOne || store.written.Term != 5 {
		t.Errorf("%+v over %+v, %v", store.written, store.base, err)
	}

	store.written, store.err = nil, errors.New("conflict")
	if err := f.WriteRecord(t.Context(), "v0", "7", held); err == nil {
		t.Error("a conflict passes for a record")
	}
	store.err = nil
	if err := f.WriteRecord(t.Context(), "v0", "7", election.WAL{}); err == nil || store.written != nil {
		t.Errorf("recorded without a position: %+v", store.written)
	}
}

// For the election, a Lease without a record of this cluster's is none.
func TestOwnLease(t *testing.T) {
	record := lease.Record{HolderUID: "p0", HolderVolume: "v0", Term: 3}
	done := lease.Reading{Answer: lease.Done, Version: stateOne, Record: record, Sent: 1, Received: 2}
	for _, c := range []struct {
		name   string
		store  fakeLease
		config *agent.Config
		want   lease.Reading
		fails  bool
	}{
		{"this cluster's", fakeLease{reading: done, facts: primarylease.Facts{HasRecord: true, Cluster: "new"}}, configOf("new", "", true), done, false},
		{"an earlier cluster's", fakeLease{reading: done, facts: primarylease.Facts{HasRecord: true, Cluster: "old"}}, configOf("new", "", true), lease.Reading{Answer: lease.Missing, Sent: 1, Received: 2}, false},
		{"an earlier version's", fakeLease{reading: done, facts: primarylease.Facts{Cluster: "new"}}, configOf("new", "", true), lease.Reading{Answer: lease.Missing, Sent: 1, Received: 2}, false},
		{"an outage stays one", fakeLease{reading: lease.Reading{Answer: lease.Unanswered}, err: errors.New("away")}, configOf("new", "", true), lease.Reading{Answer: lease.Unanswered}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := OwnLease{LeaseStore: &c.store, KnowsRecord: func() bool { return false }, Config: func() *agent.Config { return c.config }, Volume: func() datavolume.Observation { return emptyVol }}
			got, err := own.ReadLease(t.Context())
			if diff := cmp.Diff(c.want, got); diff != "" || (err != nil) != c.fails {
				t.Errorf("(-want +got):\n%s %v", diff, err)
			}
		})
	}
	// A member that knows a record sees that it was removed: its holder writes it again.
	emptied := lease.Reading{Answer: lease.Done, Version: stateOne, Sent: 1, Received: 2}
	knows := OwnLease{
		LeaseStore: &fakeLease{reading: emptied, facts: primarylease.Facts{Cluster: "new"}}, KnowsRecord: func() bool { return true },
		Config: func() *agent.Config { return configOf("new", "", true) }, Volume: func() datavolume.Observation { return emptyVol },
	}
	if got, err := knows.ReadLease(t.Context()); err != nil || got.Answer != lease.Done || got.Version != stateOne {
		t.Errorf("a record that was removed: %+v, %v", got, err)
	}
	own := OwnLease{LeaseStore: &fakeLease{reading: done}, Config: func() *agent.Config { return nil }}
	if got, err := own.ReadLease(t.Context()); err == nil || got.Answer != lease.Unanswered {
		t.Errorf("before the configuration is known: %+v, %v", got, err)
	}
}

// How far the data of an earlier cluster of the name went says nothing of a restored
// one with the same identifier: it would pass for an older volume.
func TestFirstRecordOverALeftBehindLeaseIgnoresItsPositions(t *testing.T) {
	store := &fakeLease{
		reading: lease.Reading{Answer: lease.Done, Version: stateOne},
		facts: primarylease.Facts{Known: true, Cluster: "old", Earlier: primarylease.EarlierRecord{
			SystemIdentifier: "7", Term: 3, Timeline: 2, Flushed: "0/9000000", Shutdown: "0/9000000",
		}},
	}
	f := newFirst(store)
	restored := datavolume.Observation{Content: datavolume.ContentData, RestoredFor: "new"}
	if seen := f.ObserveLease(t.Context(), configOf("new", "7", false), restored); seen.State != startplan.LeaseLeftBehind {
		t.Fatalf("the Lease is %v", seen.State)
	}
	end := lease.Position{Timeline: 2, LSN: 0x5000000}
	if err := f.WriteRecord(t.Context(), "v0", "7", election.WAL{Flushed: end}); err != nil {
		t.Fatal(err)
	}
	if got := store.written; got.Acknowledged != end || got.Shutdown == nil || *got.Shutdown != end {
		t.Errorf("recorded %+v", got)
	}
}
