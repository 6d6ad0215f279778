package mysql

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
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

// What ends a withdrawal is what the server says after the switchover: an observation that
// began before says nothing of it.
func TestPrimaryIsRestoredByALaterObservation(t *testing.T) {
	leads := group.Observation{UUID: own, State: group.Online, View: inView("1", own, second)}
	replica := group.Observation{UUID: second, State: group.Online, View: inView("1", own, second)}
	for _, c := range []struct {
		name  string
		after time.Duration
		says  group.Observation
		want  bool
	}{
		{"it still leads", time.Millisecond, leads, true},
		{"it led before", -time.Millisecond, leads, false},
		{"another member leads", time.Millisecond, replica, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newTestRun(t, agentapi.ClusterConfig{}).member
			restored := 0
			m.endSwitchover(func() { restored++ })
			m.restoreAfter(m.switched+c.after, c.says)
			if (restored == 1) != c.want {
				t.Errorf("restored %d times", restored)
			}
			// The first later observation decides.
			m.restoreAfter(m.switched+time.Second, leads)
			m.restoreAfter(m.switched+2*time.Second, leads)
			if want := c.want || c.after < 0; (restored == 1) != want {
				t.Errorf("restored %d times in the end", restored)
			}
		})
	}
}

// A replica that has become the primary serves reads for a moment more, and not for ever.
func TestNewPrimaryReadsForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestRun(t, agentapi.ClusterConfig{}).member
		m.role = v1alpha1.RoleReplica
		o := group.Observation{UUID: own, State: group.Online, SuperReadOnly: true, View: inView("1", own, second)}
		if !m.observe(o).Reads {
			t.Error("it leaves the Service for reads at once")
		}
		m.leads -= readsLimit
		if m.observe(o).Reads {
			t.Error("it serves reads for ever")
		}
		o.UUID = second
		if !m.observe(o).Reads {
			t.Error("a replica serves no reads")
		}
	})
}

// The server refuses to move the lead while a member joins: nothing is changed for it.
func TestLeadIsMovedWhenAllAreOnline(t *testing.T) {
	v := inView("1", own, second)
	o := group.Observation{UUID: own, State: group.Online, View: v}
	other := peer{Report: group.Report{Pod: "orders-1", UUID: second, Phase: group.InGroup}}
	if _, err := findSuccessors(o, []peer{other}, ""); err != nil {
		t.Error(err)
	}
	third := v.Members[1]
	third.UUID, third.State = "third", group.Recovering
	o.View.Members = append(o.View.Members, third)
	if _, err := findSuccessors(o, []peer{other}, ""); err == nil {
		t.Error("the lead is moved while a member joins")
	}
	r := newTestRun(t, agentapi.ClusterConfig{})
	if err := r.switchOver(t.Context(), o, "", 0); err == nil || !strings.Contains(err.Error(), "RECOVERING") {
		t.Errorf("the member that joins is not what keeps the lead: %v", err)
	}
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
