//go:build etcd

// These tests copy a real etcd. make etcd-test builds it for them. It is taken
// from the directory that HOLDFAST_ETCD names.
package etcd

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backup"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// startEtcd runs one member behind TLS that asks clients for a certificate.
func startEtcd(t *testing.T) (*Source, agentapi.BackupSource, *clientv3.Client) {
	t.Helper()
	programs := os.Getenv("HOLDFAST_ETCD")
	if programs == "" {
		t.Fatal("HOLDFAST_ETCD names no directory with etcd's programs")
	}
	dir := t.TempDir()
	config := identity(t, dir)
	client, peer := freePort(t), freePort(t)
	cmd := exec.Command(filepath.Join(programs, "etcd"), "--data-dir="+filepath.Join(dir, "data"), "--name=a",
		"--listen-client-urls=https://localhost:"+client, "--advertise-client-urls=https://localhost:"+client,
		"--listen-peer-urls=http://localhost:"+peer, "--initial-advertise-peer-urls=http://localhost:"+peer, "--initial-cluster=a=http://localhost:"+peer,
		"--cert-file="+filepath.Join(dir, "tls.crt"), "--key-file="+filepath.Join(dir, "tls.key"), "--trusted-ca-file="+filepath.Join(dir, "ca.crt"), "--client-cert-auth",
		"--log-level=error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://localhost:" + client}, DialTimeout: 30 * time.Second, TLS: config, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ready, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if _, err := c.Put(ready, "first", "value"); err == nil {
			break
		} else if ready.Err() != nil {
			t.Fatal(err)
		}
	}
	scratch := filepath.Join(dir, "scratch")
	if err := os.Mkdir(scratch, 0o700); err != nil {
		t.Fatal(err)
	}
	return &Source{TLS: config, Program: filepath.Join(programs, "etcdutl"), Scratch: scratch}, agentapi.BackupSource{Name: "a", Address: "localhost:" + client}, c
}

func identity(t *testing.T, dir string) *tls.Config {
	t.Helper()
	ca, err := pki.NewCA("test", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, pki.LeafRequest{CommonName: "app", DNSNames: []string{"localhost"}, Usage: pki.UsageServerAndClient}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": certPEM, "tls.key": keyPEM, "ca.crt": ca.CertPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config, err := backup.Identity{CertPEM: certPEM, KeyPEM: keyPEM, RootsPEM: ca.CertPEM}.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
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

// What is copied while others write is one moment of the data, and etcd's own
// program restores it.
func TestRealCopy(t *testing.T) {
	s, member, c := startEtcd(t)
	for n := range 500 {
		if _, err := c.Put(t.Context(), fmt.Sprintf("key-%d", n), strings.Repeat("v", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	before, err := c.Get(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	copied, err := s.CopyMember(t.Context(), member, &stream)
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.FormatUint(before.Header.ClusterId, 16); copied.SystemIdentifier != want || !strings.HasPrefix(copied.Version, "3.") {
		t.Errorf("%+v of cluster %s", copied, want)
	}
	found, err := s.VerifyCopy(t.Context(), bytes.NewReader(stream.Bytes()))
	if want := strconv.FormatInt(before.Header.Revision, 10); err != nil || found.End != want {
		t.Errorf("%+v, %v; want revision %s", found, err, want)
	}
	file, restored := filepath.Join(t.TempDir(), "snapshot.db"), filepath.Join(t.TempDir(), "restored")
	if err := os.WriteFile(file, stream.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(s.Program, "snapshot", "restore", file, "--data-dir="+restored).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Data with nothing in it, or nothing any more, is copied as well, and what it
// begins with again is no earlier than what clients have observed.
func TestRealCopyOfNothing(t *testing.T) {
	s, member, c := startEtcd(t)
	step := func(name string, change func() (int64, error)) {
		t.Helper()
		want, err := change()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var stream bytes.Buffer
		if _, err := s.CopyMember(t.Context(), member, &stream); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if found, err := s.VerifyCopy(t.Context(), &stream); err != nil || found.End != strconv.FormatInt(want, 10) {
			t.Errorf("%s: %+v, %v; want revision %d", name, found, err, want)
		}
	}
	var revision int64
	step("every key is deleted", func() (int64, error) {
		answer, err := c.Delete(t.Context(), "", clientv3.WithPrefix())
		revision = answer.Header.Revision
		return revision, err
	})
	step("and compacted", func() (int64, error) {
		_, err := c.Compact(t.Context(), revision, clientv3.WithCompactPhysical())
		return revision, err
	})
}

// A snapshot whose bytes were changed, with a checksum that fits them, is
// etcdutl's to refuse.
func TestRealVerifyRefuses(t *testing.T) {
	s, member, _ := startEtcd(t)
	var stream bytes.Buffer
	if _, err := s.CopyMember(t.Context(), member, &stream); err != nil {
		t.Fatal(err)
	}
	data := stream.Bytes()[:stream.Len()-32]
	clear(data[:8192])
	if _, err := s.VerifyCopy(t.Context(), bytes.NewReader(append(bytes.Clone(data), sum256(data)...))); !backup.InVain(err) || !strings.Contains(err.Error(), "etcdutl") {
		t.Error(err)
	}
}

// A client without a certificate of the cluster gets nothing, and soon.
func TestRealStranger(t *testing.T) {
	s, member, _ := startEtcd(t)
	s.TLS = s.TLS.Clone()
	s.TLS.RootCAs = x509.NewCertPool()
	if _, err := s.CopyMember(t.Context(), member, io.Discard); err == nil || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
