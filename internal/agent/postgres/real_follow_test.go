//go:build postgres

package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A busy primary that keeps a question waiting is where it was.
func TestRealSilenceLeavesTheStreamAlone(t *testing.T) {
	w := newWorld(t, 2)
	primary := w.start(0, t.TempDir(), "uid-0")
	replica := w.start(1, t.TempDir(), "uid-1")
	primary.untilRole(v1alpha1.RolePrimary)
	replica.untilRole(v1alpha1.RoleReplica)
	const receiver = "select pid::text from pg_stat_wal_receiver where status = 'streaming'"
	before := replica.query(receiver)

	primary.position.mu.Lock() // answers wait for it
	replica.untilLocated("127.0.0.1")
	primary.position.mu.Unlock()

	// Settings are taken up one after the other: these come after any others.
	for _, value := range []string{"9MB", "10MB"} {
		hash := w.configure(func(c *agentapi.ClusterConfig) { c.Parameters = map[string]string{"work_mem": value} })
		replica.until("configured", func(s agentapi.Status) bool { return s.ConfigHash == hash })
	}
	replica.untilRole(v1alpha1.RoleReplica)
	if got := replica.query("select current_setting('primary_conninfo')"); strings.Contains(got, "hostaddr") {
		t.Errorf("a replica that streams connects anew: %s", got)
	}
	if after := replica.query(receiver); after != before {
		t.Errorf("the receiver was %s and is %s", before, after)
	}
}

// untilLocated waits until the replica has read an address on the Lease, and
// has had the time to act on it.
func (r *run) untilLocated(address string) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if r.view.LeaseAddress() == address {
			break
		}
		if time.Now().After(end) {
			r.t.Fatal("the Lease was not asked")
		}
	}
	time.Sleep(3 * observeInterval)
}
