//go:build soak

package e2e

import "testing"

// TestSoakPostgresImport fills a cluster with a gigabyte.
func TestSoakPostgresImport(t *testing.T) { importsFrom(t, 4_000_000) }
