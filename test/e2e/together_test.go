//go:build e2e || soak

package e2e

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
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
// without a rest are not next to each other, and the one with a group of MySQL is the first
// of those that are kept apart from it.
var longest = []string{
	"Installations", "Insights", "EtcdUpgrades", "Quiet", "EtcdNodeStops",
	"FluxIdleSyncs", "StoreInterrupted", "StorePointInTime", "MySQLStorePointInTime", "RecoveryGuide", "Failover", "FailoverFaults", "OwnCertificate", "Synchronous", "EtcdLostVolumes", "Admission", "Chaos", "FluxHandEdits", "SlowStore",
	"EtcdRestores", "Restores", "BackupDrill", "Backups", "EtcdMajorityLost", "StoreArchives", "VolumesGrowThemselves", "StoreShared",
	"BadInputLiving", "FluxCommits", "FluxAutoscaler", "Scale", "EtcdScale", "DocsRun", "EtcdTruth", "Plan", "MinorUpgrade", "HungServer",
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
	"StoreArchives", "OwnCA", "EtcdStoreDamaged", "VolumesGrowThemselves", "MigrateGuide",
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
			place := turns.takePlace(p.name)
			t.Parallel()
			turns.awaitTurn(place)
			t.Cleanup(func() { turns.endTurn(place) })
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

// Parts that are never beside each other: a group of MySQL, and another one or a failover of
// PostgreSQL. Either has clients that write without a rest, and servers that are restarted.
var (
	withMySQL     = []string{"FluxIdleSyncs"} // beside all whose names say so
	withFailovers = []string{"Failover", "FailoverFaults", "Synchronous", "Chaos"}
)

func isWithMySQL(name string) bool {
	return strings.HasPrefix(name, mysql.prefix) || slices.Contains(withMySQL, name)
}

// keepApart says whether two parts may not run at the same time.
func keepApart(a, b string) bool {
	one, other := isWithMySQL(a), isWithMySQL(b)
	return one && (other || slices.Contains(withFailovers, b)) || other && slices.Contains(withFailovers, a)
}

// turns lets so many at a time go on, in the order of their places: that of
// parallel tests in Go is any. A part that is kept apart from one that runs lets the next
// one go before it, unless that is kept apart from itself.
type turns struct {
	mu               sync.Mutex
	most             int
	waiting, running []*place
	began            time.Time // the last one
	changed          *sync.Cond
}

// place of a part in the order.
type place struct{ part string }

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

func newTurns(most int) *turns {
	t := &turns{most: most}
	t.changed = sync.NewCond(&t.mu)
	return t
}

// takePlace is the next place in the order.
func (t *turns) takePlace(part string) *place {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &place{part}
	t.waiting = append(t.waiting, p)
	return p
}

func (t *turns) awaitTurn(p *place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for !t.isNext(p) {
			t.changed.Wait()
		}
		if len(t.running) < fewest {
			break
		}
		isSettling := time.Since(t.began) < settling
		t.mu.Unlock()
		time.Sleep(time.Second)
		isFree := !isSettling && readLoad() < busy
		t.mu.Lock()
		if isFree && t.isNext(p) {
			break
		}
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(other *place) bool { return other == p })
	t.running = append(t.running, p)
	t.began = time.Now()
	t.changed.Broadcast()
}

// isNext says whether it is the first that may go on now.
func (t *turns) isNext(p *place) bool {
	if len(t.running) >= t.most {
		return false
	}
	before := slices.Clone(t.running)
	for _, waits := range t.waiting {
		if !slices.ContainsFunc(before, func(other *place) bool { return keepApart(other.part, waits.part) }) {
			return waits == p
		}
		before = append(before, waits) // what is kept apart from it does not overtake it
	}
	return false
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

func (t *turns) endTurn(p *place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = slices.DeleteFunc(t.running, func(other *place) bool { return other == p })
	t.changed.Broadcast()
}
