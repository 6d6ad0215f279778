package elector

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// The API server does not know the leader's pod any more, which was deleted by force: another
// member writes the release, and the next one leads without waiting for the Lease to
// expire. Where no other member is reached, it waits.
func TestRule17ReleaseOfAPodThatIsNotKnown(t *testing.T) {
	for _, isolated := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			c, leader := startCluster(t, testRecord)
			leader.lease.set(func(l *fakeLease) { l.alien = true })
			for _, m := range c.members {
				c.setLink(leader, m, !isolated || m == leader)
			}
			begun, term, before := c.now(), leader.view().Leader.Term, c.store.countWrites()
			if err := leader.elector.RequestSwitchover(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			next := c.awaitLeader(60*time.Second, leader)
			waited := next.server.listLives()[0].begin - begun
			if isolated != (waited > 7*time.Second) {
				t.Errorf("isolated: %t, the next member leads after %s", isolated, waited)
			}
			releases := 0
			for _, r := range c.store.written[before:] {
				if r.Term == term && r.IsReleased() {
					releases++
				}
			}
			if want := map[bool]int{false: 1, true: 0}[isolated]; releases != want {
				t.Errorf("isolated: %t, %d releases, want %d", isolated, releases, want)
			}
			if leader.server.countFences() != 0 && !isolated {
				t.Errorf("%d fences", leader.server.countFences())
			}
			c.judgeLives()
		})
	}
}

// A renewal is on its way when the server has stopped, and is refused: the release is tried
// all the same.
func TestRule17ReleaseFollowsARefusedRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, leader := startCluster(t, testRecord)
		line := "written: term " + strconv.FormatInt(leader.view().Leader.Term, 10)
		written := leader.trace.count(line)
		leader.lease.set(func(l *fakeLease) { l.alien, l.delay = true, 900*time.Millisecond })
		leader.await("a renewal", func() bool { return leader.trace.count(line) > written })
		begun := c.now()
		if err := leader.elector.RequestSwitchover(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		next := c.awaitLeader(60*time.Second, leader)
		if waited := next.server.listLives()[0].begin - begun; waited > 5*time.Second {
			t.Errorf("the next member leads after %s", waited)
		}
		c.judgeLives()
	})
}

// A member that stops in any case gives up a Lease that was not renewed for a while, which
// others keep.
func TestRule17StopNeedsNoRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, leader := startCluster(t, testRecord)
		leader.lease.set(func(l *fakeLease) { l.alien = true })
		time.Sleep(4500 * time.Millisecond)
		if err := leader.elector.RequestSwitchover(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "not renewed") {
			t.Errorf("a switchover: %v", err)
		}
		begun := c.now()
		if err := leader.elector.RequestStop(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		next := c.awaitLeader(60*time.Second, leader)
		if waited := next.server.listLives()[0].begin - begun; waited > 1500*time.Millisecond {
			t.Errorf("the next member leads after %s", waited)
		}
		c.judgeLives()
	})
}

// A member writes a release only for the holder of the Lease, and over no other state of it.
func TestRule9ReleaseIsOfTheHolder(t *testing.T) {
	valid := postgresapi.ReleaseRequest{
		ElectionHeader: postgresapi.ElectionHeader{Format: 1, Pod: "orders-0", From: "v0", To: "v1"},
		Term:           1, HolderUID: "p9", Shutdown: postgresapi.WALPoint{Timeline: 1, Position: 500}, Successor: "v2",
	}
	for name, tc := range map[string]struct {
		change func(*postgresapi.ReleaseRequest)
		code   int
	}{
		"another state":          {func(r *postgresapi.ReleaseRequest) { r.Lease.ResourceVersion = "0" }, http.StatusConflict},
		"another Lease":          {func(r *postgresapi.ReleaseRequest) { r.Lease.UID = "w" }, http.StatusConflict},
		"no state":               {func(r *postgresapi.ReleaseRequest) { r.Lease.ResourceVersion = "" }, http.StatusBadRequest},
		"another revision":       {func(r *postgresapi.ReleaseRequest) { r.Lease.Revision = 1 }, http.StatusConflict},
		"no position":            {func(r *postgresapi.ReleaseRequest) { r.Shutdown.Position = 0 }, http.StatusConflict},
		"less than acknowledged": {func(r *postgresapi.ReleaseRequest) { r.Shutdown.Position = 50 }, http.StatusConflict},
		"an earlier term":        {func(r *postgresapi.ReleaseRequest) { r.Term = 2 }, http.StatusConflict},
		"no term":                {func(r *postgresapi.ReleaseRequest) { r.Term = 0 }, http.StatusBadRequest},
		"an earlier pod":         {func(r *postgresapi.ReleaseRequest) { r.HolderUID = "p8" }, http.StatusConflict},
		"no pod":                 {func(r *postgresapi.ReleaseRequest) { r.HolderUID = "" }, http.StatusBadRequest},
		"another member":         {func(r *postgresapi.ReleaseRequest) { r.Pod, r.From = "orders-2", "v2" }, http.StatusConflict},
		"a pod of other volumes": {func(r *postgresapi.ReleaseRequest) { r.Pod = "orders-2" }, http.StatusForbidden},
		"another timeline":       {func(r *postgresapi.ReleaseRequest) { r.Shutdown.Timeline = 2 }, http.StatusConflict},
		"the holder":             {func(*postgresapi.ReleaseRequest) {}, http.StatusOK},
	} {
		inBubble(t, func(t *testing.T) {
			m := newVoter(t)
			held := heldRecord()
			held.Acknowledged = lease.Position{Timeline: 1, LSN: 100}
			m.cluster.store.put(held)
			version, _ := m.cluster.store.state()
			r := valid
			r.Lease = postgresapi.ObservedLease{UID: version.UID, ResourceVersion: version.Resource, Term: 1}
			tc.change(&r)
			answer := <-m.ask(postgresapi.ReleasePath, r)
			after, record := m.cluster.store.state()
			if answer.Code != tc.code || (after != version) != (tc.code == http.StatusOK) {
				t.Errorf("%s: %d %s, the Lease is at %s after %s", name, answer.Code, answer.Body, after.Resource, version.Resource)
			}
			if tc.code != http.StatusOK {
				return
			}
			if !record.IsReleased() || *record.Shutdown != (lease.Position{Timeline: 1, LSN: 500}) || record.Successor != "v2" || record.HolderVolume != "v0" {
				t.Errorf("the Lease is %+v", record)
			}
			var reply postgresapi.ReleaseReply
			if err := json.Unmarshal(answer.Body.Bytes(), &reply); err != nil || reply.Lease.ResourceVersion != after.Resource || reply.To != "v0" {
				t.Errorf("the answer is %+v (%v)", reply, err)
			}
			if again := <-m.ask(postgresapi.ReleasePath, r); again.Code != http.StatusConflict {
				t.Errorf("once more: %d %s", again.Code, again.Body)
			}
		})
	}
}

// A member that does not reach the API server either says so.
func TestReleaseIsNotWrittenWithoutTheAPIServer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		r := m.releaseRequest()
		m.lease.set(func(l *fakeLease) { l.cut = true })
		answer := <-m.ask(postgresapi.ReleasePath, r)
		if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), "the Lease is not read") {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
	})
}

// releaseRequest is that of the holder of heldRecord for the Lease as it is.
func (m *member) releaseRequest() postgresapi.ReleaseRequest {
	version, record := m.cluster.store.state()
	return postgresapi.ReleaseRequest{
		ElectionHeader: postgresapi.ElectionHeader{Format: 1, Pod: "orders-0", From: "v0", To: "v1"}, Term: 1, HolderUID: "p9",
		Lease:    postgresapi.ObservedLease{UID: version.UID, ResourceVersion: version.Resource, Term: 1, Revision: record.Revision},
		Shutdown: postgresapi.WALPoint{Timeline: 1, Position: 500},
	}
}

// A release without a position would let any member lead, also where the Lease names no
// position.
func TestReleaseNeedsAPosition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		r := m.releaseRequest()
		r.Shutdown.Position = 0
		if answer := <-m.ask(postgresapi.ReleasePath, r); answer.Code != http.StatusConflict {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
	})
}

// The API server was set back to a term that has ended: a member that knows the next one
// releases nothing of the former.
func TestReleaseOfAFormerTerm(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		next := heldRecord()
		next.Term, next.Timeline, next.HighestTimeline = 2, 2, 2
		next.HolderUID, next.HolderPod, next.HolderVolume = "p8", "orders-2", "v2"
		m.cluster.store.put(next)
		m.await("the next term", func() bool { return m.view().Leader.Term == 2 })
		m.cluster.store.put(heldRecord())
		answer := <-m.ask(postgresapi.ReleasePath, m.releaseRequest())
		if _, now := m.cluster.store.state(); answer.Code != http.StatusConflict || now.IsReleased() || !strings.Contains(answer.Body.String(), "term 2") {
			t.Errorf("%d %s, the Lease is %+v", answer.Code, answer.Body, now)
		}
	})
}

// The sender ends while its release is written, which is done all the same.
func TestReleaseOutlivesItsSender(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		text, err := json.Marshal(m.releaseRequest())
		if err != nil {
			t.Fatal(err)
		}
		m.lease.set(func(l *fakeLease) { l.delay = 300 * time.Millisecond })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		m.receive(ctx, postgresapi.ReleasePath, text)
		if _, now := m.cluster.store.state(); !now.IsReleased() {
			t.Errorf("the Lease is %+v", now)
		}
	})
}
