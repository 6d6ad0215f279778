package backup

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/store"
)

// TestCheckStore: what a store does not let a cluster do is distinguished, with the
// field to repair, and what is tried leaves nothing.
func TestCheckStore(t *testing.T) {
	before := checkPatience
	checkPatience = store.Patience{First: time.Microsecond, Longest: time.Millisecond, Total: 50 * time.Millisecond}
	defer func() { checkPatience = before }()
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "key")

	backend := s3mem.New()
	if err := backend.CreateBucket("acme"); err != nil {
		t.Fatal(err)
	}
	fake := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	var refuses func(r *http.Request) bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuses(r) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code></Error>"))
			return
		}
		fake.ServeHTTP(w, r)
	}))
	defer server.Close()
	method := func(m string, list bool) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Method == m && r.URL.Query().Has("list-type") == list }
	}
	nothing := func(*http.Request) bool { return false }
	// another removes what was written as soon as it is asked for, so many times.
	another := func(times int) func(*http.Request) bool {
		return func(r *http.Request) bool {
			if r.Method == http.MethodGet && !r.URL.Query().Has("list-type") && times > 0 {
				times--
				_, _ = backend.DeleteObject("acme", "shop/orders/uid/probe-store")
			}
			return false
		}
	}

	const rights = "let them list, read, write and delete objects"
	for name, test := range map[string]struct {
		bucket, endpoint string
		refuses          func(*http.Request) bool
		says             []string
		permanent        bool
	}{
		"it can be used":          {bucket: "acme", refuses: nothing},
		"it cannot be listed":     {"acme", "", method(http.MethodGet, true), []string{"spec.backup.destination.credentialsSecretRef: list shop/orders/uid/probe-", rights}, true},
		"it takes nothing":        {"acme", "", method(http.MethodPut, false), []string{"spec.backup.destination.credentialsSecretRef: write shop/orders/uid/probe-", rights}, true},
		"it gives nothing":        {"acme", "", method(http.MethodGet, false), []string{"spec.backup.destination.credentialsSecretRef: read shop/orders/uid/probe-", rights}, true},
		"it forgets nothing":      {"acme", "", method(http.MethodDelete, false), []string{"spec.backup.destination.credentialsSecretRef: delete shop/orders/uid/probe-", rights}, true},
		"another one is at it":    {bucket: "acme", refuses: another(2)},
		"it loses what it took":   {"acme", "", another(99), []string{"read shop/orders/uid/probe-"}, true},
		"there is no bucket":      {"other", "", nothing, []string{"spec.backup.destination.url: ", "create it, or correct its name"}, true},
		"there is no host":        {"acme", "http://store.invalid", nothing, []string{"spec.backup.destination.endpoint: ", "check its name"}, false},
		"no server listens there": {"acme", "http://127.0.0.1:1", nothing, []string{"refused"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			refuses = test.refuses
			task := agentapi.CheckTask{Prefix: "shop/orders/uid/", Store: agentapi.BackupStore{URL: "s3://" + test.bucket, Endpoint: server.URL, PathStyle: true}}
			if test.endpoint != "" {
				task.Store.Endpoint = test.endpoint
			}
			encoded, err := json.Marshal(task)
			if err != nil {
				t.Fatal(err)
			}
			t.Setenv(agentapi.EnvTask, string(encoded))
			said := filepath.Join(t.TempDir(), "said")
			most := 0
			err = checkStore(t.Context(), said)
			if name == "it forgets nothing" {
				most = 1 // however often it is tried
				err = checkStore(t.Context(), said)
			}
			if (err == nil) != (test.says == nil) || InVain(err) != test.permanent {
				t.Fatalf("%v, in vain %t", err, InVain(err))
			}
			words, _ := os.ReadFile(said)
			for _, want := range test.says {
				if !strings.Contains(string(words), want) {
					t.Errorf("%q lacks %q", words, want)
				}
			}
			if err == nil && len(words) > 0 {
				t.Errorf("success has last words: %s", words)
			}
			left, err := backend.ListBucket("acme", nil, gofakes3.ListBucketPage{})
			if err != nil {
				t.Fatal(err)
			}
			if len(left.Contents) > most {
				t.Errorf("it leaves %d objects", len(left.Contents))
			}
			for _, o := range left.Contents {
				if _, err := backend.DeleteObject("acme", o.Key); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for _, task := range []string{"", "{}", `{"prefix": "shop"}`} {
		t.Setenv(agentapi.EnvTask, task)
		if err := checkStore(t.Context(), filepath.Join(t.TempDir(), "said")); !InVain(err) {
			t.Errorf("task %q: %v", task, err)
		}
	}
}
