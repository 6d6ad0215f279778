package store

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// What is to go first is gone before anything else is touched.
func TestDeleteAllInOrder(t *testing.T) {
	service := newService(t)
	s := open(t, service.location(), service.secret())
	keys := []string{"a/pod/manifest"}
	for n := range 3 * deletions {
		keys = append(keys, fmt.Sprintf("a/pod/data/%06d", n))
	}
	for _, key := range keys {
		if err := s.Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	refuse := func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/manifest")
		if refused {
			w.WriteHeader(http.StatusForbidden)
		}
		return refused
	}
	service.refuse.Store(&refuse)
	first := func(key string) bool { return strings.HasSuffix(key, "/manifest") }
	if err := s.DeleteAll(t.Context(), "a/", first); err == nil {
		t.Error("no error said that it could not be deleted")
	}
	want(t, s, append(keys[1:], keys[0])...)
	service.refuse.Store(nil)
	if err := s.DeleteAll(t.Context(), "a/", first); err != nil {
		t.Error(err)
	}
	want(t, s)
}
