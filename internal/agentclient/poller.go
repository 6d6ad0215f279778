// Package agentclient knows what the clusters' members last reported.
// It asks their agents by long poll over mutual TLS, keeps the newest answer
// and its age in memory, and wakes the reconcile loop when an answer differs
// or a member stops answering. A member that does not answer is data here,
// never an error.
package agentclient

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Member is one pod to ask.
type Member struct {
	Pod string
	// UID of the pod; an answer that names another one is thrown away.
	UID types.UID
	// Address as host:port.
	Address string
	// ServerName that the member's certificate must carry.
	ServerName string
}

// ClientTLS is how the operator identifies itself to a cluster's members, and
// whom it trusts; all in PEM form.
type ClientTLS struct {
	CertPEM, KeyPEM []byte
	// CAPEM may hold several CAs.
	CAPEM []byte
}

// Target is whom to ask in one cluster, and how.
type Target struct {
	Members []Member
	TLS     ClientTLS
	// Since is the time before which no question may have been asked whose
	// answer is to count: a member that was last asked before is asked again at
	// once, and its answer wakes the loop. Zero where any answer does. It is not
	// in the future. While it is not zero, members are asked whether they flush.
	Since time.Time
	// HoursOf is the pod whose measurements are wanted by the hour, for a trial of a setting,
	// and HoursSince from when on: what is older is not kept in memory. Empty for none.
	HoursOf    string
	HoursSince time.Time
}

// Observation is what is known of a member.
type Observation struct {
	// Status is the newest answer; nil before the first. It stays when the
	// member stops answering. Not to be changed.
	Status *agentapi.Status
	// Insights is what the member found in its database's text log, without notices,
	// statements and SQLSTATEs; nil before the first. Not to be changed.
	Insights *agentapi.Insights
	// Tuning is what the member measured of its database while it led; nil for nothing.
	Tuning *agentapi.Tuning
	// Asked is when the question was sent that Status answers, and At when Status
	// arrived, by the operator's clock. What a member says was true after Asked.
	Asked, At time.Time
	// Err says why the member does not answer, once it has not for
	// Options.UnreachableAfter; empty while it does. It holds no addresses and
	// no times.
	Err string
	// Since is when the member began to answer or, while Err is set, ceased
	// to; zero while neither is known.
	Since time.Time
}

// Options of a Poller. The zero value of each means its default.
type Options struct {
	// Clock for stamps and pauses. Default: the system's.
	Clock clock.Clock
	// Log for what changed. Default: none.
	Log logr.Logger
	// Dial opens a connection to a member's address. Default: TCP with
	// keep-alives, so that a dead node shows in some ten seconds.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Wait is how long an agent may hold an answer that has no news. Default:
	// 25 s.
	Wait time.Duration
	// UnreachableAfter is how long a member may fail to answer before that is
	// reported. Default: 3 s.
	UnreachableAfter time.Duration
	// Decode reads an answer, with what only members of the engine report.
	// Default: without that.
	Decode func([]byte) (agentapi.Status, error)
	// Leads says whether a member that reports this takes writes. Default: IsPrimary.
	Leads func(*agentapi.Status) bool
	// Observe is called with each pause of writes that is over, and must not wait.
	// Default: nothing is.
	Observe func(Pause)
}

// Poller asks the members of all clusters of one kind. It asks no member before
// Start is called, which a manager does once it leads.
type Poller struct {
	opts Options

	mu       sync.Mutex
	ctx      context.Context // of Start; nil before
	clusters map[types.NamespacedName]*cluster
	wake     func(types.NamespacedName)
	polls    sync.WaitGroup
}

// cluster is one watched cluster; guarded by Poller.mu.
type cluster struct {
	owner   types.UID
	tlsSum  [sha256.Size]byte
	tls     *tls.Config
	members map[string]*member
	pauses  pauses
}

// member is one watched pod; guarded by Poller.mu.
type member struct {
	Member
	observation Observation
	// since is the newest Target.Since, and flush says that there is one now.
	since time.Time
	flush bool
	// hours says that measurements are asked for by the hour, from hoursSince on, and heldHours
	// that those of the observation are.
	hours, heldHours bool
	hoursSince       time.Time
	// asked is when the present question was sent, askedFlush whether it asks for
	// a flush, and interrupt ends it; nil while there is none.
	asked      time.Time
	askedFlush bool
	interrupt  context.CancelFunc
	// failing is when the first of the present failures began.
	failing time.Time
	cancel  context.CancelFunc // nil while nothing polls
}

// New makes a Poller that watches nothing yet.
func New(opts Options) *Poller {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Log.GetSink() == nil {
		opts.Log = logr.Discard()
	}
	if opts.Wait == 0 {
		opts.Wait = 25 * time.Second
	}
	if opts.UnreachableAfter == 0 {
		opts.UnreachableAfter = 3 * time.Second
	}
	if opts.Decode == nil {
		opts.Decode = agentapi.DecodeStatus[struct{}]
	}
	if opts.Leads == nil {
		opts.Leads = IsPrimary
	}
	if opts.Observe == nil {
		opts.Observe = func(Pause) {}
	}
	if opts.Dial == nil {
		opts.Dial = dialer.DialContext
	}
	return &Poller{
		opts:     opts,
		clusters: map[types.NamespacedName]*cluster{},
		wake:     func(types.NamespacedName) {},
	}
}

// NeedLeaderElection says that only the leader asks.
func (p *Poller) NeedLeaderElection() bool { return true }

// Start asks the watched members until ctx ends, then returns when the last
// request has.
func (p *Poller) Start(ctx context.Context) error {
	p.mu.Lock()
	if p.ctx != nil {
		p.mu.Unlock()
		return errors.New("agentclient: started twice")
	}
	p.ctx = ctx
	for name, c := range p.clusters {
		for _, m := range c.members {
			p.startPoll(name, c, m)
		}
	}
	p.mu.Unlock()
	<-ctx.Done()

	// From here on begin starts nothing, so that Wait sees the last Add.
	p.mu.Lock()
	p.clusters = map[types.NamespacedName]*cluster{}
	p.mu.Unlock()
	p.polls.Wait()
	return nil
}

// EventSource feeds a controller of the Poller's kind with the clusters of which
// something changed. A Poller has one.
func (p *Poller) EventSource() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wake = func(name types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: name}) }
		return nil
	})
}

// Watch says whom to ask in a cluster; it is cheap and meant to be called in
// every pass. Members that are the same go on undisturbed. What was observed of a
// member is kept when its address or the TLS material changes, and forgotten
// when its pod or the cluster's owner is another.
func (p *Poller) Watch(name types.NamespacedName, owner types.UID, t Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.clusters[name]; old != nil && old.owner != owner {
		p.forgetCluster(name)
	}
	c := p.clusters[name]
	if c == nil {
		c = &cluster{owner: owner, members: map[string]*member{}}
		p.clusters[name] = c
	}
	newTLS := p.setTLS(c, t.TLS)

	wanted := make(map[string]bool, len(t.Members))
	for _, want := range t.Members {
		wanted[want.Pod] = true
		old := c.members[want.Pod]
		if old != nil && old.Member == want && !newTLS {
			old.askAgain(t.Since)
			old.hours, old.hoursSince = t.HoursOf == want.Pod, t.HoursSince
			continue
		}
		m := &member{Member: want, since: t.Since, flush: !t.Since.IsZero(), hours: t.HoursOf == want.Pod, hoursSince: t.HoursSince}
		if old != nil {
			old.stopPoll()
			if old.UID == want.UID {
				m.observation, m.failing, m.heldHours = old.observation, old.failing, old.heldHours
			}
		}
		c.members[want.Pod] = m
		p.startPoll(name, c, m)
	}
	for pod, m := range c.members {
		if !wanted[pod] {
			m.stopPoll()
			delete(c.members, pod)
		}
	}
	p.notePauses(c)
}

// Forget stops asking a cluster's members, and drops what they said.
func (p *Poller) Forget(name types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetCluster(name)
}

func (p *Poller) forgetCluster(name types.NamespacedName) {
	if c := p.clusters[name]; c != nil {
		for _, m := range c.members {
			m.stopPoll()
		}
		delete(p.clusters, name)
	}
}

// Get returns what is known of a cluster's members, by pod: an entry for each
// that is watched.
func (p *Poller) Get(name types.NamespacedName) map[string]Observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clusters[name]
	if c == nil {
		return nil
	}
	observed := make(map[string]Observation, len(c.members))
	for pod, m := range c.members {
		observed[pod] = m.observation
	}
	return observed
}

// setTLS takes up new TLS material and says whether it is new. Material that
// is unusable leaves the cluster without, which every poll reports.
func (p *Poller) setTLS(c *cluster, t ClientTLS) bool {
	sum := t.digestMaterial()
	if c.tlsSum == sum {
		return false
	}
	c.tlsSum = sum
	var err error
	if c.tls, err = t.buildConfig(); err != nil {
		p.opts.Log.Info("Cannot ask members", "reason", err.Error())
	}
	return true
}

// digestMaterial distinguishes materials. The parts' own sums are joined, so that no byte
// can move from one part to the next unnoticed.
func (t ClientTLS) digestMaterial() [sha256.Size]byte {
	var parts []byte
	for _, part := range [][]byte{t.CertPEM, t.KeyPEM, t.CAPEM} {
		sum := sha256.Sum256(part)
		parts = append(parts, sum[:]...)
	}
	return sha256.Sum256(parts)
}

func (t ClientTLS) buildConfig() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(t.CertPEM, t.KeyPEM)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	pair.Leaf = nil // a handshake, which is seldom, parses it again: there is one for each cluster
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(t.CAPEM) {
		return nil, errors.New("no CA certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: pool}, nil
}

// startPoll polls a member, unless the Poller is not started or is ending; the
// caller holds mu.
func (p *Poller) startPoll(name types.NamespacedName, c *cluster, m *member) {
	if p.ctx == nil || p.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(p.ctx)
	m.cancel = cancel
	a := newAgent(m.Member, c.tls, p.opts)
	p.polls.Go(func() {
		defer a.closeConnection()
		p.pollMember(ctx, name, m, a)
	})
}

// askAgain ends a question that was asked before a time, so that another one is
// asked at once; the caller holds mu.
func (m *member) askAgain(since time.Time) {
	m.flush = !since.IsZero()
	if !m.since.Before(since) {
		return
	}
	m.since = since
	if m.interrupt != nil && (m.asked.Before(since) || !m.askedFlush) {
		m.interrupt()
	}
}

func (m *member) stopPoll() {
	if m.cancel != nil {
		m.cancel()
	}
}
