package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/holdfast-db/holdfast/internal/tracing/tracingtest"
)

var errStuck = errors.New("a person has to look: INSERT INTO accounts VALUES ('s3cret')")

func newTracer(t *testing.T, o Options) *Tracer {
	t.Helper()
	o.Version, o.Registerer = "v1", prometheus.NewRegistry()
	o.FindBlocked = func(err error) string {
		if errors.Is(err, errStuck) || apierrors.IsForbidden(err) {
			return "Stuck"
		}
		return ""
	}
	tracer, err := New(t.Context(), o)
	if err != nil || tracer == nil {
		t.Fatalf("no tracer: %v", err)
	}
	t.Cleanup(tracer.Shutdown)
	return tracer
}

// pass runs one pass of a controller that does what it is given.
func pass(t *testing.T, tracer *Tracer, do func(ctx context.Context) error) {
	t.Helper()
	r := tracer.Wrap(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		FromContext(ctx).SetGeneration(7)
		return reconcile.Result{}, do(ctx)
	}), "postgrescluster", "PostgresCluster")
	_, _ = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "orders"}})
}

func newClient(objects ...client.Object) writer {
	return writer{fake.NewClientBuilder().WithObjects(objects...).WithStatusSubresource(&corev1.Pod{}).Build()}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Data: map[string]string{"password": "s3cret"}}
}

func TestSteadyPassExportsNothing(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	tracer := newTracer(t, Options{Getenv: receiver.Getenv})
	c := newClient(configMap("a"))
	for range 50 {
		pass(t, tracer, func(ctx context.Context) error {
			return errors.Join(c.Get(ctx, client.ObjectKey{Namespace: "shop", Name: "a"}, configMap("a")), c.Create(ctx, configMap("b"), client.DryRunAll))
		})
	}
	tracer.Shutdown()
	if requests, _ := receiver.Requests(); len(requests) > 0 {
		t.Errorf("%d requests: %+v", len(requests), receiver.Spans())
	}
}

func TestWritingPass(t *testing.T) {
	t.Setenv("POD_NAME", "holdfast-0")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x")
	receiver := tracingtest.NewReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	tracer := newTracer(t, Options{})
	c := newClient()
	pass(t, tracer, func(ctx context.Context) error { return c.Create(ctx, configMap("settings")) })
	tracer.Shutdown()

	passes := receiver.Passes()
	if len(passes) != 1 {
		t.Fatalf("%d passes: %+v", len(passes), receiver.Spans())
	}
	top := passes[0]
	want := map[string]any{
		"holdfast.controller": "postgrescluster", "holdfast.kind": "PostgresCluster", "k8s.namespace.name": "shop", "holdfast.name": "orders",
		"holdfast.generation": int64(7), "holdfast.outcome": "wrote", "holdfast.writes": int64(1), "holdfast.written": []string{"ConfigMap/settings"},
	}
	if diff := cmp.Diff(want, top.Attributes); diff != "" || top.Name != "reconcile PostgresCluster" || top.Failed {
		t.Errorf("%q, failed %v (-want +got):\n%s", top.Name, top.Failed, diff)
	}
	for key, value := range map[string]string{"service.name": "holdfast", "service.version": "v1", "k8s.pod.name": "holdfast-0", "deployment.environment.name": "test"} {
		if top.Resource[key] != value {
			t.Errorf("resource %s is %v, want %s", key, top.Resource[key], value)
		}
	}
	writes := receiver.Children(top)
	if len(writes) != 1 {
		t.Fatalf("%d writes: %+v", len(writes), receiver.Spans())
	}
	write := writes[0]
	want = map[string]any{"holdfast.kind": "ConfigMap", "k8s.namespace.name": "shop", "holdfast.name": "settings"}
	if diff := cmp.Diff(want, write.Attributes); diff != "" || write.Name != "create ConfigMap" || !write.Client || write.Trace != top.Trace {
		t.Errorf("%+v (-want +got):\n%s", write, diff)
	}
	if write.Start.Before(top.Start) || write.End.Before(write.Start) || top.End.Before(write.End) {
		t.Errorf("the write is not inside of the pass: %v to %v, and %v to %v", write.Start, write.End, top.Start, top.End)
	}
	requests, bodies := receiver.Requests()
	if len(requests) != 1 || requests[0].Header.Get("Authorization") != "Bearer x" || bytes.Contains(bodies[0], []byte("s3cret")) {
		t.Errorf("%d requests, authorization %q, or the object's content is in one", len(requests), requests[0].Header.Get("Authorization"))
	}
}

// Writes of a step are below it. Of an object that the API server names, the name is known.
func TestActingPass(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	tracer := newTracer(t, Options{Getenv: receiver.Getenv})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-1"}}
	c := newClient(pod, configMap("settings"))
	pass(t, tracer, func(ctx context.Context) error {
		settings := configMap("settings")
		settings.Data["a"] = "b"
		if err := c.Update(ctx, settings); err != nil {
			return err
		}
		acting, end := StartStep(ctx, "ReplacePod", "orders-1")
		err := errors.Join(c.Delete(acting, pod.DeepCopy()), c.Create(acting, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "orders-"}}))
		end(err)
		return err
	})
	tracer.Shutdown()
	top := receiver.Passes()[0]
	if top.Attributes["holdfast.outcome"] != "acted" || top.Attributes["holdfast.step"] != "ReplacePod" || top.Attributes["holdfast.step.target"] != "orders-1" {
		t.Errorf("the pass is %+v", top.Attributes)
	}
	children := receiver.Children(top)
	if len(children) != 2 || children[0].Name != "update ConfigMap" || children[1].Name != "step ReplacePod" || children[1].Client {
		t.Fatalf("below the pass: %+v", children)
	}
	within := receiver.Children(children[1])
	if len(within) != 2 || within[0].Name != "delete Pod" || within[1].Name != "create Secret" || within[1].Attributes["holdfast.name"] == "" {
		t.Errorf("below the step: %+v", within)
	}
}

func TestStatusAndPatchesAreWrites(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	tracer := newTracer(t, Options{Getenv: receiver.Getenv})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-1"}}
	c := newClient(pod)
	pass(t, tracer, func(ctx context.Context) error {
		merge := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`))
		return errors.Join(
			c.Status().Patch(ctx, pod, merge), c.Status().Patch(ctx, pod, merge, client.DryRunAll),
			c.Patch(ctx, pod, client.RawPatch(types.ApplyPatchType, []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"orders-1","namespace":"shop"}}`)), client.FieldOwner("holdfast"), client.ForceOwnership),
		)
	})
	tracer.Shutdown()
	top := receiver.Passes()[0]
	want := []string{"Pod/orders-1/status", "Pod/orders-1"}
	if diff := cmp.Diff(want, top.Attributes["holdfast.written"]); diff != "" {
		t.Errorf("written (-want +got):\n%s", diff)
	}
	children := receiver.Children(top)
	if len(children) != 2 || children[0].Name != "patch Pod" || children[0].Attributes["holdfast.subresource"] != "status" || children[1].Name != "apply Pod" {
		t.Errorf("writes: %+v", children)
	}
}

func TestFailingPass(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	secret := errors.New("syntax error in SELECT 's3cret'")
	for name, c := range map[string]struct {
		err           error
		class, reason string
	}{
		"an agent does not answer":        {fmt.Errorf("observe: %w", secret), "transient", ""},
		"another client changed it":       {fmt.Errorf("apply: %w", apierrors.NewConflict(pods, "s3cret", secret)), "transient", "Conflict"},
		"the API server is busy":          {apierrors.NewTooManyRequests("s3cret", 1), "transient", "TooManyRequests"},
		"the API server is broken":        {apierrors.NewInternalError(secret), "transient", "InternalError"},
		"the API server lacks the kind":   {fmt.Errorf("write: %w", apierrors.NewNotFound(pods, "s3cret")), "permanent", "NotFound"},
		"no retry helps":                  {reconcile.TerminalError(secret), "permanent", ""},
		"a person has to act":             {fmt.Errorf("act: %w", errStuck), "blocked", "Stuck"},
		"a retry helps one of two":        {errors.Join(errStuck, fmt.Errorf("act: %w", errors.Join(reconcile.TerminalError(secret), secret))), "transient", ""},
		"a retry helps against no of two": {errors.Join(errStuck, apierrors.NewNotFound(pods, "s3cret")), "permanent", "NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			receiver := tracingtest.NewReceiver(t)
			tracer := newTracer(t, Options{Getenv: receiver.Getenv})
			pass(t, tracer, func(context.Context) error { return c.err })
			tracer.Shutdown()
			spans := receiver.Spans()
			if len(spans) != 1 {
				t.Fatalf("%d spans: %+v", len(spans), spans)
			}
			s := spans[0]
			reason, _ := s.Attributes["holdfast.reason"].(string)
			if !s.Failed || s.Attributes["holdfast.outcome"] != "failed" || s.Attributes["error.type"] != c.class || reason != c.reason {
				t.Errorf("%+v, want %s because of %q", s, c.class, c.reason)
			}
			if _, bodies := receiver.Requests(); bytes.Contains(bodies[0], []byte("s3cret")) {
				t.Error("the message of the error is in the span")
			}
		})
	}
}

// A pass whose error became a condition has none to return, and failed all the same.
func TestBlockedPass(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	tracer := newTracer(t, Options{Getenv: receiver.Getenv})
	pass(t, tracer, func(ctx context.Context) error {
		_, end := StartStep(ctx, "AddMember", "orders-2")
		end(errStuck)
		FromContext(ctx).AddBlocked("Forbidden")
		return nil
	})
	tracer.Shutdown()
	top := receiver.Passes()[0]
	step := receiver.Children(top)[0]
	if !top.Failed || top.Attributes["error.type"] != "blocked" || top.Attributes["holdfast.reason"] != "Forbidden" || top.Attributes["holdfast.outcome"] != "failed" || top.Status != "Forbidden" {
		t.Errorf("the pass is %+v", top)
	}
	if !step.Failed || step.Attributes["error.type"] != "blocked" || step.Attributes["holdfast.reason"] != "Stuck" {
		t.Errorf("the step is %+v", step)
	}
}

// A write that another client was faster than fails, and the pass that takes it as it is
// does not.
func TestOutdatedPass(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	tracer := newTracer(t, Options{Getenv: receiver.Getenv})
	conflict := interceptor.Funcs{Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
		return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("changed"))
	}}
	c := writer{interceptor.NewClient(fake.NewClientBuilder().Build(), conflict)}
	pass(t, tracer, func(ctx context.Context) error { _ = c.Update(ctx, configMap("a")); return nil })
	tracer.Shutdown()
	top := receiver.Passes()[0]
	if write := receiver.Children(top)[0]; top.Failed || top.Attributes["holdfast.outcome"] != "outdated" || !write.Failed || write.Attributes["holdfast.reason"] != "Conflict" {
		t.Errorf("the pass is %+v, its write %+v", top, write)
	}
}

// However much a pass writes, its spans are bounded, and the writes are counted.
func TestPassIsBounded(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	tracer := newTracer(t, Options{Getenv: receiver.Getenv})
	c := newClient()
	pass(t, tracer, func(ctx context.Context) error {
		for n := range maxOperations + 20 {
			if err := c.Create(ctx, configMap(fmt.Sprint("c", n))); err != nil {
				return err
			}
		}
		_, end := StartStep(ctx, "ReplacePod", "orders-0")
		end(nil)
		return nil
	})
	tracer.Shutdown()
	top := receiver.Passes()[0]
	if spans := len(receiver.Spans()); spans != 1+maxOperations || top.Attributes["holdfast.writes"] != int64(maxOperations+20) {
		t.Errorf("%d spans of %v writes", spans, top.Attributes["holdfast.writes"])
	}
}

// writePass is a pass with two spans.
func writePass(t *testing.T, tracer *Tracer, name string) {
	t.Helper()
	c := newClient()
	pass(t, tracer, func(ctx context.Context) error { return c.Create(ctx, configMap(name)) })
}

func wantCounts(t *testing.T, tracer *Tracer, want map[string]float64) {
	t.Helper()
	for result, count := range want {
		if got := testutil.ToFloat64(tracer.exporter.spans.WithLabelValues(result)); got != count {
			t.Errorf("%v spans are %s, want %v", got, result, count)
		}
	}
}

// A collector that is away costs its spans only. That is logged once, without its address.
func TestCollectorAway(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	receiver.Close()
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	tracer := newTracer(t, Options{Getenv: receiver.Getenv, Log: log})
	for n := range 3 {
		writePass(t, tracer, fmt.Sprint("c", n))
		if err := tracer.provider.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	tracer.Shutdown()
	wantCounts(t, tracer, map[string]float64{"exported": 0, "failed": 6, "dropped": 0})
	if waiting := tracer.exporter.waiting.Load(); waiting != 0 {
		t.Errorf("%d spans wait after they failed", waiting)
	}
	if len(lines) != 1 || strings.Contains(lines[0], strings.TrimPrefix(receiver.URL, "http://")+"/v1") || !strings.Contains(lines[0], "connection refused") {
		t.Errorf("logged %d lines: %v", len(lines), lines)
	}
}

// A collector that refuses is away, too, and is back with the first spans that it takes.
func TestCollectorIsBack(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	receiver.Answer = http.StatusForbidden
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	tracer := newTracer(t, Options{Getenv: receiver.Getenv, Log: log})
	for n, answer := range []int{http.StatusForbidden, http.StatusOK, http.StatusOK} {
		receiver.Answer = answer
		writePass(t, tracer, fmt.Sprint("c", n))
		if err := tracer.provider.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wantCounts(t, tracer, map[string]float64{"exported": 4, "failed": 2, "dropped": 0})
	if len(lines) != 2 || !strings.Contains(lines[0], "did not take") || !strings.Contains(lines[1], "again") {
		t.Errorf("logged %v", lines)
	}
}

// While a collector does not answer, passes end, and what finds no place is dropped. The
// receiver answers only after all passes have ended: one that waited for it would never end.
func TestPassesDoNotWait(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	receiver.Hold = make(chan struct{})
	tracer := newTracer(t, Options{Getenv: receiver.Getenv, Log: logr.Discard()})
	const passes = 2 * queueLength
	for range passes {
		pass(t, tracer, func(context.Context) error { return errStuck })
	}
	wantCounts(t, tracer, map[string]float64{"dropped": passes - queueLength})
	close(receiver.Hold)
	tracer.Shutdown()
	wantCounts(t, tracer, map[string]float64{"exported": queueLength, "failed": 0, "dropped": passes - queueLength})
	if got := len(receiver.Spans()); got != queueLength {
		t.Errorf("%d spans were received, want %d", got, queueLength)
	}
}

// Without an endpoint nothing is made, wrapped or allocated.
func TestWithoutEndpoint(t *testing.T) {
	none := func(string) string { return "" }
	registry := prometheus.NewRegistry()
	tracer, err := New(t.Context(), Options{Getenv: none, Registerer: registry})
	if tracer != nil || err != nil {
		t.Fatalf("%v, %v", tracer, err)
	}
	tracer.Shutdown()
	r := &reconciler{}
	if got := tracer.Wrap(r, "backup", "Backup"); got != reconcile.Reconciler(r) {
		t.Errorf("the reconciler is wrapped: %v", got)
	}
	if families, err := registry.Gather(); len(families) > 0 || err != nil {
		t.Errorf("metrics are registered: %v, %v", families, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if n := testing.AllocsPerRun(100, func() {
		p := FromContext(ctx)
		p.SetGeneration(7)
		_, end := StartStep(ctx, "ReplacePod", "orders-0")
		end(nil)
		p.AddBlocked("Stuck")
	}); n > 0 {
		t.Errorf("%v allocations in a pass", n)
	}
}

func TestEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		set       map[string]string
		url, fail string
	}{
		"none":                     {},
		"a base":                   {set: map[string]string{endpointVariable: "http://c:4318"}, url: "http://c:4318/v1/traces"},
		"a base with a path":       {set: map[string]string{endpointVariable: "https://c/otlp/"}, url: "https://c/otlp/v1/traces"},
		"that of traces is as is":  {set: map[string]string{endpointVariable: "http://a", tracesEndpointVariable: "http://b/x"}, url: "http://b/x"},
		"that of traces, no path":  {set: map[string]string{tracesEndpointVariable: "http://b:1"}, url: "http://b:1/"},
		"turned off":               {set: map[string]string{endpointVariable: "http://c", disabledVariable: "TRUE"}},
		"the protocol":             {set: map[string]string{endpointVariable: "http://c", protocolVariable: "http/protobuf"}, url: "http://c/v1/traces"},
		"gRPC":                     {set: map[string]string{endpointVariable: "http://c:4317", protocolVariable: "grpc"}, fail: "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not supported"},
		"JSON of traces":           {set: map[string]string{endpointVariable: "http://c", tracesProtocolVariable: "http/json"}, fail: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json"},
		"no scheme":                {set: map[string]string{endpointVariable: "collector:4318"}, fail: "OTEL_EXPORTER_OTLP_ENDPOINT is no address"},
		"no host":                  {set: map[string]string{tracesEndpointVariable: "http://"}, fail: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is no address"},
		"a token is not repeated":  {set: map[string]string{endpointVariable: "ftp://s3cret@c"}, fail: "write a URL such as"},
		"a broken one is no URL":   {set: map[string]string{endpointVariable: "http://c:port"}, fail: "write a URL such as"},
		"spaces are not a setting": {set: map[string]string{endpointVariable: "  "}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := findEndpoint(func(variable string) string { return c.set[variable] })
			if got != c.url || (err == nil) != (c.fail == "") || err != nil && (!strings.Contains(err.Error(), c.fail) || strings.Contains(err.Error(), "s3cret")) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
