package elector

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// heldRecord is a Lease whose holder does not renew it.
func heldRecord() lease.Record {
	r := testRecord
	r.HolderUID, r.HolderPod, r.HolderVolume, r.Shutdown = "p9", "orders-0", "v0", nil
	return r
}

// inBubble runs a test by a clock of its own.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// newVoter is a member that does not stand for election itself, and has observed that
// the Lease has expired.
func newVoter(t *testing.T) *member {
	c := newCluster(t, 3, heldRecord())
	t.Cleanup(c.stopAll)
	m := c.members[1]
	m.noFailover = true
	m.start(true)
	time.Sleep(15 * time.Second)
	return m
}

// voteRequest is one of member 2 for the Lease as it is.
func (m *member) voteRequest(term int64) postgresapi.VoteRequest {
	version, record := m.cluster.store.state()
	return postgresapi.VoteRequest{
		ElectionHeader: postgresapi.ElectionHeader{Format: 1, Pod: "orders-2", From: "v2", To: m.volumeID}, Term: term, Timeline: term,
		Lease:   postgresapi.ObservedLease{UID: version.UID, ResourceVersion: version.Resource, Term: record.Term, Revision: record.Revision},
		Flushed: postgresapi.WALPoint{Timeline: 1, Position: 500},
	}
}

// ask sends a message beside the test.
func (m *member) ask(path string, message any) <-chan *httptest.ResponseRecorder {
	m.t().Helper()
	text, err := json.Marshal(message)
	if err != nil {
		m.t().Fatal(err)
	}
	answers := make(chan *httptest.ResponseRecorder, 1)
	go func() { answers <- m.receive(m.t().Context(), path, text) }()
	return answers
}

// isGranted reads an answer that has come by now.
func isGranted(t *testing.T, answers <-chan *httptest.ResponseRecorder) (granted, answered bool) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-answers:
		var reply postgresapi.VoteReply
		if a.Code != http.StatusOK {
			return false, true
		}
		if err := json.Unmarshal(a.Body.Bytes(), &reply); err != nil {
			t.Fatal(err)
		}
		return reply.Granted, true
	default:
		return false, false
	}
}

func TestRule9VoteIsSentAfterItsPromise(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		m.volume.hang()
		answers := m.ask(postgresapi.VotePath, m.voteRequest(2))
		time.Sleep(time.Second)
		if _, answered := isGranted(t, answers); answered || m.trace.find("receiver stopped") >= 0 {
			t.Fatalf("it votes before its promise is on the volume: answered %t, %v", answered, m.trace.lines)
		}
		m.volume.release()
		synctest.Wait()
		if promised, stopped := m.trace.find("persisted: promised 2"), m.trace.find("receiver stopped"); promised < 0 || stopped < promised {
			t.Fatalf("promised at %d, receiver stopped at %d", promised, stopped)
		}
		m.volume.hang() // the position is reported after another record
		time.Sleep(500 * time.Millisecond)
		if _, answered := isGranted(t, answers); answered {
			t.Fatal("it votes before what it reports is on the volume")
		}
		m.volume.release()
		if granted, _ := isGranted(t, answers); !granted || m.volume.read().Promised != 2 || m.volume.read().PromisedTimeline != 2 {
			t.Errorf("granted %t by %+v", granted, m.volume.read())
		}
	})
}

func TestRule9NoVoteWithoutItsPromise(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		m.volume.fail(errors.New("no space left on device"))
		_, changed := m.elector.ReadView()
		answers := m.ask(postgresapi.VotePath, m.voteRequest(2))
		synctest.Wait()
		<-changed
		if v := m.view(); !strings.Contains(v.Stalled, "no space left on device") {
			t.Errorf("stalled: %q", v.Stalled)
		}
		writes := m.cluster.store.countWrites()
		time.Sleep(20 * time.Second)
		if granted, answered := isGranted(t, answers); granted || !answered {
			t.Errorf("granted %t, answered %t", granted, answered)
		}
		if m.trace.find("receiver stopped") >= 0 || m.cluster.store.countWrites() != writes {
			t.Errorf("it went on without its promise: %v", m.trace.lines)
		}
		// The volume takes records again: what waits is done, and the next vote given.
		m.volume.fail(nil)
		time.Sleep(3 * time.Second)
		if m.trace.count("receiver stopped") != 1 || strings.Contains(m.view().Stalled, "no space") || m.volume.read().Promised != 2 {
			t.Errorf("after the failure: %v, %+v", m.trace.lines, m.view())
		}
		answers = m.ask(postgresapi.VotePath, m.voteRequest(3))
		time.Sleep(time.Second)
		if granted, _ := isGranted(t, answers); !granted {
			t.Error("the next vote is not given")
		}
	})
}

// A request that is repeated while its vote is prepared has the same answer. One that is
// repeated later is another one, and refused.
func TestRule9RepeatedRequestHasOneVote(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		m.volume.hang()
		request, other := m.voteRequest(2), m.voteRequest(2)
		other.Timeline = 9
		first := m.ask(postgresapi.VotePath, request)
		synctest.Wait()
		second, different := m.ask(postgresapi.VotePath, request), m.ask(postgresapi.VotePath, other)
		synctest.Wait()
		if granted, answered := isGranted(t, different); granted || !answered {
			t.Errorf("another request of the same term: granted %t, answered %t", granted, answered)
		}
		m.volume.release()
		time.Sleep(time.Second)
		for _, answers := range []<-chan *httptest.ResponseRecorder{first, second} {
			if granted, _ := isGranted(t, answers); !granted {
				t.Error("a repetition is not answered by the same vote")
			}
		}
		if n := m.trace.count("receiver stopped"); n != 1 {
			t.Errorf("the receiver was stopped %d times", n)
		}
		later := m.ask(postgresapi.VotePath, request)
		time.Sleep(time.Second)
		if granted, answered := isGranted(t, later); granted || !answered {
			t.Errorf("repeated after the vote: granted %t, answered %t", granted, answered)
		}
	})
}

func TestRule9RestartedMemberKeepsItsPromise(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		answers := m.ask(postgresapi.VotePath, m.voteRequest(5))
		time.Sleep(time.Second)
		if granted, _ := isGranted(t, answers); !granted {
			t.Fatal("the first vote is not given")
		}
		m.end()
		m.start(false)
		time.Sleep(15 * time.Second)
		for term, want := range map[int64]bool{4: false, 5: false} {
			answers := m.ask(postgresapi.VotePath, m.voteRequest(term))
			time.Sleep(time.Second)
			if granted, answered := isGranted(t, answers); granted != want || !answered {
				t.Errorf("term %d after the restart: granted %t, answered %t", term, granted, answered)
			}
		}
		answers = m.ask(postgresapi.VotePath, m.voteRequest(6))
		time.Sleep(time.Second)
		if granted, _ := isGranted(t, answers); !granted {
			t.Error("a later term is refused")
		}
	})
}

// leadAlone has the first member lead a cluster whose others are down.
func leadAlone(t *testing.T) (*cluster, *member) {
	c := newCluster(t, 3, testRecord)
	t.Cleanup(c.stopAll)
	c.members[0].start(true)
	return c, c.awaitLeader(30 * time.Second)
}

// changeMembers has the leader persist a change of the Lease.
func (m *member) changeMembers(quorum *lease.Quorum, volumes ...string) {
	m.elector.RequestMembers(election.MembersWanted{Volumes: volumes, Quorum: quorum})
}

func TestRule7HungVolumeDelaysNoRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, m := leadAlone(t)
		m.volume.hang()
		m.changeMembers(&lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 1}, "v0", "v1")
		time.Sleep(5 * time.Second)
		before := m.trace.count("quorum set")
		writes, deadline := c.store.countWrites(), m.guard.deadline()
		time.Sleep(20 * time.Second)
		if renewed := c.store.countWrites() - writes; renewed < 9 || m.guard.deadline() < deadline+18*time.Second {
			t.Errorf("%d renewals, the guard's deadline moved by %s", renewed, m.guard.deadline()-deadline)
		}
		if got := m.trace.count("quorum set"); got != before {
			t.Error("the server got a quorum that is not on the volume")
		}
		if v := m.view(); !v.IsLeading(c.now()) || !strings.Contains(v.Stalled, "hangs") {
			t.Errorf("view: %+v", v)
		}
		m.volume.release()
		time.Sleep(time.Second)
		if v := m.view(); v.Stalled != "" {
			t.Errorf("stalled: %q", v.Stalled)
		}
		c.judgeLives()
	})
}

// A fence waits neither for the volume nor for what waits for it, and ends that.
func TestRule7HungVolumeDelaysNoFence(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, m := leadAlone(t)
		m.volume.hang()
		// From asynchronous mode the server's quorum is set before the Lease is written.
		m.changeMembers(nil, "v0", "v1")
		time.Sleep(3 * time.Second)
		m.changeMembers(&lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 2}, "v0", "v1")
		time.Sleep(3 * time.Second)
		if m.trace.find("quorum set") >= 0 {
			t.Fatal("nothing waits for the volume")
		}
		_, taken := c.store.state()
		taken.HolderUID, taken.HolderVolume, taken.Term, taken.Timeline, taken.HighestTimeline = "p9", "v1", taken.Term+1, 9, 9
		c.store.put(taken)
		time.Sleep(3 * time.Second)
		if m.trace.find("fenced") < 0 || len(c.leaders()) != 0 || m.view().Fences != 1 {
			t.Fatalf("not fenced: %v", m.trace.lines)
		}
		if m.guard.deadline() != 0 {
			t.Error("the guard's deadline stays after the fence")
		}
		m.volume.release()
		time.Sleep(time.Second)
		if m.trace.find("quorum set") >= 0 {
			t.Error("the quorum of a term that ended was set")
		}
		if m.trace.count("promoted: term 2") != 1 {
			t.Errorf("%v", m.trace.lines)
		}
	})
}

// A promotion that waits for the volume ends with its term. It ends by itself when it
// waits too long: the others may lead then.
func TestRule7PromotionThatWaitsEndsWithItsTerm(t *testing.T) {
	for name, lose := range map[string]func(*cluster){
		"the volume hangs for long": func(*cluster) {},
		"the Lease is taken": func(c *cluster) {
			_, taken := c.store.state()
			taken.HolderUID, taken.HolderVolume, taken.Term, taken.Timeline, taken.HighestTimeline = "p9", "v1", taken.Term+1, 9, 9
			c.store.put(taken)
		},
		"the API server does not answer": func(c *cluster) {
			c.members[0].lease.set(func(l *fakeLease) { l.cut = true })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := newCluster(t, 3, testRecord)
				t.Cleanup(c.stopAll)
				m := c.members[0]
				m.lease.set(func(l *fakeLease) { l.delay = 100 * time.Millisecond })
				m.start(true)
				m.await("the claim to be sent", func() bool { return m.trace.find("written: term 2") >= 0 })
				m.volume.hang()
				time.Sleep(time.Second)
				if m.view().Phase != election.Promoting || c.store.countWrites() != 2 {
					t.Fatalf("no promotion waits: %+v", m.view())
				}
				if m.guard.deadline() == 0 {
					t.Error("the guard has no deadline")
				}
				lose(c)
				time.Sleep(14 * time.Second)
				byGuard := m.trace.find("killed by the guard") >= 0
				if !byGuard && (m.trace.find("fenced") < 0 || m.view().Phase == election.Promoting || m.guard.deadline() > c.now()) {
					t.Errorf("the term has not ended: %+v", m.view())
				}
				m.volume.release()
				time.Sleep(500 * time.Millisecond)
				if m.trace.find("promoted: term 2") >= 0 {
					t.Error("the server of a term that ended was promoted")
				}
			})
		})
	}
}

// A claim that waits for the volume beyond its time is not sent.
func TestRule5ClaimThatWaitsTooLongIsNotSent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 1, testRecord)
		t.Cleanup(c.stopAll)
		m := c.members[0]
		m.start(true)
		m.await("phase Asking", func() bool { return m.view().Phase == election.Asking })
		m.volume.hang()
		m.await("phase Claiming", func() bool { return m.view().Phase == election.Claiming })
		// It is unsure first, and reads.
		m.await("phase Standby", func() bool { return m.view().Phase == election.Standby })
		m.volume.release()
		time.Sleep(200 * time.Millisecond)
		if m.trace.find("written: term 2") >= 0 || c.store.countWrites() != 1 {
			t.Errorf("the claim was sent late: %v", m.trace.lines)
		}
		c.awaitLeader(30 * time.Second)
		if m.trace.find("promoted: term 2") >= 0 || m.trace.find("promoted: term 3") < 0 {
			t.Errorf("the term of the claim was used again: %v", m.trace.lines)
		}
	})
}

func TestRule3LateAnswersAreIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, m := leadAlone(t)
		before := m.guard.deadline()
		// One request may be under way. Each request is done, and its answer comes when it is not waited for any more.
		m.lease.set(func(l *fakeLease) { l.delay = 2 * time.Second })
		for range 30 {
			time.Sleep(500 * time.Millisecond)
			if until := m.guard.deadline(); until > before+3*time.Second {
				t.Fatalf("an answer that came too late moved the guard's deadline from %s to %s", before, until)
			}
		}
		if m.trace.find("fenced") < 0 && m.trace.find("server stopped") < 0 {
			t.Errorf("it leads without an answer in time: %v", m.trace.lines)
		}
		c.judgeLives()
	})
}

// An answer of a reading that was sent before this member's own write is not the newest
// state: the deadline counts from the send.
func TestRule6GuardCountsFromTheSend(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c, m := leadAlone(t)
		m.lease.set(func(l *fakeLease) { l.delay = time.Second })
		time.Sleep(20 * time.Second)
		if left := m.guard.deadline() - c.now(); left > 6*time.Second || !m.view().IsLeading(c.now()) {
			t.Errorf("%s are left after an answer that took 1 s of 7 s: %+v", left, m.view())
		}
	})
}

// A confirmation waits for what the member has read to be on its volume: it relies on it.
func TestRule16ConfirmationWaitsForTheVolume(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := newCluster(t, 3, heldRecord())
		t.Cleanup(c.stopAll)
		m := c.members[1]
		m.volume.hang()
		m.start(true)
		time.Sleep(3 * time.Second) // the record was read and is not on the volume
		request := postgresapi.ConfirmRequest{ElectionHeader: postgresapi.ElectionHeader{Format: 1, Pod: "orders-0", From: "v0", To: "v1"}, Term: 1, Sent: 77}
		confirmed := func(answers <-chan *httptest.ResponseRecorder) (bool, bool) {
			synctest.Wait()
			select {
			case a := <-answers:
				var reply postgresapi.ConfirmReply
				_ = json.Unmarshal(a.Body.Bytes(), &reply)
				return reply.Confirmed && reply.Sent == 77, true
			default:
				return false, false
			}
		}
		if yes, answered := confirmed(m.ask(postgresapi.ConfirmPath, request)); yes || !answered {
			t.Errorf("while the API server answers: confirmed %t, answered %t", yes, answered)
		}
		m.lease.set(func(l *fakeLease) { l.cut = true })
		time.Sleep(4 * time.Second)
		answers := m.ask(postgresapi.ConfirmPath, request)
		if yes, answered := confirmed(answers); answered {
			t.Errorf("before the volume has the record: confirmed %t", yes)
		}
		m.volume.release()
		if yes, _ := confirmed(answers); !yes || m.view().PromisedUntil == 0 || m.volume.read().Known.Term != 1 {
			t.Errorf("confirmed %t: %+v", yes, m.view())
		}
	})
}

// What a receiver or a rewind is about to do is on the volume first.
func TestRule18RewindWaitsForTheVolume(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		reports := m.elector.Reports()
		m.volume.hang()
		for name, record := range map[string]func() error{
			"timeline": func() error { return reports.RecordTimeline(t.Context(), 4) },
			"begin":    func() error { return reports.BeginRewind(t.Context()) },
		} {
			done := make(chan error, 1)
			go func() { done <- record() }()
			time.Sleep(time.Second)
			select {
			case err := <-done:
				t.Fatalf("%s: went on before the volume, %v", name, err)
			default:
			}
			// A repetition changes nothing in memory, and has to wait all the same.
			go func() { done <- record() }()
			time.Sleep(time.Second)
			if len(done) != 0 {
				t.Fatalf("%s: the repetition went on before the volume", name)
			}
			m.volume.release()
			if err := <-done; err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := <-done; err != nil {
				t.Errorf("%s again: %v", name, err)
			}
			m.volume.hang()
		}
		m.volume.release()
		time.Sleep(time.Second)
		if p := m.volume.read(); !p.Rewinding || p.Timelines[len(p.Timelines)-1] != 4 {
			t.Errorf("recorded: %+v", p)
		}
		m.volume.fail(errors.New("input/output error"))
		if err := reports.EndRewind(t.Context(), "7", []int64{1, 4}); err == nil || !strings.Contains(err.Error(), "input/output error") {
			t.Errorf("a failed record: %v", err)
		}
		m.volume.fail(nil)
		if err := reports.EndRewind(t.Context(), "7", []int64{1, 4}); err != nil || m.volume.read().Rewinding {
			t.Errorf("after the failure: %v, %+v", err, m.volume.read())
		}
	})
}
