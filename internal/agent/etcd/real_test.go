//go:build etcd

// These tests run the agent with a real etcd and a simulated API server. make
// etcd-test builds etcd for them. It is taken from the directory that
// HOLDFAST_ETCD names, or else from the path:
//
//	HOLDFAST_ETCD=/dir go test -tags etcd -run Real ./internal/agent/etcd
package etcd

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// world is a cluster of agents in this process; the test is its operator.
type world struct {
	t      *testing.T
	client *fake.Clientset
	bin    string
	tls    string
	mu     sync.Mutex
	ports  []ports
	config agentapi.ClusterConfig
	uid    int
	// drain is the agents' DrainTime.
	drain time.Duration
}

type ports struct{ agent, probe, client, peer, metrics int }

func newWorld(t *testing.T, members int) *world {
	t.Helper()
	t.Parallel() // mostly, etcd waits for itself
	w := &world{t: t, client: fake.NewClientset(), tls: t.TempDir(), bin: os.Getenv("HOLDFAST_ETCD")}
	if w.bin == "" {
		var err error
		if w.bin, err = findPrograms(); err != nil {
			t.Fatal(err)
		}
	}
	w.config = agentapi.ClusterConfig{Kind: "EtcdCluster", Namespace: "shop", Name: "orders", UID: "u", Fresh: true}
	for i := range members {
		w.ports = append(w.ports, ports{freePort(t), freePort(t), freePort(t), freePort(t), freePort(t)})
		w.config.Members = append(w.config.Members, "orders-"+strconv.Itoa(i))
	}
	writeCertificate(t, w.tls)
	w.configure(nil)
	return w
}

// configure writes the ConfigMap, as the operator does.
func (w *world) configure(change func(*agentapi.ClusterConfig)) string {
	w.t.Helper()
	if change != nil {
		change(&w.config)
	}
	data, err := json.Marshal(w.config)
	if err != nil {
		w.t.Fatal(err)
	}
	maps := w.client.CoreV1().ConfigMaps("shop")
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: "shop"}, Data: map[string]string{agentapi.ConfigKey: string(data)}}
	if _, err = maps.Update(context.Background(), object, metav1.UpdateOptions{}); err != nil {
		_, err = maps.Create(context.Background(), object, metav1.CreateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return agentapi.HashConfig(data)
}

func (w *world) of(pod string) ports {
	ordinal, _ := identity.Ordinal(pod)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ports[ordinal]
}

// move gives a member other ports.
func (w *world) move(ordinal int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports[ordinal] = ports{freePort(w.t), freePort(w.t), freePort(w.t), freePort(w.t), freePort(w.t)}
}

func local127(port int) string { return net.JoinHostPort("localhost", strconv.Itoa(port)) }

// clientURL has a name that only certificates know.
func (w *world) clientURL(pod string) string {
	return "https://" + net.JoinHostPort(pod+".orders-members.shop.svc", strconv.Itoa(w.of(pod).client))
}

func (w *world) peerURL(pod string) string { return "https://" + local127(w.of(pod).peer) }

// run is one agent.
type run struct {
	*etcdAgent
	t    *testing.T
	stop func()
}

// start runs a member's agent on a volume.
func (w *world) start(ordinal int, volume string) *run {
	w.t.Helper()
	name, uid := w.config.Members[ordinal], "uid-"+strconv.Itoa(w.uid)
	w.uid++
	pods := w.client.CoreV1().Pods("shop")
	_ = pods.Delete(context.Background(), name, metav1.DeleteOptions{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(uid)}}
	if _, err := pods.Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	p := w.ports[ordinal]
	ctx, cancel := context.WithCancel(context.Background())
	a, err := newAgent(ctx, Options{
		Identity: identity.Identity{Namespace: "shop", Cluster: "orders", Pod: name, PodUID: uid},
		Client:   w.client, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("pod", name),
		BinDir: w.bin, DataDir: volume, RunDir: w.t.TempDir(), TLSDir: w.tls,
		StatusAddress: local127(p.agent), ProbeAddress: local127(p.probe), ListenHost: "127.0.0.1",
		ClientPort: p.client, PeerPort: p.peer, MetricsPort: p.metrics,
		PeerURL:      w.peerURL,
		ClientURL:    w.clientURL,
		AgentAddress: func(pod string) string { return local127(w.of(pod).agent) },
		StopTimeout:  30 * time.Second,
		DrainTime:    w.drain,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.runAgent(ctx) }()
	r := &run{etcdAgent: a, t: w.t}
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		ended <- nil
	}
	w.t.Cleanup(r.stop)
	return r
}

// until waits for a status.
func (r *run) until(what string, is func(agentapi.Status) bool) agentapi.Status {
	r.t.Helper()
	deadline := time.After(time.Minute)
	for {
		status, changed := r.Store.Changed()
		if is(status) {
			return status
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("%s: not %s: %+v %+v", r.o.Identity.Pod, what, status, readGroup(status).Group)
		}
	}
}

func (r *run) untilState(state agentapi.State) agentapi.Status {
	r.t.Helper()
	return r.until(string(state), func(s agentapi.Status) bool {
		return s.State == state && (readGroup(s).Group == nil || readGroup(s).Group.Self != "" || state == agentapi.StateDisconnected)
	})
}

func (r *run) untilHeld(hold agentapi.Hold) agentapi.Status {
	r.t.Helper()
	status := r.until("held", func(s agentapi.Status) bool { return s.State == agentapi.StateHeld })
	if status.Hold != hold {
		r.t.Errorf("held for %s: %s; want %s", status.Hold, status.Message, hold)
	}
	return status
}

// dial is an operator's client to some members.
func (w *world) dial(ordinals ...int) *clientv3.Client {
	w.t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(w.tls, "tls.crt"), filepath.Join(w.tls, "tls.key"))
	if err != nil {
		w.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	ca, _ := os.ReadFile(filepath.Join(w.tls, "ca.crt"))
	roots.AppendCertsFromPEM(ca)
	var endpoints []string
	for _, i := range ordinals {
		endpoints = append(endpoints, "https://"+local127(w.ports[i].client))
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(),
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	w.t.Cleanup(cancel)
	return ctx
}

// seed begins the cluster with member 0.
func (w *world) seed(volume string) *run {
	w.t.Helper()
	pod := w.config.Members[0]
	w.configure(func(c *agentapi.ClusterConfig) {
		c.JoinGrants = map[string]etcdapi.JoinGrant{pod: {MemberID: etcdapi.SeedMember, State: etcdapi.JoinNew, InitialCluster: map[string]string{pod: w.peerURL(pod)}}}
	})
	r := w.start(0, volume)
	bootstrapped := r.untilState(agentapi.StateRunning)
	w.configure(func(c *agentapi.ClusterConfig) {
		c.SystemIdentifier, c.Fresh, c.JoinGrants = bootstrapped.SystemIdentifier, false, nil
	})
	return r
}

// admit adds a learner for a pod, and gives it a join grant.
func (w *world) admit(c *clientv3.Client, ordinal int) string {
	w.t.Helper()
	pod := w.config.Members[ordinal]
	// etcd refuses until all members have been connected for some seconds.
	var added *clientv3.MemberAddResponse
	w.again(func() (err error) {
		added, err = c.MemberAddAsLearner(w.context(), []string{w.peerURL(pod)})
		return err
	})
	peers := map[string]string{}
	for _, m := range added.Members {
		name := m.Name
		if m.ID == added.Member.ID {
			name = pod
		}
		peers[name] = m.PeerURLs[0]
	}
	id := formatID(added.Member.ID)
	w.configure(func(c *agentapi.ClusterConfig) {
		c.JoinGrants = map[string]etcdapi.JoinGrant{pod: {MemberID: id, State: etcdapi.JoinExisting, InitialCluster: peers}}
	})
	return id
}

// promote gives a learner its vote, as soon as it has caught up.
func (w *world) promote(c *clientv3.Client, id string) {
	w.t.Helper()
	number, _ := parseID(id)
	w.again(func() error { _, err := c.MemberPromote(w.context(), number); return err })
	w.configure(func(c *agentapi.ClusterConfig) { c.JoinGrants = nil })
}

// again tries what etcd refuses for a while.
func (w *world) again(try func() error) {
	w.t.Helper()
	var err error
	for range 300 {
		if err = try(); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatal(err)
}

func (w *world) remove(c *clientv3.Client, id string) {
	w.t.Helper()
	number, _ := parseID(id)
	w.again(func() error { _, err := c.MemberRemove(w.context(), number); return err })
}

// grow starts member n, and gives it a vote.
func (w *world) grow(c *clientv3.Client, ordinal int, volume string) *run {
	w.t.Helper()
	r := w.start(ordinal, volume)
	r.untilState(agentapi.StateWaiting)
	w.enter(c, r, ordinal)
	return r
}

// enter admits a member that runs, and gives it a vote.
func (w *world) enter(c *clientv3.Client, r *run, ordinal int) {
	w.t.Helper()
	id := w.admit(c, ordinal)
	learner := r.untilState(agentapi.StateCatchingUp)
	if readGroup(learner).Group.Self != id {
		w.t.Errorf("%s joined as %s, admitted was %s", r.o.Identity.Pod, readGroup(learner).Group.Self, id)
	}
	w.promote(c, id)
	r.until("voting", func(s agentapi.Status) bool { return s.Serving && readGroup(s).Group.Self == id })
}

func put(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := c.Put(ctx, key, value); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, c *clientv3.Client, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	got, err := c.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Kvs) == 0 {
		return ""
	}
	return string(got.Kvs[0].Value)
}

// lastPort that was given out. Ports are taken from below those that a system
// gives to outgoing connections, which would take them again before etcd does.
var lastPort atomic.Int64

func freePort(t *testing.T) int {
	t.Helper()
	lastPort.CompareAndSwap(0, 10000+mathrand.Int64N(10000))
	for range 1000 {
		port := int(lastPort.Add(1))
		if l, err := net.Listen("tcp", local127(port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// writeCertificate writes one that signs itself: authority and member in one.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<60))
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: agentapi.MemberName}, DNSNames: []string{"localhost", "*.orders-members.shop.svc"},
		IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, data := range map[string][]byte{"tls.crt": certificate, "ca.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
