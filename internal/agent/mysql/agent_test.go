package mysql

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// An agent as it is started takes what other members announce, at its own address and over
// mTLS. Of MySQL's programs only the version is read here.
func TestAgentTakesAnnouncements(t *testing.T) {
	bin, run := t.TempDir(), t.TempDir()
	program := "#!/bin/sh\necho '/usr/sbin/mysqld  Ver 9.7.4 for Linux on x86_64 (MySQL Community Server - GPL)'\n"
	if err := os.WriteFile(filepath.Join(bin, "mysqld"), []byte(program), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close() // it is free, and the agent listens at it
	address := net.JoinHostPort("localhost", port)
	a, err := newAgent(t.Context(), Options{
		Identity: identity.Identity{Namespace: "shop", Cluster: "orders", Pod: "orders-1", PodUID: "uid"},
		Client:   fake.NewClientset(), Log: slog.New(slog.DiscardHandler),
		Paths:         Paths{BinDir: bin, DataDir: t.TempDir(), RunDir: run, TLSDir: newTLSDir(t)},
		StatusAddress: address, ProbeAddress: filepath.Join(run, "probe"),
		AgentAddress: func(string) string { return address },
	})
	if err != nil {
		t.Fatal(err)
	}
	err = a.Run(t.Context(), func(context.Context) {}, http.NotFoundHandler(), func(ctx context.Context) {
		if a.switchover.isDue(clock.Boottime()) {
			t.Error("a switchover is expected at rest")
		}
		if err := a.peers.post(ctx, "orders-1", mysqlapi.SwitchoverPath, struct{}{}, &struct{}{}); err != nil {
			t.Errorf("announce a switchover: %v", err)
		}
		if !a.switchover.isDue(clock.Boottime()) {
			t.Error("no switchover is expected once one is announced")
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// newTLSDir makes the directory of the certificates that the operator mounts for a member.
func newTLSDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.NewCA("test", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := pki.LeafRequest{CommonName: agentapi.MemberName, DNSNames: []string{"localhost"}, Usage: pki.UsageServerAndClient}
	certificate, key, err := pki.IssueLeaf(ca, request, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"ca.crt": ca.CertPEM, "tls.crt": certificate, "tls.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
