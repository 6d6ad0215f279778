package pki

import (
	"bytes"
	"crypto/x509"
	"maps"
	"slices"
	"time"
)

// Keys of the Secret that members mount, beside tls.crt, tls.key (their own
// certificate) and ca.crt (the CAs that they trust each other by). They are
// there while clients of the database are shown another certificate than the
// members' own, or are about to be.
const (
	keyServerCert  = "server.crt"
	keyServerKey   = "server.key"
	keyServerRoots = "server-ca.crt"
)

// Signer is who signs the members' certificates.
type Signer struct {
	// CertPEM is the CA's certificate; nil while there is none that can sign.
	CertPEM []byte
	// Trust is every CA that is to be trusted, in PEM form; nil leaves those
	// that are.
	Trust []byte
}

// Wanted is what members should mount.
type Wanted struct {
	// Signer of the members' own certificate, and what it says.
	Signer Signer
	Leaf   LeafRequest
	// Server is the certificate that clients are to see; nil for the members'
	// own. Hold keeps the one they see now.
	Server *UserProvided
	Hold   bool
}

// Material is what there is to know of what members mount, held against what
// they should: it is small and holds no key. It changes bundle first, leaves
// later: no member serves a certificate before all trust who signed it, and
// none is distrusted before its certificate is out of use.
type Material struct {
	leaf Leaf
	// signer says by whom the leaf is signed.
	signer signedBy
	// last says that a new leaf would not live longer.
	last bool
	// Trust of members in each other: signs says that a CA can sign, missing
	// that some CA is not trusted yet, extra that more are than should be.
	signs, missing, extra bool

	// served is the certificate that clients see, if it is not the members',
	// and roots says that they need other roots than members'.
	served validity
	roots  bool
	// Of what clients see: other says that it is to be another certificate,
	// unknown that its root is not trusted yet, and surplus that more roots
	// are than should be.
	other, unknown, surplus, hold bool
}

// signedBy says who signed a leaf.
type signedBy int

const (
	// signedByUntrusted is by no CA that is trusted.
	signedByUntrusted signedBy = iota
	// signedByFormer is by a CA that is trusted still.
	signedByFormer
	// signedByWanted is by who is to sign.
	signedByWanted
)

// ReadMaterial reads what members mount.
func ReadMaterial(data map[string][]byte, want Wanted) Material {
	m := Material{signs: want.Signer.CertPEM != nil, hold: want.Hold}
	m.readLeaf(data, want)
	if want.Signer.Trust != nil {
		m.missing, m.extra = compareBundles(data[keyBundle], want.Signer.Trust)
	}
	m.readServer(data, want)
	return m
}

func (m *Material) readLeaf(data map[string][]byte, want Wanted) {
	signer := want.Signer.CertPEM
	cert, err := parseCert(data[keyCurrentCert])
	if err == nil {
		m.signer, signer = whoSigned(cert, data[keyBundle], signer)
	}
	m.leaf = ReadLeaf(data[keyCurrentCert], data[keyCurrentKey], signer, want.Leaf)
	if ca, caErr := parseCert(want.Signer.CertPEM); err == nil && caErr == nil {
		m.last = cert.NotAfter.Equal(ca.NotAfter)
	}
}

// whoSigned finds the CA that signed a certificate: the one that is to, or one
// of the trusted.
func whoSigned(cert *x509.Certificate, bundle, wanted []byte) (by signedBy, signer []byte) {
	if ca, err := parseCert(wanted); err == nil && isIssuedBy(ca, cert) {
		return signedByWanted, wanted
	}
	for _, ca := range parseAll(bundle) {
		if isIssuedBy(ca, cert) {
			return signedByFormer, encodePEM(pemCertificate, ca.Raw)
		}
	}
	return signedByUntrusted, wanted
}

func (m *Material) readServer(data map[string][]byte, want Wanted) {
	wanted, roots := []byte(nil), data[keyBundle]
	if want.Server != nil {
		wanted, roots = want.Server.CertPEM, want.Server.Roots
	}
	m.other = !bytes.Equal(data[keyServerCert], wanted)
	m.unknown, m.surplus = compareBundles(serverRoots(data), roots)
	m.roots = data[keyServerRoots] != nil
	cert, err := parseCert(data[keyServerCert])
	if err != nil {
		return
	}
	m.served = validityOf(cert)
	if key, err := parseKey(data[keyServerKey]); err != nil || !isKeyOf(key, cert) {
		m.other = true
	}
}

// serverRoots are the CAs that verify what clients see.
func serverRoots(data map[string][]byte) []byte {
	if roots := data[keyServerRoots]; roots != nil {
		return roots
	}
	return data[keyBundle]
}

// compareBundles compares lists of certificates: whether have misses some of want, and
// whether it has more.
func compareBundles(have, want []byte) (missing, extra bool) {
	in := func(list [][]byte) func([]byte) bool {
		return func(der []byte) bool {
			return !slices.ContainsFunc(list, func(other []byte) bool { return bytes.Equal(other, der) })
		}
	}
	h, w := certBlocks(have), certBlocks(want)
	return slices.ContainsFunc(w, in(h)), slices.ContainsFunc(h, in(w))
}

// MaterialStep is one change to what members mount.
type MaterialStep string

// The changes, in their order.
const (
	// MaterialNone: nothing to do, or something to wait for.
	MaterialNone MaterialStep = ""
	// MaterialTrust trusts the CA that is to sign, and changes nothing else.
	MaterialTrust MaterialStep = "TrustCA"
	// MaterialIssue signs the members' certificate.
	MaterialIssue MaterialStep = "IssueCertificate"
	// MaterialForget signs it again, and trusts no CA of former days.
	MaterialForget MaterialStep = "DropFormerCA"
	// MaterialTrustServer trusts the root of the certificate that clients are
	// to see.
	MaterialTrustServer MaterialStep = "TrustServerCA"
	// MaterialServe shows it to them.
	MaterialServe MaterialStep = "ServeCertificate"
	// MaterialForgetServer trusts no root of what they saw before.
	MaterialForgetServer MaterialStep = "DropFormerServerCA"
)

// Change is the next change, and why; without a type, why is what is waited
// for.
type Change struct {
	Type   MaterialStep
	Reason string
}

// NextChange is what to do next. Loaded says that every member uses what it mounts
// as it is now.
func (m Material) NextChange(loaded bool, now time.Time) Change {
	if c := m.nextLeaf(loaded, now); c != (Change{}) {
		return c
	}
	return m.nextServer(loaded, now)
}

func (m Material) nextLeaf(loaded bool, now time.Time) Change { //nolint:gocyclo // an ordered switch: first match wins
	reason, due := m.checkRenewal(now)
	switch {
	case !m.signs && m.missing && m.leaf.serial != "":
		return Change{MaterialTrust, "a CA is to be trusted"}
	case !m.signs:
		return Change{}
	case m.signer == signedByUntrusted:
		return Change{MaterialIssue, reason}
	case m.signer == signedByFormer && m.leaf.isExpired(now):
		// Any member that could be asked distrusts it already.
		return Change{MaterialIssue, "the certificate has expired"}
	case m.missing && m.signer == signedByFormer:
		return Change{MaterialTrust, "another CA is to sign the members' certificate"}
	case m.signer == signedByFormer && loaded:
		return Change{MaterialIssue, "every member trusts the CA that signs from now on"}
	case m.signer == signedByFormer:
		return Change{Reason: "members take up the CA that is to sign their certificate"}
	case due:
		return Change{MaterialIssue, reason}
	case m.missing:
		return Change{MaterialIssue, "the bundle of trusted CAs changed"}
	case m.extra && loaded:
		return Change{MaterialForget, "every member's certificate is signed by the current CA"}
	}
	return Change{}
}

func (m Material) nextServer(loaded bool, now time.Time) Change {
	switch {
	case m.hold || m.leaf.serial == "":
		return Change{}
	case m.unknown:
		return Change{MaterialTrustServer, "clients are to see the certificate of another CA"}
	case m.other && (loaded || !m.surplus || m.served != validity{} && m.served.isExpired(now)):
		return Change{MaterialServe, "clients are to see another certificate"}
	case m.other:
		return Change{Reason: "members take up the CA of the certificate that clients are to see"}
	case m.surplus && loaded:
		return Change{MaterialForgetServer, "every member serves the new certificate"}
	}
	return Change{}
}

// IsSettled says that members mount what they should of their own certificate,
// whether or not they have loaded it.
func (m Material) IsSettled(now time.Time) bool {
	if !m.signs {
		return !m.missing
	}
	_, due := m.checkRenewal(now)
	return m.signer == signedByWanted && !due && !m.missing && !m.extra
}

// checkRenewal says whether the members' certificate must be issued again, and why.
func (m Material) checkRenewal(now time.Time) (reason string, yes bool) {
	reason, yes = m.leaf.NeedsRenewal(now)
	return reason, yes && (!m.last || m.leaf.fault != "")
}

// RenewalTime is when the members' certificate is due; zero for never.
func (m Material) RenewalTime() time.Time {
	if m.last {
		return time.Time{}
	}
	return m.leaf.RenewalTime()
}

// HasUserProvided says that members trust, or clients see, what a user provides, or
// did a moment ago.
func (m Material) HasUserProvided() bool {
	return m.signer == signedByFormer || m.served != validity{} || m.roots
}

// MemberLeaf is what is known of the members' own certificate.
func (m Material) MemberLeaf() Leaf { return m.leaf }

// SignedByWanted says that who is to sign did.
func (m Material) SignedByWanted() bool { return m.signer == signedByWanted }

// WithLeaf is what members mount with a new certificate. A nil trust leaves who is
// trusted, and adds no CA.
func WithLeaf(data map[string][]byte, certPEM, keyPEM []byte, trust ...[]byte) map[string][]byte {
	out := maps.Clone(data)
	if out == nil {
		out = map[string][]byte{}
	}
	out[keyCurrentCert], out[keyCurrentKey] = certPEM, keyPEM
	return withBundle(out, JoinBundle(trust...))
}

// WithTrust is what members mount when they trust more CAs.
func WithTrust(data map[string][]byte, trust []byte) map[string][]byte {
	return withBundle(maps.Clone(data), JoinBundle(trust, data[keyBundle]))
}

// withBundle keeps the roots of what clients see whole while that is, or just
// was, the members' own certificate.
func withBundle(out map[string][]byte, bundle []byte) map[string][]byte {
	out[keyBundle] = bundle
	if roots := out[keyServerRoots]; roots != nil && out[keyServerCert] == nil {
		out[keyServerRoots] = JoinBundle(roots, bundle)
	}
	return out
}

// WithServerTrust is what members mount when roots verify what clients see, too.
func WithServerTrust(data map[string][]byte, roots []byte) map[string][]byte {
	out := maps.Clone(data)
	out[keyServerRoots] = JoinBundle(roots, serverRoots(data))
	return out
}

// WithServerCertificate is what members mount when clients see another certificate; nil is
// the members' own.
func WithServerCertificate(data map[string][]byte, certPEM, keyPEM []byte) map[string][]byte {
	out := maps.Clone(data)
	delete(out, keyServerCert)
	delete(out, keyServerKey)
	if certPEM != nil {
		out[keyServerCert], out[keyServerKey] = certPEM, keyPEM
	}
	return out
}

// WithServerTrustOnly is what members mount when nothing but roots verifies
// what clients see; nil is what verifies the members' own certificate.
func WithServerTrustOnly(data map[string][]byte, roots []byte) map[string][]byte {
	out := maps.Clone(data)
	delete(out, keyServerRoots)
	if roots != nil {
		out[keyServerRoots] = JoinBundle(roots)
	}
	return out
}

// ClientRoots are the CAs that clients need to verify what they see.
func ClientRoots(data map[string][]byte) []byte {
	if data[keyServerRoots] != nil && data[keyServerCert] == nil {
		return JoinBundle(data[keyServerRoots], data[keyBundle])
	}
	return serverRoots(data)
}
