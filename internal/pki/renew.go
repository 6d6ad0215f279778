package pki

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// Leaf is what was read of a leaf certificate and its key: neither is kept, so
// it is small and holds no secret. The zero value is that of no certificate.
type Leaf struct {
	// serial number in hex; empty when the certificate is unreadable.
	serial string
	// fault is why it must be issued again at any time; empty for none.
	fault string
	// validity of the certificate; zero when it is unreadable.
	validity
}

// ReadLeaf reads a certificate and its key, and holds them against what is
// wanted. caPEM is the certificate of the CA that signs now, not the bundle of
// those that are trusted. The Lifetime of want is not compared.
func ReadLeaf(certPEM, keyPEM, caPEM []byte, want LeafRequest) Leaf {
	if len(certPEM) == 0 && len(keyPEM) == 0 {
		return Leaf{}
	}
	cert, err := parseCert(certPEM)
	if err != nil {
		return Leaf{fault: "the certificate is unreadable"}
	}
	return Leaf{serial: cert.SerialNumber.Text(16), fault: findFault(cert, keyPEM, caPEM, want), validity: validityOf(cert)}
}

// findFault says what is wrong with a certificate that is readable. It holds no times, so that it is
// the same on every call.
func findFault(cert *x509.Certificate, keyPEM, caPEM []byte, want LeafRequest) string {
	key, err := parseKey(keyPEM)
	if err != nil {
		return "the key is unreadable"
	}
	ca, err := parseCert(caPEM)
	if err != nil {
		return "the CA's certificate is unreadable"
	}
	switch {
	case !isKeyOf(key, cert):
		return "the key does not belong to the certificate"
	case cert.CheckSignatureFrom(ca) != nil:
		return "the certificate is not signed by the current CA"
	case cert.Subject.CommonName != want.CommonName:
		return fmt.Sprintf("the common name is %q, not %q", cert.Subject.CommonName, want.CommonName)
	case !sameNames(cert.DNSNames, want.DNSNames):
		return "the DNS names differ"
	case !slices.Equal(cert.ExtKeyUsage, want.Usage.extendedUsages()):
		return "the usage differs"
	}
	return ""
}

// NeedsRenewal says whether the certificate must be issued again, and why.
func (l Leaf) NeedsRenewal(now time.Time) (reason string, yes bool) {
	switch {
	case l.fault != "":
		return l.fault, true
	case l.serial == "":
		return "there is no certificate", true
	case now.Before(l.notBefore):
		return "the certificate is not valid yet", true
	case l.pastTwoThirds(now):
		return "two thirds of its life are over", true
	}
	return "", false
}

// SerialNumber is what ReadSerial says of the certificate.
func (l Leaf) SerialNumber() string { return l.serial }

// RenewalTime is what the function RenewalTime says of the certificate.
func (l Leaf) RenewalTime() time.Time {
	if l.serial == "" {
		return time.Time{}
	}
	return l.twoThirds()
}

// RenewalTime is when a certificate reaches two thirds of its life; zero when
// it is unreadable.
func RenewalTime(certPEM []byte) time.Time {
	cert, err := parseCert(certPEM)
	if err != nil {
		return time.Time{}
	}
	return validityOf(cert).twoThirds()
}

// validity is when a certificate is valid.
type validity struct{ notBefore, notAfter time.Time }

func validityOf(cert *x509.Certificate) validity {
	return validity{cert.NotBefore, cert.NotAfter}
}

func (v validity) isExpired(now time.Time) bool { return now.After(v.notAfter) }

func (v validity) twoThirds() time.Time {
	return v.notBefore.Add(v.notAfter.Sub(v.notBefore) / 3 * 2)
}

func (v validity) pastTwoThirds(now time.Time) bool { return !now.Before(v.twoThirds()) }

// sameNames compares two sets.
func sameNames(a, b []string) bool {
	sorted := func(names []string) []string {
		s := slices.Clone(names)
		slices.Sort(s)
		return slices.Compact(s)
	}
	return slices.Equal(sorted(a), sorted(b))
}
