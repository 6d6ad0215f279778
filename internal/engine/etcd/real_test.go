//go:build etcd

// What is asked of a group is asked of a real etcd here. make etcd-test builds
// it; HOLDFAST_ETCD names the directory that it is in.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// realMember is an etcd of this machine, without TLS: that is the connection's,
// and no part of what is asked.
type realMember struct {
	name, client, peer string
	group              client
}

func newRealMember(t *testing.T, name string) *realMember {
	t.Helper()
	m := &realMember{name: name, client: freeURL(t), peer: freeURL(t)}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.client}, DialTimeout: dialTimeout, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	m.group = client{c}
	return m
}

// freeURL on this machine.
func freeURL(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "http://" + l.Addr().String()
}

// start it in a group of members, and wait until it answers.
func (m *realMember) start(t *testing.T, state string, members []*realMember, flags ...string) {
	t.Helper()
	program := "etcd"
	if dir := os.Getenv("HOLDFAST_ETCD"); dir != "" {
		program = filepath.Join(dir, program)
	}
	var initial []string
	for _, other := range members {
		initial = append(initial, other.name+"="+other.peer)
	}
	cmd := exec.CommandContext(context.Background(), program, append([]string{
		"--name", m.name, "--data-dir", t.TempDir(), "--log-level", "error",
		"--listen-client-urls", m.client, "--advertise-client-urls", m.client,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-state", state,
	}, flags...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	m.until(t, "it answers", func(ctx context.Context) error {
		_, err := m.group.Status(ctx, m.client)
		return err
	})
}

// until what is asked of it succeeds.
func (m *realMember) until(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = m.ask(t, dialTimeout, ask); err == nil {
			return
		}
	}
	t.Fatalf("%s: %s, not within a minute: %v", m.name, what, err)
}

// unlessSlow lets a member be asked again that did not answer in time.
func unlessSlow(t *testing.T, what string, err error) error {
	t.Helper()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%s: %v", what, err)
	}
	return err
}

func (m *realMember) ask(t *testing.T, patience time.Duration, ask func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return ask(ctx)
}

// must ask it, and nothing may go wrong.
func (m *realMember) must(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	if err := m.ask(t, time.Minute, ask); err != nil {
		t.Fatalf("%s: %s: %v", m.name, what, err)
	}
}

// list says of each member, by its peer URL, whether it is a learner.
func (m *realMember) list(t *testing.T) (members []*etcdserverpb.Member) {
	t.Helper()
	m.must(t, "list the members", func(ctx context.Context) error {
		answer, err := m.group.MemberList(ctx)
		if err == nil {
			members = answer.Members
		}
		return err
	})
	return members
}

func (m *realMember) find(t *testing.T, peer string) *etcdserverpb.Member {
	t.Helper()
	all := m.list(t)
	at := slices.IndexFunc(all, func(m *etcdserverpb.Member) bool { return slices.Equal(m.PeerURLs, []string{peer}) })
	if at < 0 {
		return nil
	}
	return all[at]
}

// Each change of the group is made once, and asked for again it is no error.
func TestRealGroup(t *testing.T) {
	a, b := newRealMember(t, "a"), newRealMember(t, "b")
	a.start(t, "new", []*realMember{a})
	a.until(t, "it admits a learner", func(ctx context.Context) error {
		if err := a.group.AddLearner(ctx, b.peer); err != nil {
			return unlessSlow(t, "a group that is too young is no failure", err)
		}
		if a.find(t, b.peer) == nil {
			return errors.New("there is none")
		}
		return nil
	})
	a.must(t, "admit one more", func(ctx context.Context) error { return a.group.AddLearner(ctx, freeURL(t)) })
	if all := a.list(t); len(all) != 2 {
		t.Fatalf("while a learner is on its way in there are %d members: %v", len(all), all)
	}
	id := a.find(t, b.peer).ID
	a.must(t, "promote what has not started", func(ctx context.Context) error { return a.group.Promote(ctx, id) })
	if !a.find(t, b.peer).IsLearner {
		t.Fatal("one that has not started has a vote")
	}

	b.start(t, "existing", []*realMember{a, b})
	a.until(t, "it promotes", func(ctx context.Context) error {
		if err := a.group.Promote(ctx, id); err != nil {
			return unlessSlow(t, "one that still catches up is no failure", err)
		}
		if a.find(t, b.peer).IsLearner {
			return errors.New("it is still a learner")
		}
		return nil
	})
	a.must(t, "promote again", func(ctx context.Context) error { return a.group.Promote(ctx, id) })

	a.until(t, "it transfers leadership", func(ctx context.Context) error {
		// A member that has not applied its own promotion does not take over,
		// and etcd waits for it until the caller no longer does.
		if err := a.group.MoveLeader(ctx, id); err != nil {
			return unlessSlow(t, "a leader transfer", err)
		}
		st, err := a.group.Status(ctx, a.client)
		if err == nil && st.Leader != id {
			err = fmt.Errorf("%x leads", st.Leader)
		}
		return err
	})
	a.must(t, "transfer what it does not have", func(ctx context.Context) error { return a.group.MoveLeader(ctx, id) })

	a.until(t, "it removes", func(ctx context.Context) error {
		if err := a.group.Remove(ctx, id); err != nil {
			return err // etcd wants both to have known each other for a while
		}
		if a.find(t, b.peer) != nil {
			return errors.New("it is still there")
		}
		return nil
	})
	a.must(t, "remove again", func(ctx context.Context) error { return a.group.Remove(ctx, id) })
}

// A member that is full takes writes again after it was compacted,
// defragmented and disarmed, in this order.
func TestRealSpace(t *testing.T) {
	a := newRealMember(t, "a")
	a.start(t, "new", []*realMember{a}, "--quota-backend-bytes", "4194304")
	value := strings.Repeat("x", 256<<10)
	put := func(ctx context.Context) error {
		_, err := a.group.Put(ctx, "key", value)
		return err
	}
	var first int64
	a.must(t, "write", func(ctx context.Context) error {
		answer, err := a.group.Put(ctx, "key", "first")
		first = answer.Header.Revision
		return err
	})
	for n := 0; ; n++ {
		if err := a.ask(t, time.Minute, put); errors.Is(err, rpctypes.ErrNoSpace) {
			break
		} else if err != nil || n == 100 {
			t.Fatalf("after %d writes it is not full: %v", n, err)
		}
	}
	full := a.size(t)

	a.must(t, "compact", a.group.Compact)
	a.must(t, "compact again", a.group.Compact)
	if err := a.ask(t, time.Minute, func(ctx context.Context) error {
		_, err := a.group.Get(ctx, "key", clientv3.WithRev(first))
		return err
	}); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Fatalf("the oldest revision is read: %v", err)
	}
	a.must(t, "defragment", a.group.Defragment)
	if after := a.size(t); after >= full/2 {
		t.Fatalf("%d bytes of %d are left", after, full)
	}
	if err := a.ask(t, time.Minute, put); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("while the alarm stands: %v", err)
	}
	a.must(t, "disarm", a.group.Disarm)
	a.must(t, "disarm again", a.group.Disarm)
	a.must(t, "write", put)
}

func (m *realMember) size(t *testing.T) (size int64) {
	t.Helper()
	m.must(t, "ask for its size", func(ctx context.Context) error {
		st, err := m.group.Status(ctx, m.client)
		if err == nil {
			size = st.DbSize
		}
		return err
	})
	return size
}
