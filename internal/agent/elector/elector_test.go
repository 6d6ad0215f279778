package elector

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// startCluster has three members of which one leads.
func startCluster(t *testing.T, r lease.Record) (*cluster, *member) {
	t.Helper()
	c := newCluster(t, 3, r)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		c.stopAll()
	})
	for _, m := range c.members {
		m.start(true)
	}
	c.startTraffic(ctx)
	leader := c.awaitLeader(60 * time.Second)
	time.Sleep(5 * time.Second) // the others follow it
	return c, leader
}

func TestRule14ViewIsOfTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, leader := startCluster(t, testRecord)
		_, record := c.store.state()
		want := Leader{UID: record.HolderUID, Pod: leader.pod, Volume: leader.volumeID, Term: record.Term, Timeline: record.Timeline}
		for _, m := range c.members {
			v := m.view()
			if v.Leader != want || v.Volume != m.volumeID || v.IsLeading(c.now()) != (m == leader) || v.Stalled != "" {
				t.Errorf("%s sees %+v, want leader %+v", m.pod, v, want)
			}
		}
		// Renewals are no change. What a reader waits for is the next leader.
		other := c.members[0]
		if other == leader {
			other = c.members[1]
		}
		_, changed := other.elector.ReadView()
		time.Sleep(10 * time.Second)
		select {
		case <-changed:
			t.Error("a renewal is a change")
		default:
		}
		if leader.view().IsLeading(leader.view().Deadline) {
			t.Error("it leads at its deadline")
		}
		leader.crash()
		<-changed
		next := c.awaitLeader(60*time.Second, leader)
		other.await("the view of the next leader", func() bool { return other.view().Leader.Volume == next.volumeID })
	})
}

func TestRule17SwitchoverIsRequested(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, leader := startCluster(t, testRecord)
		var others []*member
		for _, m := range c.members {
			if m != leader {
				others = append(others, m)
			}
		}
		if err := others[0].elector.RequestSwitchover(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "not the primary") {
			t.Errorf("a standby: %v", err)
		}
		if err := leader.elector.RequestSwitchover(t.Context(), "v7"); err == nil {
			t.Error("a volume that may not lead is accepted as the target")
		}
		begun := c.now()
		if err := leader.elector.RequestSwitchover(t.Context(), others[1].volumeID); err != nil {
			t.Fatal(err)
		}
		next := c.awaitLeader(60*time.Second, leader)
		if next != others[1] || next.server.listLives()[0].begin-begun > 9*time.Second {
			t.Errorf("%s leads %s after the request", next.pod, next.server.listLives()[0].begin-begun)
		}
		if leader.server.countFences() != 0 || leader.guard.deadline() != 0 {
			t.Errorf("%d fences, guard's deadline %s", leader.server.countFences(), leader.guard.deadline())
		}
		c.judgeLives()
	})
}

// A person names a member while the other ones, whose votes are mandatory, are gone.
func TestRule10ForceIsRepeatedUntilItIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := testRecord
		r.Quorum = &lease.Quorum{Volumes: r.Volumes, Write: 2}
		c := newCluster(t, 3, r)
		t.Cleanup(c.stopAll)
		m := c.members[2]
		m.start(true)
		m.elector.RequestForce("now") // before the Lease has been observed
		c.awaitLeader(60 * time.Second)
		if m.volume.read().Forced != "now" {
			t.Errorf("recorded: %+v", m.volume.read())
		}
		terms := len(m.server.listLives())
		time.Sleep(20 * time.Second)
		if !m.view().IsLeading(c.now()) || len(m.server.listLives()) != terms {
			t.Errorf("it was carried out again: %+v", m.server.listLives())
		}
	})
}

// Members and quorum that were asked for before a member leads are those of its term.
func TestRule15WishIsKeptForTheNextTerm(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 3, testRecord)
		t.Cleanup(c.stopAll)
		m := c.members[0]
		m.start(true)
		m.elector.RequestMembers(election.MembersWanted{Volumes: []string{"v0", "v1"}, Quorum: &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 1}})
		c.awaitLeader(60 * time.Second)
		m.await("the quorum on the Lease", func() bool {
			_, r := c.store.state()
			return len(r.Volumes) == 2 && r.Quorum != nil
		})
	})
}

// A candidate waits less for a member that has been silent for half of the Lease's
// duration than for one that has not.
func TestRule10SilentMemberIsNotWaitedForLong(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			silentFor time.Duration // when it is asked; 0 for a member that is not silent
			least     time.Duration
			most      time.Duration
		}{
			"not silent":              {0, 2 * time.Second, 3 * time.Second},
			"silent for long":         {5 * time.Second, 500 * time.Millisecond, time.Second},
			"silent for a short time": {4900 * time.Millisecond, 2 * time.Second, 3 * time.Second},
		} {
			took := measureAsking(t, c.silentFor)
			if took < c.least || took > c.most {
				t.Errorf("%s: asked for votes for %s", name, took)
			}
		}
	})
}

// measureAsking is how long a candidate waits for votes when the leader does not answer.
func measureAsking(t *testing.T, silentFor time.Duration) time.Duration {
	c, leader := startCluster(t, testRecord)
	defer c.stopAll()
	leader.end()
	var asked time.Duration
	for range 3000 {
		time.Sleep(10 * time.Millisecond)
		if silentFor > 0 && asked == 0 {
			c.setSilent(leader.volumeID, c.now()-silentFor)
		}
		for _, m := range c.members {
			switch phase := m.view().Phase; {
			case m == leader:
			case asked == 0 && phase == election.Asking:
				asked = c.now()
			case phase == election.Promoting || phase == election.Leading:
				return c.now() - asked
			}
		}
	}
	t.Fatalf("no member leads: %s", c.describe())
	return 0
}

// Those of a term that has ended are none of a later one: meanwhile another leader may
// have recorded a quorum.
func TestRule15WishEndsWithItsTerm(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, m := leadAlone(t)
		m.changeMembers(nil, "v0", "v1")
		time.Sleep(3 * time.Second)
		_, taken := c.store.state()
		taken.HolderUID, taken.HolderVolume, taken.Term, taken.Timeline, taken.HighestTimeline = "p9", "v1", taken.Term+1, 9, 9
		taken.Quorum = &lease.Quorum{Volumes: []string{"v0"}, Write: 1}
		c.store.put(taken)
		time.Sleep(3 * time.Second)
		if len(c.leaders()) != 0 {
			t.Fatal("not fenced")
		}
		c.awaitLeader(60 * time.Second)
		time.Sleep(10 * time.Second)
		if _, r := c.store.state(); r.HolderVolume != "v0" || r.Quorum == nil {
			t.Errorf("the quorum is gone: %+v", r)
		}
	})
}

// A server that cannot be promoted burns its term. Another promotion follows.
func TestRule11FailedPromotionBurnsItsTerm(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 1, testRecord)
		t.Cleanup(c.stopAll)
		m := c.members[0]
		m.server.breaking = true
		m.start(true)
		c.awaitLeader(60 * time.Second)
		if m.trace.find("promoted: term 2") < 0 || m.server.listLives()[0].term <= 2 || m.server.listLives()[0].timeline <= 2 || m.server.countFences() != 1 {
			t.Errorf("%v, %+v", m.trace.lines, m.server.listLives())
		}
	})
}

func TestRule16LeaderStaysWhileAllConfirm(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, leader := startCluster(t, testRecord)
		for _, m := range c.members {
			m.lease.set(func(l *fakeLease) { l.cut = true })
		}
		time.Sleep(60 * time.Second)
		if !leader.view().IsLeading(c.now()) || len(c.leaders()) != 1 {
			t.Errorf("it does not lead any more: %s", c.describe())
		}
		for _, m := range c.members {
			if m != leader && m.view().PromisedUntil < c.now() {
				t.Errorf("%s shows no promise: %+v", m.pod, m.view())
			}
		}
		// One member that does not answer ends it.
		for _, m := range c.members {
			if m != leader {
				c.setLink(leader, m, false)
				break
			}
		}
		time.Sleep(15 * time.Second)
		if len(c.leaders()) != 0 {
			t.Errorf("it leads without all confirmations: %s", c.describe())
		}
	})
}

// Answers count only as those of the member that was asked.
func TestRule9AnswersAreOfTheMemberThatWasAsked(t *testing.T) {
	var asked postgresapi.VoteRequest
	asked.From = "v0"
	for name, c := range map[string]struct {
		answer string
		counts bool
	}{
		"the member that was asked": {`{"format":1,"pod":"orders-1","from":"v1","to":"v0"}`, true},
		"another volume":            {`{"format":1,"pod":"orders-1","from":"v2","to":"v0"}`, false},
		"another pod":               {`{"format":1,"pod":"orders-2","from":"v1","to":"v0"}`, false},
		"an answer to another":      {`{"format":1,"pod":"orders-1","from":"v1","to":"v2"}`, false},
		"a newer format":            {`{"format":2,"pod":"orders-1","from":"v1","to":"v0"}`, false},
	} {
		e := &core{o: Options{Peers: answering(c.answer), Directory: &cluster{members: []*member{{pod: "orders-1", volumeID: "v1"}}}}}
		var reply postgresapi.VoteReply
		err := e.exchange(t.Context(), postgresapi.VotePath, "v1", &asked.ElectionHeader, &asked, &reply, &reply.ElectionHeader)
		if (err == nil) != c.counts {
			t.Errorf("%s: %v", name, err)
		}
		if err := e.exchange(t.Context(), postgresapi.VotePath, "v9", &asked.ElectionHeader, &asked, &reply, &reply.ElectionHeader); err == nil {
			t.Errorf("%s: a volume without a pod answers", name)
		}
	}
}

type answering string

func (a answering) PostPeer(_ context.Context, _, _ string, _, into any) error {
	return json.Unmarshal([]byte(a), into)
}

// blockedHandler is a text log that nothing reads any more.
type blockedHandler struct {
	slog.Handler
	released chan struct{}
	lines    *sync.Map
}

func (h blockedHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h blockedHandler) Handle(_ context.Context, r slog.Record) error {
	<-h.released
	h.lines.Store(r.Message, true)
	return nil
}

func TestRule6BlockedLogDelaysNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 1, testRecord)
		t.Cleanup(c.stopAll)
		m := c.members[0]
		released, lines := make(chan struct{}), &sync.Map{}
		m.log = blockedHandler{slog.DiscardHandler, released, lines}
		m.start(true)
		c.awaitLeader(60 * time.Second)
		for range 2 * journalLength { // more lines than wait
			m.elector.journal.writeLine(slog.LevelInfo, "one more")
		}
		time.Sleep(20 * time.Second)
		if !m.view().IsLeading(c.now()) {
			t.Errorf("it does not lead any more: %+v", m.view())
		}
		_, taken := c.store.state()
		taken.HolderUID, taken.HolderVolume, taken.Term, taken.Timeline, taken.HighestTimeline = "p9", "v1", taken.Term+1, 9, 9
		c.store.put(taken)
		time.Sleep(3 * time.Second)
		if m.server.countFences() != 1 {
			t.Error("it is not fenced")
		}
		close(released)
		time.Sleep(time.Second)
		for _, want := range []string{"election: Claiming to Promoting", "lines of the election were not written: the text log is slow"} {
			if _, is := lines.Load(want); !is {
				t.Errorf("not written: %s", want)
			}
		}
	})
}

// Each change of the phase has a reason, and each phase a name.
func TestPhasesHaveReasons(t *testing.T) {
	timing, err := lease.NewTiming(0)
	if err != nil {
		t.Fatal(err)
	}
	state := func(p election.Phase) election.State {
		s := election.NewState(election.Config{Timing: timing}, election.Persistent{VolumeID: "v"})
		s.Phase = p
		return s
	}
	inputs := []election.Input{
		election.Tick{}, election.LeaseRead{}, election.LeaseRead{Reading: lease.Reading{Answer: lease.Done}}, election.LeaseWritten{Answer: lease.Done},
		election.VoteRequest{From: "v2", Term: 3}, election.VoteReply{From: "v2"}, election.SwitchoverRequest{}, election.ServerStopped{}, election.ServerFailed{}, election.ForceRequest{ID: "now"},
	}
	for from := election.Standby; from <= election.Releasing; from++ {
		for to := election.Standby; to <= election.Releasing; to++ {
			for _, in := range inputs {
				if PhaseName(from) == "" || explainPhase(state(from), state(to), in) == "" {
					t.Errorf("%v to %v by %T has no reason", from, to, in)
				}
			}
		}
	}
}

func TestElectorNeedsAllOfTheMember(t *testing.T) {
	c := newCluster(t, 1, testRecord)
	m := c.members[0]
	timing, err := lease.NewTiming(0)
	if err != nil {
		t.Fatal(err)
	}
	whole := Options{
		Log: slog.New(slog.DiscardHandler), Config: election.Config{Timing: timing}, Recorded: m.volume.read(), Volume: m.volume,
		Lease: m.lease, Guard: &fakeGuard{}, Server: m.server, Peers: m, Directory: c,
	}
	whole.Identity.Pod, whole.Identity.PodUID = "orders-0", "p1"
	if _, err := New(whole); err != nil {
		t.Fatal(err)
	}
	for name, remove := range map[string]func(*Options){
		"guard":       func(o *Options) { o.Guard = nil },
		"volume's ID": func(o *Options) { o.Recorded = election.Persistent{} },
		"pod":         func(o *Options) { o.Identity.PodUID = "" },
		"duration":    func(o *Options) { o.Config.Timing = lease.Timing{} },
	} {
		o := whole
		remove(&o)
		if _, err := New(o); err == nil {
			t.Errorf("an elector without its %s was made", name)
		}
	}
}
