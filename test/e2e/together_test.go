//go:build e2e || soak

package e2e

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// part of a test.
type part struct {
	name string
	run  func(*testing.T)
}

// longest are the parts that take longer than the others, about the longest first:
// begun early, none of them runs on when all else has ended. Those whose clients write
// without a rest are not next to each other.
var longest = []string{
	"Installations", "EtcdUpgrades", "Quiet", "EtcdNodeStops",
	"Failover", "StoreInterrupted", "FluxIdleSyncs", "FailoverFaults", "OwnCertificate", "StorePointInTime", "Synchronous", "EtcdLostVolumes", "Admission", "Chaos", "FluxHandEdits", "RecoveryGuide", "SlowStore",
	"EtcdRestores", "Restores", "BackupDrill", "Backups", "EtcdMajorityLost", "StoreArchives", "VolumesGrowThemselves", "StoreShared",
	"BadInputLiving", "FluxCommits", "FluxAutoscaler", "Scale", "EtcdScale", "DocsRun", "EtcdTruth", "MinorUpgrade", "HungServer",
}

// leftToSoak are the parts that a run of all end-to-end tests leaves to make soak: what
// they show is shown by another part, or against an API server alone, in a form that takes
// less. Named by FOCUS they run.
var leftToSoak = []string{
	"DriftModes", "EtcdDriftContested", "GivenUp", "EtcdBadInputRefused", "BadInputLiving", "EtcdBadStorageClass", "FixedVolume", "EtcdNameConflict",
	"EtcdQuota", "EtcdBackupsFail", "EtcdRestoresFail", "StoreRefuses", "StoreShared", "Admission", "EtcdDestinationRemoved",
	"FrozenPrimary", "FailedBackupsLetGo", "Lag", "AgentDies", "OutdatedPrimaryCrashes", "RetainOtherNames", "OtherMajorAdopted", "MovingTag", "VolumeGrows",
	"OwnCertificate", "EtcdUnreachable", "EtcdLostVolumes", "EtcdFull", "EtcdPlugin", "BackupVolumeFull", "SlowStore", "StoreInterrupted",
	"FluxSuspend", "FluxAutoscaler", "FluxHandEdits", "FluxBadCommit", "FailoverFaults", "DatabaseSeed", "EtcdKilledPods", "HungServer", "Plugin", "Settings",
	"StoreArchives", "OwnCA", "EtcdStoreDamaged", "VolumesGrowThemselves",
}

// runsAll says whether all end-to-end tests are run, and not some by name.
func runsAll() bool { return flag.Lookup("test.run").Value.String() == "." }

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
	most, free   int
	places, next int
	began        time.Time // the last one
	changed      *sync.Cond
}

const (
	// fewest is how many parts run at the same time, however busy the machine is.
	fewest = 2
	// busy is how many threads of the machine, for each of its CPUs, run or wait for one
	// on average where no more than the fewest parts begin: databases that get no CPU
	// time count as hung, and what they are restarted for takes the rest of it.
	busy = 4
	// settling is how long the last part is to run for before the machine counts as not
	// busy.
	settling = 15 * time.Second
)

func newTurns(free int) *turns {
	t := &turns{most: free, free: free}
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
	for t.free == 0 || t.most-t.free >= fewest {
		isSettling := time.Since(t.began) < settling
		t.mu.Unlock()
		time.Sleep(time.Second)
		isFree := !isSettling && readLoad() < busy
		t.mu.Lock()
		if isFree && t.free > 0 {
			break
		}
	}
	t.next++
	t.free--
	t.began = time.Now()
	t.changed.Broadcast()
}

// readLoad is how many threads of the machine, for each of its CPUs, run or wait for one,
// as the average of two seconds; 0 where it does not say.
func readLoad() float64 {
	const samples = 20
	sum := 0
	for range samples {
		text, err := os.ReadFile("/proc/loadavg")
		if err != nil {
			return 0
		}
		var average float64
		var running int
		if _, err := fmt.Sscanf(string(text), "%f %f %f %d/", &average, &average, &average, &running); err != nil {
			return 0
		}
		sum += running
		time.Sleep(100 * time.Millisecond)
	}
	return float64(sum) / samples / float64(runtime.NumCPU())
}

func (t *turns) endTurn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.changed.Broadcast()
}
