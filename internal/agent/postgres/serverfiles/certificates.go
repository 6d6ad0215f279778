package serverfiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/atomicfile"
	"github.com/holdfast-db/holdfast/internal/agent/statusserver"
)

// WriteTLS copies the certificates to where the database reads them: as a
// consistent set, and with the mode that the database demands of a key. Connections
// are held against the members' own authority only, in ca.crt; the primary is held
// against roots.crt. The bundle is nil before the first.
func (f *Files) WriteTLS(bundle *statusserver.Bundle) error {
	if bundle == nil {
		return errors.New("the member has no certificate yet")
	}
	dir := filepath.Join(f.o.RunDir, tlsDir)
	return errors.Join(
		atomicfile.WriteFile(filepath.Join(dir, "ca.crt"), bundle.CAPEM),
		atomicfile.WriteFile(filepath.Join(dir, "roots.crt"), bundle.ServerCAPEM),
		atomicfile.WriteFile(filepath.Join(dir, "tls.crt"), bundle.CertPEM),
		atomicfile.WriteFile(filepath.Join(dir, "tls.key"), bundle.KeyPEM),
		atomicfile.WriteFile(filepath.Join(dir, "server.crt"), bundle.ServerCertPEM),
		atomicfile.WriteFile(filepath.Join(dir, "server.key"), bundle.ServerKeyPEM))
}

// ReadTLS is what the server reads of certificates: not what only replicas
// read, whenever they connect.
func (f *Files) ReadTLS() string {
	var all strings.Builder
	for _, name := range []string{"server.crt", "server.key", "ca.crt"} {
		data, _ := os.ReadFile(filepath.Join(f.o.RunDir, tlsDir, name))
		all.Write(data)
	}
	return all.String()
}
