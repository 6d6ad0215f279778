//go:build postgres

package postgres

import (
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/lsn"
)

// A primary flushes a record when it is asked to; a replica and a primary that is
// down say that they do not.
func TestRealFlushIsProven(t *testing.T) {
	w := newWorld(t, 2)
	primary, replica := w.start(0, t.TempDir(), "uid-0"), w.start(1, t.TempDir(), "uid-1")
	primary.untilRole(v1alpha1.RolePrimary)
	replica.untilRole(v1alpha1.RoleReplica)
	if replica.position.flushRecord(t.Context()) {
		t.Error("a replica says that it flushes")
	}
	replica.stop()
	before := lsn.Parse(1, primary.query("select pg_current_wal_flush_lsn()::text"))
	if !primary.position.flushRecord(t.Context()) {
		t.Error("a primary that serves says that it does not flush")
	}
	if after := lsn.Parse(1, primary.query("select pg_current_wal_flush_lsn()::text")); !after.Newer(before) {
		t.Errorf("the WAL is flushed to %s, and was to %s", after, before)
	}
	primary.stop()
	if primary.position.flushRecord(t.Context()) {
		t.Error("a primary that is down says that it flushes")
	}
}
