package memberapi

import (
	"crypto/sha256"
	"encoding/hex"
)

// HashConfig names a rendered ClusterConfig: the first 16 hex digits of the
// SHA-256 of its bytes as they stand in the ConfigMap.
func HashConfig(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}
