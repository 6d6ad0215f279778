package agentclient

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/pki"
)

var orders = types.NamespacedName{Namespace: "shop", Name: "orders"}

const serverName = "orders-0.orders-members.shop.svc"

// authority is a cluster's CA with a certificate for either side.
type authority struct {
	ca     *pki.CA
	server *tls.Config
	client ClientTLS
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	now := time.Now()
	ca, err := pki.NewCA("orders", now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := pki.IssueLeaf(ca, pki.LeafRequest{CommonName: agentapi.MemberName, DNSNames: []string{serverName}}, now, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	a := authority{ca: ca}
	a.client = a.newClient(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate())
	a.server = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
	return a
}

func (a authority) newClient(t testing.TB) ClientTLS {
	t.Helper()
	certPEM, keyPEM, err := pki.IssueLeaf(a.ca, pki.LeafRequest{CommonName: agentapi.OperatorName, Usage: pki.UsageClient}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return ClientTLS{CertPEM: certPEM, KeyPEM: keyPEM, CAPEM: a.ca.CertPEM}
}

// fakeAgent answers like a member, long poll included. It counts requests and
// connections.
type fakeAgent struct {
	stuck    atomic.Bool // it flushes nothing
	mu       sync.Mutex
	insights func(http.ResponseWriter)
	tuning   func(http.ResponseWriter)
	// tuningQuery is how measurements were asked for last.
	tuningQuery string
	status      agentapi.Status
	changed     chan struct{}
	requests    int
	override    http.HandlerFunc
}

func newFakeAgent(uid string) *fakeAgent {
	return &fakeAgent{
		status:  agentapi.Status{Revision: "1", Pod: "orders-0", PodUID: uid, State: agentapi.StateRunning},
		changed: make(chan struct{}),
	}
}

// changeStatus changes the status, and its revision with it.
func (f *fakeAgent) changeStatus(change func(*agentapi.Status)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, _ := strconv.Atoi(f.status.Revision)
	f.status.Revision = strconv.Itoa(n + 1)
	change(&f.status)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAgent) answerWith(h http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.override = h
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeAgent) countRequests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

func (f *fakeAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	if r.URL.Path == agentapi.InsightsPath {
		insights := f.insights
		f.mu.Unlock()
		insights(w)
		return
	}
	if r.URL.Path == agentapi.TuningPath {
		tuning := f.tuning
		f.tuningQuery = r.URL.RawQuery
		f.mu.Unlock()
		tuning(w)
		return
	}
	f.requests++
	override, changed, same := f.override, f.changed, r.URL.Query().Get("after") == f.status.Revision
	f.mu.Unlock()
	if override == nil && same {
		wait, err := time.ParseDuration(r.URL.Query().Get("wait"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case <-changed:
		case <-time.After(wait):
		case <-r.Context().Done():
		}
	}
	f.mu.Lock()
	override, status := f.override, f.status
	f.mu.Unlock()
	status.Flushed = r.URL.Query().Get(agentapi.FlushQuery) == "true" && !f.stuck.Load()
	if override != nil {
		override(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(status)
}

// network is a listener in memory that can be cut, so that time in a synctest
// bubble stands still while bytes are on their way.
type network struct {
	mu     sync.Mutex
	down   error
	dialed atomic.Int32
	conns  chan net.Conn
	open   []net.Conn
	closed chan struct{}
	once   sync.Once
}

func newNetwork() *network {
	return &network{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: agentapi.StatusPort}
}

func (n *network) dialPipe(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	down := n.down
	n.dialed.Add(1)
	n.mu.Unlock()
	if down != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: n.Addr(), Err: down}
	}
	near, far := net.Pipe()
	select {
	case n.conns <- far:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	n.open = append(n.open, near)
	n.mu.Unlock()
	return near, nil
}

// setFault ends every connection and refuses new ones with err; nil restores it.
func (n *network) setFault(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = err
	if err != nil {
		for _, c := range n.open {
			c.Close()
		}
		n.open = nil
	}
}

// world is a Poller with one fake agent, inside a synctest bubble.
type world struct {
	t      *testing.T
	auth   authority
	agent  *fakeAgent
	net    *network
	poller *Poller
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func runInBubble(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, auth: newAuthority(t), agent: newFakeAgent("uid-0"), net: newNetwork()}
		server := &http.Server{Handler: w.agent, ErrorLog: log.New(io.Discard, "", 0)}
		go func() { _ = server.Serve(tls.NewListener(w.net, w.auth.server)) }()
		w.poller = New(Options{Dial: w.net.dialPipe})
		w.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		if err := w.poller.EventSource().Start(t.Context(), w.queue); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.poller.Start(ctx) }()
		synctest.Wait()

		test(t, w)

		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Start: %v", err)
		}
		_ = server.Close()
		w.queue.ShutDown()
		// The bubble itself fails the test when a goroutine is left.
	})
}

func (w *world) newMember() Member {
	return Member{Pod: "orders-0", UID: "uid-0", Address: "10.0.0.1:8443", ServerName: serverName}
}

func (w *world) watchMembers(change func(*Target)) {
	t := Target{Members: []Member{w.newMember()}, TLS: w.auth.client}
	if change != nil {
		change(&t)
	}
	w.poller.Watch(orders, "owner", t)
	synctest.Wait()
}

func (w *world) observedMember() Observation {
	w.t.Helper()
	synctest.Wait()
	o, ok := w.poller.Get(orders)["orders-0"]
	if !ok {
		w.t.Fatal("the member is not watched")
	}
	return o
}

// wasWoken says whether the loop was woken since it last asked.
func (w *world) wasWoken() bool {
	synctest.Wait()
	if w.queue.Len() == 0 {
		return false
	}
	request, _ := w.queue.Get()
	w.queue.Done(request)
	if request.NamespacedName != orders {
		w.t.Errorf("woken for %s", request)
	}
	return true
}

func TestAChangeWakesTheLoopAtOnce(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		if !w.wasWoken() {
			t.Error("the first answer did not wake")
		}
		time.Sleep(10 * time.Second)
		began := time.Now()
		w.agent.changeStatus(func(s *agentapi.Status) { s.State = agentapi.StateStopping })
		if !w.wasWoken() {
			t.Error("the change did not wake")
		}
		if o := w.observedMember(); o.Status.State != agentapi.StateStopping || !o.At.Equal(began) || o.Err != "" {
			t.Errorf("saw %+v", o)
		}
	})
}

func TestASteadyMemberIsAskedSeldomAndWakesNoCluster(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.wasWoken()
		began := time.Now()
		time.Sleep(10 * time.Minute)
		if w.wasWoken() {
			t.Error("woken without a change")
		}
		if n := w.agent.countRequests(); n > 30 {
			t.Errorf("%d requests in ten minutes", n)
		}
		if o := w.observedMember(); !o.At.After(began.Add(9 * time.Minute)) {
			t.Errorf("the newest answer is of %s", o.At)
		}
		if w.net.dialed.Load() != 1 {
			t.Errorf("%d connections were made", w.net.dialed.Load())
		}
	})
}

func TestAnAgentThatNeverHoldsItsAnswersIsNotHammered(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		status := w.agent.status
		w.agent.answerWith(func(rw http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(rw).Encode(status)
		})
		w.watchMembers(nil)
		time.Sleep(time.Minute)
		if n := w.agent.countRequests(); n > 4*60+1 {
			t.Errorf("%d requests in a minute", n)
		}
	})
}

func TestAnotherPodsAnswerIsDiscarded(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(func(t *Target) { t.Members[0].UID = "uid-1" })
		time.Sleep(time.Minute)
		if o := w.observedMember(); o.Status != nil || !strings.Contains(o.Err, "another pod") {
			t.Errorf("saw %+v", o)
		}
		w.agent.changeStatus(func(s *agentapi.Status) { s.PodUID = "uid-1" })
		time.Sleep(maxPause)
		if o := w.observedMember(); o.Status == nil || o.Err != "" {
			t.Errorf("saw %+v after the right pod came", o)
		}
	})
}

func TestAMemberIsUnreachableAfterThreeSecondsAndNotBefore(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.wasWoken()
		time.Sleep(time.Minute)
		cutAt := time.Now()
		w.net.setFault(errors.New("connection refused"))
		time.Sleep(3*time.Second - time.Millisecond)
		if o := w.observedMember(); o.Err != "" || w.wasWoken() {
			t.Errorf("reported too early: %+v", o)
		}
		time.Sleep(time.Millisecond)
		o := w.observedMember()
		if o.Err != "connection refused" || !o.Since.Equal(cutAt) || o.Status == nil {
			t.Errorf("saw %+v", o)
		}
		if !w.wasWoken() {
			t.Error("an unreachable member did not wake")
		}
		time.Sleep(10 * time.Minute)
		if w.wasWoken() {
			t.Error("woken again for the same outage")
		}

		w.net.setFault(nil)
		time.Sleep(maxPause)
		if o := w.observedMember(); o.Err != "" || !o.Since.After(cutAt) || !w.wasWoken() {
			t.Errorf("back again, saw %+v", o)
		}
	})
}

func TestAShortOutageIsNotReported(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.wasWoken()
		since := w.observedMember().Since
		w.net.setFault(errors.New("connection refused"))
		time.Sleep(time.Second)
		w.net.setFault(nil)
		time.Sleep(maxPause)
		if o := w.observedMember(); o.Err != "" || !o.Since.Equal(since) || w.wasWoken() {
			t.Errorf("saw %+v", o)
		}
	})
}

func TestAnOutageDoesNotFloodTheMember(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.net.setFault(errors.New("connection refused"))
		w.watchMembers(nil)
		time.Sleep(10 * time.Minute)
		if w.net.dialed.Load() > 10*60/2 {
			t.Errorf("%d attempts in ten minutes", w.net.dialed.Load())
		}
	})
}

func TestAnAgentThatHangsIsUnreachable(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.wasWoken()
		w.agent.answerWith(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		time.Sleep(time.Minute)
		if o := w.observedMember(); o.Err != "no answer in time" || !w.wasWoken() {
			t.Errorf("saw %+v", o)
		}
		w.agent.answerWith(nil)
		time.Sleep(time.Minute)
		if o := w.observedMember(); o.Err != "" || !w.wasWoken() {
			t.Errorf("saw %+v after it went on", o)
		}
	})
}

func TestBadAnswersAreErrorsAndNothingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"no JSON":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, "decode answer"},
		"nothing":   {func(http.ResponseWriter, *http.Request) {}, "decode answer"},
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, "403"},
		"a flood":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) }, "longer than"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://10.0.0.9/", http.StatusFound)
		}, "302"},
		"a cut":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"wrong types": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"position":"x"}`)) }, "decode answer"},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, w *world) {
				w.agent.answerWith(tc.answer)
				w.watchMembers(nil)
				time.Sleep(time.Minute)
				if o := w.observedMember(); o.Status != nil || !strings.Contains(o.Err, tc.want) {
					t.Errorf("saw %+v, want an error with %q", o, tc.want)
				}
			})
		})
	}
}

func TestWatchIsIdempotentAndRestartsOnlyWhatChanged(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.wasWoken()
		for range 100 {
			w.watchMembers(nil)
		}
		if w.net.dialed.Load() != 1 || w.agent.countRequests() > 2 {
			t.Errorf("%d connections and %d requests for one member", w.net.dialed.Load(), w.agent.countRequests())
		}

		w.watchMembers(func(t *Target) { t.TLS = w.auth.newClient(w.t) })
		time.Sleep(time.Second)
		if o := w.observedMember(); w.net.dialed.Load() != 2 || o.Status == nil || w.wasWoken() {
			t.Errorf("renewed TLS: %d connections, saw %+v", w.net.dialed.Load(), o)
		}

		w.watchMembers(func(t *Target) { t.TLS = w.auth.newClient(w.t); t.Members[0].Address = "10.0.0.2:8443" })
		time.Sleep(time.Second)
		if o := w.observedMember(); w.net.dialed.Load() != 3 || o.Status == nil {
			t.Errorf("another address: %d connections, saw %+v", w.net.dialed.Load(), o)
		}

		w.net.setFault(errors.New("connection refused"))
		w.watchMembers(func(t *Target) { t.Members[0].UID = "uid-1" })
		if o := w.observedMember(); o.Status != nil {
			t.Errorf("another pod of the name inherited %+v", o)
		}

		w.watchMembers(func(t *Target) { t.Members = nil })
		if got := w.poller.Get(orders); len(got) != 0 {
			t.Errorf("a member that left is still there: %v", got)
		}
	})
}

func TestAClusterOfTheSameNameInheritsNothing(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.net.setFault(errors.New("connection refused"))
		w.poller.Watch(orders, "another owner", Target{Members: []Member{w.newMember()}, TLS: w.auth.client})
		if o := w.observedMember(); o.Status != nil {
			t.Errorf("inherited %+v", o)
		}
	})
}

func TestForgetStopsAsking(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.wasWoken()
		w.poller.Forget(orders)
		w.poller.Forget(orders)
		before := w.agent.countRequests()
		w.agent.changeStatus(func(*agentapi.Status) {})
		time.Sleep(time.Hour)
		if got := w.poller.Get(orders); got != nil || w.agent.countRequests() != before || w.wasWoken() {
			t.Errorf("still asking: %v", got)
		}
	})
}

func TestUnusableTLSMaterialIsReportedUntilItIsRepaired(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		for name, spoil := range map[string]func(*ClientTLS){
			"no certificate": func(c *ClientTLS) { c.CertPEM = nil },
			"no key":         func(c *ClientTLS) { c.KeyPEM = []byte("x") },
			"no CA":          func(c *ClientTLS) { c.CAPEM = nil },
		} {
			w.poller.Forget(orders)
			w.watchMembers(func(t *Target) { spoil(&t.TLS) })
			time.Sleep(time.Minute)
			if o := w.observedMember(); !strings.Contains(o.Err, "no usable certificate") || !w.wasWoken() {
				t.Errorf("%s: saw %+v", name, o)
			}
		}
		w.watchMembers(nil)
		if o := w.observedMember(); o.Status == nil || o.Err != "" {
			t.Errorf("repaired, observed %+v", o)
		}
	})
}

func TestNoMemberIsAskedBeforeStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		n.setFault(errors.New("connection refused"))
		p := New(Options{Dial: n.dialPipe})
		p.Watch(orders, "owner", Target{Members: []Member{{Pod: "orders-0", Address: "10.0.0.1:8443"}}, TLS: newAuthority(t).client})
		time.Sleep(time.Minute)
		if n.dialed.Load() != 0 || !p.NeedLeaderElection() {
			t.Errorf("%d connections before Start", n.dialed.Load())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Start(ctx); err != nil || n.dialed.Load() == 0 {
			t.Errorf("Start: %v, with %d connections", err, n.dialed.Load())
		}
		if err := p.Start(ctx); err == nil {
			t.Error("started twice")
		}
	})
}

// Over a real network: a peer of another CA is refused, on either side.
func TestAnotherCAIsRefused(t *testing.T) {
	mine, other := newAuthority(t), newAuthority(t)
	impostor := ClientTLS{CertPEM: other.client.CertPEM, KeyPEM: other.client.KeyPEM, CAPEM: mine.client.CAPEM}
	for name, tc := range map[string]struct {
		client ClientTLS
		server string
		want   string
	}{
		"the member trusts another CA":    {impostor, serverName, "certificate"},
		"the operator trusts another CA":  {other.client, serverName, "unknown authority"},
		"the certificate has other names": {mine.client, "billing-0.billing-members.shop.svc", "valid for"},
		"both trust each other":           {mine.client, serverName, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(newFakeAgent("uid-0"))
			server.TLS = mine.server.Clone()
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			config, err := tc.client.buildConfig()
			if err != nil {
				t.Fatal(err)
			}
			a := newAgent(Member{Pod: "orders-0", UID: "uid-0", Address: server.Listener.Addr().String(), ServerName: tc.server}, config, New(Options{}).opts)
			defer a.closeConnection()
			status, err := a.askStatus(t.Context(), "", false)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && err == nil:
				t.Errorf("answered %+v", status)
			case tc.want != "" && !strings.Contains(describeError(err), tc.want):
				t.Errorf("the reason is %q, want one with %q", describeError(err), tc.want)
			}
		})
	}
}

func TestAReasonHoldsNothingThatChangesByItself(t *testing.T) {
	auth := newAuthority(t)
	agent := newFakeAgent("uid-0")
	server := httptest.NewUnstartedServer(agent)
	server.TLS = auth.server
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	config, err := auth.client.buildConfig()
	if err != nil {
		t.Fatal(err)
	}
	m := Member{Pod: "orders-0", UID: "uid-0", Address: server.Listener.Addr().String(), ServerName: serverName}

	late := config.Clone()
	late.Time = func() time.Time { return time.Now().Add(3 * 365 * 24 * time.Hour) }
	_, err = newAgent(m, late, New(Options{}).opts).askStatus(t.Context(), "", false)
	if got := describeError(err); got != "the member's certificate has expired or is not valid yet" {
		t.Errorf("expired: %q", got)
	}
	server.Close()
	_, err = newAgent(m, config, New(Options{}).opts).askStatus(t.Context(), "", false)
	if got := describeError(err); strings.Contains(got, "127.0.0.1") || !strings.Contains(got, "refused") {
		t.Errorf("refused: %q", got)
	}
}

// What is irreversible needs an answer to a question that was asked afterwards:
// the long poll that is out does not do.
func TestANewerAnswerIsAskedForAtOnce(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.wasWoken()
		time.Sleep(10 * time.Second)
		asked, requests := w.observedMember().Asked, w.agent.countRequests()
		since := time.Now()
		if !asked.Before(since) {
			t.Fatalf("asked at %s already", asked)
		}
		w.watchMembers(func(target *Target) { target.Since = since })
		if o := w.observedMember(); o.Asked.Before(since) || o.Err != "" {
			t.Errorf("the newest answer is to a question of %s, and %s is asked for: %q", o.Asked, since, o.Err)
		}
		if !w.wasWoken() {
			t.Error("the answer that is waited for did not wake")
		}
		if n := w.agent.countRequests(); n > requests+2 {
			t.Errorf("%d requests for one answer", n-requests)
		}
		// The same time asks for nothing more.
		requests = w.agent.countRequests()
		w.watchMembers(func(target *Target) { target.Since = since })
		time.Sleep(10 * time.Second)
		if n := w.agent.countRequests(); n > requests+1 || w.wasWoken() { // the next long poll
			t.Errorf("%d more requests for an answer that is there", n-requests)
		}
	})
}

// What is irreversible needs a primary that flushes: it is asked for that while an
// answer is waited for, and no longer. An answer that proves it wakes the loop.
func TestAFlushIsAskedForWhileAnAnswerIsWaitedFor(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.wasWoken()
		time.Sleep(10 * time.Second)
		if w.observedMember().Status.Flushed {
			t.Error("a flush was asked for though no step waits for it")
		}
		// The present question is new enough, and does not ask for a flush.
		w.watchMembers(func(target *Target) { target.Since = w.observedMember().Asked })
		if !w.observedMember().Status.Flushed || !w.wasWoken() {
			t.Errorf("no flush was asked for: %+v", w.observedMember())
		}
		w.agent.stuck.Store(true)
		since := time.Now().Add(time.Second)
		time.Sleep(time.Second)
		w.watchMembers(func(target *Target) { target.Since = since })
		if o := w.observedMember(); o.Status.Flushed || o.Asked.Before(since) {
			t.Errorf("a primary that does not flush says that it does: %+v", o)
		}
		w.wasWoken()
		w.agent.stuck.Store(false)
		time.Sleep(30 * time.Second) // the next long poll
		if !w.observedMember().Status.Flushed || !w.wasWoken() {
			t.Errorf("a primary that flushes again is not heard: %+v", w.observedMember())
		}
		w.watchMembers(nil)
		time.Sleep(time.Minute)
		if w.observedMember().Status.Flushed {
			t.Error("a flush is asked for still")
		}
	})
}

// A member that hangs has no newer answer, and is reported as one that does not
// answer.
func TestNoNewerAnswerComesOfAMemberThatHangs(t *testing.T) {
	runInBubble(t, func(t *testing.T, w *world) {
		w.watchMembers(nil)
		w.wasWoken()
		time.Sleep(10 * time.Second)
		before := w.observedMember()
		hang := make(chan struct{})
		defer close(hang)
		w.agent.mu.Lock() // no waiting request hears of it, as of a process that is stopped
		w.agent.override = func(http.ResponseWriter, *http.Request) { <-hang }
		w.agent.mu.Unlock()
		w.watchMembers(func(target *Target) { target.Since = time.Now() })
		if o := w.observedMember(); !o.Asked.Equal(before.Asked) {
			t.Errorf("a member that hangs answered a question of %s", o.Asked)
		}
		time.Sleep(20 * time.Second)
		if o := w.observedMember(); o.Err == "" || !o.Asked.Equal(before.Asked) {
			t.Errorf("saw %+v", o)
		}
	})
}
