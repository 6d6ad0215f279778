package mysql

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

func inView(id string, uuids ...string) group.View {
	v := group.View{ID: id}
	for i, uuid := range uuids {
		v.Members = append(v.Members, group.Member{UUID: uuid, State: group.Online, Primary: i == 0})
	}
	return v
}

func detachedPeer(pod, uuid string) peer {
	return peer{Report: group.Report{Pod: pod, UUID: uuid, Phase: group.Detached}}
}

// The record is read when the members change and when one waits, and seldom otherwise.
func TestRecordIsReadWhenItMatters(t *testing.T) {
	k := newRecordWriter(newTestRun(t, agentapi.ClusterConfig{}))
	o := group.Observation{UUID: own, State: group.Online, View: inView("1", own)}
	read := func() { k.view, k.read = o.View.ID, clock.Boottime() }
	if !k.isDue(o, nil) {
		t.Error("never read, and not due")
	}
	read()
	if k.isDue(o, nil) {
		t.Error("due although nothing changes")
	}
	waiting := []peer{detachedPeer("orders-1", second)}
	if !k.isDue(o, waiting) {
		t.Error("not due although a member waits")
	}
	read()
	if k.isDue(o, waiting) {
		t.Error("due again at once")
	}
	k.read -= 2 * keepInterval
	if !k.isDue(o, waiting) {
		t.Error("not due although the member still waits")
	}
	read()
	k.read -= keepInterval + keepInterval/2
	if k.isDue(o, waiting) {
		t.Error("a member that is held has the record read all the time")
	}
	o.View = inView("2", own, second)
	if !k.isDue(o, nil) {
		t.Error("not due in another view")
	}
	read()
	if err := k.run.persisted.Save(group.Record{Group: k.run.name}.WithJoining(second, "orders-1")); err != nil {
		t.Fatal(err)
	}
	if !k.isDue(o, nil) {
		t.Error("not due although a member has joined")
	}
	o.View.Members[1].State = group.Recovering
	if k.isDue(o, nil) {
		t.Error("due although it has not joined yet")
	}
	k.read -= rereadInterval
	if !k.isDue(o, nil) {
		t.Error("never due again")
	}
}

// A member leaves the record only where its data is not used any more.
func TestMembersThatAreGone(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	k := newRecordWriter(r)
	r.peers.status = func(_ context.Context, pod string) (agentapi.Status, error) {
		if pod == "orders-7" {
			return agentapi.Status{}, syscall.ECONNREFUSED
		}
		return agentapi.Status{}, errors.New("no answer in time")
	}
	found := []peer{detachedPeer("orders-1", second), {Report: group.Report{Pod: "orders-2", Phase: group.Empty}}}
	for _, c := range []struct {
		name string
		e    group.Entry
		want bool
	}{
		{"this pod's earlier data", group.Entry{UUID: third, Pod: "orders-0"}, true},
		{"a pod that runs on other data", group.Entry{UUID: third, Pod: "orders-1"}, true},
		{"a pod that is about to join", group.Entry{UUID: second, Pod: "orders-1"}, false},
		{"a pod without data, which may be on another volume", group.Entry{UUID: third, Pod: "orders-2"}, false},
		{"a pod that was scaled away and has gone", group.Entry{UUID: third, Pod: "orders-7"}, true},
		{"a pod that was scaled away and may run", group.Entry{UUID: third, Pod: "orders-8"}, false},
		{"a server of no known pod", group.Entry{UUID: third}, false},
	} {
		if got := k.isGone(t.Context(), c.e, found); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// A start of the group by this member counts only while its claim is the last one.
func TestStartIsConfirmed(t *testing.T) {
	k := newRecordWriter(newTestRun(t, agentapi.ClusterConfig{}))
	record := group.Record{Group: "g"}.WithJoining(own, "orders-0").WithClaim(own)
	o := group.Observation{UUID: own}
	k.run.member.startsGroup(1)
	if k.run.member.claim() != 1 {
		t.Error("it is confirmed before the record is read")
	}
	if err := k.confirmStart(record.WithClaim(second), o); err == nil || k.run.member.claim() == 0 {
		t.Error("another member's start is skipped")
	}
	if err := k.confirmStart(record, o); err != nil || k.run.member.claim() != 0 {
		t.Errorf("%v", err)
	}
	k.run.member.startsGroup(0) // the only member, without the API server
	if err := k.confirmStart(group.Record{}, o); err != nil {
		t.Error(err)
	}
}

func TestChooseSuccessors(t *testing.T) {
	set := func(text string) mysqlgtid.Set {
		s, err := mysqlgtid.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	o := group.Observation{UUID: own, View: inView("1", own, second, third)}
	member := func(pod, uuid, executed string) peer {
		return peer{Report: group.Report{Pod: pod, UUID: uuid, Phase: group.InGroup, Executed: set(executed)}}
	}
	behind, ahead := member("orders-1", second, own+":1-5"), member("orders-2", third, own+":1-9")
	names := func(found []peer) (pods []string) {
		for _, p := range found {
			pods = append(pods, p.Pod)
		}
		return pods
	}
	got, err := chooseSuccessors(o, []peer{behind, ahead}, "")
	if err != nil || !slices.Equal(names(got), []string{"orders-2", "orders-1"}) {
		t.Errorf("%v, %v", names(got), err)
	}
	if got, err = chooseSuccessors(o, []peer{behind, ahead}, "orders-1"); err != nil || !slices.Equal(names(got), []string{"orders-1"}) {
		t.Errorf("%v, %v", names(got), err)
	}
	if _, err = chooseSuccessors(o, []peer{behind}, "orders-2"); err == nil {
		t.Error("a pod that does not answer is to lead")
	}
	stopping := ahead
	stopping.Status.State = agentapi.StateStopping
	detached := behind
	detached.Phase = group.Detached
	if _, err = chooseSuccessors(o, []peer{stopping, detached}, ""); err == nil {
		t.Error("members that are about to leave are to lead")
	}
	o.View.Members[2].State = group.Recovering
	if got, err = chooseSuccessors(o, []peer{behind, ahead}, ""); err != nil || !slices.Equal(names(got), []string{"orders-1"}) {
		t.Errorf("%v, %v", names(got), err)
	}
}

// What moves with each write makes no new revision of the status.
func TestRevisionOfTheStatus(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	change := func(change func(*mysqlapi.MemberReport)) string {
		r.Store.Update(func(s *agentapi.Status) { changeReport(s, change) })
		return r.Store.Get().Revision
	}
	first := change(func(m *mysqlapi.MemberReport) { m.Phase = mysqlapi.PhaseInGroup })
	if change(func(m *mysqlapi.MemberReport) { m.Executed, m.Received, m.Purged = own+":1", own+":2", own+":1" }) != first {
		t.Error("a write makes a revision")
	}
	if change(func(m *mysqlapi.MemberReport) { m.ViewID = "2" }) == first {
		t.Error("another view makes none")
	}
}

// A member that had to wait for long waits for the one that clones, whichever that is.
func TestCopiesQueue(t *testing.T) {
	at := func(ordinal int, state agentapi.State) peer {
		return peer{Report: group.Report{Pod: "orders-" + strconv.Itoa(ordinal), Ordinal: ordinal}, Status: agentapi.Status{State: state}}
	}
	for _, c := range []struct {
		name  string
		found []peer
		want  string
	}{
		{"no other one", []peer{at(0, agentapi.StateRunning)}, ""},
		{"one clones", []peer{at(0, agentapi.StateRunning), at(3, agentapi.StateCloning)}, "orders-3"},
		{"one waits as well", []peer{at(0, agentapi.StateRunning), at(1, agentapi.StateWaiting)}, ""},
	} {
		if got := findCloning(c.found); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
