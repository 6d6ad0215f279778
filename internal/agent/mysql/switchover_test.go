package mysql

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/server"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

// The primary announces a switchover to those that may lead next, before it moves the lead.
// They observe their servers often from then on, for a while.
func TestSwitchoverIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := newTestRun(t, agentapi.ClusterConfig{})
		if got := next.member.observeAfter(); got != observeInterval {
			t.Errorf("at rest: %s", got)
		}

		r := newTestRun(t, agentapi.ClusterConfig{})
		var err error
		if r.db, err = server.OpenSocket("/there/is/no/server"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.db.Close() }()
		leads := group.Observation{UUID: own, State: group.Online, View: inView("1", own, second)}
		report := group.Report{Pod: "orders-1", UUID: second, Phase: group.InGroup, View: leads.View}.WriteReport()
		r.peers.status = func(_ context.Context, pod string) (agentapi.Status, error) {
			status := agentapi.Status{Pod: pod}
			if pod == "orders-1" {
				changeReport(&status, func(m *mysqlapi.MemberReport) { *m = report })
			}
			return status, nil
		}
		var announced []string
		r.peers.post = func(_ context.Context, pod, path string, _, _ any) error {
			announced = append(announced, pod+path)
			next.messageHandlers()[path].ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}")))
			return nil
		}
		if err := r.switchOver(t.Context(), leads, "", 0); err == nil {
			t.Error("the lead was moved without a server")
		}
		synctest.Wait()
		if !slices.Equal(announced, []string{"orders-1" + mysqlapi.SwitchoverPath}) {
			t.Errorf("announced to %v", announced)
		}
		if got := next.member.observeAfter(); got != hastyInterval {
			t.Errorf("when a switchover is announced: %s", got)
		}
		next.switchover.announced.Add(-int64(hasteLimit))
		if got := next.member.observeAfter(); got != observeInterval {
			t.Errorf("after a while: %s", got)
		}
	})
}

// A primary that takes no clients yet is observed often: they wait.
func TestNewPrimaryIsObservedOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestRun(t, agentapi.ClusterConfig{}).member
		leads := group.Observation{UUID: own, State: group.Online, SuperReadOnly: true, View: inView("1", own, second)}
		m.reportInGroup(leads)
		if got := m.observeAfter(); got != hastyInterval {
			t.Errorf("a new primary: %s", got)
		}
		leads.SuperReadOnly = false
		m.setPrepared()
		m.reportInGroup(leads)
		if got := m.observeAfter(); got != observeInterval {
			t.Errorf("a primary with clients: %s", got)
		}
		m.reportInGroup(group.Observation{UUID: second, State: group.Online, View: leads.View})
		if got := m.observeAfter(); got != observeInterval {
			t.Errorf("a replica: %s", got)
		}
		leads.SuperReadOnly = true
		m.reportInGroup(leads)
		m.leads -= hasteLimit
		if got := m.observeAfter(); got != observeInterval {
			t.Errorf("a primary that takes no writes for long: %s", got)
		}
	})
}
