//go:build postgres

// These tests restore the PostgreSQL of this machine. PostgreSQL refuses to run
// as root:
//
//	go test -c -tags postgres -o /tmp/restore.test ./internal/restore/postgres
//	setpriv --reuid postgres --clear-groups /tmp/restore.test -test.run Real
package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/recovery"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	backuppostgres "github.com/holdfast-db/holdfast/internal/backup/postgres"
	"github.com/holdfast-db/holdfast/internal/pki"
	"github.com/holdfast-db/holdfast/internal/restore"
	"github.com/holdfast-db/holdfast/internal/store"
)

// server is a PostgreSQL that lets members stream as Holdfast's do.
type server struct {
	bin, data, socket, port string
	identity                backup.Identity
}

func newServer(t *testing.T) *server {
	t.Helper()
	_, _, bin, err := recovery.ImageVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &server{bin: bin, data: filepath.Join(t.TempDir(), "data"), port: freePort(t), socket: shortDir(t)}
	ca, err := pki.NewCA("test", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, pki.LeafRequest{CommonName: agentapi.MemberName, DNSNames: []string{"localhost"}, Usage: pki.UsageServerAndClient}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s.identity = backup.Identity{CertPEM: certPEM, KeyPEM: keyPEM, RootsPEM: ca.CertPEM}
	return s
}

// startPrimary runs a new database system.
func startPrimary(t *testing.T) *server {
	t.Helper()
	s := newServer(t)
	s.init(t)
	s.start(t, "")
	s.query(t, "create role holdfast_replication login replication")
	return s
}

// init makes a new database system.
func (s *server) init(t *testing.T) {
	t.Helper()
	s.run(t, "initdb", "--pgdata="+s.data, "--username=postgres", "--auth=trust", "--data-checksums", "--locale=C")
	for name, data := range map[string]string{
		"server.crt": string(s.identity.CertPEM), "server.key": string(s.identity.KeyPEM), "ca.crt": string(s.identity.RootsPEM),
		"pg_hba.conf":   "local all all trust\nlocal replication all trust\nhostssl replication holdfast_replication all cert map=m\n",
		"pg_ident.conf": "m " + agentapi.MemberName + " holdfast_replication\n",
	} {
		if err := os.WriteFile(filepath.Join(s.data, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// startStandby runs a replica of a server.
func startStandby(t *testing.T, of *server) *server {
	t.Helper()
	s := newServer(t)
	s.identity = of.identity
	s.run(t, "pg_basebackup", "--pgdata="+s.data, "--host="+of.socket, "--port="+of.port, "--username=postgres", "--checkpoint=fast", "--write-recovery-conf")
	s.start(t, " -c hot_standby=on")
	return s
}

func (s *server) run(t *testing.T, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(filepath.Join(s.bin, program), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}

// start a server, until the test ends.
func (s *server) start(t *testing.T, more string) {
	t.Helper()
	settings := fmt.Sprintf("-c port=%s -c listen_addresses=localhost -c unix_socket_directories=%s -c ssl=on -c ssl_ca_file=ca.crt -c fsync=off%s", s.port, s.socket, more)
	s.run(t, "pg_ctl", "--pgdata="+s.data, "--log="+filepath.Join(s.socket, "log"), "--wait", "--options="+settings, "start")
	t.Cleanup(func() {
		_ = exec.Command(filepath.Join(s.bin, "pg_ctl"), "--pgdata="+s.data, "--mode=immediate", "stop").Run()
	})
}

func (s *server) query(t *testing.T, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), "host="+s.socket+" port="+s.port+" user=postgres dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background()) //nolint:errcheck // a test's own
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatal(err)
	}
	return answer
}

// backup copies the server into a directory, and returns the result.
func (s *server) backup(t *testing.T, dir string) *v1alpha1.BackupResult {
	t.Helper()
	return s.backupAs(t, dir, "nightly")
}

func (s *server) backupAs(t *testing.T, dir, name string) *v1alpha1.BackupResult {
	t.Helper()
	task := agentapi.BackupTask{
		Namespace: "shop", Name: name, UID: name + "-uid", Kind: "PostgresCluster", Cluster: "orders", ClusterUID: "c-1",
		Store: agentapi.BackupStore{URL: "file://" + dir}, Prefix: "shop/orders/c-1/" + name + "-uid/",
		Sources: []agentapi.BackupSource{{Name: "orders-1", Address: "localhost:" + s.port}},
	}
	said := &concluded{}
	taker := &backup.Taker{
		Task: task, Pod: "attempt", Log: slog.New(slog.DiscardHandler), Reporter: said, PartSize: 1 << 20,
		Open: func(ctx context.Context) (*store.Store, error) {
			return store.Open(ctx, store.Location{URL: task.Store.URL}, nil)
		},
		Source: func(agentapi.BackupTask) (backup.Source, error) {
			return &backuppostgres.Source{Identity: s.identity, Programs: s.bin, Label: "test's", Scratch: t.TempDir()}, nil
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

func newRestorer(t *testing.T, dir, volume string) (*restore.Restorer, *reports) {
	t.Helper()
	version, major, bin, err := recovery.ImageVersion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said := &reports{}
	return &restore.Restorer{
		Task:   agentapi.RestoreTask{Namespace: "shop", Name: "again", UID: "c-2", Kind: "PostgresCluster", Member: "again-0", Prefix: "shop/orders/"},
		Volume: volume, Reporter: said, Log: slog.New(slog.DiscardHandler),
		Engine: &Engine{Version: version, Major: major, BinDir: bin, RunDir: shortDir(t), Program: program},
		Open: func(ctx context.Context) (*store.Store, error) {
			return store.Open(ctx, store.Location{URL: "file://" + dir}, nil)
		},
	}, said
}

// shortDir is for sockets, whose paths are short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "hf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
