package pki

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// leastRSABits is the shortest RSA key that OpenSSL takes as Debian and others
// set it up. A database that runs refuses a shorter one; one that starts does
// not start.
const leastRSABits = 2048

// UserProvided is what there is to know of a certificate, or of a CA, that a user provides in a Secret. It holds no key.
type UserProvided struct {
	// CertPEM is the certificate, followed by the intermediate ones.
	CertPEM []byte
	// Roots verify it, in PEM form.
	Roots []byte

	// fault is why it cannot be used at any time; empty for none.
	fault string
	// validity of the certificate and of all that it is verified by.
	validity
}

// FindFault says why it cannot be used now, and what helps; empty when it can.
func (g UserProvided) FindFault(now time.Time) string {
	switch {
	case g.fault != "":
		return g.fault
	case now.Before(g.notBefore):
		return fmt.Sprintf("it is not valid before %s: wait, or correct the clock of its signer", g.notBefore.UTC().Format(time.RFC3339))
	case g.isExpired(now):
		return fmt.Sprintf("it, or what signed it, expired at %s: renew it", g.notAfter.UTC().Format(time.RFC3339))
	}
	return ""
}

// NextChange is the next time at which FindFault changes by itself; zero for never.
func (g UserProvided) NextChange(now time.Time) time.Time {
	for _, at := range []time.Time{g.notBefore, g.notAfter.Add(time.Second)} {
		if g.fault == "" && at.After(now) {
			return at
		}
	}
	return time.Time{}
}

// ReadServer reads the certificate of a server from tls.crt, tls.key and
// ca.crt as kubernetes.io/tls has them, and holds it against the names that it
// must carry, wildcards among them. Without ca.crt the root must stand in
// tls.crt.
func ReadServer(data map[string][]byte, names []string) UserProvided {
	g, err := readServer(data, names)
	if err != nil {
		return UserProvided{fault: err.Error()}
	}
	return g
}

func readServer(data map[string][]byte, names []string) (UserProvided, error) {
	cert, err := readPair(data)
	if err != nil {
		return UserProvided{}, err
	}
	if cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		return UserProvided{}, errors.New("the certificate's key usage lacks digital signature: add it")
	}
	if cert.SignatureAlgorithm == x509.PureEd25519 {
		return UserProvided{}, errors.New("the certificate is signed with Ed25519, to which clients cannot bind a login by password: have it signed by a CA with an RSA or ECDSA key")
	}
	if missing := listMissing(cert, names); len(missing) > 0 {
		return UserProvided{}, fmt.Errorf("the certificate lacks the DNS names %s: add them", strings.Join(missing, ", "))
	}
	roots := data[keyBundle]
	if len(certBlocks(roots)) == 0 {
		roots = data[keyCurrentCert]
	}
	chain, err := chainTo(cert, parseAll(data[keyCurrentCert], roots), parseAll(roots))
	if err != nil {
		return UserProvided{}, err
	}
	for _, c := range chain {
		if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() < leastRSABits {
			return UserProvided{}, fmt.Errorf("the RSA key of %q has %d bits: databases take %d at least", c.Subject.String(), key.N.BitLen(), leastRSABits)
		}
	}
	return UserProvided{CertPEM: JoinBundle(data[keyCurrentCert]), Roots: JoinBundle(roots), validity: commonValidity(chain)}, nil
}

// readPair reads a certificate and makes sure that its key is there.
func readPair(data map[string][]byte) (*x509.Certificate, error) {
	for _, key := range []string{keyCurrentCert, keyCurrentKey} {
		if len(data[key]) == 0 {
			return nil, fmt.Errorf("it has no %s: put it there in PEM form", key)
		}
	}
	cert, err := parseCert(data[keyCurrentCert])
	if err != nil {
		return nil, fmt.Errorf("tls.crt is unreadable (%w): put the certificate there in PEM form", err)
	}
	key, err := parseKey(data[keyCurrentKey])
	if err != nil {
		return nil, fmt.Errorf("tls.key is unusable (%w): put the unencrypted RSA or ECDSA key there in PEM form", err)
	}
	if !isKeyOf(key, cert) {
		return nil, errors.New("tls.key does not belong to the first certificate in tls.crt: put the pair there that belongs together")
	}
	return cert, nil
}

// listMissing lists which names a certificate does not carry.
func listMissing(cert *x509.Certificate, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		host := name
		if rest, wild := strings.CutPrefix(name, "*."); wild {
			host = "any." + rest
		}
		return cert.VerifyHostname(host) == nil
	})
}

// chainTo finds the certificates from a server's own to a root that signed
// itself, which is where OpenSSL looks for one to trust.
func chainTo(cert *x509.Certificate, all, trusted []*x509.Certificate) ([]*x509.Certificate, error) {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, c := range trusted {
		if signedItself(c) {
			roots.AddCert(c)
			found = true
		}
	}
	if !found {
		return nil, errors.New("ca.crt holds no root, a CA's certificate that signed itself: put the one there that tls.crt leads to")
	}
	times := []time.Time{cert.NotAfter}
	for _, c := range all {
		between.AddCert(c)
		times = append(times, c.NotBefore)
	}
	// Whether it is valid now is asked later, and often: here it is asked
	// whether it ever is.
	var err error
	for _, at := range times {
		var chains [][]*x509.Certificate
		if chains, err = cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at}); err == nil {
			return slices.MaxFunc(chains, func(a, b []*x509.Certificate) int {
				return commonValidity(a).notAfter.Compare(commonValidity(b).notAfter)
			}), nil
		}
	}
	return nil, fmt.Errorf("no root in ca.crt verifies tls.crt (%w): put the root that signed it into ca.crt, and intermediate certificates into tls.crt", err)
}

// signedItself says whether a certificate is a root, or stands for itself.
func signedItself(c *x509.Certificate) bool {
	return bytes.Equal(c.RawSubject, c.RawIssuer) && c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

// commonValidity is when all of some certificates are valid.
func commonValidity(chain []*x509.Certificate) validity {
	v := validityOf(chain[0])
	for _, c := range chain[1:] {
		if c.NotBefore.After(v.notBefore) {
			v.notBefore = c.NotBefore
		}
		if c.NotAfter.Before(v.notAfter) {
			v.notAfter = c.NotAfter
		}
	}
	return v
}

// ReadAuthority reads a CA from tls.crt and tls.key, and makes sure that what
// it is wanted to sign can be verified. For rand see NewCA.
func ReadAuthority(data map[string][]byte, want LeafRequest, rand io.Reader) UserProvided {
	ca, err := readAuthority(data, want, rand)
	if err != nil {
		return UserProvided{fault: err.Error()}
	}
	own := JoinBundle(ca.CertPEM)
	return UserProvided{CertPEM: own, Roots: own, validity: validityOf(ca.cert)}
}

func readAuthority(data map[string][]byte, want LeafRequest, rand io.Reader) (*CA, error) {
	cert, err := readPair(data)
	if err != nil {
		return nil, err
	}
	key, rsaKey := cert.PublicKey.(*rsa.PublicKey)
	switch {
	case !cert.IsCA || !cert.BasicConstraintsValid:
		return nil, errors.New("the certificate is not a CA's: have one issued with isCA: true")
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, errors.New("the CA's key usage lacks cert sign: add it")
	case !signedItself(cert):
		// To trust an intermediate CA, PostgreSQL would have to trust all that
		// its root ever signed.
		return nil, errors.New("the CA is not a root: members trust what it signs and nothing else, so it must have signed itself")
	case len(cert.SubjectKeyId) == 0:
		return nil, errors.New("the CA has no subject key identifier, without which it cannot be distinguished from its successor: add it")
	case rsaKey && key.N.BitLen() < leastRSABits:
		return nil, fmt.Errorf("the CA's RSA key has %d bits: databases take %d at least", key.N.BitLen(), leastRSABits)
	}
	ca, err := ParseCA(JoinBundle(encodePEM(pemCertificate, cert.Raw)), data[keyCurrentKey])
	if err != nil {
		return nil, err
	}
	return ca, ca.tryOut(want, rand)
}

// tryOut signs a certificate and verifies it: a CA may be limited to names or
// uses that do not fit.
func (ca *CA) tryOut(want LeafRequest, rand io.Reader) error {
	certPEM, _, err := IssueLeaf(ca, want, ca.cert.NotBefore.Add(backDate), rand)
	if err != nil {
		return err
	}
	cert, err := parseCert(certPEM)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	for _, usage := range want.Usage.extendedUsages() {
		_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: ca.cert.NotBefore.Add(time.Second), KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return fmt.Errorf("what the CA signs for members is not valid (%w): lift the CA's limits, or bring another", err)
		}
	}
	return nil
}

// parseAll reads every certificate in some texts.
func parseAll(texts ...[]byte) []*x509.Certificate {
	var all []*x509.Certificate
	for _, der := range certBlocks(texts...) {
		if cert, err := x509.ParseCertificate(der); err == nil {
			all = append(all, cert)
		}
	}
	return all
}

// RefuseUnreadable is a certificate that cannot even be read.
func RefuseUnreadable(fault string) UserProvided { return UserProvided{fault: fault} }
