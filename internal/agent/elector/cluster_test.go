package elector

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/election"
	"github.com/holdfast-db/holdfast/internal/lease"
)

// newTestCertificate is that of the members of a cluster.
func newTestCertificate(t testing.TB, name string, hosts ...string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: hosts}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// cluster is three members in one process, by the clock of the bubble that the test runs
// in.
type cluster struct {
	t           testing.TB
	store       *leaseStore
	certificate *x509.Certificate
	began       time.Time
	members     []*member

	mu      sync.Mutex
	cut     map[[2]string]bool // pods: from, to
	silent  map[string]time.Duration
	forks   int
	problem string
}

func (c *cluster) now() time.Duration { return time.Hour + time.Since(c.began) }

func (c *cluster) nextFork() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forks++
	return c.forks
}

func (c *cluster) violate(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == "" {
		c.problem = fmt.Sprintf("at %s: ", c.now()) + fmt.Sprintf(format, args...)
	}
}

// setLink cuts or joins the way from one member to another.
func (c *cluster) setLink(from, to *member, works bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[[2]string{from.pod, to.pod}] = !works
}

func (c *cluster) isLinked(from, to string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.cut[[2]string{from, to}]
}

// FindPod is the cluster as a Directory.
func (c *cluster) FindPod(volume string) (string, bool) {
	for _, m := range c.members {
		if m.volumeID == volume {
			return m.pod, true
		}
	}
	return "", false
}

func (c *cluster) setSilent(volume string, since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = map[string]time.Duration{volume: since}
}

// FindSilence has a member be silent when a test says so.
func (c *cluster) FindSilence(volume string) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, silent := c.silent[volume]
	return since, silent
}

// member is one of them: its agent may be started again, with what its volume has.
type member struct {
	cluster       *cluster
	pod, volumeID string
	uid           int
	trace         *trace
	lease         *fakeLease
	volume        *fakeVolume
	server        *fakeServer
	guard         *fakeGuard
	rank          int
	noFailover    bool
	log           slog.Handler

	// restarting is held while an agent starts: two faults may end at once.
	restarting sync.Mutex

	mu       sync.Mutex
	elector  *Elector
	handlers map[string]http.Handler
	stop     context.CancelFunc
	ended    chan struct{}
	votes    map[int64]string // candidates by term
}

var testRecord = lease.Record{
	Term: 1, Timeline: 1, HighestTimeline: 1, ReachedTimeline: 1, SystemIdentifier: "7",
	Volumes: []string{"v0", "v1", "v2"}, Shutdown: &lease.Position{Timeline: 1, LSN: 100},
}

// newCluster has n members that are not started, and a Lease.
func newCluster(t testing.TB, n int, r lease.Record) *cluster {
	c := &cluster{
		t: t, store: &leaseStore{}, began: time.Now(), cut: map[[2]string]bool{},
		certificate: newTestCertificate(t, agentapi.MemberName, "*.orders-members.shop.svc"),
	}
	c.store.put(r)
	for i := range n {
		c.members = append(c.members, c.newMember(i))
	}
	return c
}

func (c *cluster) newMember(i int) *member {
	m := &member{cluster: c, pod: "orders-" + strconv.Itoa(i), volumeID: "v" + strconv.Itoa(i), trace: &trace{}, rank: i, log: slog.DiscardHandler, votes: map[int64]string{}}
	m.lease = &fakeLease{store: c.store, trace: m.trace, judgeClaim: m.judgeClaim}
	m.volume = &fakeVolume{trace: m.trace, recorded: election.Persistent{VolumeID: m.volumeID, SystemIdentifier: "7", Timelines: []int64{1}}}
	m.server = &fakeServer{trace: m.trace, now: c.now, pod: m.pod, delay: 50 * time.Millisecond, forks: []fork{{timeline: 1}}, end: 100, nextID: c.nextFork, judgePromotion: m.judgePromotion}
	return m
}

// judgeClaim checks that a claim is sent only for a term that is on the volume.
func (m *member) judgeClaim(r lease.Record) {
	if p := m.volume.read(); p.Wrote < r.Term || p.Promised < r.Term || p.PromisedTimeline < r.Timeline {
		m.cluster.violate("%s claims term %d, and its volume has %+v", m.pod, r.Term, p)
	}
}

// judgePromotion checks that a server is promoted only by the Lease, and after its
// timeline is on the volume.
func (m *member) judgePromotion(p Promotion) {
	_, r := m.cluster.store.state()
	if r.Term != p.Term || r.Timeline != p.Timeline || r.HolderVolume != m.volumeID {
		m.cluster.violate("%s is promoted in term %d on timeline %d, and the Lease has %+v", m.pod, p.Term, p.Timeline, r)
	}
	if disk := m.volume.read(); disk.Known.Term < p.Term || !slices.Contains(disk.Timelines, p.Timeline) {
		m.cluster.violate("%s is promoted in term %d on timeline %d, and its volume has %+v", m.pod, p.Term, p.Timeline, disk)
	}
}

// judgeAnswer checks that a vote is sent only when it is on the volume, and that no
// member votes twice in a term.
func (m *member) judgeAnswer(to, path string, text []byte) {
	var vote postgresapi.VoteReply
	if path != postgresapi.VotePath || json.Unmarshal(text, &vote) != nil || !vote.Granted {
		return
	}
	if p := m.volume.read(); p.Promised < vote.Term {
		m.cluster.violate("%s votes in term %d, and its volume has %+v", m.pod, vote.Term, p)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, voted := m.votes[vote.Term]; voted && before != to {
		m.cluster.violate("%s votes for %s and for %s in term %d", m.pod, before, to, vote.Term)
	}
	m.votes[vote.Term] = to
}

// judgeServer checks that a server is a primary only while its agent is.
func (m *member) judgeServer() {
	v, primary := m.view(), false
	m.server.mu.Lock()
	primary = m.server.primary
	m.server.mu.Unlock()
	if m.isUp() && primary && v.Phase < election.Promoting && m.view() == v {
		m.cluster.violate("the server of %s is a primary, and its agent is not: %+v", m.pod, v)
	}
}

// start starts the member's agent, in a new pod or in the one that it had.
func (m *member) start(newPod bool) {
	m.t().Helper()
	if newPod {
		m.uid++
	}
	guard := &fakeGuard{now: m.cluster.now, killed: m.killByGuard}
	timing, err := lease.NewTiming(0)
	if err != nil {
		m.t().Fatal(err)
	}
	e, err := New(Options{
		Log:      slog.New(m.log),
		Identity: identity.Identity{Namespace: "shop", Cluster: "orders", Pod: m.pod, PodUID: m.pod + "-" + strconv.Itoa(m.uid)},
		Config:   election.Config{NoFailover: m.noFailover, Timing: timing}, Recorded: m.volume.mount(),
		Volume: m.volume, Lease: m.lease, Guard: guard, Server: m.server, Peers: m, Directory: m.cluster, Now: m.cluster.now,
	})
	if err != nil {
		m.t().Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	m.mu.Lock()
	m.guard, m.elector, m.handlers, m.stop, m.ended = guard, e, e.NewHandlers(), stop, ended
	m.mu.Unlock()
	m.server.mu.Lock()
	m.server.reports, m.server.lawless = e.Reports(), false
	m.server.mu.Unlock()
	go func() {
		defer close(ended)
		e.Run(ctx)
	}()
}

func (m *member) t() testing.TB { return m.cluster.t }

// crash ends the agent alone. Its server goes on until the guard ends it.
func (m *member) crash() {
	m.server.mu.Lock()
	m.server.lawless = true
	m.server.mu.Unlock()
	m.end()
}

// end ends the agent, which fences its server.
func (m *member) end() {
	m.mu.Lock()
	stop, ended := m.stop, m.ended
	m.stop = nil
	m.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
}

// killByGuard is what the guard does at its deadline.
func (m *member) killByGuard() {
	m.trace.add("killed by the guard")
	m.server.kill()
	m.mu.Lock()
	stop := m.stop
	m.stop = nil
	m.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (m *member) isUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stop != nil
}

func (m *member) view() View {
	v, _ := m.running().ReadView()
	return v
}

// running is the elector that was started last.
func (m *member) running() *Elector {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elector
}

// await waits until a condition holds.
func (m *member) await(what string, holds func() bool) {
	m.t().Helper()
	for range 30_000 {
		if holds() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	m.t().Fatalf("%s waits in vain for %s: %+v, %v", m.pod, what, m.view(), m.trace.lines)
}

// PostPeer is the member's way to the others. A lost message or answer takes until the
// context ends.
func (m *member) PostPeer(ctx context.Context, pod, path string, message, into any) error {
	c := m.cluster
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(c.members, func(o *member) bool { return o.pod == pod })
	if i < 0 || !c.isLinked(m.pod, pod) || !c.members[i].isUp() {
		<-ctx.Done()
		return ctx.Err()
	}
	answer := c.members[i].receive(ctx, path, text)
	c.members[i].judgeAnswer(m.pod, path, answer.Body.Bytes())
	if !c.isLinked(pod, m.pod) {
		<-ctx.Done()
		return ctx.Err()
	}
	if answer.Code != http.StatusOK {
		return fmt.Errorf("%d: %s", answer.Code, answer.Body.String())
	}
	return json.Unmarshal(answer.Body.Bytes(), into)
}

// receive passes a message to the member's handler.
func (m *member) receive(ctx context.Context, path string, text []byte) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(text))
	request.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{m.cluster.certificate}}
	answer := httptest.NewRecorder()
	m.mu.Lock()
	handler := m.handlers[path]
	m.mu.Unlock()
	handler.ServeHTTP(answer, request)
	return answer
}

// leaders are the members whose servers are primaries.
func (c *cluster) leaders() []*member {
	var found []*member
	for _, m := range c.members {
		m.server.mu.Lock()
		if m.server.primary {
			found = append(found, m)
		}
		m.server.mu.Unlock()
	}
	return found
}

// awaitLeader waits until exactly one member leads, by its own view, and is not one of
// those excluded.
func (c *cluster) awaitLeader(limit time.Duration, excluded ...*member) *member {
	c.t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, m := range c.leaders() {
			if !slices.Contains(excluded, m) && m.view().IsLeading(c.now()) {
				return m
			}
		}
	}
	c.t.Fatalf("no member leads: %s", c.describe())
	return nil
}

func (c *cluster) describe() string {
	text := ""
	for _, m := range c.members {
		text += fmt.Sprintf("%s: up %t, %s, %+v; ", m.pod, m.isUp(), PhaseName(m.view().Phase), m.view())
	}
	return text
}

// stopAll ends everything, so that the bubble has no goroutine left.
func (c *cluster) stopAll() {
	for _, m := range c.members {
		m.volume.release()
		m.end()
		if m.guard != nil {
			m.guard.mu.Lock()
			if m.guard.timer != nil {
				m.guard.timer.Stop()
			}
			m.guard.mu.Unlock()
		}
		m.server.kill()
	}
	time.Sleep(5 * time.Second) // requests that are under way end
}

// judgeLives checks that no two servers were primaries at once, and that each term and
// each timeline was used once.
func (c *cluster) judgeLives() {
	c.t.Helper()
	var lives []life
	for _, m := range c.members {
		m.server.mu.Lock()
		for _, l := range m.server.lives {
			if !l.ended {
				l.end = c.now()
			}
			lives = append(lives, l)
		}
		m.server.mu.Unlock()
	}
	slices.SortFunc(lives, func(a, b life) int { return int(a.begin - b.begin) })
	for i, l := range lives {
		for _, other := range lives[i+1:] {
			if other.begin < l.end {
				c.t.Errorf("two primaries at once: %+v and %+v", l, other)
			}
			if other.term <= l.term || other.timeline <= l.timeline {
				c.t.Errorf("a term or a timeline was used twice or went back: %+v and then %+v", l, other)
			}
		}
	}
	if c.problem != "" {
		c.t.Error(c.problem)
	}
}
