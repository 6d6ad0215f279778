package statusserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Bundle is one consistent reading of the member's certificates.
type Bundle struct {
	// CertPEM, KeyPEM and CAPEM are the files as they were read.
	CertPEM, KeyPEM, CAPEM []byte
	// ServerCertPEM and ServerKeyPEM are what clients of the database see: the
	// member's own certificate, unless there is another for them. ServerCAPEM
	// verifies it, on every member.
	ServerCertPEM, ServerKeyPEM, ServerCAPEM []byte
	// Certificate is parsed, with its Leaf.
	Certificate tls.Certificate
	// Roots are all authorities that vouch for members.
	Roots *x509.CertPool
	// Expiry is when the first of the certificates expires.
	Expiry time.Time
	// Hash names the reading.
	Hash string
}

// Serial of the certificate, in hex.
func (b *Bundle) Serial() string { return fmt.Sprintf("%x", b.Certificate.Leaf.SerialNumber) }

func (b *Bundle) isEqual(o *Bundle) bool {
	return o != nil && b.Hash == o.Hash && bytes.Equal(b.KeyPEM, o.KeyPEM) && bytes.Equal(b.ServerKeyPEM, o.ServerKeyPEM)
}

// Certificates follows the mounted certificates. A reading whose keys do not
// belong to its certificates (the kubelet may be half way through) is passed
// over, and the last good one stays.
type Certificates struct {
	dir string

	mu      sync.Mutex
	current *Bundle
	changed chan struct{}
}

// NewCertificates follows the files in dir: see agentapi.TLSDir.
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
	if b.isEqual(c.current) {
		return false, nil
	}
	c.current = b
	close(c.changed)
	c.changed = make(chan struct{})
	return true, nil
}

// Follow reloads once per interval until ctx ends. A few small files are read
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
	files := map[string][]byte{}
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt", "server.crt", "server.key", "server-ca.crt"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if strings.HasPrefix(name, "server") && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the member's certificate: %w", err)
		}
		files[name] = data
	}
	b := &Bundle{CertPEM: files["tls.crt"], KeyPEM: files["tls.key"], CAPEM: files["ca.crt"], Hash: agentapi.HashTLS(files)}
	b.ServerCertPEM, b.ServerKeyPEM = b.CertPEM, b.KeyPEM
	pair, err := tls.X509KeyPair(b.CertPEM, b.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("read the member's certificate: %w", err)
	}
	b.Certificate, b.Expiry = pair, pair.Leaf.NotAfter
	if cert, other := files["server.crt"]; other {
		server, err := tls.X509KeyPair(cert, files["server.key"])
		if err != nil {
			return nil, fmt.Errorf("read the certificate for clients: %w", err)
		}
		b.ServerCertPEM, b.ServerKeyPEM = cert, files["server.key"]
		if server.Leaf.NotAfter.Before(b.Expiry) {
			b.Expiry = server.Leaf.NotAfter
		}
	}
	// Members' own authority stays trusted: one that is behind serves what it
	// signed.
	b.ServerCAPEM = slices.Concat(b.CAPEM, []byte("\n"), files["server-ca.crt"])
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
