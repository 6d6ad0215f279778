package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

var member = LeafRequest{
	CommonName: "holdfast-member",
	DNSNames:   []string{"*.orders-members.shop.svc", "orders-rw.shop.svc"},
}

func newCA(t *testing.T, now time.Time) *CA {
	t.Helper()
	ca, err := NewCA("orders", now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *CA, req LeafRequest, now time.Time) (certPEM, keyPEM []byte) {
	t.Helper()
	certPEM, keyPEM, err := IssueLeaf(ca, req, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return certPEM, keyPEM
}

func TestAnIssuedLeafServesAndCallsUnderItsCA(t *testing.T) {
	ca := newCA(t, start)
	serverCert, serverKey := issue(t, ca, member, start)
	clientCert, clientKey := issue(t, ca, LeafRequest{CommonName: "holdfast-operator", Usage: UsageClient}, start)

	for _, now := range []time.Time{start.Add(-59 * time.Minute), start, start.Add(364 * 24 * time.Hour)} {
		if err := handshake(t, ca, serverCert, serverKey, clientCert, clientKey, now); err != nil {
			t.Errorf("at %s: %v", now, err)
		}
	}
	if err := handshake(t, ca, serverCert, serverKey, clientCert, clientKey, start.Add(366*24*time.Hour)); err == nil {
		t.Error("a handshake with expired certificates succeeded")
	}
	if err := handshake(t, newCA(t, start), serverCert, serverKey, clientCert, clientKey, start); err == nil {
		t.Error("a handshake under another CA succeeded")
	}
	if err := handshake(t, ca, clientCert, clientKey, serverCert, serverKey, start); err == nil {
		t.Error("a client's certificate was accepted as a server's")
	}
}

// handshake verifies both sides against ca at the given time.
func handshake(t *testing.T, ca *CA, serverCert, serverKey, clientCert, clientKey []byte, now time.Time) error {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate())
	config := func(certPEM, keyPEM []byte) *tls.Config {
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{
			Certificates: []tls.Certificate{pair},
			RootCAs:      pool,
			ClientCAs:    pool,
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ServerName:   "orders-0.orders-members.shop.svc",
			Time:         func() time.Time { return now },
		}
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	served := make(chan error, 1)
	go func() {
		server := tls.Server(a, config(serverCert, serverKey))
		err := server.Handshake()
		if err != nil {
			a.Close()
		}
		served <- err
	}()
	err := tls.Client(b, config(clientCert, clientKey)).Handshake()
	if err != nil {
		b.Close()
	}
	return errors.Join(err, <-served)
}

func TestALeafNeverOutlivesItsCA(t *testing.T) {
	ca := newCA(t, start)
	late := start.Add(CALifetime - 24*time.Hour)
	certPEM, _ := issue(t, ca, member, late)
	cert, err := parseCert(certPEM)
	if err != nil {
		t.Fatal(err)
	}
	if !cert.NotAfter.Equal(ca.Certificate().NotAfter) {
		t.Errorf("the leaf ends %s, the CA %s", cert.NotAfter, ca.Certificate().NotAfter)
	}
}

func TestParseCARefuses(t *testing.T) {
	ca, other := newCA(t, start), newCA(t, start)
	leafCert, leafKey := issue(t, ca, member, start)
	for name, pair := range map[string][2][]byte{
		"nothing":           {nil, nil},
		"text":              {[]byte("not PEM"), ca.KeyPEM},
		"a damaged body":    {bytes.Replace(ca.CertPEM, []byte("MII"), []byte("AAA"), 1), ca.KeyPEM},
		"no key":            {ca.CertPEM, nil},
		"another CA's key":  {ca.CertPEM, other.KeyPEM},
		"a leaf":            {leafCert, leafKey},
		"a key for a cert":  {ca.KeyPEM, ca.KeyPEM},
		"a cert for a key":  {ca.CertPEM, ca.CertPEM},
		"a key that is cut": {ca.CertPEM, ca.KeyPEM[:len(ca.KeyPEM)/2]},
	} {
		if _, err := ParseCA(pair[0], pair[1]); err == nil {
			t.Errorf("%s was accepted as a CA", name)
		}
	}
	if _, err := ParseCA(ca.CertPEM, ca.KeyPEM); err != nil {
		t.Errorf("a CA's own PEM: %v", err)
	}
}

func TestNoRandomnessMeansNoCertificate(t *testing.T) {
	broken := iotest.ErrReader(io.ErrUnexpectedEOF)
	if _, err := NewCA("orders", start, broken); err == nil {
		t.Error("NewCA went on without randomness")
	}
	if _, _, err := IssueLeaf(newCA(t, start), member, start, broken); err == nil {
		t.Error("Issue went on without randomness")
	}
	if _, err := NewPassword(broken); err == nil {
		t.Error("NewPassword went on without randomness")
	}
}

func TestBundleHoldsEachCertificateOnce(t *testing.T) {
	a, b := newCA(t, start), newCA(t, start)
	noise := append([]byte("# a comment\n"), a.CertPEM...)
	got := JoinBundle(a.CertPEM, nil, b.CertPEM, noise, a.KeyPEM, []byte("not PEM"))
	if want := append(bytes.Clone(a.CertPEM), b.CertPEM...); !bytes.Equal(got, want) {
		t.Errorf("bundle is\n%s\nwant\n%s", got, want)
	}
	if JoinBundle() != nil {
		t.Error("a bundle of nothing is not empty")
	}
}

func TestNeedsRenewal(t *testing.T) {
	ca, other := newCA(t, start), newCA(t, start)
	certPEM, keyPEM := issue(t, ca, member, start)
	_, otherKey := issue(t, ca, member, start)
	reordered := member
	reordered.DNSNames = []string{member.DNSNames[1], member.DNSNames[0], member.DNSNames[0]}
	renamed := member
	renamed.CommonName = "someone-else"
	fewer := member
	fewer.DNSNames = member.DNSNames[:1]
	client := member
	client.Usage = UsageClient

	for _, tc := range []struct {
		name          string
		cert, key, ca []byte
		want          LeafRequest
		after         time.Duration
		reason        string
	}{
		{"a fresh one", certPEM, keyPEM, ca.CertPEM, member, 0, ""},
		{"names in another order", certPEM, keyPEM, ca.CertPEM, reordered, 0, ""},
		{"just before two thirds", certPEM, keyPEM, ca.CertPEM, member, 243 * 24 * time.Hour, ""},
		{"just after two thirds", certPEM, keyPEM, ca.CertPEM, member, 244 * 24 * time.Hour, "two thirds"},
		{"long expired", certPEM, keyPEM, ca.CertPEM, member, 1000 * 24 * time.Hour, "two thirds"},
		{"a clock far behind", certPEM, keyPEM, ca.CertPEM, member, -2 * time.Hour, "not valid yet"},
		{"none", nil, nil, ca.CertPEM, member, 0, "no certificate"},
		{"a damaged one", []byte("x"), keyPEM, ca.CertPEM, member, 0, "certificate is unreadable"},
		{"a damaged key", certPEM, []byte("x"), ca.CertPEM, member, 0, "key is unreadable"},
		{"no CA", certPEM, keyPEM, nil, member, 0, "CA's certificate is unreadable"},
		{"another's key", certPEM, otherKey, ca.CertPEM, member, 0, "does not belong"},
		{"another CA", certPEM, keyPEM, other.CertPEM, member, 0, "not signed by the current CA"},
		{"another name", certPEM, keyPEM, ca.CertPEM, renamed, 0, "common name"},
		{"other DNS names", certPEM, keyPEM, ca.CertPEM, fewer, 0, "DNS names differ"},
		{"another usage", certPEM, keyPEM, ca.CertPEM, client, 0, "usage differs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			reason, yes := ReadLeaf(tc.cert, tc.key, tc.ca, tc.want).NeedsRenewal(start.Add(tc.after))
			if yes != (tc.reason != "") || !strings.Contains(reason, tc.reason) {
				t.Errorf("got %q, %t; want a reason with %q", reason, yes, tc.reason)
			}
		})
	}
}

func TestRenewalTimeIsWhenRenewalBegins(t *testing.T) {
	ca := newCA(t, start)
	certPEM, keyPEM := issue(t, ca, member, start)
	leaf := ReadLeaf(certPEM, keyPEM, ca.CertPEM, member)
	at := leaf.RenewalTime()
	if at != RenewalTime(certPEM) {
		t.Errorf("two times: %s and %s", at, RenewalTime(certPEM))
	}
	if _, yes := leaf.NeedsRenewal(at.Add(-time.Second)); yes {
		t.Error("renewal began before its time")
	}
	if _, yes := leaf.NeedsRenewal(at); !yes {
		t.Error("renewal did not begin at its time")
	}
	if !RenewalTime([]byte("x")).IsZero() || !ReadLeaf([]byte("x"), keyPEM, ca.CertPEM, member).RenewalTime().IsZero() {
		t.Error("an unreadable certificate has a time")
	}
}

func TestSerialIsTheCertificatesOwn(t *testing.T) {
	certPEM, _ := issue(t, newCA(t, start), member, start)
	leaf := ReadLeaf(certPEM, nil, nil, member)
	if got := ReadSerial(certPEM); got != leaf.SerialNumber() || !regexp.MustCompile(`^[0-9a-f]{1,32}$`).MatchString(got) {
		t.Errorf("serial is %q", got)
	}
	if got := ReadSerial([]byte("x")); got != "" {
		t.Errorf("an unreadable certificate has serial %q", got)
	}
}

func TestPassword(t *testing.T) {
	shape := regexp.MustCompile(`^[A-Za-z0-9]{32}$`)
	used := map[string]bool{}
	for range 100 {
		p, err := NewPassword(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if !shape.MatchString(p) || used[p] {
			t.Fatalf("%q has the wrong shape or came twice", p)
		}
		used[p] = true
	}
	// 248 and above would favour the first letters of the alphabet.
	p, err := NewPassword(io.MultiReader(bytes.NewReader(bytes.Repeat([]byte{248, 255}, 16)), bytes.NewReader(bytes.Repeat([]byte{247}, 32))))
	if err != nil || p != strings.Repeat("9", 32) {
		t.Errorf("got %q, %v", p, err)
	}
}
