package store

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What a store says becomes the field to repair, and what to do. Nothing that a
// person must repair is tried twice.
func TestErrors(t *testing.T) {
	service := newService(t)
	cases := []struct {
		name          string
		status        int
		code          string
		field, remedy string
	}{
		{"an unknown key", 403, "InvalidAccessKeyId", FieldCredentials, remedyCredentials},
		{"a wrong key", 403, "SignatureDoesNotMatch", FieldCredentials, remedyCredentials},
		{"a key without rights", 403, "AccessDenied", FieldCredentials, remedyRights},
		{"a missing bucket", 404, "NoSuchBucket", FieldURL, remedyBucket},
		{"another region", 400, "AuthorizationHeaderMalformed", FieldRegion, remedyRegion},
		{"a clock that is wrong", 403, "RequestTimeTooSkewed", "", remedyClock},
		{"a store that is full", 507, "XMinioStorageFull", FieldURL, remedyFull},
		{"a store that is full and says it its own way", 507, "Strange", FieldURL, remedyFull},
		{"a quota", 403, "QuotaExceeded", FieldURL, remedyFull},
		{"a session that is over", 400, "ExpiredToken", FieldCredentials, remedyCredentials},
		{"a proxy that refuses", 403, "", FieldCredentials, remedyRights},
		{"what is unknown", 400, "Strange", "", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := open(t, service.location(), service.secret())
			service.answer(tc.status, tc.code)
			before := service.asked.Load()
			err := s.Put(t.Context(), "a", []byte("data"))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			if e.Field != tc.field || e.Remedy != tc.remedy || !e.Permanent {
				t.Errorf("%q, %q, permanent: %v: %v", e.Field, e.Remedy, e.Permanent, err)
			}
			if asked := service.asked.Load() - before; asked != 1 {
				t.Errorf("asked %d times", asked)
			}
		})
	}
}

// What passes by itself is tried again, whatever it looks like.
func TestPassingErrors(t *testing.T) {
	service := newService(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "of the pod")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "of the pod")
	for code, status := range map[string]int{"RequestTimeout": 400, "IncompleteBody": 400, "BadDigest": 400, "OperationAborted": 409, "SlowDown": 503, "ExpiredToken": 400} {
		secret := service.secret()
		if code == "ExpiredToken" { // of the pod's own identity, which is renewed
			delete(secret, KeyS3ID)
			delete(secret, KeyS3Secret)
		}
		s := open(t, service.location(), secret)
		s.Patience.Total = time.Minute
		service.answer(status, code)
		before, refuse := service.asked.Load(), *service.refuse.Load()
		twice := func(w http.ResponseWriter, r *http.Request) bool {
			return service.asked.Load() < before+3 && refuse(w, r)
		}
		service.refuse.Store(&twice)
		if err := s.Put(t.Context(), "a", []byte("data")); err != nil || service.asked.Load() != before+3 {
			t.Errorf("%s: asked %d times, %v", code, service.asked.Load()-before, err)
		}
	}
}

// A store that is full is named.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	for name, at := range map[string]Location{
		"the volume orders-backups: ": {URL: "file://" + dir, Volume: "orders-backups"}, "s3://backups/team: ": {URL: "s3://backups/team"},
	} {
		s := open(t, at, nil)
		err := s.tryRequest(t.Context(), "write a", 0, func(context.Context) error { return &os.PathError{Op: "write", Path: dir, Err: syscall.ENOSPC} })
		var e *Error
		if !errors.As(err, &e) || !e.Permanent || !strings.Contains(err.Error(), "write a in "+name) || strings.Contains(err.Error(), "spec.backup.volume.size") != (at.Volume != "") || !strings.Contains(err.Error(), remedyFull) {
			t.Error(err)
		}
	}
}

// A signature is in no error, whatever went wrong on the way.
func TestSignaturesStaySecret(t *testing.T) {
	broken := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer broken.Close()
	broken.Config.ErrorLog = log.New(io.Discard, "", 0)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: broken.Certificate().Raw})
	for name, endpoint := range map[string]string{"no server listens": "https://127.0.0.1:1", "no such host": "https://store.invalid", "the connection breaks": broken.URL} {
		s := open(t, Location{URL: "azblob://backups/team", Endpoint: endpoint}, Secret{KeyAzureAccount: []byte("acme"), KeyAzureSignature: []byte("?sv=2024&sig=c2VjcmV0%3D&se=2030"), KeyCA: ca})
		s.Patience = Patience{}
		for _, err := range []error{s.Put(t.Context(), "a", []byte("data")), s.CheckAccess(t.Context(), "a/"), s.DeleteAll(t.Context(), "a/", nil)} {
			var way *url.Error
			if err == nil || strings.Contains(err.Error(), "sig") || strings.Contains(err.Error(), "c2Vj") || errors.As(err, &way) {
				t.Errorf("%s: %+v", name, err)
			}
		}
	}
}

// A part of the usual size is one request.
func TestPartIsOneRequest(t *testing.T) {
	service := newService(t)
	s := open(t, service.location(), service.secret())
	if err := s.Put(t.Context(), "a", make([]byte, PartSize)); err != nil || service.asked.Load() != 1 {
		t.Errorf("%d requests, %v", service.asked.Load(), err)
	}
}

func TestErrorsOfTheWay(t *testing.T) {
	service := newService(t)
	t.Setenv("AWS_CA_BUNDLE", "")
	stranger := service.secret()
	delete(stranger, KeyCA)
	cases := []struct {
		name      string
		at        Location
		secret    Secret
		field     string
		permanent bool
	}{
		{"a certificate that no client trusts", service.location(), stranger, FieldEndpoint, true},
		{"a host that is not there", Location{URL: "s3://backups", Endpoint: "https://store.invalid", PathStyle: true}, service.secret(), FieldEndpoint, false},
		{"no server that listens", Location{URL: "s3://backups", Endpoint: "https://127.0.0.1:1", PathStyle: true}, service.secret(), FieldEndpoint, false},
		{"another bucket", Location{URL: "s3://other", Endpoint: service.URL, PathStyle: true}, service.secret(), FieldURL, true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			err := open(t, tc.at, tc.secret).CheckAccess(t.Context(), "a/")
			var e *Error
			if !errors.As(err, &e) || e.Field != tc.field || e.Permanent != tc.permanent {
				t.Errorf("%+v", err)
			}
		})
	}
}

func TestAzure(t *testing.T) {
	var code atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/backups/team/") || r.Header.Get("Authorization") == "" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		w.Header().Set("x-ms-error-code", code.Load().(string))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	s := open(t, Location{URL: "azblob://backups/team", Endpoint: server.URL}, Secret{KeyAzureAccount: []byte("acme"), KeyAzureKey: []byte("a2V5")})
	for c, remedy := range map[string]string{"AuthenticationFailed": remedyCredentials, "AuthorizationFailure": remedyRights, "ContainerNotFound": remedyBucket} {
		code.Store(c)
		var e *Error
		if err := s.Put(t.Context(), "a", []byte("data")); !errors.As(err, &e) || e.Remedy != remedy || !e.Permanent {
			t.Errorf("%s: %v", c, err)
		}
	}
}

func TestRefusedToOpen(t *testing.T) {
	cases := []struct {
		name   string
		at     Location
		secret Secret
		field  string
	}{
		{"nothing", Location{}, nil, FieldURL},
		{"a path", Location{URL: "/backups"}, nil, FieldURL},
		{"another kind of store", Location{URL: "ftp://host/backups"}, nil, FieldURL},
		{"no bucket", Location{URL: "s3:///prefix"}, nil, FieldURL},
		{"a host in the place of the bucket", Location{URL: "s3://minio:9000/backups"}, nil, FieldURL},
		{"keys in the URL", Location{URL: "s3://id:key@backups"}, nil, FieldURL},
		{"options in the URL", Location{URL: "s3://backups?region=eu"}, nil, FieldURL},
		{"a relative directory", Location{URL: "file://backups/x"}, nil, FieldURL},
		{"a directory that is not there", Location{URL: "file:///nonexistent/backups"}, nil, FieldURL},
		{"an endpoint without a scheme", Location{URL: "s3://backups", Endpoint: "minio:9000"}, nil, FieldEndpoint},
		{"half a key", Location{URL: "s3://backups"}, Secret{KeyS3ID: []byte("id")}, FieldCredentials},
		{"a CA that is none", Location{URL: "s3://backups"}, Secret{KeyCA: []byte("ca")}, FieldCredentials},
		{"a key of Google that is none", Location{URL: "gs://backups"}, Secret{KeyGoogle: []byte("{}")}, FieldCredentials},
		{"an account of Azure without a name", Location{URL: "azblob://backups"}, Secret{KeyAzureKey: []byte("a2V5")}, FieldCredentials},
		{"a signature that all could read", Location{URL: "azblob://backups", Endpoint: "http://store:10000"}, Secret{KeyAzureAccount: []byte("acme"), KeyAzureSignature: []byte("sig=x")}, FieldCredentials},
		{"a key of Azure that is none", Location{URL: "azblob://backups"}, Secret{KeyAzureAccount: []byte("acme"), KeyAzureKey: []byte("?")}, FieldCredentials},
	}
	for _, tc := range cases {
		s, err := Open(t.Context(), tc.at, tc.secret)
		var e *Error
		if s != nil || !errors.As(err, &e) || e.Field != tc.field || !e.Permanent {
			t.Errorf("%s: %+v", tc.name, err)
		}
	}
}

// What a store did not do is said in plain words: what to do goes before what
// the store answered, and what only a library knows is left out.
func TestErrorsAreForPeople(t *testing.T) {
	service := newService(t)
	for name, tc := range map[string]struct {
		status     int
		code, want string
	}{
		"a store that is busy":               {503, "SlowDown", "write a: the store answered 503, SlowDown: for a test"},
		"a store that asks for less":         {429, "TooManyRequests", "write a: the store answered 429, TooManyRequests: for a test"},
		"a proxy without a store":            {503, "", "write a: " + remedyDown + " (the store answered 503"},
		"an unknown key":                     {403, "InvalidAccessKeyId", "write a: " + remedyCredentials + " (the store answered 403, InvalidAccessKeyId: for a test)"},
		"an answer that nothing is known of": {400, "Strange", "write a: the store answered 400, Strange: for a test"},
	} {
		s := open(t, service.location(), service.secret())
		s.Patience = Patience{}
		service.answer(tc.status, tc.code)
		if err := s.Put(t.Context(), "a", []byte("data")); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		} else {
			wantPlain(t, name, err)
		}
	}
	for name, at := range map[string]Location{
		"the host store.invalid is not known: check its name": {URL: "s3://backups", Endpoint: "https://store.invalid", PathStyle: true},
		remedyNoServer: {URL: "s3://backups", Endpoint: "https://127.0.0.1:1", PathStyle: true},
	} {
		s := open(t, at, service.secret())
		s.Patience = Patience{}
		if err := s.Put(t.Context(), "a", []byte("data")); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not say %q", err, name)
		} else {
			wantPlain(t, name, err)
		}
	}
}

func wantPlain(t *testing.T, name string, err error) {
	t.Helper()
	for _, noise := range []string{"operation error", "RequestID", "HostID", "StatusCode", "https response error", "code=Unknown", "maximum number of attempts", "dial tcp", "x509:"} {
		if strings.Contains(err.Error(), noise) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each try that is made again is reported with until when, and its success.
func TestRetriesAreReported(t *testing.T) {
	service := newService(t)
	s := open(t, service.location(), service.secret())
	s.Patience.Total = time.Minute
	var reports []string
	s.OnRetry = func(err error, until time.Time) {
		if left := time.Until(until); left <= 0 || left > time.Minute {
			t.Errorf("it is tried for another %s", left)
		}
		if err == nil {
			reports = append(reports, "succeeded")
			return
		}
		reports = append(reports, err.Error())
	}
	service.answer(503, "SlowDown")
	before, refuse := service.asked.Load(), *service.refuse.Load()
	few := func(w http.ResponseWriter, r *http.Request) bool {
		return service.asked.Load() < before+5 && refuse(w, r)
	}
	service.refuse.Store(&few)
	if err := s.Put(t.Context(), "a", []byte("data")); err != nil {
		t.Fatal(err)
	}
	if n := len(reports); n < 2 || reports[n-1] != "succeeded" || !strings.Contains(reports[0], "the store answered 503") {
		t.Errorf("%q", reports)
	}
	reports = nil
	if err := s.Put(t.Context(), "b", []byte("data")); err != nil || len(reports) > 0 {
		t.Errorf("%v, %q", err, reports)
	}
	service.answer(403, "AccessDenied")
	if err := s.Put(t.Context(), "c", []byte("data")); err == nil || len(reports) > 0 {
		t.Errorf("%v, %q: it is not tried again", err, reports)
	}
}
