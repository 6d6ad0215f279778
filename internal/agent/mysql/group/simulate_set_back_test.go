package group

import (
	"os"
	"strconv"
	"testing"
)

// setBack restores one of the last records before.
func (w *world) setBack() {
	if len(w.earlier) == 0 {
		return
	}
	age := 1 + w.random.IntN(min(12, len(w.earlier)))
	w.record, w.version = w.earlier[len(w.earlier)-age], w.version+1
	w.note("the Lease is set back by %d: %v", age, w.record)
}

// playSetBack plays one in which the Lease is set back, too.
func playSetBack(seed uint64, members int, mutant string) *world {
	w := newWorld(seed, members, mutant)
	w.setsBack = true
	return w.play()
}

// The same holds when the API server is restored to an earlier state.
func TestHistoriesWithALeaseThatIsSetBack(t *testing.T) {
	histories := uint64(1000)
	if more, err := strconv.ParseUint(os.Getenv("HOLDFAST_HISTORIES"), 10, 64); err == nil {
		histories = more
	}
	for seed := range histories {
		if w := playSetBack(seed, 1+2*int(seed%3), ""); w.broken != "" {
			t.Fatalf("history %d: %s\n%v", seed, w.broken, w.events)
		}
	}
}

func TestBrokenRulesOfASetBackLeaseAreFound(t *testing.T) {
	for _, mutant := range []string{"forgets for an older record", "takes no newer record from others"} {
		t.Run(mutant, func(t *testing.T) { findBroken(t, playSetBack, 0, mutant) })
	}
}
