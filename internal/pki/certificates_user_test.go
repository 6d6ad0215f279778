package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
)

var names = []string{"orders-rw.shop.svc", "*.orders-members.shop.svc"}

// party is one of a user's own PKI.
type party struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func (p *party) pem() []byte { return encodePEM(pemCertificate, p.cert.Raw) }

func (p *party) keyPEM(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	if err != nil {
		t.Fatal(err)
	}
	return encodePEM(pemKey, der)
}

// secret of a party, whose CA's certificates are roots.
func (p *party) secret(t *testing.T, roots ...*party) map[string][]byte {
	t.Helper()
	data := map[string][]byte{"tls.crt": p.pem(), "tls.key": p.keyPEM(t)}
	for _, r := range roots {
		data["ca.crt"] = append(data["ca.crt"], r.pem()...)
	}
	return data
}

func ecKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t *testing.T, bits int) crypto.Signer {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func edKey(t *testing.T) crypto.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signed makes a certificate; by nil it signs itself.
func signed(t *testing.T, by *party, key crypto.Signer, change func(*x509.Certificate)) *party {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: mustSerial(t), Subject: pkix.Name{CommonName: "of the user"},
		NotBefore: start.Add(-time.Hour), NotAfter: start.Add(90 * 24 * time.Hour),
		DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if change != nil {
		change(template)
	}
	issuer, signer := template, key
	if by != nil {
		issuer, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &party{cert, key}
}

// authority makes a certificate into that of a CA.
func authority(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject.CommonName, c.DNSNames = name, nil
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
		c.NotAfter = start.Add(10 * year)
	}
}

func TestWhatServesAndWhatDoesNot(t *testing.T) {
	root := signed(t, nil, ecKey(t), authority("root"))
	stranger := signed(t, nil, ecKey(t), authority("stranger"))
	between := signed(t, root, ecKey(t), authority("between"))
	ofEd25519 := signed(t, nil, edKey(t), authority("of another curve"))
	weak := signed(t, nil, rsaKey(t, 1024), authority("weak"))
	good := signed(t, root, ecKey(t), nil)
	deep := signed(t, between, ecKey(t), nil)
	with := func(data map[string][]byte, key string, value []byte) map[string][]byte {
		data = maps.Clone(data)
		data[key] = value
		return data
	}
	for _, tc := range []struct {
		name string
		data map[string][]byte
		want string // in the fault; empty for none
	}{
		{"signed by the root in ca.crt", good.secret(t, root), ""},
		{"one root of several", good.secret(t, stranger, root), ""},
		{"by way of an intermediate CA", with(deep.secret(t, root), "tls.crt", append(deep.pem(), between.pem()...)), ""},
		{"the whole chain in tls.crt", map[string][]byte{"tls.crt": append(good.pem(), root.pem()...), "tls.key": good.keyPEM(t)}, ""},
		{"it stands for itself", signed(t, nil, ecKey(t), nil).secret(t), ""},
		{"with an RSA key", signed(t, root, rsaKey(t, 2048), nil).secret(t, root), ""},
		{"with a wildcard for the Service", signed(t, root, ecKey(t), func(c *x509.Certificate) {
			c.DNSNames = []string{"*.shop.svc", "*.orders-members.shop.svc"}
		}).secret(t, root), ""},
		{"an empty Secret", nil, "has no tls.crt"},
		{"no key", map[string][]byte{"tls.crt": good.pem()}, "has no tls.key"},
		{"no certificate", with(good.secret(t, root), "tls.crt", []byte("x")), "tls.crt is unreadable"},
		{"no readable key", with(good.secret(t, root), "tls.key", []byte("x")), "tls.key is unusable"},
		{"an Ed25519 key", signed(t, root, edKey(t), nil).secret(t, root), "neither an RSA nor an ECDSA key"},
		{"another's key", with(good.secret(t, root), "tls.key", root.keyPEM(t)), "tls.key does not belong"},
		{"the chain the wrong way round", with(deep.secret(t, root), "tls.crt", append(between.pem(), deep.pem()...)), "tls.key does not belong"},
		{"no name", signed(t, root, ecKey(t), func(c *x509.Certificate) { c.DNSNames = nil }).secret(t, root), "orders-rw.shop.svc, *.orders-members.shop.svc: add them"},
		{"members' names missing", signed(t, root, ecKey(t), func(c *x509.Certificate) { c.DNSNames = names[:1] }).secret(t, root), "DNS names *.orders-members.shop.svc: add them"},
		{"some member's name only", signed(t, root, ecKey(t), func(c *x509.Certificate) {
			c.DNSNames = []string{names[0], "orders-0.orders-members.shop.svc"}
		}).secret(t, root), "DNS names *.orders-members.shop.svc: add them"},
		{"for clients only", signed(t, root, ecKey(t), func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }).secret(t, root), "incompatible key usage"},
		{"a key that may not sign", signed(t, root, ecKey(t), func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }).secret(t, root), "lacks digital signature"},
		{"signed by a stranger", good.secret(t, stranger), "no root in ca.crt verifies tls.crt"},
		{"an intermediate CA is missing", deep.secret(t, root), "no root in ca.crt verifies tls.crt"},
		{"an intermediate CA for a root", deep.secret(t, between), "ca.crt holds no root"},
		{"no root anywhere", good.secret(t), "ca.crt holds no root"},
		{"signed with Ed25519", signed(t, ofEd25519, ecKey(t), nil).secret(t, ofEd25519), "signed with Ed25519"},
		{"a weak key", signed(t, root, rsaKey(t, 1024), nil).secret(t, root), "has 1024 bits"},
		{"a weak CA", signed(t, weak, ecKey(t), nil).secret(t, weak), "has 1024 bits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := ReadServer(tc.data, names)
			got := g.FindFault(start)
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Fatalf("the fault is %q, want %q", got, tc.want)
			}
			if (g.CertPEM == nil) != (tc.want != "") || strings.Contains(string(g.CertPEM)+string(g.Roots)+got, "PRIVATE") {
				t.Error("a faulty certificate is kept, a good one is not, or a key is")
			}
		})
	}
}

// What expires first ends it, and the next change is known beforehand.
func TestWhenAUserCertificateServes(t *testing.T) {
	root := signed(t, nil, ecKey(t), func(c *x509.Certificate) {
		authority("root")(c)
		c.NotAfter = start.Add(10 * 24 * time.Hour)
	})
	g := ReadServer(signed(t, root, ecKey(t), func(c *x509.Certificate) { c.NotBefore = start.Add(24 * time.Hour) }).secret(t, root), names)
	for _, tc := range []struct {
		after time.Duration
		fault string
		next  time.Duration
	}{
		{0, "not valid before 2030-01-03T03:04:05Z", 24 * time.Hour},
		{24 * time.Hour, "", 10*24*time.Hour + time.Second},
		{10 * 24 * time.Hour, "", 10*24*time.Hour + time.Second},
		{11 * 24 * time.Hour, "expired at 2030-01-12T03:04:05Z: renew it", -1},
	} {
		now := start.Add(tc.after)
		if got := g.FindFault(now); (tc.fault == "") != (got == "") || !strings.Contains(got, tc.fault) {
			t.Errorf("after %s: %q, want %q", tc.after, got, tc.fault)
		}
		if got := g.NextChange(now); tc.next < 0 && !got.IsZero() || tc.next >= 0 && !got.Equal(start.Add(tc.next)) {
			t.Errorf("after %s: the next change is at %s", tc.after, got)
		}
	}
}

func TestWhichCAMaySign(t *testing.T) {
	root := signed(t, nil, ecKey(t), authority("root"))
	change := func(change func(*x509.Certificate)) *party {
		return signed(t, nil, ecKey(t), func(c *x509.Certificate) {
			authority("root")(c)
			change(c)
		})
	}
	limited := change(func(c *x509.Certificate) {
		c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"example.com"}, true
	})
	for _, tc := range []struct {
		name string
		data map[string][]byte
		want string
	}{
		{"a root", root.secret(t), ""},
		{"as cert-manager writes it", root.secret(t, root), ""},
		{"with an RSA key", signed(t, nil, rsaKey(t, 2048), authority("root")).secret(t), ""},
		{"nothing", nil, "has no tls.crt"},
		{"no key", map[string][]byte{"tls.crt": root.pem()}, "has no tls.key"},
		{"another's key", map[string][]byte{"tls.crt": root.pem(), "tls.key": limited.keyPEM(t)}, "does not belong"},
		{"a leaf", signed(t, nil, ecKey(t), nil).secret(t), "not a CA's"},
		{"an intermediate CA", signed(t, root, ecKey(t), authority("between")).secret(t, root), "not a root"},
		{"one that may not sign", change(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign }).secret(t), "lacks cert sign"},
		{"one for other names", limited.secret(t), "what the CA signs for members is not valid"},
		{"one for servers only", change(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }).secret(t), "what the CA signs for members is not valid"},
		{"an Ed25519 key", signed(t, nil, edKey(t), authority("root")).secret(t), "neither an RSA nor an ECDSA key"},
		{"a weak key", signed(t, nil, rsaKey(t, 1024), authority("root")).secret(t), "has 1024 bits"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := ReadAuthority(tc.data, member, rand.Reader)
			if got := g.FindFault(start); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Fatalf("the fault is %q, want %q", got, tc.want)
			}
			if tc.want != "" {
				return
			}
			ca, err := ParseCA(tc.data["tls.crt"], tc.data["tls.key"])
			if err != nil {
				t.Fatal(err)
			}
			certPEM, keyPEM := issue(t, ca, member, start)
			if leaf := ReadLeaf(certPEM, keyPEM, g.CertPEM, member); leaf.fault != "" {
				t.Error(leaf.fault)
			}
		})
	}
	if got := ReadAuthority(root.secret(t), member, rand.Reader).FindFault(start.Add(11 * year)); !strings.Contains(got, "expired") {
		t.Errorf("an expired CA: %q", got)
	}
}

// Keys come in three forms, also behind a curve's parameters.
func TestKeysInEveryForm(t *testing.T) {
	ec, r := ecKey(t).(*ecdsa.PrivateKey), rsaKey(t, 2048).(*rsa.PrivateKey)
	sec1, err := x509.MarshalECPrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		pem []byte
		key crypto.Signer
	}{
		"SEC 1":    {slices.Concat(encodePEM("EC PARAMETERS", []byte{6, 0}), encodePEM(pemECKey, sec1)), ec},
		"PKCS #1":  {encodePEM(pemRSAKey, x509.MarshalPKCS1PrivateKey(r)), r},
		"PKCS #8":  {(&party{key: r}).keyPEM(t), r},
		"no block": {[]byte("x"), nil},
		"sealed":   {pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")}), nil},
	} {
		got, err := parseKey(tc.pem)
		if (err == nil) != (tc.key != nil) {
			t.Errorf("%s: %v", name, err)
		} else if err == nil && !got.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(tc.key.Public()) {
			t.Errorf("%s: another key", name)
		}
	}
}

func mustSerial(t *testing.T) *big.Int {
	t.Helper()
	serial, err := newSerial(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return serial
}
