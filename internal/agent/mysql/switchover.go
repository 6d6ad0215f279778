package mysql

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
)

const (
	// hastyInterval is between two observations of a server that is about to be the
	// primary, or is it and takes no clients yet: they wait.
	hastyInterval = 50 * time.Millisecond
	// hasteLimit is for how long.
	hasteLimit = 10 * time.Second
)

// expectation is the time of an announced switchover, from the start of the machine on; 0
// before the first.
type expectation struct{ announced atomic.Int64 }

func (e *expectation) announce() { e.announced.Store(int64(clock.Boottime())) }

// isDue says whether another member may be about to move its lead.
func (e *expectation) isDue(now time.Duration) bool {
	at := time.Duration(e.announced.Load())
	return at > 0 && now-at < hasteLimit
}

// messageHandlers answer what other members post, by path.
func (a *mysqlAgent) messageHandlers() map[string]http.Handler {
	return map[string]http.Handler{mysqlapi.SwitchoverPath: http.HandlerFunc(a.expectSwitchover)}
}

// expectSwitchover answers the primary that announces a switchover.
func (a *mysqlAgent) expectSwitchover(w http.ResponseWriter, _ *http.Request) {
	a.switchover.announce()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte("{}"))
}

// observeAfter is how long to wait before the next observation of a server in its group.
func (m *memberState) observeAfter() time.Duration {
	now := clock.Boottime()
	m.mu.Lock()
	defer m.mu.Unlock()
	takesOver := m.leads > 0 && m.role != v1alpha1.RolePrimary && now-m.leads < hasteLimit
	if takesOver || m.run.switchover.isDue(now) {
		return hastyInterval
	}
	return observeInterval
}
