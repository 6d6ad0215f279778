//go:build mysql

package mysqltest

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// newCertificates makes the directory of the certificates that all members share, and that
// of Jobs that copy, as the operator does.
func newCertificates(t *testing.T) string {
	t.Helper()
	ca, err := pki.NewCA("test", time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := IssueCertificate(t, ca, agentapi.MemberName)
	copierCertificate, copierKey := IssueCertificate(t, ca, agentapi.CopierName)
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"ca.crt": ca.CertPEM, "server.crt": certificate, "server.key": key, "copier.crt": copierCertificate, "copier.key": copierKey,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// NewTLSDir makes the directory of the certificates that the operator mounts for a member.
func NewTLSDir(t *testing.T) string {
	t.Helper()
	dir := newCertificates(t)
	for from, to := range map[string]string{"server.crt": "tls.crt", "server.key": "tls.key"} {
		if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// IssueCertificate of a name that clients and servers at localhost may use.
func IssueCertificate(t *testing.T, ca *pki.CA, name string) (certificate, key []byte) {
	t.Helper()
	request := pki.LeafRequest{CommonName: name, DNSNames: []string{Host}, Usage: pki.UsageServerAndClient}
	certificate, key, err := pki.IssueLeaf(ca, request, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}
