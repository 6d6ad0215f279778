package guard

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/health"
)

const (
	// probeInterval is between two questions of the guard, which may each take
	// probeTimeout.
	probeInterval = time.Second
	probeTimeout  = 2 * time.Second
	// freshTimeout bounds the question that a probe of an agent causes that was not ready.
	freshTimeout = 500 * time.Millisecond
	// reportLimit is how long a report of the agent holds while the agent does
	// not answer.
	reportLimit = 30 * time.Second
)

// agentProbe is what the guard knows of its agent.
type agentProbe struct {
	agent *http.Client
	proxy *httputil.ReverseProxy

	mu      sync.Mutex
	answers health.Answers
	ready   bool
	report  string
	// heard says that this agent has answered; run counts the agents, so that
	// an answer of one is not taken for the next one's.
	heard bool
	run   int
}

func newAgentProbe(socket string) *agentProbe {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		ResponseHeaderTimeout: 10 * time.Second, IdleConnTimeout: time.Minute,
	}
	return &agentProbe{
		report: startReport,
		// Each question needs an answer of its own: no connection is kept.
		agent: &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DialContext: transport.DialContext, DisableKeepAlives: true}},
		proxy: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host = "http", "agent"
			},
			Transport: transport,
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, "the agent does not answer: "+err.Error(), http.StatusBadGateway)
			},
		},
	}
}

// followAgent asks the agent whether its database serves, until ctx ends.
func (p *agentProbe) followAgent(ctx context.Context) {
	for clock.Sleep(ctx, probeInterval) {
		p.askAgent(ctx)
	}
}

func (p *agentProbe) askAgent(ctx context.Context) {
	p.mu.Lock()
	run := p.run
	p.mu.Unlock()
	began := clock.Boottime()
	ready, report, err := p.readReadiness(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != run {
		return
	}
	p.answers = p.answers.Observe(began, clock.Boottime(), err == nil)
	if err == nil {
		p.heard, p.ready, p.report = true, ready, report
	}
}

func (p *agentProbe) readReadiness(ctx context.Context) (ready bool, report string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/readyz", nil)
	if err != nil {
		return false, "", err
	}
	response, err := p.agent.Do(request)
	if err != nil {
		return false, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	return response.StatusCode == http.StatusOK, strings.TrimSpace(string(text)), err
}

// resetReport forgets what the agent reported.
func (p *agentProbe) resetReport(report string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers, p.ready, p.heard, p.report = health.Answers{}, false, false, report
	p.run++
}

// isHung says that the agent has not answered for so long that it is ended.
func (p *agentProbe) isHung() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answers.Hung()
}

func (p *agentProbe) hasAnswered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard
}

// readReport is the readiness by the last report, as long as that holds.
func (p *agentProbe) readReport() (ready bool, report string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if silent := p.answers.Silent(); p.ready && silent >= reportLimit {
		return false, "the agent does not answer for " + reportLimit.String()
	}
	return p.ready, p.report
}

// refreshReport asks an agent that said that it is not ready again: the kubelet probes when the pod
// changes, as it does when the agent labels it, and then not for a whole period.
func (p *agentProbe) refreshReport(ctx context.Context) (ready bool, report string) {
	p.mu.Lock()
	said := p.heard && !p.ready
	p.mu.Unlock()
	if said {
		ctx, cancel := context.WithTimeout(ctx, freshTimeout)
		defer cancel()
		if ready, report, err := p.readReadiness(ctx); err == nil {
			return ready, report
		}
	}
	return p.readReport()
}

// newHandler answers the kubelet, and passes on what only the agent knows. The
// guard is alive when it answers: a hung agent is its to end.
func (p *agentProbe) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ready, report := p.readReport()
		if !ready {
			ready, report = p.refreshReport(r.Context())
		}
		if !ready {
			http.Error(w, report, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(report + "\n"))
	})
	mux.Handle("/", p.proxy)
	return mux
}
