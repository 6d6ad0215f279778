package statusserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// An answer says that a record was flushed only to a question that asks for it.
func TestStatusSaysWhatWasFlushedForTheQuestion(t *testing.T) {
	store := NewStore(agentapi.Status{Pod: "orders-0"})
	for _, tc := range []struct {
		query          string
		flush          func(context.Context) bool
		flushed, asked bool
	}{
		{"", func(context.Context) bool { return true }, false, false},
		{"?flush=true", func(context.Context) bool { return true }, true, true},
		{"?flush=true", func(context.Context) bool { return false }, false, true},
		{"?flush=true", nil, false, false},
	} {
		asked := false
		flush := tc.flush
		if flush != nil {
			flush = func(ctx context.Context) bool { asked = true; return tc.flush(ctx) }
		}
		r := httptest.NewRequest(http.MethodGet, agentapi.StatusPath+tc.query, nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: agentapi.OperatorName}}}}
		w := httptest.NewRecorder()
		StatusHandler(store, func(context.Context) {}, flush).ServeHTTP(w, r)
		var status agentapi.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if status.Flushed != tc.flushed || asked != tc.asked {
			t.Errorf("%q: flushed %v, asked %v", tc.query, status.Flushed, asked)
		}
	}
	if store.Get().Flushed {
		t.Error("the store remembers an answer's own")
	}
}
