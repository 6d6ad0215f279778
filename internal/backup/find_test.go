package backup

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/holdfast-db/holdfast/internal/store"
)

// A removal that is cut off leaves nothing that looks like a backup.
func TestEraseThatIsCutOff(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	fake := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/data/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fake.ServeHTTP(w, r)
	}))
	defer service.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw})
	s, err := store.Open(t.Context(), store.Location{URL: "s3://backups", Endpoint: service.URL, PathStyle: true},
		store.Secret{store.KeyS3ID: []byte("id"), store.KeyS3Secret: []byte("key"), store.KeyCA: ca})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()   //nolint:errcheck // nothing is written
	const parts = 100 // more than are removed at once
	for n := range parts {
		if err := s.Put(t.Context(), fmt.Sprintf("a/pod/data/%06d", n), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Put(t.Context(), "a/pod/manifest.json", nil); err != nil {
		t.Fatal(err)
	}
	if err := eraseObjects(t.Context(), s, "a/"); err == nil {
		t.Error("no error said that parts could not be deleted")
	}
	left, err := s.List(t.Context(), "a/")
	if err != nil || len(left) != parts || len(listManifests(left)) != 0 {
		t.Errorf("%d objects left, %d manifests, %v", len(left), len(listManifests(left)), err)
	}
}
