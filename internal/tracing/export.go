package tracing

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// queueLength bounds the spans that wait for the collector, of about a kilobyte each.
const queueLength = 2048

// maxText bounds what is logged of the collector's answer.
const maxText = 300

// What a pass came to.
const (
	// wrote: the API server took a write.
	wrote = "wrote"
	// acted: a step was done.
	acted = "acted"
	// outdated: all writes were refused, and the pass did not take that for a failure, since
	// another client had changed or deleted the object. The next pass looks again.
	outdated = "outdated"
	// failed: the pass, or a part of it, failed.
	failed = "failed"
)

// exporter passes spans on to the collector, and counts them.
type exporter struct {
	next sdktrace.SpanExporter
	log  logr.Logger
	// waiting are the spans that are queued or on their way.
	waiting atomic.Int64
	spans   *prometheus.CounterVec
	// away says that the collector did not take the last spans. One goroutine exports.
	away bool
}

func newExporter(next sdktrace.SpanExporter, log logr.Logger) *exporter {
	return &exporter{next: next, log: log, spans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_trace_spans_total", Help: "Spans by result: exported; failed, since the collector did not take them; dropped, since too many waited. Only with OTEL_EXPORTER_OTLP_ENDPOINT.",
	}, []string{"result"})}
}

// reserve takes places in the queue for the spans of a pass, or counts them as dropped. It
// never waits.
func (e *exporter) reserve(spans int) bool {
	if e.waiting.Add(int64(spans)) > queueLength {
		e.waiting.Add(-int64(spans))
		e.spans.WithLabelValues("dropped").Add(float64(spans))
		return false
	}
	return true
}

// ExportSpans implements sdktrace.SpanExporter. What fails is counted, and logged once until
// the collector takes spans again: the SDK would log each time.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.next.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	if err == nil {
		e.spans.WithLabelValues("exported").Add(float64(len(spans)))
		if e.away {
			e.log.Info("The collector takes spans again")
		}
	} else {
		e.spans.WithLabelValues("failed").Add(float64(len(spans)))
		if !e.away {
			e.log.Info("The collector of OTEL_EXPORTER_OTLP_ENDPOINT did not take spans, and they are dropped", "spans", len(spans), "error", describeRefusal(err))
		}
	}
	e.away = err != nil
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error { return e.next.Shutdown(ctx) }

// describeRefusal is why the collector took nothing, without the address, and without all of
// a long answer.
func describeRefusal(err error) string {
	var sent *url.Error
	if errors.As(err, &sent) {
		err = sent.Err
	}
	text := err.Error()
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return text
}

// export makes spans of a pass that has ended, unless it did nothing.
func (t *Tracer) export(p *Pass, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := time.Now()
	outcome, why := t.judge(p, err)
	if outcome == "" || !t.exporter.reserve(1+len(p.operations)) {
		return
	}
	top, span := t.tracer.Start(context.Background(), "reconcile "+p.kind, trace.WithTimestamp(p.start), trace.WithAttributes(describePass(p, outcome)...))
	within := make([]context.Context, len(p.operations))
	for i := range p.operations {
		o := &p.operations[i]
		parent := top
		if o.parent != noParent {
			parent = within[o.parent]
		}
		if o.end.IsZero() {
			o.end = end // it goes on beyond its pass
		}
		within[i] = t.exportOperation(parent, o)
	}
	setFailure(span, why)
	span.End(trace.WithTimestamp(end))
}

// judge says what a pass came to, and why it failed. The outcome is empty where it found
// nothing to do.
func (t *Tracer) judge(p *Pass, err error) (outcome string, why failure) {
	why = t.classify(err)
	if why.class == "" && len(p.blocked) > 0 {
		why = failure{blocked, p.blocked[0]}
	}
	acts := false
	for i := range p.operations {
		acts = acts || p.operations[i].verb == ""
	}
	switch {
	case why.class != "":
		return failed, why
	case acts:
		return acted, why
	case len(p.written) > 0:
		return wrote, why
	case p.writes > 0:
		return outdated, why
	}
	return "", why
}

// describePass are the attributes of the span of a pass.
func describePass(p *Pass, outcome string) []attribute.KeyValue {
	about := []attribute.KeyValue{
		attribute.String("holdfast.controller", p.controller),
		attribute.String("holdfast.kind", p.kind),
		attribute.String("k8s.namespace.name", p.object.Namespace),
		attribute.String("holdfast.name", p.object.Name),
		attribute.Int64("holdfast.generation", p.generation),
		attribute.String("holdfast.outcome", outcome),
	}
	if p.reconcileID != "" {
		about = append(about, attribute.String("holdfast.reconcile_id", p.reconcileID))
	}
	if p.writes > 0 {
		about = append(about, attribute.Int("holdfast.writes", p.writes), attribute.StringSlice("holdfast.written", p.written))
	}
	for i := range p.operations {
		if o := &p.operations[i]; o.verb == "" {
			about = append(about, attribute.String("holdfast.step", o.kind), attribute.String("holdfast.step.target", o.name))
		}
	}
	return about
}

// exportOperation makes the span of a step or a write.
func (t *Tracer) exportOperation(parent context.Context, o *operation) context.Context {
	name, kind := "step "+o.kind, trace.SpanKindInternal
	about := []attribute.KeyValue{attribute.String("holdfast.step", o.kind), attribute.String("holdfast.step.target", o.name)}
	if o.verb != "" {
		name, kind = o.verb+" "+o.kind, trace.SpanKindClient
		about = []attribute.KeyValue{
			attribute.String("holdfast.kind", o.kind), attribute.String("k8s.namespace.name", o.namespace), attribute.String("holdfast.name", o.name),
		}
		if o.subresource != "" {
			about = append(about, attribute.String("holdfast.subresource", o.subresource))
		}
	}
	within, span := t.tracer.Start(parent, name, trace.WithTimestamp(o.start), trace.WithSpanKind(kind), trace.WithAttributes(about...))
	setFailure(span, t.classify(o.err))
	span.End(trace.WithTimestamp(o.end))
	return within
}

// setFailure says on a span that it failed, and what helps.
func setFailure(span trace.Span, why failure) {
	if why.class == "" {
		return
	}
	span.SetAttributes(attribute.String("error.type", string(why.class)))
	if why.reason != "" {
		span.SetAttributes(attribute.String("holdfast.reason", why.reason))
	}
	span.SetStatus(codes.Error, cmp.Or(why.reason, string(why.class)))
}
