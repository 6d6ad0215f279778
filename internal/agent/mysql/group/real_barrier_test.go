//go:build mysql

package group_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
)

// A primary without a majority answers no barrier: its view may be old.
func TestRealBarrierNeedsAMajority(t *testing.T) {
	members := newGroup(t, 3)
	if err := members[0].Group().Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	members[1].Kill()
	members[2].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err := members[0].Group().Barrier(ctx); err == nil {
		t.Error("the group agrees without a majority")
	}
}

// A barrier that is given up leaves no session behind: the server ends it.
func TestRealBarrierLeavesNoSession(t *testing.T) {
	members := newGroup(t, 3)
	first, second := members[0], members[1]
	goOn := stopApplier(t, second) // for which a barrier waits
	first.Exec("INSERT INTO app.t (x) VALUES ('a')")
	const waiting = "SELECT COUNT(*) FROM performance_schema.processlist WHERE INFO LIKE 'SELECT COUNT(*) FROM mysql.plugin%'"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := second.Group().Barrier(ctx); err == nil {
		t.Fatal("the barrier does not wait for the applier")
	}
	await(t, second, "no session waits", func(group.Observation) bool { return second.Query(waiting) == "0" })
	goOn()
}
