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
// the first report on. After a stop in order it reports that it has no holder.
func TestRealPrimaryReportsItsLease(t *testing.T) {
	w, volume := newWorld(t, 1), t.TempDir()
	check := func(when string, got *postgresapi.LeaseState, want postgresapi.LeaseState) {
		t.Helper()
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	for term, uid := range []string{"uid-0", "uid-0b"} {
		primary := w.start(0, volume, uid)
		status := primary.until("reports to be the primary", func(s agentapi.Status) bool { return s.Role == v1alpha1.RolePrimary })
		held := postgresapi.LeaseState{HolderUID: uid, HolderPod: status.Pod, Term: int64(term) + 1}
		check(uid+" leads", readReplication(status).Lease, held)
		primary.stop()
		held.HolderUID = ""
		check(uid+" has stopped", readReplication(primary.Store.Get()).Lease, held)
	}
}
