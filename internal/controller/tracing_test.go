package controller

import (
	"bytes"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/tracing"
	"github.com/holdfast-db/holdfast/internal/tracing/tracingtest"
)

// The loop says of a pass which generation it read, what it wrote, which step it did, and
// what stands against it. Passes of a cluster at rest are not exported.
func TestLoopIsTraced(t *testing.T) {
	receiver := tracingtest.NewReceiver(t)
	tracer, err := tracing.New(t.Context(), tracing.Options{
		Version: "v1", FindBlocked: engine.FindBlockedReason, Log: logr.Discard(), Registerer: prometheus.NewRegistry(), Getenv: receiver.Getenv,
	})
	if err != nil {
		t.Fatal(err)
	}
	l, scale := newToyLeader(t)
	l.converge()
	l.trace(tracer)
	for range 10 {
		l.reconcile()
	}
	l.edit(func(c *v1alpha1.PostgresCluster) { scale(c, 2) })
	l.reconcile()
	l.converge()
	for range 10 {
		l.reconcile()
	}
	l.edit(func(c *v1alpha1.PostgresCluster) { scale(c, 3) })
	l.engine.refuse(&engine.Blocked{Reason: v1alpha1.ReasonForbidden, Message: "s3cret"})
	l.reconcile()
	l.engine.refuse(errors.New("ALTER ROLE PASSWORD 's3cret'"))
	if _, err := l.pass(); err == nil {
		t.Error("the pass does not fail")
	}
	tracer.Shutdown()

	want := []map[string]any{
		{"holdfast.outcome": "acted", "holdfast.generation": int64(2), "holdfast.step": "StartMember", "holdfast.step.target": "orders-1", "holdfast.written": []string{"PostgresCluster/orders/status"}},
		{"holdfast.outcome": "wrote", "holdfast.generation": int64(2), "holdfast.written": []string{"PostgresCluster/orders/status"}},
		{"holdfast.outcome": "failed", "holdfast.generation": int64(3), "holdfast.step": "StartMember", "holdfast.step.target": "orders-2", "error.type": "blocked", "holdfast.reason": "Forbidden", "holdfast.written": []string{"PostgresCluster/orders/status"}},
		{"holdfast.outcome": "failed", "holdfast.generation": int64(3), "holdfast.step": "StartMember", "holdfast.step.target": "orders-2", "error.type": "transient", "holdfast.written": []string{"PostgresCluster/orders/status"}},
	}
	var got []map[string]any
	for _, pass := range receiver.Passes() {
		about := map[string]any{}
		for key, value := range pass.Attributes {
			switch key {
			case "holdfast.controller", "holdfast.kind", "holdfast.name", "k8s.namespace.name", "holdfast.writes":
			default:
				about[key] = value
			}
		}
		got = append(got, about)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("passes (-want +got):\n%s", diff)
	}
	_, bodies := receiver.Requests()
	for _, body := range bodies {
		if bytes.Contains(body, []byte("s3cret")) || bytes.Contains(body, []byte("PASSWORD")) {
			t.Error("the message of an error is exported")
		}
	}
}
