//go:build postgres

package postgres

import (
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// A replica runs on a timeline that its primary's next one did not come of: it is
// held with what it has. One that follows its primary onto a timeline is not, also
// when that primary is slow to send.
func TestRealReplicaOfADiscardedTimeline(t *testing.T) {
	w, volumes, old := twoMembers(t)
	replica := w.start(1, volumes[1], "uid-1b")
	replica.until("serving", func(s agentapi.Status) bool { return s.Serving })
	primary := w.start(0, volumes[0], "uid-0c") // on a timeline of its own
	second := readReplication(primary.untilRole(v1alpha1.RolePrimary)).Timeline
	primary.fill("second", "100")
	replica.untilRole(v1alpha1.RoleReplica)
	replica.sameContent(primary)
	replica.until("on its timeline", func(s agentapi.Status) bool { return readReplication(s).Timeline == second })
	primary.stop()

	w.goOn("once")
	other := w.start(0, old, "uid-0d")
	if third := readReplication(other.untilRole(v1alpha1.RolePrimary)).Timeline; third <= second {
		t.Errorf("goes on on timeline %d after %d", third, second)
	}
	other.fill("third", "100")
	replica.untilHeld(agentapi.HoldDataDiverged)
	replica.stop()
	w.diverged(other, volumes[1])
}
