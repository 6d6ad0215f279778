package elector

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// A member answers messages of its own cluster's members that are for its own volume and
// that it can read. It grants nothing else, and none of these changes its state.
func TestRule9MessagesAreChecked(t *testing.T) {
	const own = "*.orders-members.shop.svc"
	member := newTestCertificate(t, agentapi.MemberName, own, "localhost")
	valid := `{"format":1,"pod":"orders-2","from":"v2","to":"v1","term":2,"timeline":2,"lease":{"uid":"u","resourceVersion":"1","term":1,"revision":0},"flushed":{"timeline":1,"position":500}}`
	change := func(old, replacement string) string {
		if !strings.Contains(valid, old) {
			t.Fatalf("the message has no %s", old)
		}
		return strings.Replace(valid, old, replacement, 1)
	}
	cases := []struct {
		name        string
		certificate *x509.Certificate
		method      string
		message     string
		code        int
	}{
		{"no certificate", nil, http.MethodPost, valid, http.StatusForbidden},
		{"the operator", newTestCertificate(t, agentapi.OperatorName, own), http.MethodPost, valid, http.StatusForbidden},
		{"an application", newTestCertificate(t, "app", own), http.MethodPost, valid, http.StatusForbidden},
		{"a member of another cluster with the same CA", newTestCertificate(t, agentapi.MemberName, "*.invoices-members.shop.svc"), http.MethodPost, valid, http.StatusForbidden},
		{"a member of the same name in another namespace", newTestCertificate(t, agentapi.MemberName, "*.orders-members.test.svc"), http.MethodPost, valid, http.StatusForbidden},
		{"a certificate of another pod alone", newTestCertificate(t, agentapi.MemberName, "orders-0.orders-members.shop.svc"), http.MethodPost, valid, http.StatusForbidden},
		{"a pod that runs on another volume", member, http.MethodPost, change("orders-2", "orders-0"), http.StatusForbidden},
		{"a copy of this member's volume", member, http.MethodPost, change(`"from":"v2"`, `"from":"v1"`), http.StatusForbidden},
		{"another volume than this member's", member, http.MethodPost, change(`"to":"v1"`, `"to":"v0"`), http.StatusMisdirectedRequest},
		{"a newer format", member, http.MethodPost, change(`"format":1`, `"format":2`), http.StatusBadRequest},
		{"no format", member, http.MethodPost, change(`"format":1,`, ``), http.StatusBadRequest},
		{"no volume", member, http.MethodPost, change(`"from":"v2"`, `"from":""`), http.StatusBadRequest},
		{"no term", member, http.MethodPost, change(`"term":2,`, ``), http.StatusBadRequest},
		{"a term that is no number", member, http.MethodPost, change(`"term":2`, `"term":"2"`), http.StatusBadRequest},
		{"half a message", member, http.MethodPost, valid[:40], http.StatusBadRequest},
		{"a long message", member, http.MethodPost, change("{", `{"x":"`+strings.Repeat("x", messageLimit)+`",`), http.StatusBadRequest},
		{"a reading", member, http.MethodGet, valid, http.StatusMethodNotAllowed},
		{"a field of a later agent is ignored", member, http.MethodPost, change(`"term":2`, `"weight":7,"term":2`), http.StatusOK},
	}
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		for _, c := range cases {
			before := m.volume.read().Promised
			request := httptest.NewRequestWithContext(t.Context(), c.method, postgresapi.VotePath, strings.NewReader(c.message))
			if c.certificate != nil {
				request.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.certificate}}
			}
			answer := httptest.NewRecorder()
			m.handlers[postgresapi.VotePath].ServeHTTP(answer, request)
			granted := strings.Contains(answer.Body.String(), `"granted":true`)
			if answer.Code != c.code || granted != (c.code == http.StatusOK) || m.volume.read().Promised != before && !granted {
				t.Errorf("%s: %d %s", c.name, answer.Code, answer.Body)
			}
		}
	})
}

// The agent that ended answers at once.
func TestEndedMemberDoesNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		m := newVoter(t)
		m.end()
		before := time.Now()
		for path, message := range map[string]any{
			postgresapi.VotePath:    m.voteRequest(2),
			postgresapi.ConfirmPath: postgresapi.ConfirmRequest{ElectionHeader: postgresapi.ElectionHeader{Format: 1, Pod: "orders-0", From: "v0", To: "v1"}, Term: 1},
		} {
			if answer := <-m.ask(path, message); answer.Code != http.StatusServiceUnavailable {
				t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
			}
		}
		if err := m.elector.Reports().BeginRewind(t.Context()); err == nil || time.Since(before) != 0 {
			t.Errorf("a report is answered %v after %s", err, time.Since(before))
		}
	})
}
