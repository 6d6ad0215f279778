//go:build soak

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// writesHaveTimes: what was committed at a time, by the database's own record
// of it, is what a restore to that time must have; what was at another is not.
func writesHaveTimes(t *testing.T) {
	c := newCluster(t, 1, func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Parameters = map[string]string{"track_commit_timestamp": "on"}
	})
	c.waitReady()
	w := c.startWriter()
	eventually(t, serviceTimeout, "many rows are written", func(context.Context) error {
		if n := w.countWrites(); n < 50 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	w.stopWriting()
	moments := w.report.chooseMoments(20)
	had := map[time.Time][]int{}
	for _, at := range moments {
		had[at] = c.selectRows(0, fmt.Sprintf("pg_xact_commit_timestamp(xmin) <= '%s'", at.UTC().Format(time.RFC3339Nano)))
		if missing, surplus := w.report.findAstray(had[at], at); len(missing)+len(surplus) > 0 {
			t.Errorf("at %s, of %d rows %v are missing and %v are too many", at, len(had[at]), missing, surplus)
		}
	}
	early, late := moments[0], moments[len(moments)-1]
	if missing, surplus := w.report.findAstray(had[early], late); len(missing) == 0 || len(surplus) > 0 {
		t.Errorf("a restore that ended early lacks %v and has %v", missing, surplus)
	}
	if missing, surplus := w.report.findAstray(had[late], early); len(missing) > 0 || len(surplus) == 0 {
		t.Errorf("a restore that ended late lacks %v and has %v", missing, surplus)
	}
}
