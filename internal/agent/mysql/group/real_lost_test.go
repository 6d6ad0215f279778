//go:build mysql

package group_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
)

const secondName = "5b8f3c1e-0000-4000-8000-000000000002"

// A person has a member go on without others, whose volumes come back later. One that has a
// transaction of the lost ones is known by it for ever, however many the group has since;
// one that has none joins.
func TestRealVolumeThatWasLeftBehind(t *testing.T) {
	members := newGroup(t, 4)
	first, second, third, fourth := members[0], members[1], members[2], members[3]
	for left, m := range []*mysqltest.Member{second, third} {
		await(t, m, "it has what the group has", func(o group.Observation) bool { return o.Executed.Contains(observe(t, first).Executed) })
		m.Kill()
		await(t, first, "it is expelled", func(o group.Observation) bool { return len(o.View.Members) == 3-left })
	}
	for range 5 {
		first.Exec("INSERT INTO app.t (x) VALUES ('lost')")
	}
	first.Kill()
	fourth.Kill()

	second.Start()
	if err := second.Group().Boot(t.Context(), secondName, true); err != nil {
		t.Fatal(err)
	}
	awaitPrimary(t, second)
	for range 20 {
		second.Exec("INSERT INTO app.t (x) VALUES ('kept')")
	}
	primary := report(t, second)
	if primary.ReplicationName != secondName || primary.Held().Only(secondName).Count() < 20 {
		t.Fatalf("it is in %s, and holds %s", primary.ReplicationName, primary.Held())
	}

	record := group.Record{Group: groupName}
	for _, m := range []*mysqltest.Member{first, third} {
		m.Start()
		record = record.WithJoining(observe(t, m).UUID, m.Pod)
	}
	primary = primary.WithKnown(record)
	plan := func(m *mysqltest.Member) group.Plan {
		return group.PlanStart(group.Situation{Self: report(t, m), Peers: []group.Report{primary}, Record: record, RecordKnown: true})
	}
	if p := plan(first); p.Action != group.Hold || p.Errant.Only(groupName).Count() != 5 {
		t.Errorf("what is lost came back: %+v", p)
	}
	// The server itself does not let it in, either.
	if err := first.Group().Join(t.Context(), secondName, true); err == nil {
		t.Error("it joined")
	}
	p := plan(third)
	if p.Action != group.Join {
		t.Fatalf("%+v", p)
	}
	if err := third.Group().Join(t.Context(), p.ReplicationName, true); err != nil {
		t.Fatal(err)
	}
	await(t, third, "it has the rows", func(group.Observation) bool { return rows(third) == "20" })
}

// tearRelayLog cuts the end off what the member has received last.
func tearRelayLog(t *testing.T, m *mysqltest.Member) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(m.Volume, datavolume.DataName, "relay-group_replication_applier.0*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%v, %v", logs, err)
	}
	slices.Sort(logs)
	for _, path := range slices.Backward(logs) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		// One that has no transaction ends with its header.
		if info.Size() < 400 {
			continue
		}
		if err := os.Truncate(path, info.Size()-20); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("no relay log has a transaction: %s", strings.Join(logs, ", "))
}

// receiveHalf has a member receive a transaction of the primary and not apply it, and be killed
// while it writes the transaction down. It returns what the primary has.
func receiveHalf(t *testing.T, primary, m *mysqltest.Member, row string) group.Observation {
	t.Helper()
	stopApplier(t, m)
	primary.Exec(fmt.Sprintf("INSERT INTO app.t (x) VALUES ('%s')", row))
	all := observe(t, primary)
	await(t, m, "it has received the write", func(o group.Observation) bool { return o.Received.Union(o.Executed).Contains(all.Executed) })
	m.Kill()
	tearRelayLog(t, m)
	m.Start()
	return all
}

// A transaction that a member has received by half does not count as its own, and keeps it
// neither from joining nor from starting the group.
func TestRealTornRelayLog(t *testing.T) {
	members := newGroup(t, 3)
	first, second, third := members[0], members[1], members[2]
	first.Exec("INSERT INTO app.t (x) VALUES ('whole')")
	await(t, second, "it has the row", func(group.Observation) bool { return rows(second) == "1" })

	all := receiveHalf(t, first, second, "torn")
	r := report(t, second)
	if r.Held().Contains(all.Executed) {
		t.Errorf("it claims to hold what was torn: %s", r.Held())
	}
	await(t, first, "it is expelled", func(o group.Observation) bool { return len(o.View.Members) == 2 })
	join(t, second)
	await(t, second, "it has both rows", func(group.Observation) bool { return rows(second) == "2" })

	all = receiveHalf(t, first, second, "lost")
	r = report(t, second)
	if r.Held().Contains(all.Executed) {
		t.Errorf("it claims to hold what was torn: %s", r.Held())
	}
	first.Kill()
	third.Kill()
	if err := second.Group().Boot(t.Context(), secondName, true); err != nil {
		t.Fatal(err)
	}
	awaitPrimary(t, second)
	if o := observe(t, second); rows(second) != "2" || !o.Executed.Contains(r.Held()) {
		t.Errorf("%s rows; it claimed %s, and has %s", rows(second), r.Held(), o.Executed)
	}
	second.Exec("INSERT INTO app.t (x) VALUES ('goes on')")
}
