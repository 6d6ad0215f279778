// Package notify passes the operator's events on to Flux's notification-controller, or to
// any receiver of its events. The involved object is what declares the cluster, since
// Alerts select Flux's own kinds: a Kustomization or a HelmRelease. Clusters that Flux
// does not declare have no notifications.
//
// A receiver may take seconds for each event, or be gone. So a pass only puts an event into
// a queue; if that is full, the event is dropped and counted.
package notify

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fluxcd/pkg/runtime/events"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	kuberecorder "k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// queueLength bounds what waits, in events of about a kilobyte.
	queueLength = 256
	// retries of one event, and the longest pause between two of them: while a receiver is
	// away, the events of that time are worth less than those that follow.
	retries   = 2
	longPause = 5 * time.Second
)

// controllerName is what events say that they are from.
const controllerName = "holdfast"

// Options of a Notifier.
type Options struct {
	// Address of the receiver: an http or https URL.
	Address string
	// Reader reads from the cache what owns an object, and Scheme knows its kinds.
	Reader client.Reader
	Scheme *runtime.Scheme
	// Log has a sink.
	Log logr.Logger
	// Registerer gets the metrics.
	Registerer prometheus.Registerer
}

// Notifier posts events, one after the other.
type Notifier struct {
	poster  *events.Recorder
	reader  client.Reader
	scheme  *runtime.Scheme
	queue   chan notification
	dropped prometheus.Counter
	posted  *prometheus.CounterVec
}

// notification is an event that waits.
type notification struct {
	about   client.Object
	kind    string
	reason  string
	action  string
	message string
}

// New makes a Notifier, which posts once it is started.
func New(o Options) (*Notifier, error) {
	if at, err := url.Parse(o.Address); err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("--events-addr %q is no address of a receiver: write a URL such as http://notification-controller.flux-system.svc.cluster.local./", o.Address)
	}
	poster, err := events.NewRecorderForScheme(o.Scheme, &record.FakeRecorder{}, o.Log, o.Address, controllerName)
	if err != nil {
		return nil, fmt.Errorf("set up notifications: %w", err)
	}
	n := &Notifier{
		poster: poster, reader: o.Reader, scheme: o.Scheme, queue: make(chan notification, queueLength),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_notifications_dropped_total", Help: "Events that were not passed on to --events-addr, since too many waited.",
		}),
		posted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_notification_posts_total", Help: "Requests to --events-addr by result: accepted, duplicate, or failed, which is tried twice more.",
		}, []string{"result"}),
	}
	poster.Client.RetryMax, poster.Client.RetryWaitMax = retries, longPause
	poster.Client.HTTPClient.Transport = counting{poster.Client.HTTPClient.Transport, n.posted}
	for _, c := range []prometheus.Collector{n.dropped, n.posted} {
		if err := o.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("set up the metrics of notifications: %w", err)
		}
	}
	return n, nil
}

// Recorder records events with another recorder, and passes them on.
func (n *Notifier) Recorder(next kuberecorder.EventRecorder) kuberecorder.EventRecorder {
	return recorder{next, n}
}

// recorder is an events.EventRecorder of client-go.
type recorder struct {
	kuberecorder.EventRecorder
	notifier *Notifier
}

// Eventf implements events.EventRecorder. It never waits.
func (r recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
	about, is := regarding.(client.Object)
	if !is {
		return
	}
	select {
	case r.notifier.queue <- notification{about, kind, reason, action, fmt.Sprintf(note, args...)}:
	default:
		r.notifier.dropped.Inc()
	}
}

// NeedLeaderElection says that only the leader posts: the others record no events.
func (n *Notifier) NeedLeaderElection() bool { return true }

// Start posts what waits until ctx ends.
func (n *Notifier) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-n.queue:
			n.post(ctx, next)
		}
	}
}

// post posts one event, which may take seconds. That it fails is logged and counted.
func (n *Notifier) post(ctx context.Context, next notification) {
	by := n.findDeclarer(ctx, next.about)
	if by == nil {
		return
	}
	identity := fmt.Sprintf("%s %s/%s", n.kindOf(next.about), next.about.GetNamespace(), next.about.GetName())
	metadata := map[string]string{
		metadataPrefix + "database": strings.Replace(identity, " ", "/", 1),
		metadataPrefix + "action":   next.action,
	}
	n.poster.AnnotatedEventf(by, metadata, next.kind, next.reason, "%s: %s", identity, next.message)
}

// metadataPrefix is that of metadata which reaches the receiver's own receivers.
const metadataPrefix = "event.toolkit.fluxcd.io/"

// counting counts the requests to a receiver.
type counting struct {
	next   http.RoundTripper
	posted *prometheus.CounterVec
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	result := "failed"
	switch {
	case err != nil:
	case response.StatusCode/100 == 2:
		result = "accepted"
	case response.StatusCode == http.StatusTooManyRequests:
		result = "duplicate" // the receiver has had the same event a short time ago
	}
	c.posted.WithLabelValues(result).Inc()
	return response, err
}
