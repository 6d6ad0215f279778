//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/faultplan"
	"github.com/holdfast-db/holdfast/test/writehistory"
)

// chaosOptions are of one run of faults.
type chaosOptions struct {
	seed   uint64
	period time.Duration
	limits faultplan.Limits
	// synchronous replication: no acknowledged write may be lost.
	synchronous bool
	// freezable has the members on volumes whose writes can be stopped.
	freezable bool
	// wide has faults, too, that every cluster of the machine notices.
	wide bool
	// edits of the cluster.
	edits []func(*v1alpha1.PostgresCluster)
}

// chaos is a cluster under faults from a seed, and under load.
type chaos struct {
	*failover
	options chaosOptions
	faults  map[string]chaosFault
	began   time.Time
	// events are what happened, with times.
	events []string
	// struck counts the faults that took place, by kind.
	struck map[string]int
	// writers write rows, one at each member and two through the Service.
	writers   []*failoverWriter
	registers *registers
}

// Times of a run of faults.
const (
	// recoveryPeriod is what the cluster has to be available again after the last fault.
	recoveryPeriod = time.Minute
	// judgePeriod bounds the search for an order of one register's operations.
	judgePeriod = time.Minute
)

// runChaos has faults strike a cluster under load, and then judges every write.
func runChaos(t *testing.T, options chaosOptions) {
	t.Helper()
	needLocalCluster(t)
	c := &chaos{options: options, faults: chaosFaults(options), struck: map[string]int{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again: make chaos SEED=%d CHAOS=%s; what happened:\n%s", options.seed, options.period, strings.Join(c.events, "\n"))
		}
	})
	cluster := newUnwatched(t, failoverMembers, options.edits...)
	if options.synchronous {
		cluster.changeSpec("synchronous: {mode: Quorum, number: 1}")
	}
	c.failover = newFailover(cluster)
	c.began = time.Now()
	c.startLoad()
	c.strike()
	c.awaitAvailable()
	c.stopLoad()
	c.judge()
	t.Logf("seed %d, %d elections, faults: %v, %d rows and %d operations on registers acknowledged, %d rows lost",
		options.seed, len(c.history.Elections()), c.struck, len(c.acknowledgedRows()), c.registers.countOperations(), c.lost)
}

// note adds an event to the list.
func (c *chaos) note(format string, arguments ...any) {
	at := time.Since(c.began).Round(100 * time.Millisecond)
	c.events = append(c.events, fmt.Sprintf("%8s %s", at, fmt.Sprintf(format, arguments...)))
}

// strike carries out the plan until the period ends.
func (c *chaos) strike() {
	c.t.Helper()
	kinds := make([]string, 0, len(c.faults))
	for _, f := range orderedFaults() {
		if _, chosen := c.faults[f.kind]; chosen {
			kinds = append(kinds, f.kind)
		}
	}
	source := faultplan.New(c.options.seed, kinds, c.options.limits)
	for time.Since(c.began) < c.options.period && !c.t.Failed() {
		step := source.Next()
		c.strikeStep(step)
		c.note("nothing for %s", step.Pause.Round(time.Millisecond))
		time.Sleep(step.Pause) // the plan's own time
	}
}

// strikeStep begins the faults of a step and ends them. The first one lasts as long as
// it should, and the second one no longer than that.
func (c *chaos) strikeStep(step faultplan.Step) {
	c.t.Helper()
	targets := c.listTargets()
	var heals []func() error
	began := time.Now()
	for _, fault := range step.Faults {
		time.Sleep(time.Until(began.Add(fault.After)))
		what, heal, err := c.faults[fault.Kind].begin(c, targets, fault)
		if err != nil {
			c.note("%s: did not strike: %v", fault, err)
			continue
		}
		c.struck[fault.Kind]++
		c.note("%s: %s", fault, what)
		if heal != nil {
			heals = append(heals, heal)
		}
	}
	if len(heals) > 0 {
		time.Sleep(time.Until(began.Add(step.Faults[0].Length)))
	}
	for _, heal := range heals {
		if err := heal(); err != nil {
			c.t.Errorf("end a fault of %s: %v", step, err)
		}
	}
	if len(heals) > 0 {
		c.note("healed")
	}
}

// awaitAvailable waits until writes go on and the status says that they do.
func (c *chaos) awaitAvailable() {
	c.t.Helper()
	began := time.Now()
	c.waitFor(recoveryPeriod, "the cluster is Available after the last fault", func(obj *v1alpha1.PostgresCluster) error {
		available := meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionAvailable)
		if available == nil || available.Status != "True" {
			return fmt.Errorf("it is %+v", available)
		}
		if acknowledged, _ := c.w.countWrites(c.history.Now() - time.Second); acknowledged == 0 {
			return fmt.Errorf("no write is acknowledged, the last error is %w", c.w.readError())
		}
		return nil
	})
	c.note("available %s after the last fault", time.Since(began).Round(100*time.Millisecond))
}

// judge compares what was acknowledged with what is there, when all is well.
func (c *chaos) judge() {
	c.t.Helper()
	c.awaitReported()
	c.note("ready")
	lost := c.checkWrites()
	if c.options.synchronous && lost > 0 {
		c.t.Errorf("%d acknowledged writes are lost", lost)
	}
	if err := writehistory.CheckRegisters(c.registers.listOperations(), c.options.synchronous, judgePeriod); err != nil {
		c.t.Errorf("registers: %v", err)
	}
	if len(c.struck) == 0 {
		c.t.Error("no fault took place")
	}
	if len(c.acknowledgedRows()) == 0 || c.registers.countOperations() == 0 {
		c.t.Error("nothing was acknowledged")
	}
}

func (c *chaos) acknowledgedRows() []writehistory.Write {
	var rows []writehistory.Write
	for _, w := range c.history.Writes(0) {
		if w.Acknowledged {
			rows = append(rows, w)
		}
	}
	return rows
}

// requestWithin bounds a request to the API server that may stand still.
func requestWithin(run func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return run(ctx)
}

// errNoTarget says that there is nothing that a fault could strike.
var errNoTarget = errors.New("there is no such target")
