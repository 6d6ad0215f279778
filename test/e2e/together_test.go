//go:build e2e || soak

package e2e

import (
	"slices"
	"sync"
	"testing"
)

// part of a test.
type part struct {
	name string
	run  func(*testing.T)
}

// longest are the parts that take longer than the others, the longest first:
// begun early, none of them runs on when all else has ended.
var longest = []string{
	"Installations", "EtcdUpgrades", "Quiet", "EtcdNodeStops",
	"Failover", "Chaos", "FailoverFaults", "Synchronous", "StoreInterrupted", "StorePointInTime", "FluxIdleSyncs", "FluxHandEdits", "OwnCertificate", "Admission", "RecoveryGuide", "EtcdLostVolumes", "SlowStore",
	"EtcdRestores", "Restores", "BackupDrill", "Backups", "EtcdMajorityLost", "StoreArchives", "VolumesGrowThemselves", "StoreShared",
	"BadInputLiving", "FluxCommits", "FluxAutoscaler", "Scale", "EtcdScale", "DocsRun", "EtcdTruth", "MinorUpgrade", "HungServer",
}

// runTogether runs parts side by side, env.sideBySide at a time and the longest
// first. A part has ended when its own parallel parts have, too.
func runTogether(t *testing.T, parts []part) {
	t.Helper()
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b part) int { return rankOf(a) - rankOf(b) })
	turns := newTurns(env.sideBySide)
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			place := turns.takePlace()
			t.Parallel()
			turns.awaitTurn(place)
			t.Cleanup(turns.endTurn)
			p.run(t)
		})
	}
}

// rankOf a part is its place among the longest.
func rankOf(p part) int {
	if rank := slices.Index(longest, p.name); rank >= 0 {
		return rank
	}
	return len(longest)
}

// turns lets so many at a time go on, in the order of their places: that of
// parallel tests in Go is any.
type turns struct {
	mu           sync.Mutex
	free         int
	places, next int
	changed      *sync.Cond
}

func newTurns(free int) *turns {
	t := &turns{free: free}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// takePlace is the next place in the order.
func (t *turns) takePlace() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.places++
	return t.places - 1
}

func (t *turns) awaitTurn(place int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next != place || t.free == 0 {
		t.changed.Wait()
	}
	t.next++
	t.free--
	t.changed.Broadcast()
}

func (t *turns) endTurn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.changed.Broadcast()
}
