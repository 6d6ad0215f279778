// Package tracingtest receives spans in tests, as a collector does.
package tracingtest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one that was received.
type Span struct {
	Name              string
	Trace, ID, Parent string
	Client            bool
	// Failed and Status are its outcome.
	Failed     bool
	Status     string
	Attributes map[string]any
	// Resource is the process that it is from.
	Resource   map[string]any
	Start, End time.Time
}

// Receiver takes spans by OTLP over HTTP.
type Receiver struct {
	*httptest.Server
	// Answer is the status of its answers. Hold is what they wait for; nil for nothing.
	Answer int
	Hold   chan struct{}

	t        *testing.T
	mu       sync.Mutex
	spans    []Span
	bodies   [][]byte
	requests []*http.Request
}

// NewReceiver starts a receiver, which takes everything.
func NewReceiver(t *testing.T) *Receiver {
	t.Helper()
	r := &Receiver{t: t, Answer: http.StatusOK}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// Getenv is an environment that names the receiver.
func (r *Receiver) Getenv(variable string) string {
	if variable == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		return r.URL
	}
	return ""
}

// ServeHTTP implements http.Handler.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var export collectorv1.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &export)
	}
	if err != nil || request.URL.Path != "/v1/traces" || request.Header.Get("Content-Type") != "application/x-protobuf" {
		r.t.Errorf("%s %s, %s: %v", request.Method, request.URL, request.Header.Get("Content-Type"), err)
	}
	if r.Hold != nil {
		<-r.Hold
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.bodies = append(r.requests, request), append(r.bodies, body)
	if r.Answer/100 == 2 {
		r.add(&export)
	}
	w.WriteHeader(r.Answer)
}

func (r *Receiver) add(export *collectorv1.ExportTraceServiceRequest) {
	for _, resource := range export.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				r.spans = append(r.spans, Span{
					Name: s.GetName(), Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Client: s.GetKind() == tracev1.Span_SPAN_KIND_CLIENT, Failed: s.GetStatus().GetCode() == tracev1.Status_STATUS_CODE_ERROR, Status: s.GetStatus().GetMessage(),
					Attributes: attributes(s.GetAttributes()), Resource: attributes(resource.GetResource().GetAttributes()),
					Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
				})
			}
		}
	}
}

func attributes(pairs []*commonv1.KeyValue) map[string]any {
	found := map[string]any{}
	for _, pair := range pairs {
		switch value := pair.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			found[pair.GetKey()] = value.StringValue
		case *commonv1.AnyValue_IntValue:
			found[pair.GetKey()] = value.IntValue
		case *commonv1.AnyValue_ArrayValue:
			var texts []string
			for _, v := range value.ArrayValue.GetValues() {
				texts = append(texts, v.GetStringValue())
			}
			found[pair.GetKey()] = texts
		}
	}
	return found
}

// Spans are all that were received, in their order.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// Passes are the spans of passes, which have no parent.
func (r *Receiver) Passes() []Span {
	return slices.DeleteFunc(r.Spans(), func(s Span) bool { return s.Parent != "" })
}

// Children are the spans below one.
func (r *Receiver) Children(parent Span) []Span {
	return slices.DeleteFunc(r.Spans(), func(s Span) bool { return s.Parent != parent.ID })
}

// Requests are what was received.
func (r *Receiver) Requests() (requests []*http.Request, bodies [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests), slices.Clone(r.bodies)
}
