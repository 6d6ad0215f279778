package member

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Bundle is one consistent reading of the member's certificate.
type Bundle struct {
	// CertPEM, KeyPEM and CAPEM are the files as they were read.
	CertPEM, KeyPEM, CAPEM []byte
	// Certificate is parsed, with its Leaf.
	Certificate tls.Certificate
	// Roots are all trusted authorities.
	Roots *x509.CertPool
}

// Serial of the certificate, in hex.
func (b *Bundle) Serial() string { return fmt.Sprintf("%x", b.Certificate.Leaf.SerialNumber) }

func (b *Bundle) equal(o *Bundle) bool {
	return o != nil && bytes.Equal(b.CertPEM, o.CertPEM) && bytes.Equal(b.KeyPEM, o.KeyPEM) && bytes.Equal(b.CAPEM, o.CAPEM)
}

// Certificates follows the mounted certificate. A reading whose key does not
// belong to its certificate (the kubelet may be half way through) is passed
// over, and the last good one stays.
type Certificates struct {
	dir string

	mu      sync.Mutex
	current *Bundle
	changed chan struct{}
}

// NewCertificates follows tls.crt, tls.key and ca.crt in dir.
func NewCertificates(dir string) *Certificates {
	return &Certificates{dir: dir, changed: make(chan struct{})}
}

// Current returns the newest good reading, nil before the first, and a channel
// that is closed when there is a newer one.
func (c *Certificates) Current() (*Bundle, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, c.changed
}

// Reload reads the files once, and says whether something new was there.
func (c *Certificates) Reload() (bool, error) {
	b, err := readBundle(c.dir)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.equal(c.current) {
		return false, nil
	}
	c.current = b
	close(c.changed)
	c.changed = make(chan struct{})
	return true, nil
}

// Follow reloads once per interval until ctx ends. Three small files are read
// each time: a watch on them would have to follow the kubelet's symbolic links.
func (c *Certificates) Follow(ctx context.Context, interval time.Duration, failed func(error)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if _, err := c.Reload(); err != nil {
				failed(err)
			}
		}
	}
}

func readBundle(dir string) (*Bundle, error) {
	b := &Bundle{}
	for name, into := range map[string]*[]byte{"tls.crt": &b.CertPEM, "tls.key": &b.KeyPEM, "ca.crt": &b.CAPEM} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("read the member's certificate: %w", err)
		}
		*into = data
	}
	pair, err := tls.X509KeyPair(b.CertPEM, b.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("read the member's certificate: %w", err)
	}
	b.Certificate = pair
	b.Roots = x509.NewCertPool()
	if !b.Roots.AppendCertsFromPEM(b.CAPEM) {
		return nil, errors.New("read the member's certificate: ca.crt holds no certificate")
	}
	return b, nil
}

// ServerConfig demands a client certificate that the current authorities
// signed, and serves the current certificate.
func (c *Certificates) ServerConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			b, _ := c.Current()
			if b == nil {
				return nil, errors.New("no certificate yet")
			}
			return &tls.Config{
				MinVersion:   tls.VersionTLS12,
				Certificates: []tls.Certificate{b.Certificate},
				ClientAuth:   tls.RequireAndVerifyClientCert,
				ClientCAs:    b.Roots,
				NextProtos:   []string{"h2", "http/1.1"},
			}, nil
		},
	}
}
