package statusserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A message goes from a member to a member: the operator and others are refused.
func TestPostPeerIsForMembersOnly(t *testing.T) {
	ca := newAuthority(t)
	server, _ := ca.certificates(t, agentapi.MemberName)
	mux := http.NewServeMux()
	mux.Handle("POST /double", RequirePeer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "no number", http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(2 * n)
	})))
	address := serve(t, server, mux)
	post := func(c *Certificates, path string) (answer int, err error) {
		err = NewPeers(c, func(string) string { return address }, nil).PostPeer(t.Context(), "orders-0", path, 21, &answer)
		return answer, err
	}
	if answer, err := post(server, "/double"); answer != 42 || err != nil {
		t.Errorf("a member is answered %d, %v", answer, err)
	}
	if _, err := post(server, "/triple"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("an unknown path: %v", err)
	}
	for _, name := range []string{agentapi.OperatorName, "app"} {
		c, _ := ca.certificates(t, name)
		if answer, err := post(c, "/double"); err == nil {
			t.Errorf("%s is answered %d", name, answer)
		}
	}
	foreign, _ := newAuthority(t).certificates(t, agentapi.MemberName)
	if answer, err := post(foreign, "/double"); err == nil {
		t.Errorf("a member of another authority is answered %d", answer)
	}
	// Without TLS there is no name at all.
	if readClientName(&http.Request{}) != "" {
		t.Error("a client without a certificate has a name")
	}
}
