package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// mostBytes that the pages and their libraries may have.
const mostBytes = 150 << 10

func newTestGuard() *Guard {
	return NewGuard("4000", Handler(map[string]Endpoint{
		"name": func(_ context.Context, q url.Values) (any, error) { return q.Get("name"), nil },
		"secret": func(context.Context, url.Values) (any, error) {
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
		},
		"gone": func(context.Context, url.Values) (any, error) { return nil, errors.New("connection refused") },
	}))
}

// ask sends one request, changed by the functions.
func ask(g http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:4000"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w
}

// login redeems the token, and returns what adds the cookie to a request.
func login(t *testing.T, g *Guard) func(*http.Request) {
	t.Helper()
	address, err := url.Parse(g.Address())
	if err != nil {
		t.Fatal(err)
	}
	response := ask(g, address.RequestURI())
	cookie, err := http.ParseSetCookie(response.Header().Get("Set-Cookie"))
	if err != nil || response.Code != http.StatusSeeOther || response.Header().Get("Location") != "/" {
		t.Fatalf("the token is answered with %d %v", response.Code, response.Header())
	}
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("the cookie is %v", cookie)
	}
	return func(r *http.Request) { r.AddCookie(cookie) }
}

func TestGuard(t *testing.T) {
	g := newTestGuard()
	address := g.Address()
	cookie := login(t, g)
	set := func(f func(*http.Request)) []func(*http.Request) { return []func(*http.Request){cookie, f} }
	for name, test := range map[string]struct {
		path   string
		change []func(*http.Request)
		want   int
	}{
		"pages without a cookie":       {"/", nil, http.StatusForbidden},
		"files without a cookie":       {"/app.js", nil, http.StatusForbidden},
		"data without a cookie":        {"/api/name?name=a", nil, http.StatusForbidden},
		"the token a second time":      {strings.TrimPrefix(address, "http://127.0.0.1:4000"), nil, http.StatusForbidden},
		"an empty token once used":     {"/?token=", nil, http.StatusForbidden},
		"another session's cookie":     {"/", []func(*http.Request){func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "holdfast-ui-4000", Value: "x"}) }}, http.StatusForbidden},
		"pages with the cookie":        {"/", set(func(*http.Request) {}), http.StatusOK},
		"localhost with the cookie":    {"/", set(func(r *http.Request) { r.Host = "localhost:4000" }), http.StatusOK},
		"the token's address reloaded": {"/?token=x", set(func(*http.Request) {}), http.StatusSeeOther},
		"another name of the machine":  {"/", set(func(r *http.Request) { r.Host = "rebound.example:4000" }), http.StatusMisdirectedRequest},
		"another port":                 {"/", set(func(r *http.Request) { r.Host = "127.0.0.1:4001" }), http.StatusMisdirectedRequest},
		"POST":                         {"/api/name", set(func(r *http.Request) { r.Method = http.MethodPost }), http.StatusMethodNotAllowed},
		"HEAD":                         {"/", set(func(r *http.Request) { r.Method = http.MethodHead }), http.StatusMethodNotAllowed},
		"DELETE":                       {"/api/name", set(func(r *http.Request) { r.Method = http.MethodDelete }), http.StatusMethodNotAllowed},
		"a request of another site":    {"/api/name", set(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }), http.StatusForbidden},
		"another port's page":          {"/api/name", set(func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }), http.StatusForbidden},
		"an unknown file":              {"/x", set(func(*http.Request) {}), http.StatusNotFound},
		"a forbidden endpoint":         {"/api/secret", set(func(*http.Request) {}), http.StatusForbidden},
		"a cluster out of reach":       {"/api/gone", set(func(*http.Request) {}), http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			response := ask(g, test.path, test.change...)
			if response.Code != test.want {
				t.Errorf("%d, want %d", response.Code, test.want)
			}
			policy := response.Header().Get("Content-Security-Policy")
			if !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") {
				t.Errorf("Content-Security-Policy: %s", policy)
			}
		})
	}
}

// A wrong token leaves the right one in force.
func TestGuardKeepsTokenAfterWrongOne(t *testing.T) {
	g := newTestGuard()
	if response := ask(g, "/?token=wrong"); response.Code != http.StatusForbidden || response.Header().Get("Set-Cookie") != "" {
		t.Errorf("%d %v", response.Code, response.Header())
	}
	login(t, g)
}

// The libraries are those whose hashes were written when they were taken from npm, with
// their licences, and all files together stay small.
func TestAssets(t *testing.T) {
	sums, err := fs.ReadFile(Assets(), "vendor/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(sums))
	for lines.Scan() {
		hash, name, _ := strings.Cut(lines.Text(), "  ")
		want["vendor/"+name] = hash
	}
	total := 0
	err = fs.WalkDir(Assets(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(Assets(), path)
		total += len(data)
		if !strings.HasPrefix(path, "vendor/") || path == "vendor/SHA256SUMS" {
			return err
		}
		hash := sha256.Sum256(data)
		if got := hex.EncodeToString(hash[:]); got != want[path] {
			t.Errorf("%s has hash %s, want %q: run test/ui/vendor.sh", path, got, want[path])
		}
		delete(want, path)
		return err
	})
	if err != nil || len(want) > 0 {
		t.Errorf("%v; listed and not there: %v", err, want)
	}
	t.Logf("%d bytes", total)
	if total > mostBytes {
		t.Errorf("the pages have %d bytes: at most %d", total, mostBytes)
	}
}

// npm takes packages of these versions with these hashes only.
func TestPackageLock(t *testing.T) {
	data, err := os.ReadFile("../../../test/ui/package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version, Integrity string }
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		t.Fatal(err)
	}
	for name, version := range map[string]string{"preact": "11.2.0", "htm": "3.1.1", "uplot": "1.6.32", "axe-core": "4.14.1"} {
		got := lock.Packages["node_modules/"+name]
		if got.Version != version || !strings.HasPrefix(got.Integrity, "sha512-") {
			t.Errorf("%s: %+v, want version %s with a hash", name, got, version)
		}
	}
}
