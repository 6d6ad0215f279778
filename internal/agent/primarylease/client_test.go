package primarylease

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/lease"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"

// store keeps one Lease as the API server does.
type store struct {
	mu      sync.Mutex
	live    *coordinationv1.Lease
	version int
	// before is asked before a request is answered, with its number from 1; true
	// means that it has answered itself.
	before   func(number int, w http.ResponseWriter, r *http.Request) bool
	requests int
	tokens   []string
	protocol string
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	number, before := s.requests, s.before
	s.tokens = append(s.tokens, r.Header.Get("Authorization"))
	s.protocol = r.Proto
	s.mu.Unlock()
	if before != nil && before(number, w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer(w, r)
}

func (s *store) answer(w http.ResponseWriter, r *http.Request) {
	var next coordinationv1.Lease
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&next); err != nil {
			refuse(w, http.StatusBadRequest)
			return
		}
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == leasePath && s.live != nil:
		refuse(w, http.StatusConflict)
		return
	case r.Method == http.MethodPost && r.URL.Path == leasePath:
		next.UID = "u" + "1"
	case r.URL.Path != leasePath+"/orders-primary" || s.live == nil:
		refuse(w, http.StatusNotFound)
		return
	case r.Method == http.MethodPut && (next.ResourceVersion != s.live.ResourceVersion || next.UID != s.live.UID):
		refuse(w, http.StatusConflict)
		return
	}
	if r.Method != http.MethodGet {
		s.version++
		next.ResourceVersion = strconv.Itoa(s.version)
		s.live = &next
	}
	_ = json.NewEncoder(w).Encode(s.live)
}

func refuse(w http.ResponseWriter, code int) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{Message: "refused for the test", Code: int32(code)})
}

func (s *store) setBefore(before func(number int, w http.ResponseWriter, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.before = 0, before
}

func (s *store) lastToken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[len(s.tokens)-1]
}

// serve starts the store behind TLS, with a token in a file.
func serve(t *testing.T, s *store) (*httptest.Server, Options) {
	t.Helper()
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true // as an API server offers it
	server.Config.ErrorLog = nil
	server.StartTLS()
	t.Cleanup(server.CloseClientConnections)
	return server, optionsFor(t, server)
}

func optionsFor(t *testing.T, server *httptest.Server) Options {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	writeToken(t, file, "first")
	timing, err := lease.NewTiming(0)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return Options{
		Config:   &rest.Config{Host: server.URL, BearerTokenFile: file, TLSClientConfig: rest.TLSClientConfig{CAData: ca}},
		Identity: identity.Identity{Namespace: "shop", Cluster: "orders", Pod: "orders-0", PodUID: "p1"},
		Timing:   timing, Labels: map[string]string{"holdfast.dev/cluster": "orders"},
	}
}

func writeToken(t *testing.T, file, value string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func record(term int64) lease.Record {
	return lease.Record{
		HolderUID: "p1", HolderPod: "orders-0", HolderVolume: "v0", Term: term, Timeline: term, HighestTimeline: term, ReachedTimeline: 1,
		SystemIdentifier: "7", Duration: 15 * time.Second, Revision: 2, Volumes: []string{"v0", "v1"}, Quorum: &lease.Quorum{Volumes: []string{"v0", "v1"}, Write: 2},
		Acknowledged: lease.Position{Timeline: term, LSN: 0x1_0300_0000},
	}
}

func create(t *testing.T, c *Client) lease.Version {
	t.Helper()
	answer, version, err := c.WriteLease(t.Context(), lease.Version{}, record(1))
	if answer != lease.Done || err != nil {
		t.Fatalf("create: %v, %v", answer, err)
	}
	return version
}

func TestRule3RecordIsWrittenAndRead(t *testing.T) {
	_, options := serve(t, &store{})
	c := open(t, options)
	if r, err := c.ReadLease(t.Context()); r.Answer != lease.Missing || err != nil {
		t.Fatalf("before: %+v, %v", r, err)
	}
	version := create(t, c)
	released, err := record(1).Release("p1", 1, lease.Position{Timeline: 1, LSN: 0xFF_FFFF_FFFF}, "v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []lease.Record{record(2), released} {
		answer, next, err := c.WriteLease(t.Context(), version, want)
		if answer != lease.Done || err != nil || next == version {
			t.Fatalf("write: %v, %v, %v", answer, next, err)
		}
		version = next
		r, err := c.ReadLease(t.Context())
		if diff := cmp.Diff(want, r.Record); diff != "" || err != nil || r.Version != next || r.Received < r.Sent {
			t.Errorf("(-want +got):\n%s %+v, %v", diff, r, err)
		}
	}
}

// A record that an edit made unreadable is no record, rather than half of one.
func TestRule5EditedRecordIsNoRecord(t *testing.T) {
	var l coordinationv1.Lease
	for _, annotation := range []string{"", "{", `{"term":"x"}`, `{"acknowledged":"1:0/0/0"}`, `{"acknowledged":"-1:0/1"}`, `{"shutdown":"7"}`} {
		if err := writeRecord(&l, record(3), time.Now()); err != nil {
			t.Fatal(err)
		}
		l.Annotations[AnnotationRecord] = annotation
		if r := readRecord(&l); r.Validate() == nil || r.Term != 0 {
			t.Errorf("%q: %+v", annotation, r)
		}
	}
}

// Observers wait for the duration in the Lease: one that only a part of it has was not
// written by the holder. A record of an agent that knows no other one has the default.
func TestRule2EditedDurationIsNoRecord(t *testing.T) {
	var l coordinationv1.Lease
	if err := writeRecord(&l, record(3), time.Now()); err != nil {
		t.Fatal(err)
	}
	if r := readRecord(&l); r.Duration != 15*time.Second || *l.Spec.LeaseDurationSeconds != 15 {
		t.Errorf("%+v, and in the spec %d", r, *l.Spec.LeaseDurationSeconds)
	}
	for _, edited := range []*int32{new(int32(10)), nil} {
		l.Spec.LeaseDurationSeconds = edited
		if r := readRecord(&l); r.Validate() == nil || r.Term != 0 {
			t.Errorf("%v: %+v", edited, r)
		}
	}
	earlier := record(3)
	earlier.Duration = 0
	if err := writeRecord(&l, earlier, time.Now()); err != nil {
		t.Fatal(err)
	}
	if r := readRecord(&l); r.Duration != 0 || r.Validate() != nil || *l.Spec.LeaseDurationSeconds != 10 {
		t.Errorf("%+v, and in the spec %d", r, *l.Spec.LeaseDurationSeconds)
	}
}

// A renewal gives the Lease another version even if nothing else changes.
func TestRule2RenewalAlwaysChangesTheLease(t *testing.T) {
	var l coordinationv1.Lease
	now := time.Now()
	for range 2 {
		before := l.Spec.RenewTime
		if err := writeRecord(&l, record(3), now); err != nil {
			t.Fatal(err)
		}
		if before != nil && before.Equal(l.Spec.RenewTime) {
			t.Error("a renewal changes nothing")
		}
	}
}

func TestRule2AnswersDifferFromOutages(t *testing.T) {
	for code, want := range map[int]lease.Answer{
		http.StatusForbidden: lease.Forbidden, http.StatusUnauthorized: lease.Forbidden, http.StatusUnprocessableEntity: lease.Forbidden,
		http.StatusNotFound: lease.Missing, http.StatusConflict: lease.Conflict,
		http.StatusInternalServerError: lease.Unanswered, http.StatusServiceUnavailable: lease.Unanswered,
		http.StatusTooManyRequests: lease.Unanswered, http.StatusFound: lease.Unanswered,
	} {
		s := &store{}
		_, options := serve(t, s)
		c := open(t, options)
		base := create(t, c)
		s.setBefore(func(_ int, w http.ResponseWriter, _ *http.Request) bool { refuse(w, code); return true })
		if r, err := c.ReadLease(t.Context()); r.Answer != want || (err == nil) != (want == lease.Missing) {
			t.Errorf("%d for a reading: %v, %v", code, r.Answer, err)
		}
		answer, _, err := c.WriteLease(t.Context(), base, record(2))
		var refused *RefusedError
		if answer != want || !errors.As(err, &refused) || refused.Code != code {
			t.Errorf("%d for a write: %v, %v", code, answer, err)
		}
	}
}

func TestRule3WriteNeedsTheStateThatWasRead(t *testing.T) {
	_, options := serve(t, &store{})
	one, two := open(t, options), open(t, options)
	base := create(t, one)
	if r, err := two.ReadLease(t.Context()); r.Version != base || err != nil {
		t.Fatal(r, err)
	}
	if answer, _, err := two.WriteLease(t.Context(), base, record(2)); answer != lease.Done {
		t.Fatal(answer, err)
	}
	if answer, _, err := one.WriteLease(t.Context(), base, record(2)); answer != lease.Conflict {
		t.Errorf("the second write: %v, %v", answer, err)
	}
	if answer, _, err := one.WriteLease(t.Context(), lease.Version{}, record(2)); answer != lease.Conflict {
		t.Errorf("creating it again: %v, %v", answer, err)
	}
	if answer, _, err := one.WriteLease(t.Context(), lease.Version{UID: "other", Resource: base.Resource}, record(2)); answer != lease.Conflict {
		t.Errorf("another Lease: %v, %v", answer, err)
	}
}

// Whatever a hung request does, another one is answered.
func TestRule3NoRequestWaitsForAHungOne(t *testing.T) {
	s := &store{}
	_, options := serve(t, s)
	c := open(t, options)
	base := create(t, c)
	hung, release := make(chan struct{}, 64), make(chan struct{})
	s.setBefore(func(number int, _ http.ResponseWriter, r *http.Request) bool {
		if number > 20 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		hung <- struct{}{}
		<-release
		return true
	})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if i%2 == 0 {
				if r, err := c.ReadLease(t.Context()); r.Answer != lease.Unanswered || !errors.Is(err, ErrUnknownOutcome) {
					t.Errorf("a hung reading: %v, %v", r.Answer, err)
				}
				return
			}
			if answer, _, err := c.WriteLease(t.Context(), base, record(2)); answer != lease.Unanswered || !errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("a hung write: %v, %v", answer, err)
			}
		})
	}
	for range 20 {
		<-hung
	}
	// All 20 are held by the server now, and none has an answer before release.
	if answer, _, err := c.WriteLease(t.Context(), base, record(2)); answer != lease.Done {
		t.Errorf("beside hung requests: %v, %v", answer, err)
	}
	if r, err := c.ReadLease(t.Context()); r.Record.Term != 2 || err != nil {
		t.Errorf("beside hung requests: %+v, %v", r, err)
	}
	all.Wait() // their own timeout ends them
	close(release)
}

// An answer that comes byte by byte ends with the request's timeout.
func TestRule3SlowBodyTimesOut(t *testing.T) {
	s := &store{}
	_, options := serve(t, s)
	c := open(t, options)
	create(t, c)
	s.setBefore(func(_ int, w http.ResponseWriter, r *http.Request) bool {
		for {
			if _, err := w.Write([]byte(" ")); err != nil {
				return true
			}
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return true
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	// The server sees the request's end, too, and may end the answer first.
	if r, err := c.ReadLease(t.Context()); r.Answer != lease.Unanswered || err == nil {
		t.Errorf("got %v, %v", r.Answer, err)
	}
}

// relay passes bytes between a client and the server, and can stop without closing.
type relay struct {
	net.Listener
	target string
	mu     sync.Mutex
	mute   bool
	conns  []net.Conn
	opened int
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: listener, target: target}
	t.Cleanup(func() { listener.Close(); r.reset() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", target)
			if err != nil {
				from.Close()
				continue
			}
			r.mu.Lock()
			r.conns, r.opened = append(r.conns, from, to), r.opened+1
			mute := r.mute // a connection that is made while it is mute stays so
			r.mu.Unlock()
			go r.pass(from, to, mute)
			go r.pass(to, from, mute)
		}
	}()
	return r
}

func (r *relay) pass(from, to net.Conn, mute bool) {
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			to.Close()
			return
		}
		r.mu.Lock()
		mute = mute || r.mute
		r.mu.Unlock()
		if !mute {
			_, _ = to.Write(buffer[:n])
		}
	}
}

// reset ends all connections with RST.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	r.conns = nil
}

func (r *relay) setMute(mute bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = mute
}

func (r *relay) countOpened() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

// A connection that is dead without a sign is not used again after one timeout.
func TestRule3HalfOpenConnectionIsDialledAgain(t *testing.T) {
	server, options := serve(t, &store{})
	r := newRelay(t, server.Listener.Addr().String())
	options.Config.Host = "https://" + r.Addr().String()
	c := open(t, options)
	base := create(t, c)
	opened := r.countOpened()
	r.setMute(true)
	if answer, _, err := c.WriteLease(t.Context(), base, record(2)); answer != lease.Unanswered || !errors.Is(err, ErrUnknownOutcome) {
		t.Fatalf("on a dead connection: %v, %v", answer, err)
	}
	r.setMute(false) // for new connections; the old one stays dead
	reading, err := c.ReadLease(t.Context())
	if reading.Record.Term != 1 || err != nil || r.countOpened() <= opened {
		t.Errorf("after it: %+v, %v, %d connections", reading, err, r.countOpened())
	}
}

func TestRule3ResetIsAnOutage(t *testing.T) {
	server, options := serve(t, &store{})
	r := newRelay(t, server.Listener.Addr().String())
	options.Config.Host = "https://" + r.Addr().String()
	s := server.Config.Handler.(*store)
	c := open(t, options)
	base := create(t, c)
	s.setBefore(func(int, http.ResponseWriter, *http.Request) bool { r.reset(); return false })
	if answer, _, err := c.WriteLease(t.Context(), base, record(2)); answer != lease.Unanswered || !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a reset after the request: %v, %v", answer, err)
	}
	s.setBefore(nil)
	if reading, err := c.ReadLease(t.Context()); reading.Record.Term != 2 || err != nil { // it was done
		t.Errorf("got %+v, %v", reading, err)
	}
	r.Close()
	r.reset()
	reading, err := c.ReadLease(t.Context())
	if reading.Answer != lease.Unanswered || !errors.Is(err, ErrOutage) && !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("no server listens: %+v, %v", reading, err)
	}
}

func TestRule3HTTP2IsNotUsed(t *testing.T) {
	s := &store{}
	_, options := serve(t, s)
	create(t, open(t, options))
	if s.protocol != "HTTP/1.1" {
		t.Errorf("the protocol is %s", s.protocol)
	}
	server, options := serve(t, s)
	only, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: server.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { only.Close() })
	agreed := make(chan string, 1)
	go func() {
		conn, err := only.Accept()
		if err != nil {
			agreed <- err.Error()
			return
		}
		_ = conn.(*tls.Conn).Handshake() // Go lets a client in that offers HTTP/1.1 only
		agreed <- conn.(*tls.Conn).ConnectionState().NegotiatedProtocol
		conn.Close()
	}()
	options.Config.Host = "https://" + only.Addr().String()
	if r, err := open(t, options).ReadLease(t.Context()); r.Answer != lease.Unanswered || err == nil {
		t.Errorf("a server that has HTTP/2 only: %+v, %v", r, err)
	}
	if protocol := <-agreed; protocol != "" {
		t.Errorf("agreed on %q", protocol)
	}
}

func TestUntrustedServerIsAnOutage(t *testing.T) {
	_, options := serve(t, &store{})
	options.Config.TLSClientConfig = rest.TLSClientConfig{}
	if r, err := open(t, options).ReadLease(t.Context()); r.Answer != lease.Unanswered || err == nil {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A token that the kubelet replaced is used without a restart, and at once after
// the old one was refused.
func TestRotatedTokenIsReadAgain(t *testing.T) {
	s := &store{}
	_, options := serve(t, s)
	now := time.Hour
	options.Now = func() time.Duration { return now }
	c := open(t, options)
	create(t, c)
	readUntil := func(want string) {
		t.Helper()
		for range 500 { // the file is read beside the request
			_, _ = c.ReadLease(t.Context())
			if s.lastToken() == "Bearer "+want {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
		t.Fatalf("the token is %q instead of %q", s.lastToken(), want)
	}
	readUntil("first")
	writeToken(t, options.Config.BearerTokenFile, "second")
	now += tokenAge
	readUntil("second")
	writeToken(t, options.Config.BearerTokenFile, "third") // not old yet, but refused
	s.setBefore(func(number int, w http.ResponseWriter, _ *http.Request) bool {
		if number == 1 {
			refuse(w, http.StatusUnauthorized)
		}
		return number == 1
	})
	readUntil("third")
	if err := os.Remove(options.Config.BearerTokenFile); err != nil {
		t.Fatal(err)
	}
	now += tokenAge
	readUntil("third") // a file that is gone for a moment takes nothing away
	if _, err := New(options); err == nil {
		t.Error("opened without a token")
	}
}

// A machine that slept during a request has a reading of its whole length: what was
// sent before counts from before.
func TestRule6TimesAreOfTheClockThatCountsSleep(t *testing.T) {
	s := &store{}
	_, options := serve(t, s)
	var mu sync.Mutex
	now := time.Hour
	options.Now = func() time.Duration { mu.Lock(); defer mu.Unlock(); return now }
	c := open(t, options)
	create(t, c)
	s.setBefore(func(int, http.ResponseWriter, *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		now += time.Minute
		return false
	})
	r, err := c.ReadLease(t.Context())
	if err != nil || r.Sent != time.Hour || r.Received != time.Hour+time.Minute {
		t.Errorf("got %+v, %v", r, err)
	}
}
