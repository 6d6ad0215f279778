package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Group is what is asked of etcd itself, through one of its members. What etcd
// refuses because the world has moved on is no error.
type Group interface {
	// AddLearner admits a member by its peer URL, unless another one is still
	// on its way in.
	AddLearner(ctx context.Context, peerURL string) error
	// Promote gives a learner its vote, once it has caught up.
	Promote(ctx context.Context, id uint64) error
	// Remove takes a member out. etcd refuses what would cost the quorum.
	Remove(ctx context.Context, id uint64) error
	// MoveLeader lets another member lead. Only the leader can be asked.
	MoveLeader(ctx context.Context, id uint64) error
	// Compact drops the history of all keys.
	Compact(ctx context.Context) error
	// Defragment gives back what the member that is asked does not use.
	Defragment(ctx context.Context) error
	// Disarm lets all members take writes again after one ran out of space.
	Disarm(ctx context.Context) error
	Close() error
}

// dialTimeout is for a member that is there, or is not.
const dialTimeout = 5 * time.Second

// Dial reaches the etcd of a pod at the pod's address, by the name that stands
// in its certificate: a client takes that from the endpoint.
func Dial(_ context.Context, pod *corev1.Pod, serverName string, credentials agentclient.ClientTLS) (Group, error) {
	if pod.Status.PodIP == "" {
		return nil, errors.New("the pod has no address")
	}
	cert, err := tls.X509KeyPair(credentials.CertPEM, credentials.KeyPEM)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(credentials.CAPEM)
	address := objects.HostPort(pod.Status.PodIP, Port)
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"https://" + objects.HostPort(serverName, Port)},
		DialTimeout: dialTimeout,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		})},
		Logger: zap.NewNop(),
		TLS:    &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, RootCAs: roots},
	})
	if err != nil {
		return nil, err
	}
	return client{c}, nil
}

// client of one member.
type client struct{ *clientv3.Client }

// ignoreOvertaken is nil for an error that says that the world has moved on.
func ignoreOvertaken(err error) error {
	for _, answer := range []error{
		rpctypes.ErrPeerURLExist, rpctypes.ErrMemberNotFound, rpctypes.ErrMemberExist, rpctypes.ErrMemberNotLearner,
		rpctypes.ErrMemberLearnerNotReady, rpctypes.ErrTooManyLearners, rpctypes.ErrNotLeader, rpctypes.ErrCompacted,
	} {
		if errors.Is(err, answer) {
			return nil
		}
	}
	return err
}

func (c client) AddLearner(ctx context.Context, peerURL string) error {
	list, err := c.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.IsLearner || m.Name == "" {
			return nil
		}
	}
	_, err = c.MemberAddAsLearner(ctx, []string{peerURL})
	if errors.Is(err, rpctypes.ErrUnhealthy) {
		return nil // not all members have known each other for long enough
	}
	return ignoreOvertaken(err)
}

func (c client) Promote(ctx context.Context, id uint64) error {
	_, err := c.MemberPromote(ctx, id)
	return ignoreOvertaken(err)
}

func (c client) Remove(ctx context.Context, id uint64) error {
	_, err := c.MemberRemove(ctx, id)
	return ignoreOvertaken(err)
}

func (c client) MoveLeader(ctx context.Context, id uint64) error {
	_, err := c.Client.MoveLeader(ctx, id)
	return ignoreOvertaken(err)
}

func (c client) Compact(ctx context.Context) error {
	now, err := c.Get(ctx, "holdfast", clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	_, err = c.Client.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
	return ignoreOvertaken(err)
}

func (c client) Defragment(ctx context.Context) error {
	_, err := c.Client.Defragment(ctx, c.Endpoints()[0])
	return err
}

func (c client) Disarm(ctx context.Context) error {
	list, err := c.AlarmList(ctx)
	if err != nil {
		return err
	}
	for _, a := range list.Alarms {
		if a.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := c.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: a.MemberID, Alarm: a.Alarm}); err != nil {
			return err
		}
	}
	return nil
}
