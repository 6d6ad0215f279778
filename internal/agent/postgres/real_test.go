//go:build postgres

// These tests run the agent with the PostgreSQL of this machine and a
// simulated API server. PostgreSQL refuses to run as root:
//
//	go test -c -tags postgres -o /tmp/real.test ./internal/agent/postgres
//	setpriv --reuid postgres --clear-groups /tmp/real.test -test.run Real
package postgres

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/diskspace"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/leadership"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// world is a cluster of agents in this process.
type world struct {
	t      *testing.T
	client *fake.Clientset
	lease  *leaseStore
	tls    string
	secret string
	agents []address
	config agentapi.ClusterConfig
	spaces map[int]func(string) diskspace.Space // of volumes, by ordinal
	// copySilence of the agents; zero for the default.
	copySilence time.Duration
}

type address struct{ agent, database int }

func newWorld(t *testing.T, members int) *world {
	t.Helper()
	w := &world{t: t, client: fake.NewClientset(), lease: &leaseStore{}, tls: t.TempDir(), secret: t.TempDir()}
	w.config = agentapi.ClusterConfig{Kind: "PostgresCluster", Namespace: "shop", Name: "orders", UID: "u", Fresh: true, FirstDatabase: postgresapi.FirstDatabase{Database: "app", Owner: "app"}, VolumeSize: 1 << 30}
	for i := range members {
		w.agents = append(w.agents, address{freePort(t), freePort(t)})
		w.config.Members = append(w.config.Members, "orders-"+strconv.Itoa(i))
	}
	mustWrite(t, filepath.Join(w.secret, passwordFile), "s3cret")
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

// run is one agent.
type run struct {
	*postgresAgent
	t    *testing.T
	stop func()
}

// start runs a member's agent on a volume, under a pod of the given UID.
func (w *world) start(ordinal int, volume, uid string) *run {
	w.t.Helper()
	name := w.config.Members[ordinal]
	pods := w.client.CoreV1().Pods("shop")
	_ = pods.Delete(context.Background(), name, metav1.DeleteOptions{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(uid)}}
	if _, err := pods.Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	bin, err := server.FindPrograms()
	if err != nil {
		w.t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	socket, err := os.MkdirTemp("/tmp", "hf") // a socket's path is short
	if err != nil {
		w.t.Fatal(err)
	}
	at := func(port int) string { return net.JoinHostPort("localhost", strconv.Itoa(port)) }
	o := Options{
		Identity: identity.Identity{Namespace: "shop", Cluster: "orders", Pod: name, PodUID: uid, Address: "127.0.0.1"},
		Client:   w.client, Log: slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("pod", name),
		Paths:         Paths{BinDir: bin, Program: program, StoreDir: filepath.Join(socket, "keys"), DataDir: volume, RunDir: socket, TLSDir: w.tls, CredentialsDir: w.secret},
		StatusAddress: at(w.agents[ordinal].agent), ProbeAddress: "localhost:0", Port: w.agents[ordinal].database,
		AgentAddress:    func(pod string) string { return at(w.of(pod).agent) },
		DatabaseAddress: func(pod string) string { return at(w.of(pod).database) },
		StopTimeout:     30 * time.Second,
		NewLease: func(cluster func() string, _ func() []metav1.OwnerReference) (leadership.LeaseStore, error) {
			return &memberLease{store: w.lease, cluster: cluster}, nil
		},
		Guard:     noGuard{},
		testHooks: testHooks{space: w.spaces[ordinal], copySilence: w.copySilence},
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := newAgent(ctx, o)
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.runAgent(ctx) }()
	r := &run{postgresAgent: a, t: w.t}
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		ended <- nil
		_ = os.RemoveAll(socket)
	}
	w.t.Cleanup(r.stop)
	return r
}

func (w *world) of(pod string) address {
	ordinal, _ := identity.Ordinal(pod)
	return w.agents[ordinal]
}

// until waits for a status.
func (r *run) until(what string, is func(agentapi.Status) bool) agentapi.Status {
	r.t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		status, changed := r.Store.Changed()
		if is(status) {
			return status
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Fatalf("%s: not %s: %+v", r.o.Identity.Pod, what, status)
		}
	}
}

func (r *run) untilRole(role string) agentapi.Status {
	r.t.Helper()
	return r.until(role, func(s agentapi.Status) bool { return s.Role == role && s.Serving })
}

func (r *run) untilHeld(hold agentapi.Hold) {
	r.t.Helper()
	status := r.until("held", func(s agentapi.Status) bool { return s.State == agentapi.StateHeld })
	if status.Hold != hold {
		r.t.Errorf("held for %s: %s; want %s", status.Hold, status.Message, hold)
	}
}

func (r *run) query(sql string) (got string) {
	r.t.Helper()
	err := r.control.Do(context.Background(), func(ctx context.Context, c *pgx.Conn) error { return c.QueryRow(ctx, sql).Scan(&got) })
	if err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func TestRealLife(t *testing.T) {
	w := newWorld(t, 2)
	first, second := t.TempDir(), t.TempDir()
	primary := w.start(0, first, "uid-0")
	replica := w.start(1, second, "uid-1")
	bootstrapped := primary.untilRole(v1alpha1.RolePrimary)
	followed := replica.untilRole(v1alpha1.RoleReplica)
	if followed.SystemIdentifier != bootstrapped.SystemIdentifier || bootstrapped.SystemIdentifier == "" {
		t.Errorf("system identifiers %q and %q", bootstrapped.SystemIdentifier, followed.SystemIdentifier)
	}
	login(t, w)

	hash := w.configure(func(c *agentapi.ClusterConfig) {
		c.Parameters = map[string]string{"work_mem": "9MB", "max_connections": "123"}
	})
	primary.until("configured", func(s agentapi.Status) bool { return s.ConfigHash == hash && len(s.PendingRestart) == 1 })
	if got := primary.query("select current_setting('work_mem')"); got != "9MB" {
		t.Errorf("work_mem is %s", got)
	}
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = map[string]string{"work_memm": "9MB"} })
	refused := primary.until("refusing", func(s agentapi.Status) bool { return s.ConfigError != "" })
	if refused.ConfigError != "work_memm: unrecognized configuration parameter" || refused.ConfigHash != hash {
		t.Errorf("refused: %+v", refused)
	}
	w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = map[string]string{"max_connections": "123"} })
	primary.until("repaired", func(s agentapi.Status) bool { return s.ConfigError == "" })

	// The replica starts before the primary and goes no lower than it was.
	replica.stop()
	primary.stop()
	if record, there := w.lease.read(); !there || !record.IsReleased() {
		t.Errorf("after a stop in order the Lease is %+v, %v", record, there)
	}
	again := w.start(1, second, "uid-1b")
	again.until("serving", func(s agentapi.Status) bool { return s.Serving })
	successor := w.start(0, first, "uid-0b")
	if got := successor.untilRole(v1alpha1.RolePrimary); got.SystemIdentifier != bootstrapped.SystemIdentifier {
		t.Errorf("another database system: %+v", got)
	}
	again.untilRole(v1alpha1.RoleReplica)
	if got := again.query("select current_setting('max_connections')"); got != "123" {
		t.Errorf("max_connections is %s", got)
	}
}

func TestRealHolds(t *testing.T) {
	w := newWorld(t, 1)
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)

	// A second agent on the volume, elsewhere, touches nothing.
	w.agents[0] = address{freePort(t), freePort(t)}
	second := w.start(0, volume, "uid-1")
	second.untilHeld(agentapi.HoldVolumeInUse)
	second.stop()
	primary.stop()

	lost := w.start(0, t.TempDir(), "uid-2")
	lost.untilHeld(agentapi.HoldDataMissing)
	lost.stop()

	w.configure(func(c *agentapi.ClusterConfig) { c.SystemIdentifier = "1" })
	foreign := w.start(0, volume, "uid-3")
	foreign.untilHeld(agentapi.HoldSystemIdentifier)
	w.configure(func(c *agentapi.ClusterConfig) { c.SystemIdentifier = "" })
	foreign.untilRole(v1alpha1.RolePrimary)
	foreign.stop()

	mustWrite(t, filepath.Join(volume, "pgdata", "PG_VERSION"), "9\n")
	old := w.start(0, volume, "uid-4")
	old.untilHeld(agentapi.HoldDataVersion)
}

func TestRealCrash(t *testing.T) {
	w := newWorld(t, 1)
	primary := w.start(0, t.TempDir(), "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.query("select pg_terminate_backend(pid)::text from pg_stat_activity where backend_type = 'checkpointer'")
	primary.Lock.KillHolders()
	primary.until("down", func(s agentapi.Status) bool { return !s.Serving })
	primary.untilRole(v1alpha1.RolePrimary)
}

// login is what an application does.
func login(t *testing.T, w *world) {
	t.Helper()
	connect := func(user, password, mode string) error {
		conn, err := pgx.Connect(context.Background(), fmt.Sprintf("host=localhost port=%d user=%s password=%s dbname=app sslmode=%s sslrootcert=%s",
			w.agents[0].database, user, password, mode, filepath.Join(w.tls, "ca.crt")))
		if err == nil {
			err = conn.Close(context.Background())
		}
		return err
	}
	if err := connect("app", "s3cret", "verify-full"); err != nil {
		t.Error(err)
	}
	for _, bad := range [][3]string{{"app", "wrong", "verify-full"}, {"app", "s3cret", "disable"}, {"postgres", "s3cret", "verify-full"}, {settings.ReplicationRole, "s3cret", "verify-full"}} {
		if connect(bad[0], bad[1], bad[2]) == nil {
			t.Errorf("%s came in with %s over %s", bad[0], bad[1], bad[2])
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// writeCertificate writes one that signs itself: authority and member in one.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: agentapi.MemberName}, DNSNames: []string{"localhost", "*.orders-members.shop.svc"},
		IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	mustWrite(t, filepath.Join(dir, "tls.crt"), certificate)
	mustWrite(t, filepath.Join(dir, "ca.crt"), certificate)
	mustWrite(t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
