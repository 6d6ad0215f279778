//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// findAstray says what is wrong with a restore to a time that has these writes: it
// lacks some that had been acknowledged, or has some that had not begun or that
// no client began.
func (s *writerReport) findAstray(have []int, at time.Time) (missing, surplus []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	restored := map[int]bool{}
	for _, n := range have {
		restored[n] = true
		if w := s.spans[n]; w.begun.IsZero() || w.begun.After(at) {
			surplus = append(surplus, n)
		}
	}
	for n, w := range s.spans {
		if !restored[n] && !w.ended.IsZero() && !w.ended.After(at) {
			missing = append(missing, n)
		}
	}
	slices.Sort(missing)
	slices.Sort(surplus)
	return missing, surplus
}

// chooseMoments chooses moments at which a restore is easily wrong: a write was just acknowledged, or
// is about to begin. They are in order, of writes chosen at random, and before
// the last of them: no restore goes further than the last commit.
func (s *writerReport) chooseMoments(count int) []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := slices.SortedFunc(maps.Values(s.spans), func(a, b span) int { return a.begun.Compare(b.begun) })
	writes = slices.DeleteFunc(writes[:len(writes)-1], func(w span) bool { return w.ended.IsZero() })
	var moments []time.Time
	for n := range count {
		w := writes[rand.IntN(len(writes))]
		moments = append(moments, w.ended)
		if n%2 == 1 {
			moments[n] = w.begun.Add(-time.Microsecond)
		}
	}
	slices.SortFunc(moments, time.Time.Compare)
	return moments
}

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
