//go:build apiserver

package controller_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/tracing"
	"github.com/holdfast-db/holdfast/internal/tracing/tracingtest"
)

// Spans show how a cluster is created, nothing while it is steady, and what is done then.
func TestSpansFromCreationToSteady(t *testing.T) { eachKind(t, spansFromCreationToSteady) }

func spansFromCreationToSteady(t *testing.T, w *world) {
	receiver := tracingtest.NewReceiver(t)
	tracer, err := tracing.New(t.Context(), tracing.Options{
		Version: "test", FindBlocked: engine.FindBlockedReason, Log: logr.Discard(), Registerer: prometheus.NewRegistry(), Getenv: receiver.Getenv,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.tracer = tracer
	c, o := w.settled(w.kind.more)
	steady := time.Now()
	for range 60 {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		time.Sleep(100 * time.Millisecond)
	}
	// The same loop exports what it does next.
	over := time.Now()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: "orders" + w.kind.entry}}
	if err := w.person.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	apitest.Eventually(t, "the Service is made again", func(ctx context.Context) (bool, string) {
		err := w.person.Get(ctx, client.ObjectKeyFromObject(service), &corev1.Service{})
		return err == nil, fmt.Sprint(err)
	})
	w.awaitSteady(o)
	o.stop()
	tracer.Shutdown()

	written := map[string]bool{}
	acted, again := 0, false
	for _, pass := range receiver.Passes() {
		if pass.Attributes["k8s.namespace.name"] != w.Namespace || pass.Attributes["holdfast.name"] != "orders" || pass.Attributes["holdfast.kind"] != w.kind.name || pass.Attributes["holdfast.generation"] != int64(1) || pass.Attributes["holdfast.reconcile_id"] == "" {
			t.Errorf("a pass of %+v", pass.Attributes)
		}
		if pass.Attributes["holdfast.outcome"] == "acted" {
			acted++
		}
		objects, _ := pass.Attributes["holdfast.written"].([]string)
		for _, object := range objects {
			written[object] = true
			again = again || pass.Start.After(over) && object == "Service/"+service.Name
		}
		if pass.Start.After(steady) && pass.Start.Before(over) {
			t.Errorf("while the cluster is steady, a pass %+v of %+v", pass.Attributes, receiver.Children(pass))
		}
		if children := receiver.Children(pass); len(children) == 0 && !pass.Failed {
			t.Errorf("a pass without a write or a step: %+v", pass.Attributes)
		}
	}
	for _, object := range []string{"StatefulSet/orders", "PersistentVolumeClaim/data-orders-0", "Service/orders-members", "ConfigMap/orders-config", w.kind.name + "/orders/status"} {
		if !written[object] {
			t.Errorf("no span says that %s was written: %v", object, written)
		}
	}
	if acted == 0 || !again {
		t.Errorf("%d passes did a step; the Service was made again: %v", acted, again)
	}
	_, bodies := receiver.Requests()
	for _, body := range bodies {
		if bytes.Contains(body, []byte("PRIVATE KEY")) || bytes.Contains(body, []byte("CERTIFICATE")) {
			t.Error("a Secret is in a span")
		}
	}
}
