package primarylease

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"

	"k8s.io/client-go/rest"
)

// newTransport makes connections of HTTP/1.1 only: each carries one request at a
// time, so that a hung one holds no other up. The CA's file is read again.
func (c *Client) newTransport() (*http.Transport, error) {
	config, err := rest.TLSConfigFor(c.options.Config)
	if err != nil {
		return nil, fmt.Errorf("the API server's TLS configuration: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.NextProtos = []string{"http/1.1"}
	timing := c.readTiming()
	return &http.Transport{
		// Not one that tries a second address before the first has timed out would
		// be of use here: a Service has one.
		DialContext:         (&net.Dialer{Timeout: timing.RequestTimeout(), KeepAlive: -1}).DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: timing.RequestTimeout(),
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		ForceAttemptHTTP2:   false,
		MaxIdleConnsPerHost: 2,
		// A connection that a renewal does not use is not trusted to work.
		IdleConnTimeout: 2 * timing.Renewal(),
		// An answer is small, and the API server would compress it for nothing.
		DisableCompression: true,
	}, nil
}

// redial replaces the connections: one that timed out may be half-open, and so may
// those beside it. A request never waits for it. Requests that are under way
// continue on their own connections.
func (c *Client) redial() {
	c.connections.Load().CloseIdleConnections()
	if !c.dialing.CompareAndSwap(false, true) {
		return
	}
	go func() { // files are read
		defer c.dialing.Store(false)
		transport, err := c.newTransport()
		if err != nil {
			return // the old one stays: its CA was readable
		}
		c.connections.Swap(transport).CloseIdleConnections()
	}()
}
