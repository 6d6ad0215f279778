package statusserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Peers asks other members for their status, as a member.
type Peers struct {
	certificates *Certificates
	address      func(pod string) string
	decode       func([]byte) (agentapi.Status, error)

	mu     sync.Mutex
	bundle *Bundle
	client *http.Client
	at     map[string]string // host:port by pod
}

// NewPeers asks a pod's agent at address(pod), a host:port whose host the
// pod's certificate carries. Their answers are read with decode, which knows what
// only members of this engine report.
func NewPeers(certificates *Certificates, address func(pod string) string, decode func([]byte) (agentapi.Status, error)) *Peers {
	return &Peers{certificates: certificates, address: address, decode: decode, at: map[string]string{}}
}

// Locate says at which IP address a pod is, whatever its name resolves to. It
// is the pod's name that the certificate must carry all the same.
func (p *Peers) Locate(pod, ip string) {
	host, port, err := net.SplitHostPort(p.address(pod))
	if err != nil || net.ParseIP(ip) == nil {
		return
	}
	name, address := net.JoinHostPort(host, port), net.JoinHostPort(ip, port)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at[name] == address {
		return
	}
	p.at[name] = address
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
}

func (p *Peers) dialPeer(ctx context.Context, network, address string) (net.Conn, error) {
	p.mu.Lock()
	at, known := p.at[address]
	p.mu.Unlock()
	dialer := net.Dialer{Timeout: time.Second, KeepAlive: 5 * time.Second}
	if known {
		if conn, err := dialer.DialContext(ctx, network, at); err == nil {
			return conn, nil
		}
	}
	return dialer.DialContext(ctx, network, address)
}

// Status of a peer, as of now. The deadline is the context's.
func (p *Peers) Status(ctx context.Context, pod string) (agentapi.Status, error) {
	var text json.RawMessage
	if err := p.AskPeer(ctx, pod, agentapi.StatusPath, &text); err != nil {
		return agentapi.Status{}, err
	}
	status, err := p.decode(text)
	if err == nil && status.Pod != pod {
		err = fmt.Errorf("asked %s for its status, %q answered", pod, status.Pod)
	}
	return status, err
}

// AskPeer reads the JSON that a peer answers at a path. The deadline is the
// context's; the error is errors.ErrUnsupported of an agent that does not know the
// path.
func (p *Peers) AskPeer(ctx context.Context, pod, path string, into any) error {
	return p.exchange(ctx, http.MethodGet, pod, path, nil, into)
}

// PostPeer sends a message to a peer, as JSON, and reads the JSON that it answers. Its
// deadline and errors are those of AskPeer. A message may arrive although no answer
// does.
func (p *Peers) PostPeer(ctx context.Context, pod, path string, message, into any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", pod, path, err)
	}
	return p.exchange(ctx, http.MethodPost, pod, path, bytes.NewReader(text), into)
}

func (p *Peers) exchange(ctx context.Context, method, pod, path string, message io.Reader, into any) error {
	client, err := p.currentClient()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "https://"+p.address(pod)+path, message)
	if err != nil {
		return err
	}
	if message != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("ask %s for %s: %w", pod, path, errors.ErrUnsupported)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s for %s: %s", pod, path, response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(into)
}

// currentClient returns a client with the current certificate; connections made with
// an older one are canceled.
func (p *Peers) currentClient() (*http.Client, error) {
	bundle, _ := p.certificates.Current()
	if bundle == nil {
		return nil, errors.New("no certificate yet")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bundle == bundle {
		return p.client, nil
	}
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
	p.bundle = bundle
	p.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{bundle.Certificate},
			RootCAs:      bundle.Roots,
		},
		DialContext:         p.dialPeer,
		TLSHandshakeTimeout: 2 * time.Second,
		IdleConnTimeout:     time.Minute,
		MaxIdleConnsPerHost: 1,
	}}
	return p.client, nil
}

// Gone says whether an error of Status proves that no agent runs there: the
// machine answered and refused, or the name no longer exists. As the agent is
// the first process of its container, its database does not run either.
func Gone(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) && dns.IsNotFound
}
