//go:build etcd

// These tests restore a real etcd. make etcd-test builds it for them. It is
// taken from the directory that HOLDFAST_ETCD names.
package etcd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent"
	memberetcd "github.com/holdfast-db/holdfast/internal/agent/etcd"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	backupetcd "github.com/holdfast-db/holdfast/internal/backup/etcd"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
	"github.com/holdfast-db/holdfast/internal/pki"
	"github.com/holdfast-db/holdfast/internal/restore"
	"github.com/holdfast-db/holdfast/internal/store"
)

// world is a real etcd, and a store for its backups.
type world struct {
	bin, dir, tls string
	config        *tls.Config
	client        int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{bin: os.Getenv("HOLDFAST_ETCD"), dir: t.TempDir(), tls: t.TempDir()}
	if w.bin == "" {
		t.Fatal("HOLDFAST_ETCD names no directory with etcd's programs")
	}
	ca, err := pki.NewCA("test", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, pki.LeafRequest{CommonName: "app", DNSNames: []string{"localhost"}, Usage: pki.UsageServerAndClient}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": ca.CertPEM} {
		if err := os.WriteFile(filepath.Join(w.tls, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if w.config, err = (backup.Identity{CertPEM: certPEM, KeyPEM: keyPEM, RootsPEM: ca.CertPEM}).TLSConfig(); err != nil {
		t.Fatal(err)
	}
	return w
}

// start etcd on a data directory, and connect to it. What it returns stops it.
func (w *world) start(t *testing.T, data string) (*clientv3.Client, func()) {
	t.Helper()
	w.client = freePort(t)
	peer := strconv.Itoa(freePort(t))
	clients := fmt.Sprintf("https://localhost:%d", w.client)
	file := func(name string) string { return filepath.Join(w.tls, name) }
	cmd := exec.Command(filepath.Join(w.bin, "etcd"), "--data-dir="+data, "--name=again-0",
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls=http://localhost:"+peer, "--initial-advertise-peer-urls=http://localhost:"+peer, "--initial-cluster=again-0=http://localhost:"+peer,
		"--cert-file="+file("tls.crt"), "--key-file="+file("tls.key"), "--trusted-ca-file="+file("ca.crt"), "--client-cert-auth", "--log-level=error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() { _, _ = cmd.Process.Signal(syscall.SIGTERM), cmd.Wait() }
	t.Cleanup(stop)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{clients}, DialTimeout: 30 * time.Second, TLS: w.config, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ready, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, err := c.Put(ready, "ready", "yes"); err == nil {
			return c, stop
		} else if ready.Err() != nil {
			t.Fatal(err)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (w *world) open(ctx context.Context) (*store.Store, error) {
	return store.Open(ctx, store.Location{URL: "file://" + w.dir}, nil)
}

func (w *world) backup(t *testing.T) *v1alpha1.BackupResult {
	t.Helper()
	said := &concluded{}
	taker := &backup.Taker{
		Task: agentapi.BackupTask{Namespace: "shop", Name: "nightly", UID: "b-1", Kind: "EtcdCluster", Cluster: "orders", ClusterUID: "c-1", Prefix: "shop/orders/c-1/nightly-b-1/",
			Sources: []agentapi.BackupSource{{Name: "orders-1", Address: fmt.Sprintf("localhost:%d", w.client)}}},
		Pod: "attempt", Log: slog.New(slog.DiscardHandler), Reporter: said, Open: w.open,
		Source: func(agentapi.BackupTask) (backup.Source, error) {
			return &backupetcd.Source{TLS: w.config, Program: filepath.Join(w.bin, "etcdutl"), Scratch: t.TempDir()}, nil
		},
	}
	if err := taker.TakeBackup(t.Context()); err != nil {
		t.Fatal(err)
	}
	return said.result
}

type concluded struct{ result *v1alpha1.BackupResult }

func (c *concluded) ReportProgress(context.Context, v1alpha1.BackupRun) {}

func (c *concluded) ReportEnd(_ context.Context, run v1alpha1.BackupRun) error {
	c.result = run.Result
	return nil
}

// reports of a restore.
type reports struct{ last restore.Run }

func (r *reports) ReportProgress(context.Context, restore.Run) {}

func (r *reports) ReportEnd(_ context.Context, run restore.Run) error {
	r.last = run
	return nil
}

func (w *world) restore(t *testing.T, volume string) (*v1alpha1.RestoreResult, error) {
	t.Helper()
	t.Setenv("PATH", w.bin+":"+os.Getenv("PATH"))
	version, dir, err := memberetcd.ImageVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said := &reports{}
	r := &restore.Restorer{
		Task:   agentapi.RestoreTask{Namespace: "shop", Name: "again", UID: "c-2", Kind: "EtcdCluster", Member: "again-0", Prefix: "shop/orders/"},
		Volume: volume, Open: w.open, Reporter: said, Log: slog.New(slog.DiscardHandler),
		Engine: &Engine{
			Member: "again-0", PeerURL: "https://again-0.again-members.shop.svc:2380", Token: "c-2", Version: version,
			Programs: process.Programs{Dir: dir, Processes: process.NewProcesses()}, ClientPort: freePort(t), PeerPort: freePort(t),
		},
	}
	err = r.RestoreVolume(t.Context())
	return said.last.Result, err
}

// refuses says whether the image's etcd is one that cannot raise revisions, and
// that it is refused before anything was written.
func refuses(t *testing.T, volume string, err error) bool {
	t.Helper()
	version, _, versionErr := memberetcd.ImageVersion(t.Context())
	if v, known := etcdversion.Parse(version); versionErr != nil || !known {
		t.Fatal(version, versionErr)
	} else if !v.IsBefore(etcdversion.Version{Minor: 5, Patch: 10}) {
		return false
	}
	entries, _ := os.ReadDir(volume)
	if !backup.InVain(err) || !strings.Contains(err.Error(), "set it to 3.5.10") || len(entries) != 1 {
		t.Errorf("%v, with %v", err, entries)
	}
	return true
}

// What was there when the snapshot was taken is there after its restore, in a
// group of its own, at a revision that no client has observed; clients that watched
// from one that they have observed learn that it is compacted.
func TestRealRestore(t *testing.T) {
	w := newWorld(t)
	c, stop := w.start(t, filepath.Join(t.TempDir(), "data"))
	for n := range 300 {
		if _, err := c.Put(t.Context(), fmt.Sprintf("key-%d", n), strings.Repeat("v", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	taken := w.backup(t)
	later, err := c.Put(t.Context(), "later", "lost")
	if err != nil {
		t.Fatal(err)
	}
	stop()
	volume := t.TempDir()
	result, err := w.restore(t, volume)
	if refuses(t, volume, err) {
		return
	}
	if err != nil || result.EndPosition != taken.EndPosition || result.SystemIdentifier == "" || result.SystemIdentifier == taken.SystemIdentifier {
		t.Fatalf("%+v of %+v, %v", result, taken, err)
	}
	data := filepath.Join(volume, "etcd")
	proof, err := agent.ReadRestored(filepath.Join(data, memberetcd.ProofDir, agent.RestoredFile))
	if err != nil || proof.ClusterUID != "c-2" {
		t.Errorf("%+v, %v", proof, err)
	}
	again, _ := w.start(t, data)
	got, err := again.Get(t.Context(), "key-", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || got.Count != 300 || strconv.FormatUint(got.Header.ClusterId, 16) != result.SystemIdentifier {
		t.Errorf("%+v, %v", got, err)
	}
	if end, _ := strconv.ParseInt(taken.EndPosition, 10, 64); got.Header.Revision <= end+bump || got.Header.Revision <= later.Header.Revision {
		t.Errorf("revision %d after %s", got.Header.Revision, taken.EndPosition)
	}
	watching := again.Watch(t.Context(), "key-", clientv3.WithPrefix(), clientv3.WithRev(later.Header.Revision))
	if answer := <-watching; !errors.Is(answer.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watcher gets %v", answer.Err())
	}
}

// A snapshot that etcd's own program refuses comes into no place.
func TestRealRestoreOfABadSnapshot(t *testing.T) {
	w := newWorld(t)
	w.start(t, filepath.Join(t.TempDir(), "data"))
	taken := w.backup(t)
	dir, volume := t.TempDir(), t.TempDir()
	e := &Engine{Member: "again-0", PeerURL: "https://again-0:2380", Token: "c-2", Programs: process.Programs{Dir: w.bin, Processes: process.NewProcesses()}}
	lock, err := volumelock.LockVolume(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := os.WriteFile(filepath.Join(dir, snapshotName), []byte(strings.Repeat("no snapshot ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.RecoverCopy(t.Context(), restore.Recovery{Lock: lock, Manifest: backup.Manifest{End: taken.EndPosition}, Dir: dir}); !backup.InVain(err) || !strings.Contains(err.Error(), "refuses") {
		t.Error(err)
	}
}
