package election

import (
	"os"
	"runtime/debug"
	"strconv"
	"testing"
)

// The simulator allocates much and keeps little: collecting garbage would take most
// of its time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(1000)
	os.Exit(m.Run())
}

// countHistories is how many histories are run; HOLDFAST_HISTORIES asks for
// another number, and make soak for many.
func countHistories() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("HOLDFAST_HISTORIES"), 10, 64); err == nil {
		return n
	}
	return 50_000
}

// firstHistory is the first seed; HOLDFAST_SEED asks for another one.
func firstHistory() uint64 {
	n, _ := strconv.ParseUint(os.Getenv("HOLDFAST_SEED"), 10, 64)
	return n
}

func TestHistoriesKeepTheInvariants(t *testing.T) {
	var elections, commits, changes, forced, forcedLate uint64
	for seed := range countHistories() {
		w := runHistory(t, firstHistory()+seed)
		elections += uint64(w.elections)
		commits += uint64(w.commits)
		changes += uint64(w.changes)
		if w.forced > 0 {
			forced++
		}
		if w.now > w.patience() {
			forcedLate++
		}
	}
	n := countHistories()
	t.Logf("%d elections, %d commits, %d changes of members; %d histories with a forced member, %d of them needed one", elections, commits, changes, forced, forcedLate)
	if elections < n || changes < n/10 || forcedLate > n/5 {
		t.Errorf("the histories elect too seldom to show anything")
	}
}
