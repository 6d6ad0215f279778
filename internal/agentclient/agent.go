package agentclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

const (
	// answerTimeout is what an answer may take beyond its wait, a new
	// connection included.
	answerTimeout = 5 * time.Second
	// maxAnswer is more than any answer has, in bytes: measurements of five days by the hour
	// have the most, some 90 KiB.
	maxAnswer = 256 << 10
	// bufferSize of a connection's reader, in bytes: a status is about one
	// kilobyte, and connections are as many as members.
	bufferSize = 1 << 10
)

// agent is the client of one member: one connection, one request at a time.
// http.Transport would keep two goroutines per connection and take twice the
// memory, and its redirects and retries are of no use here.
type agent struct {
	member Member
	wait   time.Duration
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	tls    *tls.Config // nil without usable material
	decode func([]byte) (agentapi.Status, error)

	conn  *tls.Conn // nil while there is no connection
	limit *io.LimitedReader
	in    *bufio.Reader
}

func newAgent(m Member, config *tls.Config, opts Options) *agent {
	a := &agent{member: m, wait: opts.Wait, dial: opts.Dial, decode: opts.Decode}
	if config != nil {
		a.tls = config.Clone()
		a.tls.ServerName = m.ServerName
	}
	return a
}

// askStatus fetches the status. With a revision the answer comes when there is
// another one, or when the wait is over. With flush it also says whether the
// member flushes.
func (a *agent) askStatus(ctx context.Context, revision string, flush bool) (*agentapi.Status, error) {
	timeout, query := answerTimeout, url.Values{}
	if revision != "" {
		timeout += a.wait
		query.Set("after", revision)
		query.Set("wait", a.wait.String())
	}
	if flush {
		query.Set(agentapi.FlushQuery, "true")
	}
	body, err := a.askPath(ctx, agentapi.StatusPath, query, timeout)
	if err != nil {
		return nil, err
	}
	return a.decodeStatus(body)
}

// askTuning fetches what the member measured of its database, by the hour if that is
// wanted. Agents that do not know how answer as without.
func (a *agent) askTuning(ctx context.Context, hours bool) (*agentapi.Tuning, error) {
	query := url.Values{}
	if hours {
		query.Set(agentapi.TuningHoursQuery, "true")
	}
	answer, err := askJSON(ctx, a, agentapi.TuningPath, query, func(t *agentapi.Tuning) string { return t.PodUID })
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(answer.Slots); i++ {
		// Most hours have the settings of the one before, and many are held in memory.
		if maps.Equal(answer.Slots[i-1].Settings, answer.Slots[i].Settings) {
			answer.Slots[i].Settings = answer.Slots[i-1].Settings
		}
	}
	return answer, nil
}

// askInsights fetches what the member found in its database's text log.
func (a *agent) askInsights(ctx context.Context) (*agentapi.Insights, error) {
	return askJSON(ctx, a, agentapi.InsightsPath, nil, func(i *agentapi.Insights) string { return i.PodUID })
}

// askJSON fetches the answer at a path, of which podUID reads the UID of the pod that
// answered.
func askJSON[T any](ctx context.Context, a *agent, path string, query url.Values, podUID func(*T) string) (*T, error) {
	body, err := a.askPath(ctx, path, query, answerTimeout)
	if err != nil {
		return nil, err
	}
	answer := new(T)
	if err := json.Unmarshal(body, answer); err != nil {
		return nil, fmt.Errorf("decode answer: %w", err)
	}
	return answer, a.checkPod(podUID(answer))
}

// askPath fetches the answer at a path.
func (a *agent) askPath(ctx context.Context, path string, query url.Values, timeout time.Duration) ([]byte, error) {
	if a.tls == nil {
		return nil, errors.New("the operator has no usable certificate for this cluster")
	}
	address := url.URL{Scheme: "https", Host: a.member.Address, Path: path, RawQuery: query.Encode()}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	body, err := a.exchangeRequest(ctx, request)
	if err != nil {
		a.closeConnection()
		if ctx.Err() != nil {
			err = ctx.Err() // and not the closed connection that it led to
		}
		return nil, fmt.Errorf("ask: %w", err)
	}
	return body, nil
}

// exchangeRequest sends the request and reads the whole answer, over the connection
// that there is or a new one. After an error the connection is unusable.
func (a *agent) exchangeRequest(ctx context.Context, request *http.Request) ([]byte, error) {
	if err := a.openConnection(ctx); err != nil {
		return nil, err
	}
	// Below TLS: a farewell could wait for a peer that hangs, and would let
	// one that does not answer too late.
	raw := a.conn.NetConn()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	if err := request.Write(a.conn); err != nil {
		return nil, err
	}
	a.limit.N = maxAnswer
	response, err := http.ReadResponse(a.in, request)
	if err != nil {
		return nil, a.explainOverlong(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, a.explainOverlong(err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the agent answers %s", response.Status)
	}
	if response.Close {
		a.closeConnection()
	}
	return body, nil
}

// explainOverlong explains an answer that seems cut because we stopped reading it.
func (a *agent) explainOverlong(err error) error {
	if a.limit.N <= 0 {
		return fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return err
}

func (a *agent) openConnection(ctx context.Context) error {
	if a.conn != nil {
		return nil
	}
	raw, err := a.dial(ctx, "tcp", a.member.Address)
	if err != nil {
		return err
	}
	conn := tls.Client(raw, a.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		return err
	}
	a.conn = conn
	a.limit = &io.LimitedReader{R: conn}
	a.in = bufio.NewReaderSize(a.limit, bufferSize)
	return nil
}

func (a *agent) closeConnection() {
	if a.conn != nil {
		a.conn.NetConn().Close()
	}
	a.conn, a.limit, a.in = nil, nil, nil
}

func (a *agent) decodeStatus(body []byte) (*agentapi.Status, error) {
	status, err := a.decode(body)
	if err != nil {
		return nil, fmt.Errorf("decode answer: %w", err)
	}
	if err := a.checkPod(status.PodUID); err != nil {
		return nil, err
	}
	return &status, nil
}

func (a *agent) checkPod(uid string) error {
	if types.UID(uid) != a.member.UID {
		return fmt.Errorf("another pod answers: UID %s in place of %s", uid, a.member.UID)
	}
	return nil
}
