package pki

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// NeedsRenewal says whether a leaf certificate must be issued again, and why.
// The reason holds no times, so that it is the same on every call. caPEM is
// the certificate of the CA that signs now, not the bundle of those that are
// trusted. The Lifetime of want is not compared.
func NeedsRenewal(certPEM, keyPEM, caPEM []byte, want LeafRequest, now time.Time) (reason string, yes bool) {
	if len(certPEM) == 0 && len(keyPEM) == 0 {
		return "there is no certificate", true
	}
	cert, err := parseCert(certPEM)
	if err != nil {
		return "the certificate is unreadable", true
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return "the key is unreadable", true
	}
	ca, err := parseCert(caPEM)
	if err != nil {
		return "the CA's certificate is unreadable", true
	}
	switch {
	case !key.PublicKey.Equal(cert.PublicKey):
		return "the key does not belong to the certificate", true
	case cert.CheckSignatureFrom(ca) != nil:
		return "the certificate is not signed by the current CA", true
	case cert.Subject.CommonName != want.CommonName:
		return fmt.Sprintf("the common name is %q, not %q", cert.Subject.CommonName, want.CommonName), true
	case !sameNames(cert.DNSNames, want.DNSNames):
		return "the DNS names differ", true
	case !slices.Equal(cert.ExtKeyUsage, want.Usage.extended()):
		return "the usage differs", true
	case now.Before(cert.NotBefore):
		return "the certificate is not valid yet", true
	case pastTwoThirds(cert, now):
		return "two thirds of its life are over", true
	}
	return "", false
}

// RenewalTime is when a certificate reaches two thirds of its life; zero when
// it is unreadable.
func RenewalTime(certPEM []byte) time.Time {
	cert, err := parseCert(certPEM)
	if err != nil {
		return time.Time{}
	}
	return twoThirds(cert)
}

func twoThirds(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2)
}

func pastTwoThirds(cert *x509.Certificate, now time.Time) bool {
	return !now.Before(twoThirds(cert))
}

// sameNames compares two sets.
func sameNames(a, b []string) bool {
	sorted := func(names []string) []string {
		s := slices.Clone(names)
		slices.Sort(s)
		return slices.Compact(s)
	}
	return slices.Equal(sorted(a), sorted(b))
}
