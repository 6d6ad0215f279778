// Package tracing exports OpenTelemetry spans of the operator's passes that write, act or
// fail. While a pass runs, what it does is recorded as plain data. It becomes spans at its
// end, when it is known whether it did anything: a pass that finds nothing to do leaves
// nothing.
//
// Spans have names, kinds, reasons and times. They have no message of an error and nothing
// that an object contains: those may have SQL or a secret.
package tracing

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// flushTimeout is how long the operator waits, when it stops, for the collector to take what
// waits. With --graceful-shutdown-timeout it is less than what the pod has to end.
const flushTimeout = 5 * time.Second

// Options of a Tracer.
type Options struct {
	// Version of the operator.
	Version string
	// FindBlocked finds the reason of an error that only a person can fix; empty for none.
	FindBlocked func(error) string
	// Log gets a line when the collector takes no spans, and when it takes them again.
	Log logr.Logger
	// Registerer gets the metrics.
	Registerer prometheus.Registerer
	// Getenv reads the variables that name the collector. Default: os.Getenv. The exporter
	// reads those beside them by itself.
	Getenv func(string) string
}

// Tracer exports spans. A nil one records nothing, and costs nothing.
type Tracer struct {
	provider    *sdktrace.TracerProvider
	tracer      trace.Tracer
	exporter    *exporter
	findBlocked func(error) string
	log         logr.Logger
}

// New makes a Tracer by the standard variables of OpenTelemetry (OTEL_EXPORTER_OTLP_ENDPOINT
// and those beside it), or none where they name no endpoint.
func New(ctx context.Context, o Options) (*Tracer, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	endpoint, err := findEndpoint(o.Getenv)
	if err != nil || endpoint == "" {
		return nil, err
	}
	otel.SetLogger(o.Log)
	toCollector, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("set up tracing: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(describeOperator(o.Version)...), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("set up tracing: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Tracer{exporter: newExporter(toCollector, o.Log), findBlocked: o.FindBlocked, log: o.Log}
	if err := o.Registerer.Register(t.exporter.spans); err != nil {
		return nil, fmt.Errorf("set up the metrics of tracing: %w", err)
	}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(about),
		// Which passes are exported is decided here, and each that waits is counted.
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithBatcher(t.exporter, sdktrace.WithMaxQueueSize(queueLength)),
	)
	t.tracer = t.provider.Tracer("github.com/holdfast-db/holdfast/internal/tracing", trace.WithInstrumentationVersion(o.Version))
	return t, nil
}

// describeOperator says which process the spans are from.
func describeOperator(version string) []attribute.KeyValue {
	about := []attribute.KeyValue{attribute.String("service.name", "holdfast"), attribute.String("service.version", version)}
	for key, variable := range map[string]string{"k8s.pod.name": "POD_NAME", "k8s.namespace.name": "POD_NAMESPACE"} {
		if value := os.Getenv(variable); value != "" {
			about = append(about, attribute.String(key, value))
		}
	}
	return about
}

// Shutdown gives the collector what waits. It is called after the last pass.
func (t *Tracer) Shutdown() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	if lost := t.exporter.waiting.Load(); lost > 0 {
		t.log.Info("The operator stops before the collector has taken all spans", "spans", lost, "error", fmt.Sprint(err))
	}
}

// Wrap makes a reconciler whose passes are exported. Without a Tracer it is the same.
func (t *Tracer) Wrap(next reconcile.Reconciler, controller, kind string) reconcile.Reconciler {
	if t == nil {
		return next
	}
	return &reconciler{next: next, tracer: t, controller: controller, kind: kind}
}

// reconciler records each pass of another one.
type reconciler struct {
	next             reconcile.Reconciler
	tracer           *Tracer
	controller, kind string
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	p := newPass(ctx, r.controller, r.kind, req.NamespacedName)
	result, err := r.next.Reconcile(context.WithValue(ctx, scopeKey{}, scope{pass: p, parent: noParent}), req)
	r.tracer.export(p, err)
	return result, err
}
