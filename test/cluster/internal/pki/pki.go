// Package pki makes the cluster's certificates and kubeconfigs.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/holdfast-db/holdfast/test/cluster/internal/layout"
)

// validity is long past any test run; a day is taken off the front for clocks
// that jump, as those of suspended virtual machines do.
const validity = 10 * 365 * 24 * time.Hour

// Authority is a certificate authority with its files' base name.
type Authority struct {
	Name        string
	certificate *x509.Certificate
	key         crypto.Signer
}

// Request is a certificate to be issued.
type Request struct {
	File          string   // base name under the pki folder
	User          string   // common name
	Groups        []string // organizations
	Names         []string // DNS names and IP addresses; none for clients
	ForServerAuth bool
}

// NewAuthority makes an authority and writes its certificate and key.
func NewAuthority(dir layout.Dir, name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{name, certificate, key}, writePair(dir, name, der, key)
}

// IssueCertificate makes a certificate and writes it with its key as FILE.crt, FILE.key.
func (a *Authority) IssueCertificate(dir layout.Dir, r Request) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := newTemplate(pkix.Name{CommonName: r.User, Organization: r.Groups})
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if r.ForServerAuth {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, name := range r.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return err
	}
	return writePair(dir, r.File, der, key)
}

// NewSigningKey makes the RSA pair that signs service account tokens.
func NewSigningKey(dir layout.Dir, name string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writePEM(dir.PKIFile(name+".pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	return writePEM(dir.PKIFile(name+".key"), "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
}

// NewKubeconfig returns a kubeconfig, complete in itself, for the client
// certificate of that base name.
func NewKubeconfig(dir layout.Dir, certificate string) ([]byte, error) {
	authority, err := os.ReadFile(dir.PKIFile("ca.crt"))
	if err != nil {
		return nil, err
	}
	cert, err := os.ReadFile(dir.PKIFile(certificate + ".crt"))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(dir.PKIFile(certificate + ".key"))
	if err != nil {
		return nil, err
	}
	const name = "holdfast"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: layout.APIServerURL(), CertificateAuthorityData: authority},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

func newTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-24 * time.Hour),
		NotAfter:     now.Add(validity),
	}, nil
}

func writePair(dir layout.Dir, name string, certificate []byte, key *ecdsa.PrivateKey) error {
	if err := writePEM(dir.PKIFile(name+".crt"), "CERTIFICATE", certificate); err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(dir.PKIFile(name+".key"), "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	content := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := layout.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
