package apitest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var listAll = metav1.ListOptions{}

// patience is how long Eventually waits for what has to come. It is no
// measure of anything: a wait of this length has failed.
const patience = time.Minute

// Cluster is one test's view of the API server: a namespace of its own, and a
// cache that shows only that.
type Cluster struct {
	// Namespace of this test; it is deleted after it.
	Namespace string
	// Config of a cluster administrator.
	Config *rest.Config
	// Client talks to the API server itself, as the operator does.
	Client client.Client
	// Cache is a started cache of the namespace; managedFields are kept.
	Cache cache.Cache
	// Requests counts what went through Client.
	Requests *Counter
}

// New gives a test its namespace and clients. Main must have been called.
func New(t *testing.T) *Cluster {
	t.Helper()
	if running == nil {
		t.Fatal("no API server: the package needs func TestMain(m *testing.M) { apitest.Main(m) }")
	}
	c := &Cluster{Config: rest.CopyConfig(running.config), Requests: &Counter{}}
	admin, err := client.New(c.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: namespacePrefix(t)}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	c.Namespace = ns.Name
	t.Cleanup(func() {
		// The test's own context is over by now.
		if err := client.IgnoreNotFound(admin.Delete(context.Background(), ns)); err != nil {
			t.Error(err)
		}
	})
	counted := rest.CopyConfig(c.Config)
	counted.Wrap(c.Requests.wrapTransport)
	if c.Client, err = client.New(counted, client.Options{Scheme: scheme.Scheme}); err != nil {
		t.Fatal(err)
	}
	c.Cache, err = cache.New(c.Config, cache.Options{
		Scheme: scheme.Scheme, DefaultNamespaces: map[string]cache.Config{c.Namespace: {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.startManager(t)
	return c
}

func (c *Cluster) startManager(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Cache.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if !c.Cache.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache did not start")
	}
}

// As is a client under a field manager's name, uncounted: another client.
func (c *Cluster) As(t *testing.T, manager string) client.Client {
	t.Helper()
	other, err := client.New(c.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return client.WithFieldOwner(other, manager)
}

// Eventually waits until a condition holds, and fails the test with the
// last answer where it never does. Cleanups, too, can wait with it.
func Eventually(t *testing.T, what string, condition func(ctx context.Context) (bool, string)) {
	t.Helper()
	last := ""
	ctx := context.WithoutCancel(t.Context()) // it is over when cleanups run
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true,
		func(ctx context.Context) (held bool, _ error) {
			held, last = condition(ctx)
			return held, nil
		})
	if err != nil {
		t.Fatalf("%s: %v (last: %s)", what, err, last)
	}
}

func namespacePrefix(t *testing.T) string {
	name := strings.ToLower(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, t.Name()))
	return strings.Trim(name[:min(len(name), 40)], "-") + "-"
}

// Counter counts requests by verb and path.
type Counter struct {
	mu       sync.Mutex
	requests []string
}

// TakeRequests returns the requests since the last call, each as "METHOD path?query".
func (c *Counter) TakeRequests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := c.requests
	c.requests = nil
	return requests
}

func (c *Counter) wrapTransport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		// Discovery is the client's own affair.
		if strings.Contains(r.URL.Path, "/namespaces/") {
			c.mu.Lock()
			c.requests = append(c.requests, r.Method+" "+r.URL.RequestURI())
			c.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
