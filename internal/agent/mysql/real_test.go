//go:build mysql

// These tests run agents with real servers and a simulated API server:
//
//	HOLDFAST_MYSQL=$(cluster mysql 9.7) go test -tags mysql -run Real ./internal/agent/mysql
package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/settings"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// world is a cluster of agents in this process; the test is its operator.
type world struct {
	t        *testing.T
	client   *fake.Clientset
	dir, tls string
	bin      string
	ports    []ports
	config   agentapi.ClusterConfig
	uid      int
}

type ports struct{ agent, probe, database int }

// newWorld has no member yet.
func newWorld(t *testing.T, members int) *world {
	t.Helper()
	w := &world{t: t, client: fake.NewClientset(), tls: mysqltest.NewTLSDir(t), bin: mysqltest.FindPrograms(t).Dir}
	// A socket's path has 107 bytes at most.
	var err error
	if w.dir, err = os.MkdirTemp("", "hfma"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(w.dir) })
	w.config = agentapi.ClusterConfig{Kind: "MySQLCluster", Namespace: "shop", Name: "orders", UID: "u", Fresh: true}
	w.config.Database, w.config.Owner = "app_1", "app"
	for i := range members {
		w.ports = append(w.ports, ports{mysqltest.FreePort(t), mysqltest.FreePort(t), mysqltest.FreePort(t)})
		w.config.Members = append(w.config.Members, "orders-"+strconv.Itoa(i))
		for _, dir := range []string{w.volume(i), w.credentials()} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.setPassword("first-password")
	w.configure(nil)
	return w
}

func (w *world) volume(ordinal int) string { return filepath.Join(w.dir, "v"+strconv.Itoa(ordinal)) }

func (w *world) credentials() string { return filepath.Join(w.dir, "credentials") }

func (w *world) setPassword(password string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.credentials(), passwordFile), []byte(password+"\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// renewCertificates mounts certificates of another authority.
func (w *world) renewCertificates() {
	w.t.Helper()
	next := mysqltest.NewTLSDir(w.t)
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		data, err := os.ReadFile(filepath.Join(next, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(w.tls, name), data, 0o600)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// configure writes the ConfigMap, as the operator does, and returns its hash.
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
	ordinal, err := identity.Ordinal(pod)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.ports[ordinal]
}

func atLocalhost(port int) string { return net.JoinHostPort(mysqltest.Host, strconv.Itoa(port)) }

// run is one agent.
type run struct {
	*mysqlAgent
	t    *testing.T
	stop func()
}

// start runs a member's agent.
func (w *world) start(ordinal int) *run {
	w.t.Helper()
	name, uid := w.config.Members[ordinal], "uid-"+strconv.Itoa(w.uid)
	w.uid++
	pods := w.client.CoreV1().Pods("shop")
	_ = pods.Delete(context.Background(), name, metav1.DeleteOptions{})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(uid)}}
	if _, err := pods.Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	runDir := filepath.Join(w.dir, "r"+strconv.Itoa(ordinal))
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a, err := newAgent(ctx, Options{
		Identity: identity.Identity{Namespace: "shop", Cluster: "orders", Pod: name, PodUID: uid, Address: "127.0.0.1"},
		Client:   w.client, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)).With("pod", name),
		Paths:         Paths{BinDir: w.bin, DataDir: w.volume(ordinal), RunDir: runDir, TLSDir: w.tls, CredentialsDir: w.credentials(), StoreDir: filepath.Join(w.dir, "keys")},
		StatusAddress: atLocalhost(w.ports[ordinal].agent), ProbeAddress: atLocalhost(w.ports[ordinal].probe),
		AgentAddress: func(pod string) string { return atLocalhost(w.of(pod).agent) },
		Database:     func(pod string) (string, int) { return mysqltest.Host, w.of(pod).database },
		Resolve:      func(context.Context, string) ([]string, error) { return []string{"::1", "127.0.0.1"}, nil },
		Memory:       settings.Memory{Request: settings.LeastMemory},
		SystemUser:   mysqltest.SystemUser(w.t),
		StopTimeout:  time.Minute,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.runAgent(ctx) }()
	r := &run{mysqlAgent: a, t: w.t}
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

// patience is how long a member may take for one thing.
const patience = 8 * time.Minute

// until waits for a status, or for something beside it.
func (r *run) until(what string, is func(agentapi.Status) bool) agentapi.Status {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		status, changed := r.Store.Changed()
		if is(status) {
			return status
		}
		select {
		case <-changed:
		case <-time.After(300 * time.Millisecond):
		case <-deadline:
			r.t.Fatalf("%s: not %s: %+v %+v", r.o.Identity.Pod, what, status, readReport(status))
		}
	}
}

func (r *run) untilState(state agentapi.State) agentapi.Status {
	r.t.Helper()
	return r.until(string(state), func(s agentapi.Status) bool { return s.State == state })
}

func (r *run) uuid() string { return readReport(r.Store.Get()).ServerUUID }

// session is one of the agent's account, on the member's socket.
func (r *run) session() *sql.DB {
	r.t.Helper()
	db, err := server.OpenSocket(r.o.socket())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = db.Close() })
	return db
}

func (r *run) exec(statements ...string) {
	r.t.Helper()
	db := r.session()
	for _, statement := range statements {
		if _, err := db.ExecContext(r.t.Context(), statement); err != nil {
			r.t.Fatalf("%s: %s: %v", r.o.Identity.Pod, statement, err)
		}
	}
}

func (r *run) query(query string) string {
	r.t.Helper()
	var text sql.NullString
	if err := r.session().QueryRowContext(r.t.Context(), query).Scan(&text); err != nil {
		r.t.Fatalf("%s: %s: %v", r.o.Identity.Pod, query, err)
	}
	return text.String
}

// killServer kills the member's server.
func (r *run) killServer() { r.signal(syscall.SIGKILL) }

// signal sends a signal to the member's server.
func (r *run) signal(signal syscall.Signal) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.o.RunDir, "mysqld.pid"))
	if err != nil {
		r.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil {
		err = syscall.Kill(pid, signal)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// label of the member's pod.
func (w *world) label(ordinal int) string {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods("shop").Get(context.Background(), w.config.Members[ordinal], metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pod.Labels[v1alpha1.LabelRole]
}

// create starts all members, and returns them when all serve: the first one leads.
func (w *world) create() []*run {
	w.t.Helper()
	var runs []*run
	for i := range w.config.Members {
		runs = append(runs, w.start(i))
	}
	first := runs[0].untilState(agentapi.StateRunning)
	w.configure(func(c *agentapi.ClusterConfig) { c.SystemIdentifier, c.Fresh = first.SystemIdentifier, false })
	for _, r := range runs[1:] {
		r.untilState(agentapi.StateStreaming)
	}
	runs[0].until("a whole group", func(s agentapi.Status) bool { return len(readReport(s).View) == len(runs) })
	return runs
}

// findPrimary waits until a member leads other than the excluded one, and returns it and the
// rest.
func findPrimary(t *testing.T, runs []*run, without *run) (*run, []*run) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		for i, r := range runs {
			if s := r.Store.Get(); r != without && s.Role == v1alpha1.RolePrimary && s.Serving {
				return r, append(append([]*run{}, runs[:i]...), runs[i+1:]...)
			}
		}
	}
	t.Fatal("no member leads")
	return nil, nil
}

func untilWhole(t *testing.T, runs []*run) {
	t.Helper()
	for _, r := range runs {
		r.until("serving in a whole group", func(s agentapi.Status) bool {
			online := 0
			for _, m := range readReport(s).View {
				if m.State == mysqlapi.StateOnline {
					online++
				}
			}
			return s.Serving && online == len(runs)
		})
	}
}
