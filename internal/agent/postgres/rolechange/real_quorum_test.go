//go:build postgres

package rolechange

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// writer inserts numbered rows, and keeps those whose commit was acknowledged.
type writer struct {
	t     *testing.T
	conn  *pgx.Conn
	mu    sync.Mutex
	acked []int
	next  int
	stop  chan struct{}
	ended chan struct{}
}

// write begins to write to a primary until that ends.
func (m *member) write(first int) *writer {
	m.t.Helper()
	w := &writer{t: m.t, next: first, stop: make(chan struct{}), ended: make(chan struct{})}
	var err error
	if w.conn, err = m.connect(m.t.Context(), "writer"); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = w.conn.Close(context.Background()) })
	go func() {
		defer close(w.ended)
		for {
			select {
			case <-w.stop:
				return
			default:
			}
			if _, err := w.conn.Exec(context.Background(), fmt.Sprintf("insert into public.acknowledged values (%d)", w.next)); err != nil {
				return
			}
			w.mu.Lock()
			w.acked = append(w.acked, w.next)
			w.next++
			w.mu.Unlock()
		}
	}()
	return w
}

// last is the number of the last row that was acknowledged, and how many were.
func (w *writer) last() (n, count int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.acked) == 0 {
		return 0, 0
	}
	return w.acked[len(w.acked)-1], len(w.acked)
}

func (w *writer) waitMore(rows int) {
	w.t.Helper()
	_, before := w.last()
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		if _, now := w.last(); now >= before+rows {
			return
		}
		if time.Now().After(end) {
			w.t.Fatal("nothing is acknowledged")
		}
	}
}

// lost are rows that were acknowledged and that a member does not hold.
func (w *writer) lost(m *member) (lost []int) {
	m.t.Helper()
	held := map[int]bool{}
	err := m.session.Do(m.t.Context(), func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, "select n from public.acknowledged")
		if err != nil {
			return err
		}
		var n int
		_, err = pgx.ForEachRow(rows, []any{&n}, func() error { held[n] = true; return nil })
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.acked {
		if !held[n] {
			lost = append(lost, n)
		}
	}
	return lost
}

func (m *member) setQuorum(q Quorum) {
	m.t.Helper()
	if err := m.trySetQuorum(q, 20*time.Second); err != nil {
		m.t.Fatalf("%s: %v: %v", m.name, q, err)
	}
}

func (m *member) trySetQuorum(q Quorum, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(m.t.Context(), limit)
	defer cancel()
	return m.SetQuorum(ctx, q)
}

// isAcknowledged says whether a commit of a new session is acknowledged within a while.
func (m *member) isAcknowledged(while time.Duration) bool {
	m.t.Helper()
	conn, err := m.connect(m.t.Context(), "client")
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(m.t.Context(), while)
	defer cancel()
	_, err = conn.Exec(ctx, "insert into public.ledger (tag) values ('acknowledged?')")
	return err == nil
}

// signalStream signals the primary's process that streams to a standby.
func (m *member) signalStream(standby *member, signal syscall.Signal) {
	m.t.Helper()
	pid, err := strconv.Atoi(m.one("select pid::text from pg_stat_replication where application_name = '" + standby.name + "'"))
	if err == nil {
		err = syscall.Kill(pid, signal)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// Rule 15: a commit is acknowledged by its quorum alone.
func TestRealRule15CommitWaitsForItsQuorum(t *testing.T) {
	w := newWorld(t, 3, nil)
	primary, a, b := w.members[0], w.members[1], w.members[2]
	one, both := Quorum{1, []string{a.name, b.name}}, Quorum{2, []string{a.name, b.name}}
	expect := func(q Quorum, want bool, when string) {
		t.Helper()
		while := limit
		if !want {
			while = time.Second
		}
		if got := primary.isAcknowledged(while); got != want {
			t.Errorf("with %s, %s: acknowledged %v", q, when, got)
		}
	}
	primary.setQuorum(both)
	expect(both, true, "both stream")
	progress, err := primary.ReadProgress(t.Context())
	if err != nil || progress.FindAcknowledged(both).Position == 0 || progress.FindAcknowledged(both).Newer(progress.Own) || progress.FindAcknowledged(one).Position != 0 {
		t.Errorf("%+v, %v", progress, err)
	}
	b.stopReceiver()
	primary.until("(select count(*) from pg_stat_replication) = 1")
	expect(both, false, "one streams")
	if progress, err = primary.ReadProgress(t.Context()); err != nil || progress.FindAcknowledged(both).Position != 0 {
		t.Errorf("%+v, %v", progress, err)
	}
	primary.setQuorum(one)
	expect(one, true, "one streams")
	a.stopReceiver()
	primary.until("(select count(*) from pg_stat_replication) = 0")
	expect(one, false, "none streams")
	// A stream of another name, such as a copy's, counts for nothing.
	copying := w.newMember("copy", nil)
	primary.cloneTo(copying)
	connection := copying.connectionTo(primary)
	connection.Application = "holdfast_copy"
	copying.parameters["primary_slot_name"] = ""
	primary.exec("select pg_create_physical_replication_slot('holdfast_copy', true)")
	copying.start(Live{Upstream: connection.String()})
	copying.waitStreams()
	expect(one, false, "a copy streams")
	primary.setQuorum(Quorum{})
	expect(Quorum{}, true, "none streams")
}

// Rule 15: a quorum counts once every process uses it, and once it has flushed all
// that an earlier one has acknowledged.
func TestRealRule15QuorumChangesWhenAllUseItAndHaveAll(t *testing.T) {
	w := newWorld(t, 3, nil)
	primary, a, b := w.members[0], w.members[1], w.members[2]
	primary.exec("create table public.acknowledged (n int)")
	primary.setQuorum(Quorum{1, []string{a.name, b.name}})
	load := primary.write(1)
	load.waitMore(20)

	// A standby is behind that is to acknowledge alone.
	a.signalReceiver(t, syscall.SIGSTOP)
	load.waitMore(50)
	if err := primary.trySetQuorum(Quorum{1, []string{a.name}}, time.Second); err == nil {
		t.Error("the quorum changed, and its only standby lacks what was acknowledged")
	}
	_, before := load.last()
	a.signalReceiver(t, syscall.SIGCONT)
	primary.setQuorum(Quorum{1, []string{a.name}})
	load.waitMore(20)
	if _, after := load.last(); after <= before {
		t.Error("nothing is acknowledged any more")
	}

	// A process that streams does not read its settings.
	primary.signalStream(b, syscall.SIGSTOP)
	if err := primary.trySetQuorum(Quorum{1, []string{a.name, b.name}}, time.Second); err == nil {
		t.Error("the quorum changed, and a stream does not go by it")
	}
	primary.signalStream(b, syscall.SIGCONT)
	primary.setQuorum(Quorum{1, []string{a.name, b.name}})
	load.waitMore(20)
	primary.kill()
	<-load.ended
}

// signalReceiver signals a standby's receiver.
func (m *member) signalReceiver(t *testing.T, signal syscall.Signal) {
	t.Helper()
	pids, _ := m.listReceivers()
	if len(pids) != 1 {
		t.Fatalf("receivers %v", pids)
	}
	if err := syscall.Kill(pids[0], signal); err != nil {
		t.Fatal(err)
	}
}

// Rules 10 and 15: whatever quorum was set last, its voters together hold every
// acknowledged commit when the primary is killed under load.
func TestRealRule15NoAcknowledgedCommitIsLost(t *testing.T) {
	w := newWorld(t, 3, nil)
	primary, others := w.members[0], w.members[1:]
	primary.exec("create table public.acknowledged (n int)")
	timeline, first := int64(1), 1
	for round := range 6 {
		a, b := others[round%2], others[1-round%2]
		names := []string{a.name, b.name}
		primary.setQuorum(Quorum{1, names})
		load := primary.write(first)
		load.waitMore(30)
		// One is behind when the quorum shrinks to it.
		a.signalReceiver(t, syscall.SIGSTOP)
		load.waitMore(30)
		time.AfterFunc(200*time.Millisecond, func() { a.signalReceiver(t, syscall.SIGCONT) })
		voters := []*member{a}
		switch round % 3 {
		case 0:
			primary.setQuorum(Quorum{1, []string{a.name}})
		case 1:
			primary.setQuorum(Quorum{2, names})
			primary.setQuorum(Quorum{1, []string{a.name}})
		case 2:
			primary.setQuorum(Quorum{2, names}) // one of the two has to vote
		}
		if round%2 == 0 {
			load.waitMore(10)
		}
		primary.kill()
		<-load.ended

		winner := voters[0]
		winner.stopReceiver()
		timeline++
		winner.promote(timeline, Quorum{})
		if lost := load.lost(winner); len(lost) > 0 {
			t.Fatalf("round %d: of %d rows, %v are lost", round, len(load.acked), lost)
		}
		first, _ = load.last()
		first += 1000
		t.Logf("round %d: %d rows were acknowledged", round, len(load.acked))
		// The others follow, or are made anew where they had more than the quorum.
		for _, m := range []*member{b, primary} {
			w.rejoin(m, winner, timeline)
		}
		winner.sameContent(b, primary)
		others = []*member{b, primary}
		primary = winner
	}
}

// rejoin has a member follow a primary, as a new copy if its data has diverged.
func (w *world) rejoin(m, primary *member, timeline int64) {
	w.t.Helper()
	m.kill()
	held, err := PrepareStandby(w.t.Context(), w.programs, m.pgdata())
	if err != nil {
		w.t.Fatal(err)
	}
	if err := CheckTarget(w.t.Context(), held, Target{Connection: m.connectionTo(primary), Timeline: timeline}); err != nil {
		w.t.Logf("%s: %v", m.name, err)
		removeData(w.t, m)
		primary.cloneTo(m)
	}
	m.start(Live{})
	m.follow(primary, timeline)
}

// Rule 15: from the first commit after a promotion on, the quorum counts, whether the
// standby ran with one or not.
func TestRealRule15PromotedServerWaitsForItsQuorumAtOnce(t *testing.T) {
	for _, started := range []Live{{}, {SynchronousNames: NoStandby.String()}} {
		t.Run(fmt.Sprintf("started with %q", started.SynchronousNames), func(t *testing.T) {
			w := newWorld(t, 3, nil)
			primary, a, b := w.members[0], w.members[1], w.members[2]
			primary.fill("before", 500)
			primary.sameContent(a, b)
			a.kill()
			if _, err := PrepareStandby(t.Context(), w.programs, a.pgdata()); err != nil {
				t.Fatal(err)
			}
			a.start(started)
			a.follow(primary, 1)
			primary.kill()
			a.stopReceiver()
			b.stopReceiver()
			// A session that is there before writes as soon as it can.
			conn, err := a.connect(t.Context(), "eager")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.Background()) }()
			acknowledged := make(chan time.Time, 1)
			go func() {
				for {
					if _, err := conn.Exec(context.Background(), "insert into public.ledger (tag) values ('eager')"); err == nil {
						acknowledged <- time.Now()
						return
					}
					if conn.IsClosed() {
						return
					}
				}
			}()
			a.promote(2, Quorum{1, []string{b.name}})
			if a.isAcknowledged(time.Second) {
				t.Error("a commit was acknowledged without the quorum")
			}
			select {
			case <-acknowledged:
				t.Error("the first commit was acknowledged without the quorum")
			default:
			}
			b.follow(a, 2)
			select {
			case <-acknowledged:
			case <-time.After(limit):
				t.Error("the first commit is not acknowledged with the quorum")
			}
			if !a.isAcknowledged(limit) {
				t.Error("a commit is not acknowledged with the quorum")
			}
			a.sameContent(b)
		})
	}
}
