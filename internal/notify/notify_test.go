package notify

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// receiver keeps the events that it is sent, as the notification-controller reads them.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	events []eventv1.Event
	// hold is what an answer waits for; nil for nothing. Answer is its status, and
	// retryAfter its header.
	hold       chan struct{}
	answer     int
	retryAfter string
	// connections are how many were opened.
	connections atomic.Int32
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{answer: http.StatusAccepted}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			r.connections.Add(1)
		}
	}
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var e eventv1.Event
	body, err := io.ReadAll(request.Body)
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.hold != nil {
		select {
		case <-r.hold:
		case <-request.Context().Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if r.retryAfter != "" {
		w.Header().Set("Retry-After", r.retryAfter)
	}
	w.WriteHeader(r.answer)
	// A connection whose answer is not read cannot be used again.
	_, _ = io.WriteString(w, http.StatusText(r.answer))
}

// setAnswer changes what the receiver answers from now on.
func (r *receiver) setAnswer(status int, retryAfter string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.retryAfter = status, retryAfter
}

func (r *receiver) list() []eventv1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]eventv1.Event(nil), r.events...)
}

// world is a notifier that runs, and what it is recorded with beside.
type world struct {
	t        *testing.T
	notifier *Notifier
	recorder events.EventRecorder
	recorded *events.FakeRecorder
	stop     func()

	mu  sync.Mutex
	log strings.Builder
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

func start(t *testing.T, address string, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, recorded: events.NewFakeRecorder(10 * queueLength)}
	log := funcr.New(func(_, line string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.log.WriteString(line + "\n")
	}, funcr.Options{Verbosity: 9})
	n, err := New(Options{
		Address: address, Scheme: scheme, Log: log, Registerer: prometheus.NewRegistry(),
		Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
	})
	if err != nil {
		t.Fatal(err)
	}
	n.client.RetryWaitMin = time.Millisecond
	w.notifier, w.recorder = n, n.Recorder(w.recorded)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Start(ctx); err != nil {
			t.Error(err)
		}
	}()
	w.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(w.stop)
	return w
}

func (w *world) await(what string, is func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: not after 20 s", what)
		}
	}
}

func cluster(name string, labels map[string]string) *v1alpha1.PostgresCluster {
	return &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}}
}

var byKustomization = map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}

// The involved object is the Kustomization, and the text names the cluster.
func TestEventsArePassedOn(t *testing.T) {
	r := newReceiver(t)
	w := start(t, r.URL)
	w.recorder.Eventf(cluster("orders", byKustomization), nil, "Warning", "Degraded", "Degraded", "member %s is away", "orders-1")
	w.await("an event", func() bool { return len(r.list()) == 1 })
	got := r.list()[0]
	if got.InvolvedObject.Kind != "Kustomization" || got.InvolvedObject.APIVersion != "kustomize.toolkit.fluxcd.io/v1" ||
		got.InvolvedObject.Namespace != "flux-system" || got.InvolvedObject.Name != "apps" {
		t.Errorf("about %+v", got.InvolvedObject)
	}
	if got.Severity != "error" || got.Reason != "Degraded" || got.Message != "PostgresCluster shop/orders: member orders-1 is away" || got.ReportingController != "holdfast" || got.Timestamp.IsZero() {
		t.Errorf("%+v", got)
	}
	want := map[string]string{"event.toolkit.fluxcd.io/database": "PostgresCluster/shop/orders", "event.toolkit.fluxcd.io/action": "Degraded"}
	if diff := cmp.Diff(want, got.Metadata); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	w.recorder.Eventf(cluster("orders", byKustomization), nil, "Normal", "Ready", "Ready", "3 of 3 members serve")
	w.await("another", func() bool { return len(r.list()) == 2 })
	if got := r.list()[1].Severity; got != "info" {
		t.Errorf("a normal event has the severity %s", got)
	}
	if n := len(w.recorded.Events); n != 2 {
		t.Errorf("%d events are recorded", n)
	}
}

// What a Backup and a cluster are made for is asked of the cache: a Backup of a cluster of a
// Database of a HelmRelease.
func TestDeclarersAreFound(t *testing.T) {
	byRelease := map[string]string{"helm.toolkit.fluxcd.io/name": "shop", "helm.toolkit.fluxcd.io/namespace": "shop"}
	controlledBy := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: name, UID: "x", Controller: new(true)}}
	}
	database := &v1alpha1.Database{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "users", Labels: byRelease}}
	users := cluster("users", nil)
	users.OwnerReferences = controlledBy("Database", "users")
	backup := func(of string) *v1alpha1.Backup {
		return &v1alpha1.Backup{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: of + "-1"}, Spec: v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: "PostgresCluster", Name: of}},
		}
	}
	foreign := cluster("stray", nil)
	foreign.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "x", UID: "x", Controller: new(true)}}
	w := start(t, newReceiver(t).URL, database, users, cluster("orders", byKustomization), cluster("by-hand", nil))
	for name, c := range map[string]struct {
		about client.Object
		want  string
	}{
		"a Database":                     {database, "HelmRelease shop/shop"},
		"its cluster":                    {users, "HelmRelease shop/shop"},
		"a Backup of that":               {backup("users"), "HelmRelease shop/shop"},
		"a Backup of a cluster":          {backup("orders"), "Kustomization flux-system/apps"},
		"a Backup whose cluster is gone": {backup("gone"), ""},
		"a cluster that is made by hand": {cluster("by-hand", nil), ""},
		"a cluster of another owner":     {foreign, ""},
		"half of the labels":             {cluster("half", map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if by := w.notifier.findDeclarer(t.Context(), w.notifier.describeSubject(c.about)); by != nil {
				got = by.Kind + " " + by.Namespace + "/" + by.Name
			}
			if got != c.want {
				t.Errorf("declared by %q, want %q", got, c.want)
			}
		})
	}
}

// A receiver that does not answer holds up no pass: what has no space in the queue is
// dropped and counted, and what waited is posted once it answers.
func TestSlowReceiverHoldsUpNothing(t *testing.T) {
	r := newReceiver(t)
	r.hold = make(chan struct{})
	w := start(t, r.URL)
	orders := cluster("orders", byKustomization)
	const more = 40
	began := time.Now()
	for i := range queueLength + more {
		w.recorder.Eventf(orders, nil, "Normal", "Step", "Step", "event %d", i)
	}
	t.Logf("%d events are recorded in %s", queueLength+more, time.Since(began))
	if n := len(w.recorded.Events); n != queueLength+more {
		t.Errorf("%d events are recorded", n)
	}
	// One may be on its way.
	dropped := int(testutil.ToFloat64(w.notifier.dropped))
	if dropped != more && dropped != more-1 {
		t.Errorf("%d events are dropped, want about %d", dropped, more)
	}
	close(r.hold)
	w.await("what waited", func() bool { return len(r.list()) == queueLength+more-dropped })
	if n := int(testutil.ToFloat64(w.notifier.posted.WithLabelValues("accepted"))); n != queueLength+more-dropped {
		t.Errorf("%d are counted as accepted", n)
	}
}

// A receiver that is away is tried three times, and what follows is posted when it is back.
func TestDeadReceiver(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	w := start(t, "http://"+address+"/s3cret")
	orders := cluster("orders", byKustomization)
	w.recorder.Eventf(orders, nil, "Normal", "Step", "Step", "lost")
	w.await("three tries", func() bool { return testutil.ToFloat64(w.notifier.posted.WithLabelValues("failed")) == 1+retries })
	w.await("a line in the log", func() bool { return strings.Contains(w.logged(), "connection refused") })
	if text := w.logged(); strings.Contains(text, "s3cret") {
		t.Errorf("the log has the address, which may have a token:\n%s", text)
	}

	r := &receiver{answer: http.StatusAccepted}
	if listener, err = net.Listen("tcp", address); err != nil {
		t.Skipf("the port is taken by another process meanwhile: %v", err)
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	w.recorder.Eventf(orders, nil, "Normal", "Step", "Step", "heard")
	w.await("the next", func() bool { return len(r.list()) == 1 })
	if got := r.list()[0].Message; !strings.HasSuffix(got, "heard") {
		t.Errorf("%q", got)
	}
}

// An event that the receiver has had already is not tried again.
func TestDuplicates(t *testing.T) {
	r := newReceiver(t)
	r.answer = http.StatusTooManyRequests
	w := start(t, r.URL)
	w.recorder.Eventf(cluster("orders", byKustomization), nil, "Normal", "Step", "Step", "again")
	w.recorder.Eventf(cluster("orders", byKustomization), nil, "Normal", "Step", "Step", "and again")
	w.await("both", func() bool { return testutil.ToFloat64(w.notifier.posted.WithLabelValues("duplicate")) == 2 })
	if n := len(r.list()); n != 2 {
		t.Errorf("%d requests", n)
	}
	if text := w.logged(); text != "" {
		t.Errorf("logged:\n%s", text)
	}
	if n := r.connections.Load(); n != 1 {
		t.Errorf("%d connections for two events", n)
	}
}

// A receiver does not say for how long nothing is posted, and what it never takes is
// logged.
func TestReceiverThatRefuses(t *testing.T) {
	r := newReceiver(t)
	r.setAnswer(http.StatusServiceUnavailable, "3600")
	w := start(t, r.URL)
	w.recorder.Eventf(cluster("orders", byKustomization), nil, "Normal", "Step", "Step", "busy")
	w.await("three tries", func() bool { return len(r.list()) == 1+retries && strings.Contains(w.logged(), "503") })
	r.setAnswer(http.StatusNotFound, "")
	w.recorder.Eventf(cluster("orders", byKustomization), nil, "Normal", "Step", "Step", "wrong")
	w.await("one try", func() bool { return len(r.list()) == 2+retries && strings.Contains(w.logged(), "404") })
	r.setAnswer(http.StatusAccepted, "")
	w.recorder.Eventf(cluster("orders", byKustomization), nil, "Normal", "Step", "Step", "heard")
	w.await("the next", func() bool { return testutil.ToFloat64(w.notifier.posted.WithLabelValues("accepted")) == 1 })
	if n := r.connections.Load(); n > 2 { // one that gave up is closed
		t.Errorf("%d connections for three events", n)
	}
}

// An operator that stops, and gives its Lease back when all has stopped, does not wait for
// a receiver that hangs.
func TestStopWithReceiverThatHangs(t *testing.T) {
	r := newReceiver(t)
	r.hold = make(chan struct{})
	defer close(r.hold)
	w := start(t, r.URL)
	w.notifier.client.HTTPClient.Timeout = time.Hour
	w.recorder.Eventf(cluster("orders", byKustomization), nil, "Normal", "Step", "Step", "one")
	w.await("a request", func() bool { return r.connections.Load() == 1 })
	w.stop()
	if text := w.logged(); text != "" {
		t.Errorf("logged:\n%s", text)
	}
}

// What waits is as it was when it happened, whatever becomes of the object meanwhile.
func TestWaitingEventsShareNothing(t *testing.T) {
	r := newReceiver(t)
	r.hold = make(chan struct{})
	w := start(t, r.URL)
	labels := maps.Clone(byKustomization)
	orders := cluster("orders", labels)
	before := time.Now().Truncate(time.Second)
	for range 2 {
		w.recorder.Eventf(orders, nil, "Normal", "Step", "Step", "it happened")
	}
	after := time.Now()
	labels["kustomize.toolkit.fluxcd.io/name"] = "other"
	orders.Name = "other"
	time.Sleep(1100 * time.Millisecond) // the time is in whole seconds
	close(r.hold)
	w.await("both", func() bool { return len(r.list()) == 2 })
	for _, got := range r.list() {
		if got.InvolvedObject.Name != "apps" || !strings.Contains(got.Message, "shop/orders") {
			t.Errorf("%+v", got)
		}
		if at := got.Timestamp.Time; at.Before(before) || at.After(after) {
			t.Errorf("it happened at %s, between %s and %s", at, before, after)
		}
	}
}

// What Flux cannot declare does not take space in the queue.
func TestOthersDoNotWait(t *testing.T) {
	r := newReceiver(t)
	r.hold = make(chan struct{})
	w := start(t, r.URL)
	for range 2 * queueLength {
		w.recorder.Eventf(cluster("by-hand", nil), nil, "Normal", "Step", "Step", "nothing to post")
	}
	w.recorder.Eventf(cluster("orders", byKustomization), nil, "Normal", "Step", "Step", "heard")
	close(r.hold)
	w.await("the event", func() bool { return len(r.list()) == 1 })
	if n := testutil.ToFloat64(w.notifier.dropped); n != 0 {
		t.Errorf("%v events are dropped", n)
	}
}

func TestBadAddresses(t *testing.T) {
	for _, address := range []string{"notification-controller", "notification-controller:80", "ftp://x/", "http://", "http://a b/"} {
		_, err := New(Options{Address: address, Scheme: runtime.NewScheme(), Log: logr.Discard(), Registerer: prometheus.NewRegistry()})
		if err == nil || !strings.Contains(err.Error(), "--events-addr") {
			t.Errorf("%q: %v", address, err)
		}
	}
}
