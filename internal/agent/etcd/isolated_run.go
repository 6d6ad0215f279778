package etcd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// brieflyLimit is how long a start may take that does not serve.
const brieflyLimit = 2 * time.Minute

// dropLimit is how long one check of who is left may take.
const dropLimit = 5 * time.Second

// bootstrapCluster begins a new group beside its place, and moves it there only when
// it is whole: etcd cannot go on from a Raft log without its first entries. The token
// has the volume's name, so that two bootstraps never pass for one cluster.
func (a *etcdAgent) bootstrapCluster(ctx context.Context, f observation) error {
	if err := a.guard.clearStart(); err != nil {
		return err
	}
	pod, directory := a.o.Identity.Pod, filepath.Join(a.o.DataDir, bootstrapName)
	s := start{
		Data: directory, Alone: true, State: etcdapi.JoinNew,
		Cluster: map[string]string{pod: a.o.PeerURL(pod)}, Token: f.Cluster + "-" + f.Volume.Mark.Volume,
	}
	if err := a.runIsolated(ctx, s, isLeading); err != nil {
		return fmt.Errorf("begin the cluster: %w", err)
	}
	return atomicfile.Move(directory, a.o.etcdDir())
}

// recoverQuorum drops all other members from the group, and marks the request as
// carried out. After a crash in between the member is the only one with a vote,
// or hears of no leader as before; see followRecoveryRequest.
func (a *etcdAgent) recoverQuorum(ctx context.Context, f observation) error {
	a.log.Warn("drops all other members", "request", f.Recovery.Token)
	err := a.runIsolated(ctx, start{Data: a.o.etcdDir(), Alone: true, ForceNew: true}, func(s *clientv3.StatusResponse) bool {
		return isLeading(s) && a.dropOthers(ctx, formatID(s.Header.MemberId))
	})
	if err != nil {
		return fmt.Errorf("go on without the other members: %w", err)
	}
	return markRecovered(a.o.DataDir, f.Recovery.Token)
}

// dropOthers removes the members that a forced start has left in the list, and
// says whether there are none: etcd before 3.5.25 and 3.6.6 leaves a learner
// that it knows from a snapshot. A member that leads alone decides that alone.
func (a *etcdAgent) dropOthers(ctx context.Context, self string) bool {
	ctx, cancel := context.WithTimeout(ctx, dropLimit)
	defer cancel()
	_, list, err := a.local.fetchMembers(ctx, a.local.peer)
	if err != nil || len(list) == 1 && list[0].ID == self {
		return err == nil
	}
	for _, m := range list {
		if m.ID == self {
			continue
		}
		a.log.Warn("drops a member that was left", "member", m.ID, "learner", m.Learner)
		if err := a.local.removeMember(ctx, m.ID); err != nil {
			a.log.Info("tried again", "step", "drop a member", "error", err.Error())
		}
	}
	return false
}

func isLeading(s *clientv3.StatusResponse) bool {
	return s.Header != nil && s.Leader != 0 && s.Leader == s.Header.MemberId
}

// runIsolated runs etcd briefly on the loopback interface, until done says so of what
// it answers.
func (a *etcdAgent) runIsolated(ctx context.Context, s start, done func(*clientv3.StatusResponse) bool) error {
	return a.runBriefly(ctx, s, func() bool {
		asking, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		status, err := a.local.fetchStatus(asking)
		return err == nil && done(status)
	})
}

// runBriefly runs etcd without the user's parameters until done says so, and stops
// it in order.
func (a *etcdAgent) runBriefly(ctx context.Context, s start, done func() bool) error {
	if err := a.writeTrust(); err != nil {
		return err
	}
	limit := int64(0)
	if config, _ := a.Config.Current(); config != nil {
		limit = config.DataLimit
	}
	l := &etcdRun{etcdAgent: a}
	var err error
	l.server, err = a.programs.Serve(a.Lock, l.readLogLine, "etcd", a.o.commandLine(a.release, s, nil, limit)...)
	if err != nil {
		return err
	}
	defer l.killServer()
	ctx, cancel := context.WithTimeout(ctx, brieflyLimit)
	defer cancel()
	for !done() {
		select {
		case <-l.server.Done():
			return errors.New("etcd ended: " + l.explainEnd())
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
