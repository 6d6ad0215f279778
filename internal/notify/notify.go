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
	"net/url"
	"os"
	"strings"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1beta1"
	"github.com/go-logr/logr"
	"github.com/hashicorp/go-retryablehttp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// queueLength bounds what waits, in events of about two kilobytes.
const queueLength = 256

// controllerName is what events say that they are from.
const controllerName = "holdfast"

// Options of a Notifier.
type Options struct {
	// Address of the receiver: an http or https URL.
	Address string
	// Reader reads from the cache what owns an object, and Scheme knows its kinds.
	Reader client.Reader
	Scheme *runtime.Scheme
	// Log gets a line for each event that the receiver did not take.
	Log logr.Logger
	// Registerer gets the metrics.
	Registerer prometheus.Registerer
}

// Notifier posts events, one after the other.
type Notifier struct {
	address  string
	client   *retryablehttp.Client
	instance string
	reader   client.Reader
	scheme   *runtime.Scheme
	log      logr.Logger
	queue    chan notification
	dropped  prometheus.Counter
	posted   *prometheus.CounterVec
}

// notification is an event that waits.
type notification struct {
	about    subject
	at       metav1.Time
	severity string
	reason   string
	action   string
	message  string
}

// New makes a Notifier, which posts once it is started.
func New(o Options) (*Notifier, error) {
	if at, err := url.Parse(o.Address); err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("--events-addr %q is no address of a receiver: write a URL such as http://notification-controller.flux-system.svc.cluster.local./", o.Address)
	}
	instance, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("set up notifications: %w", err)
	}
	n := &Notifier{
		address: o.Address, instance: instance, reader: o.Reader, scheme: o.Scheme, log: o.Log, queue: make(chan notification, queueLength),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_notifications_dropped_total", Help: "Events that were not passed on to --events-addr, since too many waited.",
		}),
		posted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_notification_posts_total", Help: "Requests to --events-addr by result: accepted, duplicate, or failed, which is tried twice more.",
		}, []string{"result"}),
	}
	n.client = newClient(n.posted)
	for _, c := range []prometheus.Collector{n.dropped, n.posted} {
		if err := o.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("set up the metrics of notifications: %w", err)
		}
	}
	return n, nil
}

// Recorder records events with another recorder, and passes them on.
func (n *Notifier) Recorder(next events.EventRecorder) events.EventRecorder {
	return recorder{next, n}
}

// recorder is an events.EventRecorder of client-go.
type recorder struct {
	events.EventRecorder
	notifier *Notifier
}

// Eventf implements events.EventRecorder. It never waits.
func (r recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
	object, is := regarding.(client.Object)
	if !is {
		return
	}
	about := r.notifier.describeSubject(object)
	if !about.mayBeDeclared() {
		return
	}
	next := notification{about: about, at: metav1.Now(), severity: eventv1.EventSeverityInfo, reason: reason, action: action, message: fmt.Sprintf(note, args...)}
	if kind == corev1.EventTypeWarning {
		next.severity = eventv1.EventSeverityError
	}
	select {
	case r.notifier.queue <- next:
	default:
		r.notifier.dropped.Inc()
	}
}

// NeedLeaderElection says that only the leader posts: the others record no events.
func (n *Notifier) NeedLeaderElection() bool { return true }

// Start posts what waits until ctx ends. An event that is on its way then is given up.
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
	identity := fmt.Sprintf("%s %s/%s", next.about.kind, next.about.namespace, next.about.name)
	event := eventv1.Event{
		InvolvedObject: *by, Severity: next.severity, Timestamp: next.at, Reason: next.reason, Message: identity + ": " + next.message,
		Metadata: map[string]string{
			eventv1.Group + "/database": strings.Replace(identity, " ", "/", 1),
			eventv1.Group + "/action":   next.action,
		},
		ReportingController: controllerName, ReportingInstance: n.instance,
	}
	if err := n.send(ctx, event); err != nil && ctx.Err() == nil {
		n.log.Info("The receiver of --events-addr did not take an event", "object", identity, "reason", next.reason, "error", err.Error())
	}
}
