package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// Limits of what is asked of etcd. It answers nothing else while it
// defragments.
const (
	dialTimeout   = 5 * time.Second
	askTimeout    = 10 * time.Second
	defragTimeout = 5 * time.Minute
)

// Act implements engine.Engine.
func (e *Engine) Act(ctx context.Context, c *v1alpha1.EtcdCluster, s engine.Step) error {
	do, ours := operations[s.Type]
	if !ours {
		return e.Keeper.Act(ctx, set(c), s)
	}
	if err := e.Unchanged(ctx, set(c)); err != nil {
		return err
	}
	defer func() { e.attempts.note(set(c).Key(), attempt(s), e.Clock.Now()) }()
	pod := s.Target
	if s.Type != stepDefragment {
		if pod = e.leader(c); pod == "" {
			return nil // there is none any more; the next pass looks again
		}
	}
	client, err := e.dial(ctx, c, pod)
	if err != nil {
		return fmt.Errorf("reach etcd of %s: %w", pod, err)
	}
	defer client.Close() //nolint:errcheck // nothing was written through it that is not done
	limit := askTimeout
	if s.Type == stepDefragment {
		limit = defragTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := do(ctx, client, s); err != nil && !overtaken(err) {
		return err
	}
	return nil
}

// leader is the pod that says that it leads.
func (e *Engine) leader(c *v1alpha1.EtcdCluster) string {
	for pod, m := range e.Members.Get(set(c).Key()) {
		if m.Status != nil && m.Err == "" && m.Status.Group != nil && m.Status.Group.Leader != "" && m.Status.Group.Self == m.Status.Group.Leader {
			return pod
		}
	}
	return ""
}

// dial makes a client of one member, at its pod's address.
func (e *Engine) dial(ctx context.Context, c *v1alpha1.EtcdCluster, name string) (*clientv3.Client, error) {
	var pod corev1.Pod
	if err := e.Reader.Get(ctx, types.NamespacedName{Namespace: c.Namespace, Name: name}, &pod); err != nil {
		return nil, err
	}
	credentials, ok := e.Credentials(set(c))
	if !ok || pod.Status.PodIP == "" {
		return nil, errors.New("it has no address, or there is no CA")
	}
	cert, err := tls.X509KeyPair(credentials.CertPEM, credentials.KeyPEM)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(credentials.CAPEM)
	return clientv3.New(clientv3.Config{
		Endpoints:   []string{"https://" + memberset.HostPort(pod.Status.PodIP, Port)},
		DialTimeout: dialTimeout,
		Logger:      zap.NewNop(),
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: set(c).PodHost(name),
		},
	})
}

// overtaken says that etcd refuses a step because the world has moved on: the
// next pass looks again.
func overtaken(err error) bool {
	for _, answer := range []error{
		rpctypes.ErrPeerURLExist, rpctypes.ErrMemberNotFound, rpctypes.ErrMemberExist, rpctypes.ErrMemberNotLearner,
		rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrTooManyLearners, rpctypes.ErrNotLeader, rpctypes.ErrCompacted,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// operations of etcd, by the type of the step. Each is done under what etcd
// itself holds true at that moment, not what was observed.
var operations = map[string]func(ctx context.Context, client *clientv3.Client, s engine.Step) error{
	stepAddLearner:    addLearner,
	stepPromoteMember: onMember(promote),
	stepRemoveMember:  onMember(remove),
	stepMoveLeader:    onMember(moveLeader),
	stepCompact:       compact,
	stepDefragment:    defragment,
	stepDisarm:        disarm,
}

// onMember does a step whose subject is a member's ID.
func onMember(do func(ctx context.Context, client *clientv3.Client, id uint64) error) func(context.Context, *clientv3.Client, engine.Step) error {
	return func(ctx context.Context, client *clientv3.Client, s engine.Step) error {
		id, err := strconv.ParseUint(s.Subject, 16, 64)
		if err != nil {
			return fmt.Errorf("the ID of %s: %w", s.Target, err)
		}
		return do(ctx, client, id)
	}
}

// addLearner admits a member, unless another one is still on its way in.
func addLearner(ctx context.Context, client *clientv3.Client, s engine.Step) error {
	list, err := client.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.IsLearner || m.Name == "" {
			return nil
		}
	}
	_, err = client.MemberAddAsLearner(ctx, []string{s.Subject})
	return err
}

func promote(ctx context.Context, client *clientv3.Client, id uint64) error {
	_, err := client.MemberPromote(ctx, id)
	return err
}

// remove is refused by etcd itself where it would cost the quorum.
func remove(ctx context.Context, client *clientv3.Client, id uint64) error {
	_, err := client.MemberRemove(ctx, id)
	return err
}

func moveLeader(ctx context.Context, client *clientv3.Client, id uint64) error {
	_, err := client.MoveLeader(ctx, id)
	return err
}

// compact drops the history of all keys.
func compact(ctx context.Context, client *clientv3.Client, _ engine.Step) error {
	now, err := client.Get(ctx, "holdfast", clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	_, err = client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	return err
}

func defragment(ctx context.Context, client *clientv3.Client, _ engine.Step) error {
	_, err := client.Defragment(ctx, client.Endpoints()[0])
	return err
}

// disarm lets all members take writes again.
func disarm(ctx context.Context, client *clientv3.Client, _ engine.Step) error {
	list, err := client.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, a := range list.Alarms {
		if a.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: a.MemberID, Alarm: a.Alarm}); err != nil {
			return err
		}
	}
	return nil
}
