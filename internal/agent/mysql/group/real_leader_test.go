//go:build mysql

package group_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/mysqltest"
)

// A member joins a group the way that the group agrees: the other way, it is refused.
func TestRealMemberAgreesAsTheGroup(t *testing.T) {
	for _, single := range []bool{true, false} {
		t.Run(fmt.Sprintf("single leader %t", single), func(t *testing.T) {
			members := newGroup(t, 3)
			first, third := members[0], members[2]
			if !single {
				startInTurns(t, members)
			}
			if got := report(t, first).SingleLeader; got != single {
				t.Fatalf("the group's report says a single leader: %t", got)
			}
			leave(t, third, members[:2])
			err := third.Group().Join(t.Context(), groupName, !single)
			t.Logf("refused: %v, %s", err, observe(t, third).State)
			if err == nil {
				await(t, third, "it is refused", func(o group.Observation) bool { return o.State == group.Offline })
			}
			rejoin(t, third, report(t, first).SingleLeader)
			logInserts(t, first, third)
		})
	}
}

// startInTurns starts the group anew, as one whose members agree in turns.
func startInTurns(t *testing.T, members []*mysqltest.Member) {
	t.Helper()
	for i := len(members) - 1; i >= 0; i-- {
		leave(t, members[i], members[:i])
	}
	first := members[0]
	if err := first.Group().Boot(t.Context(), groupName, false); err != nil {
		t.Fatal(err)
	}
	awaitPrimary(t, first)
	for _, m := range members[1:] {
		rejoin(t, m, false)
	}
}

// leave has the member leave the group of the others.
func leave(t *testing.T, m *mysqltest.Member, others []*mysqltest.Member) {
	t.Helper()
	uuid := observe(t, m).UUID
	if err := m.Group().Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, other := range others {
		await(t, other, "the member has left", func(o group.Observation) bool { _, listed := o.View.Find(uuid); return !listed })
	}
}

func rejoin(t *testing.T, m *mysqltest.Member, single bool) {
	t.Helper()
	if err := m.Group().Join(t.Context(), groupName, single); err != nil {
		t.Fatalf("%s: %v", m.Pod, err)
	}
	await(t, m, "it is online", func(o group.Observation) bool { return o.State == group.Online })
}

// logInserts logs how long inserts take while a secondary stands still, and for some seconds
// after it.
func logInserts(t *testing.T, primary, secondary *mysqltest.Member) {
	t.Helper()
	if err := secondary.Mysqld.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	const away = 15 * time.Second
	var longest, all time.Duration
	moving, count := false, 0
	for began := time.Now(); time.Since(began) < away+5*time.Second; time.Sleep(10 * time.Millisecond) {
		if !moving && time.Since(began) > away {
			moving = true
			if err := secondary.Mysqld.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
		before := time.Now()
		primary.Exec("INSERT INTO app.t (x) VALUES ('row')")
		took := time.Since(before)
		longest, all, count = max(longest, took), all+took, count+1
	}
	t.Logf("a secondary does not answer for %s: an insert took %s, the longest %s", away, (all / time.Duration(count)).Round(time.Millisecond), longest.Round(time.Millisecond))
}
