// Package primarylease is the Lease of a PostgreSQL primary as a store of one
// record that is read, and replaced only in the state that was read. It has a
// connection of its own: the shared transport of client-go multiplexes requests on
// one HTTP/2 connection, and a dead API server hangs all of them for up to 45 s.
// No request waits for another one, and nothing is locked while one is under way.
package primarylease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/leaseclient"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// maxAnswer bounds what is read of an answer, in bytes. A Lease has some kilobytes.
const maxAnswer = 4 << 20

// Errors of a request that the API server did not answer.
var (
	// ErrOutage says that no answer came, and that nothing of the request was sent.
	ErrOutage = errors.New("the API server is not reached")
	// ErrUnknownOutcome says that the request was sent and no answer came. A write
	// counts as not done until the Lease is read again.
	ErrUnknownOutcome = errors.New("the API server did not answer")
)

// RefusedError is an answer other than success.
type RefusedError struct {
	// Code is the HTTP status.
	Code    int
	Message string
}

// Error tells the status and the API server's message.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("the API server answered %d: %s", e.Code, e.Message)
}

// Options are what a Client is made of.
type Options struct {
	// Config has the host, TLS, and the token's file.
	Config   *rest.Config
	Identity identity.Identity
	// Timing limits requests until SetTiming replaces it.
	Timing lease.Timing
	// Labels are given to a Lease that is created.
	Labels map[string]string
	// Cluster is asked at every write for the UID of the cluster; nil for none.
	Cluster func() string
	// Owners are asked at every write whose deletion takes the Lease along.
	Owners func() []metav1.OwnerReference
	// Now is CLOCK_BOOTTIME; tests replace it.
	Now func() time.Duration
}

// Client reads and replaces the Lease <cluster>-primary. All its methods may be
// called at the same time.
type Client struct {
	options Options
	name    string
	leases  *url.URL
	token   *token
	// timing is the one in use.
	timing atomic.Pointer[lease.Timing]
	// connections are replaced as a whole after an outage.
	connections atomic.Pointer[http.Transport]
	dialing     atomic.Bool
	// latest is the Lease as last read or written: what a write leaves as it is.
	latest atomic.Pointer[coordinationv1.Lease]
	// missing says that the last answer was that there is none.
	missing atomic.Bool
}

// New opens no connection yet. It fails if the configuration cannot be used.
func New(o Options) (*Client, error) {
	if o.Now == nil {
		o.Now = clock.Boottime
	}
	host, _, err := rest.DefaultServerUrlFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	c := &Client{options: o, name: o.Identity.Cluster + "-primary"}
	c.leases = host.JoinPath("apis/coordination.k8s.io/v1/namespaces", o.Identity.Namespace, "leases")
	if c.token, err = openToken(o.Config.BearerTokenFile, o.Now()); err != nil {
		return nil, err
	}
	c.timing.Store(&o.Timing)
	transport, err := c.newTransport()
	if err != nil {
		return nil, err
	}
	c.connections.Store(transport)
	return c, nil
}

// SetTiming replaces the timing. Connections that are made from then on follow it.
func (c *Client) SetTiming(t lease.Timing) { c.timing.Store(&t) }

func (c *Client) readTiming() lease.Timing { return *c.timing.Load() }

// ReadLease reads the Lease. The reading has the times of the request by
// CLOCK_BOOTTIME; the error explains any answer but lease.Done and lease.Missing.
func (c *Client) ReadLease(ctx context.Context) (lease.Reading, error) {
	sent := c.options.Now()
	// Without a resourceVersion the answer is that of a quorum of etcd.
	object, err := c.request(ctx, http.MethodGet, c.leases.JoinPath(c.name), nil)
	r := lease.Reading{Answer: answerOf(err), Sent: sent, Received: c.options.Now()}
	switch r.Answer {
	case lease.Done:
		c.latest.Store(object)
		c.missing.Store(false)
		r.Version, r.Record = version(object), readRecord(object)
		return r, nil
	case lease.Missing:
		c.missing.Store(true)
		return r, nil
	}
	return r, fmt.Errorf("read Lease %s: %w", c.name, err)
}

// WriteLease replaces the Lease in the state that base names, or creates it if base
// is zero. The version is that of the Lease afterwards, for lease.Done only; the
// error explains every other answer.
func (c *Client) WriteLease(ctx context.Context, base lease.Version, r lease.Record) (lease.Answer, lease.Version, error) {
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: c.options.Identity.Namespace, Labels: c.options.Labels}}
	method, target := http.MethodPost, *c.leases
	if base != (lease.Version{}) {
		latest := c.latest.Load()
		if latest == nil || version(latest) != base {
			return lease.Conflict, lease.Version{}, fmt.Errorf("write Lease %s: it is not the one that was read last", c.name)
		}
		next, method, target = latest.DeepCopy(), http.MethodPut, *c.leases.JoinPath(c.name)
		next.ManagedFields = nil
	}
	if err := writeRecord(next, r, time.Now()); err != nil {
		return lease.Forbidden, lease.Version{}, fmt.Errorf("write Lease %s: %w", c.name, err)
	}
	c.annotateWriter(next, r)
	if c.options.Owners != nil {
		next.OwnerReferences = c.options.Owners()
	}
	target.RawQuery = url.Values{"fieldManager": {v1alpha1.AgentFieldManager}}.Encode()
	object, err := c.request(ctx, method, &target, next)
	if err != nil {
		return answerOf(err), lease.Version{}, fmt.Errorf("write Lease %s: %w", c.name, err)
	}
	c.latest.Store(object)
	c.missing.Store(false)
	return lease.Done, version(object), nil
}

// annotateWriter says whose the Lease is, and where its holder is to be found: names
// are cached for seconds.
func (c *Client) annotateWriter(l *coordinationv1.Lease, r lease.Record) {
	if c.options.Cluster != nil {
		l.Annotations[leaseclient.AnnotationCluster] = c.options.Cluster()
	}
	if r.HolderUID == c.options.Identity.PodUID && r.HolderUID != "" {
		l.Annotations[leaseclient.AnnotationAddress] = c.options.Identity.Address
	}
}

// answerOf is what an error means to the protocol.
func answerOf(err error) lease.Answer {
	var refused *RefusedError
	switch {
	case err == nil:
		return lease.Done
	case !errors.As(err, &refused):
		return lease.Unanswered
	}
	switch {
	case refused.Code == http.StatusNotFound:
		return lease.Missing
	case refused.Code == http.StatusConflict:
		return lease.Conflict
	case refused.Code == http.StatusRequestTimeout, refused.Code == http.StatusTooManyRequests, refused.Code < 400, refused.Code >= 500:
		return lease.Unanswered
	}
	return lease.Forbidden
}

// request does one request within the request timeout.
func (c *Client) request(ctx context.Context, method string, target *url.URL, body *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.readTiming().RequestTimeout())
	defer cancel()
	var isSent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { isSent.Store(true) }})
	object, err := c.exchange(ctx, method, target, body)
	var refused *RefusedError
	switch {
	case err == nil:
		return object, nil
	case errors.As(err, &refused):
		if refused.Code == http.StatusUnauthorized {
			c.token.refresh(c.options.Now())
		}
		return nil, err
	}
	c.redial()
	if isSent.Load() {
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrOutage, err)
}

func (c *Client) exchange(ctx context.Context, method string, target *url.URL, body *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	request, err := c.newRequest(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	response, err := c.connections.Load().RoundTrip(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusCreated {
		var status metav1.Status
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = http.StatusText(response.StatusCode)
		}
		return nil, &RefusedError{Code: response.StatusCode, Message: status.Message}
	}
	object := &coordinationv1.Lease{}
	if err := json.Unmarshal(text, object); err != nil {
		return nil, fmt.Errorf("decode the answer: %w", err)
	}
	if object.Name != c.name || object.UID == "" || object.ResourceVersion == "" {
		return nil, errors.New("the answer is no Lease of that name")
	}
	return object, nil
}

func (c *Client) newRequest(ctx context.Context, method string, target *url.URL, body *coordinationv1.Lease) (*http.Request, error) {
	var content io.Reader
	if body != nil {
		body.APIVersion, body.Kind = coordinationv1.SchemeGroupVersion.String(), "Lease"
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode the Lease: %w", err)
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "holdfast-agent")
	if bearer := c.token.get(c.options.Now()); bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	} else if c.options.Config.BearerToken != "" {
		request.Header.Set("Authorization", "Bearer "+c.options.Config.BearerToken)
	}
	return request, nil
}
