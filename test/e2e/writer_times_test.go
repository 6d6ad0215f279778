//go:build e2e || soak

package e2e

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
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
