//go:build postgres

package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// A member that reports to be the primary reports the Lease that names its pod, from
// the first report on. The first term is that of the first record, which has no holder.
func TestRealPrimaryReportsItsLease(t *testing.T) {
	w, volume := newWorld(t, 1), t.TempDir()
	for n, uid := range []string{"uid-0", "uid-0b"} {
		primary := w.start(0, volume, uid)
		status := primary.until("reports to be the primary", func(s agentapi.Status) bool { return s.Role == v1alpha1.RolePrimary })
		want := &postgresapi.LeaseState{HolderUID: uid, HolderPod: status.Pod, Term: int64(n) + 2}
		if diff := cmp.Diff(want, readReplication(status).Lease); diff != "" {
			t.Errorf("%s leads (-want +got):\n%s", uid, diff)
		}
		primary.stop()
		if record, _ := w.lease.read(); !record.IsReleased() || record.Term != want.Term {
			t.Errorf("%s has stopped: %+v", uid, record)
		}
	}
}
