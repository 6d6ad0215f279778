package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// local asks the etcd of this pod, and the peer ports of others.
type local struct {
	certificates *statusserver.Certificates
	endpoint     string // host:port of the clients' port
	peer         string // URL of the own peer port
	// name is what the certificate for clients must carry: they may see
	// another than members do, which knows nothing of the loopback interface.
	name string

	mu     sync.Mutex
	bundle *statusserver.Bundle
	client *clientv3.Client
	http   *http.Client
}

func newLocal(certificates *statusserver.Certificates, o Options) *local {
	l := &local{
		certificates: certificates,
		endpoint:     net.JoinHostPort("localhost", strconv.Itoa(o.ClientPort)),
		peer:         "https://" + net.JoinHostPort("localhost", strconv.Itoa(o.PeerPort)),
	}
	if own, err := url.Parse(o.ClientURL(o.Identity.Pod)); err == nil {
		l.name = own.Hostname()
	}
	return l
}

// openClients returns clients with the current certificate; those with an older one
// are canceled.
func (l *local) openClients() (*clientv3.Client, *http.Client, error) {
	bundle, _ := l.certificates.Current()
	if bundle == nil {
		return nil, nil, errors.New("no certificate yet")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bundle == bundle {
		return l.client, l.http, nil
	}
	certificates := []tls.Certificate{bundle.Certificate}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + l.endpoint}, DialTimeout: 2 * time.Second,
		TLS:               l.clientTLS(bundle),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("set up the client: %w", err)
	}
	l.dropClients()
	l.bundle, l.client = bundle, client
	l.http = &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certificates, RootCAs: bundle.Roots},
		TLSHandshakeTimeout: 2 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 1,
	}}
	return l.client, l.http, nil
}

// clientTLS is how a client of etcd connects with a certificate.
func (l *local) clientTLS(bundle *statusserver.Bundle) *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle.ServerCAPEM)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{bundle.Certificate}, RootCAs: roots, ServerName: l.name}
}

// dropClients is called with the lock held.
func (l *local) dropClients() {
	if l.client != nil {
		_ = l.client.Close()
		l.http.CloseIdleConnections()
	}
}

func (l *local) closeClients() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropClients()
	l.bundle, l.client, l.http = nil, nil, nil
}

// fetchStatus asks etcd what it does. It answers only once it has heard of a leader
// since its start.
func (l *local) fetchStatus(ctx context.Context) (*clientv3.StatusResponse, error) {
	client, _, err := l.openClients()
	if err != nil {
		return nil, err
	}
	return client.Status(ctx, "https://"+l.endpoint)
}

// moveLeader transfers leadership to another member. Only the leader can.
func (l *local) moveLeader(ctx context.Context, to string) error {
	client, _, err := l.openClients()
	if err != nil {
		return err
	}
	id, err := parseID(to)
	if err != nil {
		return err
	}
	_, err = client.MoveLeader(ctx, id)
	return err
}

// removeMember takes a member out of the group.
func (l *local) removeMember(ctx context.Context, member string) error {
	client, _, err := l.openClients()
	if err != nil {
		return err
	}
	id, err := parseID(member)
	if err != nil {
		return err
	}
	_, err = client.MemberRemove(ctx, id)
	return err
}

// fetchMembers asks the peer port at a URL for the membership as that member sees
// it. It answers without a leader, too.
func (l *local) fetchMembers(ctx context.Context, peer string) (cluster string, list []etcdapi.GroupMember, err error) {
	_, client, err := l.openClients()
	if err != nil {
		return "", nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(peer, "/")+"/members", nil)
	if err != nil {
		return "", nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", nil, fmt.Errorf("ask %s for the members: %s", peer, response.Status)
	}
	list, err = parseMembers(io.LimitReader(response.Body, 1<<20))
	return response.Header.Get("X-Etcd-Cluster-ID"), list, err
}

func parseMembers(body io.Reader) ([]etcdapi.GroupMember, error) {
	var found []struct {
		ID        uint64   `json:"id"`
		PeerURLs  []string `json:"peerURLs"`
		Name      string   `json:"name"`
		IsLearner bool     `json:"isLearner"`
	}
	if err := json.NewDecoder(body).Decode(&found); err != nil {
		return nil, fmt.Errorf("read the members: %w", err)
	}
	var list []etcdapi.GroupMember
	for _, m := range found {
		list = append(list, etcdapi.GroupMember{ID: formatID(m.ID), Name: m.Name, PeerURL: strings.Join(m.PeerURLs, ","), Learner: m.IsLearner})
	}
	slices.SortFunc(list, func(a, b etcdapi.GroupMember) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// confirmGrant asks the other members of a join grant about it. One answer that
// knows the grant's member is proof: the group admits an address only after it has
// removed the member that had it before.
func (l *local) confirmGrant(ctx context.Context, t etcdapi.JoinGrant, data raftLogState, pod string) confirmation {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answers := make(chan confirmation, len(t.InitialCluster))
	asked := 0
	for peer, url := range t.InitialCluster {
		if peer == pod {
			continue
		}
		asked++
		go func() {
			cluster, list, err := l.fetchMembers(ctx, url)
			if err != nil || data.Cluster != "" && cluster != data.Cluster {
				answers <- confirmNone
				return
			}
			answers <- confirmMembership(list, t, data.Member, pod)
		}()
	}
	result := confirmNone
	for range asked {
		if answer := <-answers; answer == confirmYes {
			return confirmYes
		} else if answer == confirmNo {
			result = confirmNo
		}
	}
	return result
}

// confirmMembership says whether a membership has the grant's member at the pod's
// address, and no longer the member of the data.
func confirmMembership(list []etcdapi.GroupMember, t etcdapi.JoinGrant, data, pod string) confirmation {
	result := confirmNo
	for _, m := range list {
		switch {
		case data != "" && m.ID == data:
			return confirmNo
		case m.ID == t.MemberID && m.PeerURL == t.InitialCluster[pod]:
			result = confirmYes
		}
	}
	return result
}
