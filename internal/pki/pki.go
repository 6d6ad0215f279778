// Package pki knows a cluster's certificates: its CA, the leaf certificates
// that the CA signs, when either must be renewed, and in which order a CA is
// replaced so that no two members ever distrust each other. It reads no clock
// and stores nothing.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"time"
)

const (
	// CALifetime of a new CA.
	CALifetime = 10 * 365 * 24 * time.Hour
	// LeafLifetime of a leaf whose request names none: long enough that a
	// cluster outlives months without an operator.
	LeafLifetime = 365 * 24 * time.Hour
	// backDate is how far before now a certificate is valid already, for
	// machines whose clocks are behind.
	backDate = time.Hour
)

const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"     // PKCS #8
	pemRSAKey      = "RSA PRIVATE KEY" // PKCS #1
	pemECKey       = "EC PRIVATE KEY"  // SEC 1
)

// CA is a certificate authority that can sign.
type CA struct {
	// CertPEM is the certificate, KeyPEM its key.
	CertPEM, KeyPEM []byte

	cert *x509.Certificate
	key  crypto.Signer
}

// Certificate is the CA's own certificate; not to be changed.
func (ca *CA) Certificate() *x509.Certificate { return ca.cert }

// Usage is what a leaf certificate is for.
type Usage int

// The usages.
const (
	// UsageServerAndClient is for members, who serve and call each other.
	UsageServerAndClient Usage = iota
	// UsageClient is for those who only call.
	UsageClient
)

// LeafRequest is what a leaf certificate should say.
type LeafRequest struct {
	CommonName string
	// DNSNames, also wildcards; the order does not matter.
	DNSNames []string
	Usage    Usage
	// Lifetime of the certificate; 0 means LeafLifetime. It never exceeds the
	// CA's own.
	Lifetime time.Duration
}

// NewCA makes a CA. The name is for people who read the certificate. From rand
// comes the serial number; keys and signatures take the process's own source
// of randomness, whatever rand is.
func NewCA(name string, now time.Time, rand io.Reader) (*CA, error) {
	serial, err := newSerial(rand)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand)
	if err != nil {
		return nil, fmt.Errorf("generate CA key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name, Organization: []string{"holdfast"}},
		NotBefore:             now.Add(-backDate),
		NotAfter:              now.Add(CALifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	certPEM, keyPEM, err := signCertificate(template, template, key, key, rand)
	if err != nil {
		return nil, err
	}
	return ParseCA(certPEM, keyPEM)
}

// ParseCA reads a CA back. It fails when either part is unreadable, when they
// do not belong together, and when the certificate is not a CA's.
func ParseCA(certPEM, keyPEM []byte) (*CA, error) {
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA {
		return nil, errors.New("the certificate is not a CA's")
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	if !isKeyOf(key, cert) {
		return nil, errors.New("the key does not belong to the CA's certificate")
	}
	return &CA{CertPEM: certPEM, KeyPEM: keyPEM, cert: cert, key: key}, nil
}

// HasSigned says whether the CA signed a certificate; none did without a CA.
func (ca *CA) HasSigned(certPEM []byte) bool {
	cert, err := parseCert(certPEM)
	return ca != nil && err == nil && isIssuedBy(ca.cert, cert)
}

// isIssuedBy says whether a certificate is of a CA: by the key, and by the names
// by which a verifier looks for the CA. A CA that was renewed with its
// key may have others.
func isIssuedBy(ca, cert *x509.Certificate) bool {
	named := len(cert.AuthorityKeyId) == 0 || len(ca.SubjectKeyId) == 0 || bytes.Equal(cert.AuthorityKeyId, ca.SubjectKeyId)
	return named && bytes.Equal(cert.RawIssuer, ca.RawSubject) && cert.CheckSignatureFrom(ca) == nil
}

// IssueLeaf makes a key and a certificate that ca signs. For rand see NewCA.
func IssueLeaf(ca *CA, req LeafRequest, now time.Time, rand io.Reader) (certPEM, keyPEM []byte, err error) {
	serial, err := newSerial(rand)
	if err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand)
	if err != nil {
		return nil, nil, fmt.Errorf("generate leaf key: %w", err)
	}
	lifetime := req.Lifetime
	if lifetime == 0 {
		lifetime = LeafLifetime
	}
	notAfter := now.Add(lifetime)
	if notAfter.After(ca.cert.NotAfter) {
		notAfter = ca.cert.NotAfter
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: req.CommonName},
		DNSNames:     req.DNSNames,
		NotBefore:    now.Add(-backDate),
		NotAfter:     notAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  req.Usage.extendedUsages(),
	}
	return signCertificate(template, ca.cert, key, ca.key, rand)
}

// ReadSerial returns the certificate's serial number in hex, as a member reports it;
// empty when there is no readable certificate.
func ReadSerial(certPEM []byte) string {
	cert, err := parseCert(certPEM)
	if err != nil {
		return ""
	}
	return cert.SerialNumber.Text(16)
}

// JoinBundle joins certificates into one list to trust: each once, in the order of
// first appearance, without whatever else stood between them.
func JoinBundle(certs ...[]byte) []byte {
	var bundle []byte
	listed := map[string]bool{}
	for _, block := range certBlocks(certs...) {
		if listed[string(block)] {
			continue
		}
		listed[string(block)] = true
		bundle = append(bundle, encodePEM(pemCertificate, block)...)
	}
	return bundle
}

func (u Usage) extendedUsages() []x509.ExtKeyUsage {
	if u == UsageClient {
		return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
}

// signCertificate makes the certificate of subject's key, signed with the issuer's.
func signCertificate(template, issuer *x509.Certificate, subject *ecdsa.PrivateKey, signer crypto.Signer, rand io.Reader) (certPEM, keyPEM []byte, err error) {
	der, err := x509.CreateCertificate(rand, template, issuer, &subject.PublicKey, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(subject)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return encodePEM(pemCertificate, der), encodePEM(pemKey, keyDER), nil
}

// newSerial draws 127 bits, so that the number is positive and 16 bytes long
// at most.
func newSerial(rand io.Reader) (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := io.ReadFull(rand, b); err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	b[0] &= 0x7f
	b[15] |= 1
	return new(big.Int).SetBytes(b), nil
}

func parseCert(certPEM []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(certPEM)
	if block == nil || block.Type != pemCertificate {
		return nil, errors.New("no certificate in PEM form")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return cert, nil
}

// parseKey reads an RSA or ECDSA key in any of the forms that it is written in.
// Blocks before it, such as a curve's parameters, are skipped.
func parseKey(keyPEM []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(keyPEM); block != nil; block, rest = pem.Decode(rest) {
		var parsed any
		var err error
		switch block.Type {
		case pemKey:
			parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case pemRSAKey:
			parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case pemECKey:
			parsed, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, errors.New("the private key is unreadable") // the cause may quote it
		}
		switch key := parsed.(type) {
		case *ecdsa.PrivateKey:
			return key, nil
		case *rsa.PrivateKey:
			return key, nil
		}
		return nil, errors.New("the private key is neither an RSA nor an ECDSA key")
	}
	return nil, errors.New("no unencrypted private key in PEM form")
}

// isKeyOf says whether a certificate is that of a key.
func isKeyOf(key crypto.Signer, cert *x509.Certificate) bool {
	public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(cert.PublicKey)
}

// certBlocks are the certificates in a text, as DER; other blocks and whatever
// does not parse are left out.
func certBlocks(texts ...[]byte) [][]byte {
	var blocks [][]byte
	for _, rest := range texts {
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if block.Type != pemCertificate {
				continue
			}
			if _, err := x509.ParseCertificate(block.Bytes); err == nil {
				blocks = append(blocks, block.Bytes)
			}
		}
	}
	return blocks
}

func encodePEM(kind string, der []byte) []byte {
	var b bytes.Buffer
	// A bytes.Buffer takes every write, and there are no headers to refuse.
	_ = pem.Encode(&b, &pem.Block{Type: kind, Bytes: der})
	return bytes.Clone(b.Bytes()) // without what the buffer has to spare
}
