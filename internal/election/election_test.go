package election

import (
	"os"
	"strconv"
	"testing"
)

// countHistories is how many histories are run; HOLDFAST_HISTORIES asks for
// another number.
func countHistories() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("HOLDFAST_HISTORIES"), 10, 64); err == nil {
		return n
	}
	return 50_000
}

func TestHistoriesKeepTheInvariants(t *testing.T) {
	var elections, commits, served, quiet uint64
	for seed := range countHistories() {
		w := runHistory(t, seed)
		elections += uint64(w.elections)
		commits += uint64(w.commits)
		if w.edited {
			continue
		}
		quiet++
		for _, n := range w.nodes {
			if n.canCommit() {
				served++
			}
		}
	}
	t.Logf("%d elections, %d commits, %d of %d histories end with a primary", elections, commits, served, quiet)
	if elections < countHistories() || served*10 < quiet*5 {
		t.Errorf("the histories elect too seldom to show anything")
	}
}
