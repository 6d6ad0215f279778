package statusserver

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

func TestStoreRevision(t *testing.T) {
	s := NewStore(agentapi.Status{State: agentapi.StateStarting})
	first := s.Get().Revision
	s.Update(func(st *agentapi.Status) { st.Position, st.Lag = 7, 1 })
	if got := s.Get(); got.Revision != first || got.Position != 7 {
		t.Errorf("what moves all the time changed the revision: %+v", got)
	}
	s.Update(func(st *agentapi.Status) { st.State = agentapi.StateRunning })
	if s.Get().Revision == first {
		t.Error("a new state kept its revision")
	}
	one, two := NewStore(agentapi.Status{}), NewStore(agentapi.Status{})
	if one.Get().Revision == two.Get().Revision {
		t.Error("two agents have the same revision")
	}
}

// How full a volume is wakes those who wait once per percent, and no one while
// it is less than half full.
func TestStoreRevisionOfVolume(t *testing.T) {
	s := NewStore(agentapi.Status{})
	fill := func(size, used int64) string {
		s.Update(func(st *agentapi.Status) { st.VolumeSize, st.VolumeUsed = size, used })
		if got := s.Get(); got.VolumeUsed != used {
			t.Errorf("used %d, want %d", got.VolumeUsed, used)
		}
		return s.Get().Revision
	}
	const size = 10_000
	steps := []struct {
		size, used int64
		wakes      bool
	}{
		{size, 100, true}, {size, 5_000, false}, {size, 5_099, false}, {size, 5_100, true}, {size, 7_999, true}, {size, 8_000, true},
		{size, 8_050, false}, {size, 8_000, false}, {size, 10_000, true}, {2 * size, 10_000, true}, {2 * size, 10_100, false},
		// A file system that shares a pool is another size at every look.
		{2*size - 31, 10_100, false}, {2*size + 400, 10_200, false}, {2*size + 1000, 10_600, true}, {0, 0, true},
	}
	before := s.Get().Revision
	for _, step := range steps {
		now := fill(step.size, step.used)
		if woken := now != before; woken != step.wakes {
			t.Errorf("%d of %d: woken %t, want %t", step.used, step.size, woken, step.wakes)
		}
		before = now
	}
}

// An archive that gets on wakes no one; one that does not wakes once.
func TestStoreRevisionOfArchive(t *testing.T) {
	s := NewStore(agentapi.Status{})
	minute := func(n int) time.Time { return time.Date(2026, 3, 1, 10, n, 0, 0, time.UTC) }
	gap := &agentapi.ArchiveGap{From: "3"}
	steps := []struct {
		name  string
		to    *agentapi.ArchiveStatus
		wakes bool
	}{
		{"begins", &agentapi.ArchiveStatus{}, true},
		{"takes one", &agentapi.ArchiveStatus{Last: "1", LastTime: minute(1)}, true},
		{"takes the next", &agentapi.ArchiveStatus{Last: "2", LastTime: minute(1)}, false},
		{"another waits", &agentapi.ArchiveStatus{Last: "1", LastTime: minute(1), Waiting: 1, Oldest: minute(2)}, false},
		{"fails", &agentapi.ArchiveStatus{Last: "1", Waiting: 1, Oldest: minute(2), Error: "down"}, true},
		{"is late", &agentapi.ArchiveStatus{Last: "1", Waiting: 1, Oldest: minute(2), Error: "down", Late: true}, true},
		{"has more to do", &agentapi.ArchiveStatus{Last: "1", Waiting: 2, Oldest: minute(2), Error: "down", Late: true}, false},
		{"gets on", &agentapi.ArchiveStatus{Last: "2", Waiting: 1, Oldest: minute(3), Error: "down", Late: true}, true},
		{"discards WAL", &agentapi.ArchiveStatus{Last: "2", Waiting: 9, Oldest: minute(3), Error: "down", Late: true, Gap: gap}, true},
		{"gives more up", &agentapi.ArchiveStatus{Last: "2", Waiting: 9, Oldest: minute(4), Error: "down", Late: true, Gap: gap}, false},
		{"is back", &agentapi.ArchiveStatus{Last: "9", Gap: &agentapi.ArchiveGap{From: "3", To: "5", Ended: minute(9)}}, true},
		{"is off", nil, true},
	}
	before := s.Get().Revision
	for _, step := range steps {
		s.Update(func(st *agentapi.Status) { st.Archive = step.to })
		now := s.Get().Revision
		if woken := now != before; woken != step.wakes {
			t.Errorf("%s: woken %t, want %t", step.name, woken, step.wakes)
		}
		before = now
	}
}

func TestStoreWait(t *testing.T) {
	s := NewStore(agentapi.Status{})
	after := s.Get().Revision
	if got := s.Wait(context.Background(), "another", time.Hour); got.Revision != after {
		t.Error("a reader with an old revision waited")
	}
	if got := s.Wait(context.Background(), after, time.Millisecond); got.Revision != after {
		t.Error("the wait ended with another revision")
	}
	go s.Update(func(st *agentapi.Status) { st.State = agentapi.StateRunning })
	if got := s.Wait(context.Background(), after, time.Hour); got.State != agentapi.StateRunning {
		t.Errorf("woken with %+v", got)
	}
}

// authority signs certificates of a test's cluster.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	return a
}

// write makes a certificate of the name and writes it as it is mounted.
func (a *authority) write(t *testing.T, dir, name string) {
	t.Helper()
	a.n++
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(100 + a.n), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, _ := x509.MarshalPKCS8PrivateKey(key)
	for file, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: der},
		"tls.key": {Type: "PRIVATE KEY", Bytes: keyDER},
		"ca.crt":  {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *authority) certificates(t *testing.T, name string) (*Certificates, string) {
	t.Helper()
	dir := t.TempDir()
	a.write(t, dir, name)
	c := NewCertificates(dir)
	if changed, err := c.Reload(); err != nil || !changed {
		t.Fatalf("reload: %v, %v", changed, err)
	}
	return c, dir
}

func serveStatus(t *testing.T, certificates *Certificates, store *Store) string {
	t.Helper()
	return serve(t, certificates, StatusHandler(store, func(context.Context) {}, func(context.Context) bool { return store.Get().Serving }))
}

// serve answers with the handler over TLS, and says where.
func serve(t *testing.T, certificates *Certificates, handler http.Handler) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, listener, handler, certificates) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return "localhost:" + port
}

func TestStatusIsForTheClusterOnly(t *testing.T) {
	ca := newAuthority(t)
	server, _ := ca.certificates(t, agentapi.MemberName)
	address := serveStatus(t, server, NewStore(agentapi.Status{Pod: "orders-0"}))
	ask := func(c *Certificates) error {
		_, err := NewPeers(c, func(string) string { return address }, agentapi.DecodeStatus[struct{}]).Status(context.Background(), "orders-0")
		return err
	}
	for _, name := range []string{agentapi.MemberName, agentapi.OperatorName} {
		c, _ := ca.certificates(t, name)
		if err := ask(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	stranger, _ := ca.certificates(t, "app")
	if err := ask(stranger); err == nil {
		t.Error("a stranger read the status")
	}
	foreign, _ := newAuthority(t).certificates(t, agentapi.OperatorName)
	if err := ask(foreign); err == nil {
		t.Error("another authority's operator read the status")
	}
	if _, err := NewPeers(server, func(string) string { return address }, agentapi.DecodeStatus[struct{}]).Status(context.Background(), "orders-1"); err == nil {
		t.Error("another pod's answer was taken")
	}
}

func TestStatusLongPoll(t *testing.T) {
	ca := newAuthority(t)
	certificates, _ := ca.certificates(t, agentapi.OperatorName)
	store := NewStore(agentapi.Status{Pod: "orders-0"})
	address := serveStatus(t, certificates, store)
	bundle, _ := certificates.Current()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{bundle.Certificate}, RootCAs: bundle.Roots}}}
	get := func(query string) (agentapi.Status, int) {
		response, err := client.Get("https://" + address + agentapi.StatusPath + query)
		if err != nil {
			t.Error(err)
			return agentapi.Status{}, 0
		}
		defer func() { _ = response.Body.Close() }()
		var status agentapi.Status
		_ = json.NewDecoder(response.Body).Decode(&status)
		return status, response.StatusCode
	}
	now, _ := get("")
	answered := make(chan agentapi.Status)
	go func() {
		status, _ := get("?after=" + now.Revision + "&wait=1h")
		answered <- status
	}()
	store.Update(func(s *agentapi.Status) { s.State = agentapi.StateRunning })
	if status := <-answered; status.State != agentapi.StateRunning {
		t.Errorf("answered %+v", status)
	}
	if _, code := get("?after=x&wait=soon"); code != http.StatusBadRequest {
		t.Errorf("a wait that is no duration: %d", code)
	}
}

func TestCertificateIsServedAfresh(t *testing.T) {
	ca := newAuthority(t)
	server, dir := ca.certificates(t, agentapi.MemberName)
	address := serveStatus(t, server, NewStore(agentapi.Status{}))
	served := func() string {
		bundle, _ := server.Current()
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: bundle.Roots, Certificates: []tls.Certificate{bundle.Certificate}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := served()
	_, changed := server.Current()
	ca.write(t, dir, agentapi.MemberName)
	if _, err := server.Reload(); err != nil {
		t.Fatal(err)
	}
	<-changed
	if served() == before {
		t.Error("the old certificate is served")
	}
	// Half an update: the key of one certificate beside another.
	other := t.TempDir()
	ca.write(t, other, agentapi.MemberName)
	data, _ := os.ReadFile(filepath.Join(other, "tls.key"))
	if err := os.WriteFile(filepath.Join(dir, "tls.key"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	good := served()
	if _, err := server.Reload(); err == nil {
		t.Error("half an update was taken")
	}
	if served() != good {
		t.Error("half an update changed what is served")
	}
}

// Another certificate for clients is taken up as a whole, and vouches for no
// member.
func TestCertificateForClients(t *testing.T) {
	own, user := newAuthority(t), newAuthority(t)
	c, dir := own.certificates(t, agentapi.MemberName)
	before, _ := c.Current()
	if string(before.ServerCertPEM) != string(before.CertPEM) || before.Hash == "" {
		t.Error("clients do not see the member's own certificate")
	}
	other := t.TempDir()
	user.write(t, other, "orders-rw")
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(other, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	put := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("server-ca.crt", read("ca.crt"))
	put("server.crt", read("tls.crt"))
	if _, err := c.Reload(); err == nil {
		t.Error("a certificate without its key was taken")
	}
	put("server.key", before.KeyPEM)
	if _, err := c.Reload(); err == nil {
		t.Error("a certificate with another's key was taken")
	}
	put("server.key", read("tls.key"))
	if changed, err := c.Reload(); err != nil || !changed {
		t.Fatal(changed, err)
	}
	after, _ := c.Current()
	if string(after.ServerCertPEM) != string(read("tls.crt")) || string(after.CertPEM) != string(before.CertPEM) || after.Hash == before.Hash {
		t.Error("clients do not see the certificate for them")
	}
	if _, err := after.Certificate.Leaf.Verify(x509.VerifyOptions{Roots: after.Roots}); err != nil || !after.Roots.Equal(before.Roots) {
		t.Errorf("who vouches for members has changed: %v", err)
	}
	for _, ca := range []*authority{own, user} {
		if !bytes.Contains(after.ServerCAPEM, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})) {
			t.Error("a replica does not know its primary while either serves the other certificate")
		}
	}
}

func TestProbes(t *testing.T) {
	store := NewStore(agentapi.Status{State: agentapi.StateRecovering})
	handler := ProbeHandler(store, http.NotFoundHandler())
	code := func(path string) int {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		return recorder.Code
	}
	if code("/healthz") != 200 || code("/readyz") != 503 {
		t.Error("a recovering database is alive and not ready")
	}
	store.Update(func(s *agentapi.Status) { s.Serving = true })
	if code("/readyz") != 200 {
		t.Error("a serving database is ready")
	}
}

// A rate wakes only where the volume would be full before it can grow.
func TestStoreRevisionOfRate(t *testing.T) {
	s := NewStore(agentapi.Status{VolumeSize: 1_000_000, VolumeUsed: 100})
	before := s.Get().Revision
	for _, step := range []struct {
		rate  int64
		wakes bool
	}{{1000, false}, {9000, true}, {10000, false}, {20000, true}, {0, true}} {
		s.Update(func(st *agentapi.Status) { st.VolumeRate = step.rate })
		now := s.Get().Revision
		if woken := now != before; woken != step.wakes {
			t.Errorf("%d: woken %t", step.rate, woken)
		}
		before = now
	}
}
