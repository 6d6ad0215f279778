package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// Limits of what is asked of etcd. A member answers nothing else while it
// defragments.
const (
	askTimeout    = 10 * time.Second
	defragTimeout = 5 * time.Minute
)

// Act implements engine.Engine.
func (e *Engine) Act(ctx context.Context, c *v1alpha1.EtcdCluster, s engine.Step) error {
	if _, ours := pauses[s.Type]; !ours {
		return e.MemberEngine.Act(ctx, membersOf(c), s)
	}
	if err := e.CheckUnchanged(ctx, membersOf(c)); err != nil {
		return err
	}
	defer func() { e.attempts.noteAttempt(membersOf(c).Key(), s, e.Clock.Now()) }()
	pod := s.Target
	if s.Type != stepDefragment {
		if pod = e.findLeader(c); pod == "" {
			return nil // there is none any more; the next pass looks again
		}
	}
	group, err := e.reachGroup(ctx, c, pod)
	if err != nil {
		return fmt.Errorf("reach etcd of %s: %w", pod, err)
	}
	defer group.Close() //nolint:errcheck // nothing is written through it that is not done
	limit := askTimeout
	if s.Type == stepDefragment {
		limit = defragTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return askGroup(ctx, group, s)
}

// askGroup asks etcd to do a step. It does so under what it holds true itself at that
// moment, not what was observed.
func askGroup(ctx context.Context, group Group, s engine.Step) error {
	switch s.Type {
	case stepAddLearner:
		return group.AddLearner(ctx, s.Subject)
	case stepCompact:
		return group.Compact(ctx)
	case stepDefragment:
		return group.Defragment(ctx)
	case stepDisarm:
		return group.Disarm(ctx)
	}
	id, err := strconv.ParseUint(s.Subject, 16, 64)
	if err != nil {
		return fmt.Errorf("the ID of %s: %w", s.Target, err)
	}
	switch s.Type {
	case stepPromoteMember:
		return group.Promote(ctx, id)
	case stepRemoveMember:
		return group.Remove(ctx, id)
	case stepMoveLeader:
		return group.MoveLeader(ctx, id)
	}
	return fmt.Errorf("unknown step %q", s.Type)
}

// findLeader is the pod that says that it leads.
func (e *Engine) findLeader(c *v1alpha1.EtcdCluster) string {
	for pod, m := range e.Members.Get(membersOf(c).Key()) {
		if m.Status != nil && m.Err == "" && readGroup(m.Status).Group != nil && readGroup(m.Status).Group.Leader != "" && readGroup(m.Status).Group.Self == readGroup(m.Status).Group.Leader {
			return pod
		}
	}
	return ""
}

func (e *Engine) reachGroup(ctx context.Context, c *v1alpha1.EtcdCluster, name string) (Group, error) {
	var pod corev1.Pod
	if err := e.Reader.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, &pod); err != nil {
		return nil, err
	}
	credentials, ok := e.Credentials(membersOf(c))
	if !ok {
		return nil, errors.New("there is no CA")
	}
	return e.Dial(ctx, &pod, membersOf(c).PodHost(name), credentials)
}
