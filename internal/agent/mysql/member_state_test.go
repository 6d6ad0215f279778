package mysql

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/clock"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// isWoken says whether a pause would end at once. It needs a clock of the test's own.
func isWoken(w clock.Waker) bool {
	began := time.Now()
	w.Sleep(context.Background(), time.Second)
	return time.Since(began) == 0
}

// Clients of a new primary wait for no interval: who prepares it and who judges it are woken.
func TestNewPrimaryWakesWhoPreparesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestRun(t, agentapi.ClusterConfig{}).member
		leads := group.Observation{UUID: own, State: group.Online, View: inView("1", own, second)}
		replica := group.Observation{UUID: second, State: group.Online, View: inView("1", own, second)}
		readOnly := leads
		readOnly.SuperReadOnly = true
		for name, o := range map[string]group.Observation{"a replica": replica, "a primary that takes no writes yet": readOnly} {
			if m.observe(o); isWoken(m.unprepared) {
				t.Errorf("%s is prepared for clients", name)
			}
		}
		if m.observe(leads); !isWoken(m.unprepared) {
			t.Error("a new primary waits to be prepared")
		}
		if isWoken(m.changed) {
			t.Error("it is judged anew before it is prepared")
		}
		if m.setPrepared(); !isWoken(m.changed) {
			t.Error("a prepared primary waits to be judged")
		}
		m.observe(leads)
		m.setPrepared()
		if isWoken(m.unprepared) || isWoken(m.changed) {
			t.Error("a prepared primary wakes those again")
		}
		m.startsGroup(1)
		if m.confirm(); !isWoken(m.changed) {
			t.Error("a primary whose start is confirmed waits to be judged")
		}
	})
}
