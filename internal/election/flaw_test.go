package election

import "testing"

// Rules that the simulator breaks itself, in what it does with effects and inputs.
const (
	flawSkipPersist flaw = 100 + iota
	flawNextTimeline
	flawStartAsPrimary
	flawShortExpiry
	flawVolumeByName
)

func TestBrokenRulesAreFound(t *testing.T) {
	for _, c := range []struct {
		rule string
		flaw flaw
	}{
		{"rule 1: a former primary starts before it holds the lease", flawStartAsPrimary},
		{"rule 2: a lease expires too early", flawShortExpiry},
		{"rule 4: a volume is known by its pod's name", flawVolumeByName},
		{"rule 5: what was promised and written is not persisted", flawSkipPersist},
		{"rule 5: an older lease elects", flawOldLease},
		{"rule 6: no fence at the deadline", flawNoFence},
		{"rule 6: deadlines count from the answer", flawDeadlineFromAnswer},
		{"rule 10: a candidate does not need the quorum", flawNoQuorum},
		{"rule 10: a candidate with less WAL leads", flawLessWAL},
		{"rule 11: a promotion takes the next timeline", flawNextTimeline},
		{"rule 16: one confirmation is enough", flawConfirmOne},
	} {
		t.Run(c.rule, func(t *testing.T) {
			for seed := range countHistories() {
				w := newWorld(seed, c.flaw)
				w.run()
				if w.violation != "" {
					t.Logf("seed %d: %s", seed, w.violation)
					return
				}
			}
			t.Errorf("not found in %d histories", countHistories())
		})
	}
}
