package store

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// service is S3 in this process, behind TLS, with a bucket called backups.
type service struct {
	*httptest.Server
	// refuse answers a request in the place of S3, if it says so.
	refuse atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
	// asked is how many requests were made.
	asked atomic.Int64
}

func newService(t *testing.T) *service {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	s, fake := &service{}, gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if refuse := s.refuse.Load(); refuse == nil || !(*refuse)(w, r) {
			fake.ServeHTTP(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return s
}

// answer makes every request fail with a code of S3.
func (s *service) answer(status int, code string) {
	refuse := func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>for a test</Message></Error>", code)
		return true
	}
	s.refuse.Store(&refuse)
}

func (s *service) secret() Secret {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return Secret{KeyS3ID: []byte("id\n"), KeyS3Secret: []byte("key\n"), KeyCA: ca}
}

func (s *service) location() Location {
	return Location{URL: "s3://backups/team/orders/", Endpoint: s.URL, PathStyle: true}
}

// open makes a store whose patience costs a test nothing.
func open(t *testing.T, at Location, secret Secret) *Store {
	t.Helper()
	s, err := Open(t.Context(), at, secret)
	if err != nil {
		t.Fatal(err)
	}
	s.Patience = Patience{First: time.Microsecond, Longest: time.Millisecond, Total: 50 * time.Millisecond}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// eachStore runs a test with a directory and with S3.
func eachStore(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Run("a directory", func(t *testing.T) { test(t, open(t, Location{URL: "file://" + t.TempDir()}, nil)) })
	t.Run("S3", func(t *testing.T) {
		service := newService(t)
		test(t, open(t, service.location(), service.secret()))
	})
}

func TestObjects(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for _, key := range []string{"a/1", "a/2", "ab/1", "b"} {
			if err := s.Put(ctx, key, []byte("data of "+key)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Put(ctx, "b", []byte("new")); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(ctx, "b"); string(got) != "new" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := s.Get(ctx, "c"); !NotFound(err) {
			t.Errorf("an object that is not there: %v", err)
		}
		if err := s.Delete(ctx, "c"); err != nil {
			t.Error(err)
		}
		if err := s.DeleteAll(ctx, "a", nil); err == nil {
			t.Error("a prefix that neighbours share is deleted")
		}
		if err := s.DeleteAll(ctx, "a/", nil); err != nil {
			t.Error(err)
		}
		want(t, s, "ab/1", "b")
		if err := s.CheckAccess(ctx, "shop/orders/uid/"); err != nil {
			t.Error(err)
		}
		want(t, s, "ab/1", "b") // the check leaves nothing
	})
}

// Directories are listed without what they hold, and lists of any length are
// whole.
func TestDirs(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		const many = pageSize + 7
		var keys []string
		for n := range many {
			key := fmt.Sprintf("shop/orders/%04d/data/000000", n)
			keys = append(keys, key)
			if err := s.bucket.WriteAll(t.Context(), key, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range []string{"shop/other/1", "shop/readme", "shopping/1"} {
			if err := s.Put(t.Context(), key, nil); err != nil {
				t.Fatal(err)
			}
		}
		for prefix, names := range map[string][]string{
			"": {"shop/", "shopping/"}, "shop/": {"shop/orders/", "shop/other/"}, "shop/o": {"shop/orders/", "shop/other/"},
			"shop/other/": nil, "nobody/": nil, "shop/orders/0007/": {"shop/orders/0007/data/"},
		} {
			got, err := s.ListDirs(t.Context(), prefix)
			if diff := cmp.Diff(names, got); diff != "" || err != nil {
				t.Errorf("%q: %v (-want +got):\n%s", prefix, err, diff)
			}
		}
		if got, err := s.ListDirs(t.Context(), "shop/orders/"); len(got) != many || got[many-1] != "shop/orders/1006/" || err != nil {
			t.Errorf("%d directories, %v", len(got), err)
		}
		want(t, s, append(keys, "shop/other/1", "shop/readme", "shopping/1")...)
		if err := s.DeleteAll(t.Context(), "shop/orders/", nil); err != nil {
			t.Error(err)
		}
		want(t, s, "shop/other/1", "shop/readme", "shopping/1")
	})
}

func want(t *testing.T, s *Store, keys ...string) {
	t.Helper()
	all, err := s.List(t.Context(), "")
	var got []string
	for _, o := range all {
		got = append(got, o.Key)
	}
	if diff := cmp.Diff(keys, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// A directory is left as it was found, and nothing outside of it is touched.
func TestDirectoriesGo(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Location{URL: "file://" + dir}, nil)
	if err := s.Put(t.Context(), "a/b/c/1", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteAll(t.Context(), "a/b/", nil); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir + "/a"); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := s.DeleteAll(t.Context(), "a/b/", nil); err != nil {
		t.Error(err)
	}
	neighbour := filepath.Join(filepath.Dir(dir), "neighbour")
	if err := os.Mkdir(neighbour, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteAll(t.Context(), "../neighbour/", nil); err == nil {
		t.Error("a prefix that leads away is deleted")
	}
	if _, err := os.Stat(neighbour); err != nil {
		t.Error(err)
	}
}

// text is a stream whose parts all differ.
func text(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d ", i)
	}
	return b.Bytes()[:n]
}

func TestParts(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for _, length := range []int{0, 1, 999, 1000, 1001, 12345} {
			prefix := fmt.Sprintf("%d/", length)
			stream, reported := text(length), int64(0)
			parts, err := s.WriteParts(t.Context(), prefix, io.MultiReader(bytes.NewReader(stream[:length/3]), bytes.NewReader(stream[length/3:])), 1000, func(p Part) { reported += p.Size })
			if err != nil || reported != int64(length) || len(parts) != (length+999)/1000 {
				t.Fatalf("%d bytes: %d parts, reported %d bytes, %v", length, len(parts), reported, err)
			}
			r := s.ReadParts(t.Context(), prefix, parts)
			got, err := io.ReadAll(r)
			if !bytes.Equal(got, stream) || err != nil {
				t.Errorf("%d bytes come back as %d, %v", length, len(got), err)
			}
			r.Close()
		}
	})
}

func TestPartsThatAreNotWhatWasWritten(t *testing.T) {
	for name, harm := range map[string]func(s *Store) error{
		"missing": func(s *Store) error { return s.Delete(context.Background(), "p/000002") },
		"shorter": func(s *Store) error { return s.Put(context.Background(), "p/000002", text(999)) },
		"changed": func(s *Store) error { return s.Put(context.Background(), "p/000002", bytes.Repeat([]byte("x"), 1000)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Location{URL: "file://" + t.TempDir()}, nil)
			stream := text(5000)
			parts, err := s.WriteParts(t.Context(), "p/", bytes.NewReader(stream), 1000, func(Part) {})
			if err := errors.Join(err, harm(s)); err != nil {
				t.Fatal(err)
			}
			r := s.ReadParts(t.Context(), "p/", parts)
			defer r.Close()
			got, err := io.ReadAll(r)
			var e *Error
			if !errors.As(err, &e) || !e.Permanent || !strings.Contains(err.Error(), "p/000002") || !bytes.Equal(got, stream[:2000]) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// A stream that breaks is an error, on both sides.
func TestBrokenStream(t *testing.T) {
	s := open(t, Location{URL: "file://" + t.TempDir()}, nil)
	broken := errors.New("the database is gone")
	parts, err := s.WriteParts(t.Context(), "p/", io.MultiReader(bytes.NewReader(text(1500)), brokenReader{broken}), 1000, func(Part) {})
	if !errors.Is(err, broken) {
		t.Errorf("%d parts, %v", len(parts), err)
	}
	r := s.ReadParts(t.Context(), "p/", slices.Repeat(parts[:1], 50))
	r.Close()
	if got, err := io.ReadAll(r); err == nil {
		t.Errorf("%d bytes of a reader that was closed", len(got))
	}
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

// A store that is away for a while is waited for, whatever is under way.
func TestPatience(t *testing.T) {
	service := newService(t)
	s := open(t, service.location(), service.secret())
	unsteady := func(w http.ResponseWriter, _ *http.Request) bool {
		switch service.asked.Load() % 4 {
		case 0:
			return false
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusTooManyRequests)
		case 3:
			panic(http.ErrAbortHandler) // the connection breaks
		}
		return true
	}
	service.refuse.Store(&unsteady)
	s.Patience.Total = time.Minute
	stream := text(5000)
	parts, err := s.WriteParts(t.Context(), "p/", bytes.NewReader(stream), 1000, func(Part) {})
	if err != nil {
		t.Fatal(err)
	}
	r := s.ReadParts(t.Context(), "p/", parts)
	defer r.Close()
	if got, err := io.ReadAll(r); !bytes.Equal(got, stream) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := s.List(t.Context(), ""); err != nil {
		t.Error(err)
	}
	s.Patience.Total = 0
	service.answer(http.StatusServiceUnavailable, "SlowDown")
	var e *Error
	if err := s.Put(t.Context(), "a", nil); !errors.As(err, &e) || e.Permanent {
		t.Errorf("a store that stays away: %v", err)
	}
}
