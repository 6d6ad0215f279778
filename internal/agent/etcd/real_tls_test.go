//go:build etcd

package etcd

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
)

// issued is a client's certificate by the authority in dir.
func issued(t *testing.T, dir, name string) tls.Certificate {
	t.Helper()
	authority, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func file(t *testing.T, parts ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// ask asks etcd as an application does.
func ask(t *testing.T, w *world, config *tls.Config) error {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + local127(w.ports[0].client)}, Logger: zap.NewNop(), TLS: config})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err = c.Get(ctx, "a")
	return err
}

func TestRealCertificates(t *testing.T) {
	w := newWorld(t, 1)
	r := w.seed(t.TempDir())
	app, own := issued(t, w.tls, "app"), x509.NewCertPool()
	ca := file(t, w.tls, "ca.crt")
	own.AppendCertsFromPEM(ca)
	if err := ask(t, w, &tls.Config{Certificates: []tls.Certificate{app}, RootCAs: own}); err != nil {
		t.Errorf("an application: %v", err)
	}
	if err := ask(t, w, &tls.Config{RootCAs: own}); err == nil {
		t.Error("a client came in without a certificate")
	}
	peers := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{app}, RootCAs: own}}}
	if response, err := peers.Get(w.peerURL("orders-0") + "/members"); err == nil {
		_ = response.Body.Close()
		t.Error("an application came in as a peer")
	}

	// Another certificate for clients is served at once, and the members go on
	// with their own.
	other := t.TempDir()
	writeCertificate(t, other)
	theirs := x509.NewCertPool()
	theirs.AppendCertsFromPEM(file(t, other, "ca.crt"))
	for name, from := range map[string]string{"server.crt": "tls.crt", "server.key": "tls.key", "server-ca.crt": "ca.crt"} {
		if err := os.WriteFile(filepath.Join(w.tls, name), file(t, other, from), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	trusting := &tls.Config{Certificates: []tls.Certificate{app}, RootCAs: theirs, ServerName: "orders-0.orders-members.shop.svc"}
	var err error
	for range 50 {
		if err = ask(t, w, trusting); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("an application by the other certificate: %v", err)
	}
	status := r.until("serving", func(s agentapi.Status) bool { return s.Serving })
	if status.PendingRestart != nil || status.TrustHash != agentapi.HashConfig(ca) {
		t.Errorf("%+v", status)
	}

	// Another bundle of authorities waits for a restart.
	both := bytes.Join([][]byte{ca, file(t, other, "ca.crt")}, []byte("\n"))
	if err := os.WriteFile(filepath.Join(w.tls, "ca.crt"), both, 0o600); err != nil {
		t.Fatal(err)
	}
	status = r.until("waiting for a restart", func(s agentapi.Status) bool { return len(s.PendingRestart) > 0 })
	if status.PendingRestart[0] != etcdapi.PendingTrust || status.TrustHash != agentapi.HashConfig(ca) || !status.Serving {
		t.Errorf("%+v", status)
	}
	r.stop()
	r = w.start(0, r.o.DataDir)
	status = r.until("serving", func(s agentapi.Status) bool { return s.Serving })
	if status.PendingRestart != nil || status.TrustHash != agentapi.HashConfig(both) {
		t.Errorf("%+v", status)
	}
}
