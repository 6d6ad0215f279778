// Package startup has the operator wait for an API server that does not answer
// when the operator starts. An operator that ends instead is started again by
// the kubelet, after pauses of up to five minutes that go on once the API server
// is back.
package startup

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// firstPause and longestPause bound the time between two attempts. The
	// longest is also how late the operator notices that the API server is back.
	firstPause   = time.Second
	longestPause = 15 * time.Second
	// attemptLimit bounds one attempt: a connection that hangs is no answer.
	attemptLimit = 10 * time.Second
)

// Wait is how the operator waits for the API server.
type Wait struct {
	// Ask sends what the operator needs an answer to.
	Ask func(context.Context) error
	// HealthAddress is where probes of the operator are answered meanwhile: it
	// lives and is not ready. No probe is answered if it is empty or 0.
	HealthAddress string
	Log           logr.Logger
}

// ForAnswer asks until the API server answers, with pauses that double up to 15 s
// and grow by up to a fifth. It returns that answer: nil, or an error that waiting
// does not change. It also returns an error when the context ends, and when the
// health address is not free.
func (w Wait) ForAnswer(ctx context.Context) error {
	began := time.Now()
	err := w.askOnce(ctx)
	reason := ReasonToWait(err)
	if reason == "" {
		return err
	}
	stop, listenErr := w.serveProbes()
	if listenErr != nil {
		return listenErr
	}
	defer stop()
	pause := wait.Backoff{Duration: firstPause, Factor: 2, Jitter: 0.2, Steps: 100, Cap: longestPause}
	logged := ""
	for reason != "" {
		if reason != logged {
			w.Log.Info("waiting for the API server", "reason", reason, "error", err.Error())
			logged = reason
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped while waiting for the API server, which %s: %w", reason, err)
		case <-time.After(pause.Step()):
		}
		err = w.askOnce(ctx)
		reason = ReasonToWait(err)
	}
	if err == nil {
		w.Log.Info("the API server answers", "waited", time.Since(began).Round(time.Second).String())
	}
	return err
}

func (w Wait) askOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	return w.Ask(ctx)
}

// serveProbes answers /healthz, so that the kubelet does not restart an operator
// that waits, and refuses /readyz. The returned function frees the address.
func (w Wait) serveProbes() (func(), error) {
	if w.HealthAddress == "" || w.HealthAddress == "0" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", w.HealthAddress)
	if err != nil {
		return nil, fmt.Errorf("listen on --health-probe-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/readyz", func(answer http.ResponseWriter, _ *http.Request) {
		http.Error(answer, "waiting for the API server", http.StatusServiceUnavailable)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: attemptLimit}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}
