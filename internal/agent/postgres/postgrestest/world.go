//go:build postgres

package postgrestest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/rolechange"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/server"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/settings"
	"github.com/holdfast-db/holdfast/internal/agent/process"
	"github.com/holdfast-db/holdfast/internal/agent/volumelock"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// limit is how long anything may take before a test fails.
const limit = time.Minute

// World are the members of one cluster.
type World struct {
	t        *testing.T
	Programs server.Programs
	tls      string
	Members  []*Member
}

// template is a data directory that is made once.
var template struct {
	once sync.Once
	dir  string
	err  error
}

// NewWorld makes a primary, the first member, and standbys that stream from it.
func NewWorld(t *testing.T, members int, parameters map[string]string) *World {
	t.Helper()
	bin, err := server.FindPrograms()
	if err != nil {
		t.Fatal(err)
	}
	w := &World{t: t, Programs: server.Programs{Programs: process.Programs{Dir: bin, Processes: process.NewProcesses()}}, tls: t.TempDir()}
	if _, w.Programs.Major, err = w.Programs.ReadVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, w.tls)
	for i := range members {
		w.Members = append(w.Members, w.newMember("orders-"+strconv.Itoa(i), parameters))
	}
	primary := w.Members[0]
	copyDirectory(t, initialData(t, w.Programs), primary.PGData())
	primary.Start(rolechange.Live{})
	primary.EnsureRoles()
	primary.EnsureSlots()
	primary.Fill("first", 100)
	for _, standby := range w.Members[1:] {
		primary.CloneTo(standby)
		standby.Start(rolechange.Live{Upstream: standby.ConnectionTo(primary).String()})
		standby.WaitStreams()
	}
	return w
}

func initialData(t *testing.T, programs server.Programs) string {
	t.Helper()
	template.once.Do(func() {
		if template.dir, template.err = os.MkdirTemp("/tmp", "hfdata"); template.err == nil {
			// Small segments, so that WAL of many of them is quickly written.
			_, template.err = programs.Run(context.Background(), "initdb", "--pgdata="+template.dir+"/pgdata", "--username=postgres", "--encoding=UTF8",
				"--data-checksums", "--wal-segsize=1", "--no-sync", "--locale=C.UTF-8", "--no-instructions", "--auth-local=peer", "--auth-host=scram-sha-256")
		}
	})
	if template.err != nil {
		t.Fatal(template.err)
	}
	return template.dir + "/pgdata"
}

// Main runs the tests of a package, and removes what they share.
func Main(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(template.dir)
	os.Exit(code)
}

func (w *World) newMember(name string, parameters map[string]string) *Member {
	w.t.Helper()
	volume := w.t.TempDir()
	run, err := os.MkdirTemp("/tmp", "hf") // a socket's path is short
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(run) })
	m := &Member{w: w, t: w.t, Name: name, Volume: volume, Run: run, port: freePort(w.t), parameters: map[string]string{
		"shared_buffers": "16MB", "max_connections": "40", "autovacuum": "off", "max_wal_size": "256MB", "wal_keep_size": "16MB",
	}}
	for name, value := range parameters {
		m.parameters[name] = value
	}
	for from, to := range map[string][]string{"tls.crt": {"tls.crt", "server.crt"}, "tls.key": {"tls.key", "server.key"}, "ca.crt": {"ca.crt", "roots.crt"}} {
		data, err := os.ReadFile(filepath.Join(w.tls, from))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, name := range to {
			mustWrite(w.t, filepath.Join(run, "tls", name), string(data))
		}
	}
	own, err := user.Current()
	if err != nil {
		w.t.Fatal(err)
	}
	mustWrite(w.t, filepath.Join(run, "pg_hba.conf"), settings.RenderHBA())
	mustWrite(w.t, filepath.Join(run, "pg_ident.conf"), settings.RenderIdent(own.Username, agentapi.MemberName))
	if m.Lock, err = volumelock.LockVolume(volume); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		m.Kill()
		_ = m.Lock.Close()
	})
	return m
}

func copyDirectory(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v: %s", err, out)
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

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeCertificate writes one that signs itself: authority and member in one.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: agentapi.MemberName}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	mustWrite(t, filepath.Join(dir, "tls.crt"), text)
	mustWrite(t, filepath.Join(dir, "ca.crt"), text)
	mustWrite(t, filepath.Join(dir, "tls.key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})))
}
