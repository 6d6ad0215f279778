//go:build soak

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// tuningTimeout is for an hour of measurements, the part of an hour before it, and a report.
const tuningTimeout = 2*time.Hour + 15*time.Minute

// killTimeout is for a member to be killed and to come back, and for its next reports.
const killTimeout = 15 * time.Minute

// TestSoakPostgresTuningIsKept: the operator tries a larger max_wal_size for a load that
// forces checkpoints, and keeps it. The patch that the plugin writes is committed, Flux
// applies it, and nothing is tuned beside the spec any more. No step of it shows in a condition.
// It takes an hour and a quarter: half an hour is measured before the trial, and as much in it.
func TestSoakPostgresTuningIsKept(t *testing.T) {
	// On a volume of its own: no WAL is added to one that is well filled, as that of this machine
	// may be.
	d := deliverCluster(t, nil, "replicas: 2", "storage: {size: 1Gi, storageClass: sized}", "tuning: {mode: Apply, observeHours: 1, exclude: [work_mem, shared_buffers]}")
	c := d.c
	c.runSQL(leading, "create table wal_load (v text)")
	from := c.runSQL(leading, "show max_wal_size")
	stop := c.runLoad(tuningBurst[:2])
	trial := c.awaitTrial("max_wal_size", from)
	obj := c.waitFor(tuningTimeout, "the value is kept", func(obj *v1alpha1.PostgresCluster) error {
		if s := obj.Status.Tuning; s == nil || len(s.Settings) != 1 {
			return fmt.Errorf("tuned is %+v", s)
		}
		return staysReady(obj)
	})
	kept := obj.Status.Tuning.Settings[0]
	t.Log(kept.Evidence)
	if kept.Value != trial.Value || kept.From != from {
		t.Errorf("kept is %+v, and tried was %+v", kept, trial)
	}
	waitEvent(t, c.subject, v1alpha1.ReasonTuningKept, "max_wal_size stays at "+kept.Value)
	must(t, stop(), "run the load")
	c.pluginPrints(0, []string{"recommend", c.name}, "spec.parameters.max_wal_size", "kept", kept.Evidence)

	d.k.waitReady(d.commitFiles("take what is tuned", map[string]string{
		"kustomization.yaml": kustomizationFile("orders.yaml", "patches:", "- {path: tuning.yaml, target: {kind: PostgresCluster, name: "+c.name+"}}"),
		"tuning.yaml":        c.pluginPrints(0, []string{"recommend", c.name, "-o", "patch"}, kept.Value),
	}))
	c.waitFor(recommendationGoes, "nothing is tuned beside the spec", func(obj *v1alpha1.PostgresCluster) error {
		if s := obj.Status.Tuning; len(s.Settings) > 0 || s.Trial != nil && s.Trial.Name == "max_wal_size" {
			return fmt.Errorf("tuned is %+v", s)
		}
		return nil
	})
	c.awaitSetting(2, "max_wal_size", kept.Value)
	waitEvent(t, c.subject, v1alpha1.ReasonTuningReleased, "spec.parameters.max_wal_size is declared")
}

// TestSoakPostgresTuningIsRolledBack: sorts that need far more memory write the same
// temporary files with twice the work_mem. The operator tries it, rolls it back and does not
// try it again. It takes as long.
func TestSoakPostgresTuningIsRolledBack(t *testing.T) {
	d := deliverCluster(t, nil, "replicas: 2", "resources: {limits: {memory: 512Mi}}", "tuning: {mode: Apply, observeHours: 1, exclude: [max_wal_size, shared_buffers]}")
	c := d.c
	c.runSQL(leading, "create table spill_load as select md5(g::text) as v from generate_series(1, 60000) g")
	from := c.runSQL(leading, "show work_mem")
	stop := c.runLoad([]string{"select count(*) from (select v from spill_load order by v offset 1) s"})
	trial := c.awaitTrial("work_mem", from)
	obj := c.waitFor(tuningTimeout, "the value is rolled back", func(obj *v1alpha1.PostgresCluster) error {
		if s := obj.Status.Tuning; s == nil || s.Trial != nil || len(s.Resting) != 1 {
			return fmt.Errorf("tuned is %+v", s)
		}
		return staysReady(obj)
	})
	must(t, stop(), "run the load")
	rests := obj.Status.Tuning.Resting[0]
	t.Log(rests.Reason)
	if !rests.Quarantined || rests.Value != trial.Value || !strings.Contains(rests.Reason, "temporary files of a transaction") {
		t.Errorf("it rests as %+v", rests)
	}
	waitEvent(t, c.subject, v1alpha1.ReasonTuningQuarantined, "work_mem is "+from+" again")
	c.awaitInForce("work_mem", from)
	c.pluginPrints(0, []string{"recommend", c.name}, "spec.parameters.work_mem", "quarantined until")
}

// TestSoakPostgresTuningEndsWithAKill: a member runs out of memory while a larger work_mem is
// tried. The value before it is in force again in minutes, without a wait for the hour to be
// judged, and is not tried again. It takes an hour and a half, for what is measured before.
func TestSoakPostgresTuningEndsWithAKill(t *testing.T) {
	d := deliverCluster(t, nil, "replicas: 2", "resources: {limits: {memory: 512Mi}}", "tuning: {mode: Apply, observeHours: 1, exclude: [max_wal_size, shared_buffers]}")
	c := d.c
	c.runSQL(leading, "create table spill_load as select md5(g::text) as v from generate_series(1, 60000) g")
	from := c.runSQL(leading, "show work_mem")
	stop := c.runLoad([]string{"select count(*) from (select v from spill_load order by v offset 1) s"})
	trial := c.awaitTrial("work_mem", from)
	must(t, stop(), "run the load")
	c.failSQL("select length(repeat('x', 400000000) || repeat('y', 400000000))") // 800 MB do not fit
	obj := c.waitFor(killTimeout, "the value is rolled back", func(obj *v1alpha1.PostgresCluster) error {
		if s := obj.Status.Tuning; s == nil || s.Trial != nil || len(s.Resting) != 1 {
			return fmt.Errorf("tuned is %+v", s)
		}
		return nil
	})
	rests := obj.Status.Tuning.Resting[0]
	t.Log(rests.Reason)
	if !rests.Quarantined || rests.Value != trial.Value || rests.Reason != "a member ran out of memory" {
		t.Errorf("it rests as %+v", rests)
	}
	waitEvent(t, c.subject, v1alpha1.ReasonTuningQuarantined, "work_mem is "+from+" again")
	c.waitReady()
	c.awaitInForce("work_mem", from)
	c.pluginPrints(0, []string{"recommend", c.name}, "spec.parameters.work_mem", "quarantined until")
	if got := c.runSQL(leading, "select count(*) from spill_load"); got != "60000" {
		t.Errorf("%s rows are left", got)
	}
}

// awaitTrial waits until another value of a setting is tried, and in force.
func (c *cluster) awaitTrial(name, from string) v1alpha1.TuningTrialStatus {
	c.t.Helper()
	obj := c.waitFor(tuningTimeout, name+" is tried", func(obj *v1alpha1.PostgresCluster) error {
		if s := obj.Status.Tuning; s == nil || s.Trial == nil {
			return fmt.Errorf("tuned is %+v, recommended is %+v", s, obj.Status.Recommendations)
		}
		return staysReady(obj)
	})
	trial := *obj.Status.Tuning.Trial
	c.t.Logf("%s: %s, before %s: %s", trial.Name, trial.Value, trial.From, trial.Evidence)
	if trial.Name != name || trial.From != from {
		c.t.Fatalf("tried is %+v, and %s was %s", trial, name, from)
	}
	waitEvent(c.t, c.subject, v1alpha1.ReasonTuningTried, name+" is tried at "+trial.Value)
	c.awaitInForce(name, trial.Value)
	return trial
}

// awaitInForce waits until the primary runs with a value: the kubelet brings it to the
// member's pod within about a minute.
func (c *cluster) awaitInForce(name, value string) {
	c.t.Helper()
	c.waitFor(readyTimeout, name+" is in force", func(obj *v1alpha1.PostgresCluster) error {
		if got := c.runSQL(leading, "show "+name); got != value {
			return fmt.Errorf("%s is %s, want %s", name, got, value)
		}
		return staysReady(obj)
	})
}

// staysReady says whether tuning shows in a condition that a Git tool waits for.
func staysReady(obj *v1alpha1.PostgresCluster) error {
	if conditions.IsTrue(obj, v1alpha1.ConditionReady) && !conditions.Has(obj, v1alpha1.ConditionReconciling) {
		return nil
	}
	return fmt.Errorf("not ready: %s", conditions.GetMessage(obj, v1alpha1.ConditionReady))
}
