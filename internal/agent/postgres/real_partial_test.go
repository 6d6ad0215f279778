//go:build postgres

package postgres

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/postgres/datavolume"
)

// Two promotions from one segment archive two partial ones of one name, with
// another content each. The archive holds both, and takes the WAL behind them.
func TestRealArchiveOfTwoPromotionsFromOneSegment(t *testing.T) {
	w := newWorld(t, 1)
	store := w.archives()
	volume := t.TempDir()
	primary := w.start(0, volume, "uid-0")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.rows("before")
	primary.untilArchived(primary.segment())
	primary.rows("at the beginning of a segment")
	primary.stop()
	first, second := snapshot(t, volume), snapshot(t, volume)
	primary = w.start(0, volume, "uid-0b")
	primary.untilRole(v1alpha1.RolePrimary)
	primary.rows("lost")
	primary.stop()
	writeOutside(t, filepath.Join(second, datavolume.DataName), "create table public.other (n int)")

	for id, data := range map[string]string{"a": first, "b": second} {
		w.goOn(id)
		next := w.start(0, data, "uid-"+id)
		next.untilRole(v1alpha1.RolePrimary)
		next.rows("after " + id)
		next.untilArchived(next.segment())
		next.stop()
	}
	var partial []string
	for _, name := range objects(t, store.dir) {
		// Each election leaves a timeline in the middle of a segment: the two began on the second.
		if base := filepath.Base(name); strings.HasPrefix(base, "00000002") && strings.Contains(base, ".partial") {
			partial = append(partial, base)
		}
	}
	slices.Sort(partial)
	if len(partial) != 2 || len(partial[0]) == len(partial[1]) {
		t.Errorf("the archive holds %v", partial)
	}
}
