// Package statusserver holds what a member reports of itself, and serves it to
// the operator and to the cluster's other members.
package statusserver

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// maxStatusWait bounds a long poll, so that idle connections prove themselves
// alive.
const maxStatusWait = 5 * time.Minute

// StatusHandler answers the member's status to the operator and to the
// cluster's members. Refresh brings Position and Lag up to date before an
// answer, and flush says whether the database flushed a record just now; nil for
// a database that is not asked.
func StatusHandler(store *Store, refresh func(context.Context), flush func(context.Context) bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+agentapi.StatusPath, func(w http.ResponseWriter, r *http.Request) {
		if !isAllowed(r) {
			http.Error(w, "this client certificate may not read the status", http.StatusForbidden)
			return
		}
		wait, err := waitOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		store.Wait(r.Context(), r.URL.Query().Get("after"), wait)
		flushed := flush != nil && r.URL.Query().Get(agentapi.FlushQuery) == "true" && flush(r.Context())
		refresh(r.Context())
		w.Header().Set("Content-Type", "application/json")
		status := store.Get()
		status.Flushed = flushed
		_ = json.NewEncoder(w).Encode(status)
	})
	return mux
}

// RequireMember refuses all clients but the operator and the cluster's members.
func RequireMember(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isAllowed(r) {
			http.Error(w, "this client certificate may not read here", http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// RequirePeer refuses all clients but the cluster's members, the operator included.
func RequirePeer(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if readClientName(r) != agentapi.MemberName {
			http.Error(w, "only members of the cluster may send this", http.StatusForbidden)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

func isAllowed(r *http.Request) bool {
	return slices.Contains([]string{agentapi.OperatorName, agentapi.MemberName}, readClientName(r))
}

// readClientName is the common name of the client's certificate, which the server has
// verified; empty without one.
func readClientName(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	return r.TLS.PeerCertificates[0].Subject.CommonName
}

func waitOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" || r.URL.Query().Get("after") == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("wait is no duration: " + text)
	}
	return min(max(wait, 0), maxStatusWait), nil
}

// ProbeHandler answers /healthz, /readyz and /metrics. Liveness asks the agent
// only: a database that recovers for an hour must not be killed for it.
func ProbeHandler(store *Store, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		status := store.Get()
		if !status.Serving {
			http.Error(w, string(status.State)+": "+status.Message, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}

// Serve answers on the listener until ctx ends; over TLS when certificates are
// given.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, certificates *Certificates) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * maxStatusWait,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	var err error
	if certificates == nil {
		err = server.Serve(listener)
	} else {
		server.TLSConfig = certificates.ServerConfig()
		err = server.ServeTLS(listener, "", "")
	}
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
