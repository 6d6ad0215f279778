package store

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// In an image without any certificate a process trusts the public authorities
// when it was asked to.
func TestCertified(t *testing.T) {
	const child = "HOLDFAST_TEST_WITHOUT_ROOTS"
	if os.Getenv(child) == "" {
		again := exec.Command(os.Args[0], "-test.run=^TestCertified$")
		again.Env = append(os.Environ(), child+"=1", "SSL_CERT_FILE=/nowhere", "SSL_CERT_DIR=/nowhere")
		if out, err := again.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	trusted := func() (n int) {
		for root := range bundle.Roots() {
			certificate, err := x509.ParseCertificate(root.Certificate)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := certificate.Verify(x509.VerifyOptions{CurrentTime: certificate.NotBefore.AddDate(0, 0, 1)}); err == nil {
				n++
			}
		}
		return n
	}
	if n := trusted(); n != 0 {
		t.Fatalf("an image without certificates trusts %d authorities", n)
	}
	certified()
	if n := trusted(); n < 50 {
		t.Errorf("%d authorities are trusted", n)
	}
}
