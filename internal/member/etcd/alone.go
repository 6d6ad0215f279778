package etcd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-db/holdfast/internal/member"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// aloneLimit is how long a start out of everybody's reach may take.
const aloneLimit = 2 * time.Minute

// birth begins a new group beside its place, and moves it there only when it is
// whole: etcd cannot go on from a log without its first entries. The token has
// the volume's name, so that two births never pass for one cluster.
func (a *agent) birth(ctx context.Context, f facts) error {
	if err := a.gate.clearStart(); err != nil {
		return err
	}
	pod, directory := a.o.Identity.Pod, filepath.Join(a.o.DataDir, birthName)
	s := start{
		Data: directory, Alone: true, State: memberapi.TicketNew,
		Cluster: map[string]string{pod: a.o.PeerURL(pod)}, Token: f.Cluster + "-" + f.Volume.Mark.Volume,
	}
	if err := a.alone(ctx, s, leads); err != nil {
		return fmt.Errorf("begin the cluster: %w", err)
	}
	return member.Move(directory, a.o.data())
}

// recover drops all other members from the group, and marks the order as
// carried out. A crash in between does it again, and harms nobody: no member
// and no client can have come in.
func (a *agent) recover(ctx context.Context, f facts) error {
	a.log.Warn("drops all other members", "order", f.Recovery.Token)
	err := a.alone(ctx, start{Data: a.o.data(), Alone: true, ForceNew: true}, func(s *clientv3.StatusResponse) bool {
		look, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, list, err := a.local.members(look, a.local.peer)
		return err == nil && len(list) == 1 && leads(s)
	})
	if err != nil {
		return fmt.Errorf("go on without the other members: %w", err)
	}
	m, err := readMark(a.o.DataDir)
	if err != nil {
		return err
	}
	m.Recovered = f.Recovery.Token
	return m.write(a.o.DataDir)
}

func leads(s *clientv3.StatusResponse) bool {
	return s.Header != nil && s.Leader != 0 && s.Leader == s.Header.MemberId
}

// alone runs etcd on the loopback interface, without the user's parameters,
// until done says so, and stops it in order.
func (a *agent) alone(ctx context.Context, s start, done func(*clientv3.StatusResponse) bool) error {
	if err := a.writeTrust(); err != nil {
		return err
	}
	limit := int64(0)
	if config, _ := a.Config.Current(); config != nil {
		limit = config.DataLimit
	}
	l := &life{agent: a}
	var err error
	l.server, err = a.programs.Serve(a.lock, l.listen, "etcd", a.o.commandLine(a.release, s, nil, limit)...)
	if err != nil {
		return err
	}
	defer l.kill()
	ctx, cancel := context.WithTimeout(ctx, aloneLimit)
	defer cancel()
	for {
		look, cancel := context.WithTimeout(ctx, time.Second)
		status, err := a.local.status(look)
		cancel()
		if err == nil && done(status) {
			break
		}
		select {
		case <-l.server.Done():
			return errors.New("etcd ended: " + l.reason())
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	_ = l.server.Signal(syscall.SIGTERM)
	if !l.server.Ended(a.o.StopTimeout) {
		return errors.New("etcd does not stop")
	}
	return nil
}
