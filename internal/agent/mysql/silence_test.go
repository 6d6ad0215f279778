package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// mute is a server that accepts connections and answers nothing.
type mute struct{ recorder }

func (s mute) Connect(context.Context) (driver.Conn, error) { return s, nil }

func (mute) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// full answers every connection to a socket as a server does that has too many.
func full(t *testing.T, socket string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("\x17\x00\x00\x00\xff\x10\x04Too many connections"))
			_ = conn.Close()
		}
	}()
}

// A server that accepts connections, and does not say where it stands in its group, counts
// as one that does not answer: it is not known whether it leads. A refusal is an answer, and one that
// joins its group may be slow.
func TestServerThatDoesNotAnswerOfItsGroup(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	full(t, r.o.socket())
	r.member.setUp()
	g := newGroupLoop(r)
	for _, c := range []struct {
		name   string
		server driver.Connector
		under  chan error
		since  time.Duration
		silent bool
	}{
		{"says nothing", mute{}, nil, 0, true},
		{"says nothing while it joins", mute{}, make(chan error), beginLimit - time.Second, false},
		{"says nothing while it joins for too long", mute{}, make(chan error), beginLimit, true},
		{"refuses", recorder{&sync.Mutex{}, new([]string)}, nil, 0, false},
	} {
		r.observing = sql.OpenDB(c.server)
		g.under, g.begun = c.under, clock.Boottime()-c.since
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		g.step(ctx)
		cancel()
		if err := r.connectAnew(t.Context()); errors.Is(err, health.ErrUnanswered) != c.silent || err != nil && !c.silent {
			t.Errorf("a server that %s: %v", c.name, err)
		}
		_ = r.observing.Close()
	}
}

// A server that answered late may take longer, until it answers soon again.
func TestSlowServerIsGivenTime(t *testing.T) {
	g := newGroupLoop(newTestRun(t, agentapi.ClusterConfig{}))
	for _, c := range []struct {
		took time.Duration
		err  error
		want time.Duration
	}{
		{time.Millisecond, nil, group.ObserveLimit},
		{group.ObserveLimit, context.DeadlineExceeded, health.PatientTime},
		{2 * group.ObserveLimit, nil, health.PatientTime},
		{time.Millisecond, errors.New("refused"), health.PatientTime},
		{time.Millisecond, nil, group.ObserveLimit},
	} {
		if g.setPatience(c.took, c.err); g.observeLimit != c.want {
			t.Errorf("after %s, %v: %s", c.took, c.err, g.observeLimit)
		}
	}
}
