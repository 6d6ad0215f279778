package backup

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Identity is how a database knows the pod, and whom the pod trusts.
type Identity struct {
	CertPEM, KeyPEM, RootsPEM []byte
}

// ReadIdentity reads what the operator mounts.
func ReadIdentity() (Identity, error) { return readIdentity(agentapi.TLSDir) }

func readIdentity(dir string) (id Identity, err error) {
	for name, to := range map[string]*[]byte{"tls.crt": &id.CertPEM, "tls.key": &id.KeyPEM} {
		if *to, err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return id, fmt.Errorf("read the pod's certificate: %w", err)
		}
	}
	for _, name := range []string{"ca.crt", "server-ca.crt"} {
		roots, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && (name == "ca.crt" || !errors.Is(err, fs.ErrNotExist)) {
			return id, fmt.Errorf("read whom to trust: %w", err)
		}
		id.RootsPEM = append(append(id.RootsPEM, roots...), '\n')
	}
	return id, nil
}

// TLSConfig is for a client of the database.
func (id Identity) TLSConfig() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(id.CertPEM, id.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("the pod's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(id.RootsPEM) {
		return nil, errors.New("ca.crt holds no certificate to trust")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, RootCAs: roots}, nil
}
