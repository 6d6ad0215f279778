package store

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
)

func TestCreate(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		if there, err := s.HasObject(ctx, "a/1"); there || err != nil {
			t.Errorf("there before it was written: %v, %v", there, err)
		}
		if err := s.Create(ctx, "a/1", []byte("first")); err != nil {
			t.Fatal(err)
		}
		if there, err := s.HasObject(ctx, "a/1"); !there || err != nil {
			t.Errorf("not there: %v, %v", there, err)
		}
		if err := s.Create(ctx, "a/1", []byte("second")); !errors.Is(err, ErrExists) {
			t.Errorf("written twice: %v", err)
		}
		if got, err := s.Get(ctx, "a/1"); string(got) != "first" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// Of several that create an object at once, one does.
func TestCreateTogether(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for round := range 10 {
			key := fmt.Sprintf("o/%d", round)
			var all sync.WaitGroup
			made := make(chan string, 8)
			for n := range cap(made) {
				all.Go(func() {
					if err := s.Create(t.Context(), key, fmt.Append(nil, n)); err == nil {
						made <- fmt.Sprint(n)
					} else if !errors.Is(err, ErrExists) {
						t.Error(err)
					}
				})
			}
			all.Wait()
			got, err := s.Get(t.Context(), key)
			if len(made) != 1 || err != nil {
				t.Fatalf("%d made it, %v", len(made), err)
			}
			if by := <-made; by != string(got) {
				t.Errorf("%s made it, and it holds what %s wrote", by, got)
			}
		}
	})
}

// An answer that gets lost, and a service that knows no conditions.
func TestCreateOnPoorServices(t *testing.T) {
	service := newService(t)
	s := open(t, service.location(), service.secret())
	lost := true
	backend := service.Config.Handler
	service.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPut:
		case lost:
			lost = false
			backend.ServeHTTP(discard{}, r)
			w.WriteHeader(http.StatusBadGateway)
			return
		case r.Header.Get("If-None-Match") != "" && r.URL.Path == "/backups/team/orders/plain":
			w.WriteHeader(http.StatusNotImplemented)
			fmt.Fprint(w, "<Error><Code>NotImplemented</Code></Error>")
			return
		}
		backend.ServeHTTP(w, r)
	})
	if err := s.Create(t.Context(), "a", []byte("a")); !errors.Is(err, ErrExists) {
		t.Errorf("after an answer that got lost: %v", err)
	}
	if err := s.Create(t.Context(), "plain", []byte("b")); err != nil {
		t.Error(err)
	}
	if err := s.Create(t.Context(), "plain", []byte("c")); !errors.Is(err, ErrExists) {
		t.Errorf("written twice: %v", err)
	}
}

// discard is an answer that no caller gets.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
