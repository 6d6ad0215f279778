package agentapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// HashConfig names a rendered ClusterConfig: the first 16 hex digits of the
// SHA-256 of its bytes as they stand in the ConfigMap.
func HashConfig(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// tlsFiles are the files of TLSDir that hold no key.
var tlsFiles = []string{"ca.crt", "server-ca.crt", "server.crt", "tls.crt"}

// HashTLS names the certificates of TLSDir, by file name: the first 16 hex
// digits of a SHA-256 of those that are there. Keys are not in it: each belongs
// to one certificate.
func HashTLS(files map[string][]byte) string {
	sum := sha256.New()
	for _, name := range tlsFiles {
		if data, ok := files[name]; ok {
			fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
