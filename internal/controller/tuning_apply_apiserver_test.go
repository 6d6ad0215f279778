//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/tune"
)

// dayOf is a day that a member measured by the hour, from a time on, in which max_wal_size
// was a number of MiB and so many checkpoints were forced in each hour.
func dayOf(start time.Time, size, forced float64) []agentapi.TuningSlot {
	var slots []agentapi.TuningSlot
	for h := range 24 {
		at := start.Add(time.Duration(h) * time.Hour)
		slots = append(slots, agentapi.TuningSlot{
			Start: at, End: at.Add(time.Hour), Seconds: 3600, Settings: map[string]float64{"max_wal_size": size * mib},
			Sums: map[string]float64{
				agentapi.TuningSamples: 60, agentapi.TuningCheckpointsRequested: forced, agentapi.TuningWALBytes: 20 * 40 * mib, agentapi.TuningTransactions: 1e5,
			},
			Peaks: map[string]float64{agentapi.TuningConnections: 10},
		})
	}
	return slots
}

// days are the day before a trial, which has just ended, and that of the trial.
var (
	now    = time.Now().UTC().Truncate(time.Hour)
	before = dayOf(now.Add(-24*time.Hour), 64, 20)
	better = slices.Concat(before, dayOf(now, 128, 1)) // too few for another step
	same   = slices.Concat(before, dayOf(now, 128, 20))
)

// tuning is a settled cluster whose settings are tried.
func (w *world) tuning() (*v1alpha1.PostgresCluster, *operator) {
	w.t.Helper()
	c := w.NewPostgresCluster("orders", 1)
	c.Spec.Tuning.Mode = v1alpha1.TuningApply
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	w.awaitSteady(o)
	return c, o
}

// tryingWorld has a cluster in which 128MB are tried.
func tryingWorld(t *testing.T) (*world, *v1alpha1.PostgresCluster, *operator) {
	t.Helper()
	w := newWorld(t, postgresKind)
	c, o := w.tuning()
	w.measured(before...)
	w.awaitTuned(c, "a trial", "128MB", isTried)
	return w, c, o
}

// awaitTuned waits until status says so, and members get max_wal_size; empty for none.
func (w *world) awaitTuned(c *v1alpha1.PostgresCluster, what, value string, holds func(v1alpha1.TuningStatus) bool) {
	w.t.Helper()
	await(w, c, what, func(c *v1alpha1.PostgresCluster) bool {
		w.simulation.Wake(client.ObjectKeyFromObject(c)) // as a member's report does
		return holds(readTuning(c))
	})
	w.awaitParameter(c, value)
}

func (w *world) awaitParameter(c *v1alpha1.PostgresCluster, value string) {
	w.t.Helper()
	apitest.Eventually(w.t, "members get max_wal_size="+value, func(ctx context.Context) (bool, string) {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		got := w.memberConfig(ctx, c).Parameters["max_wal_size"]
		return got == value, got
	})
}

func readTuning(c *v1alpha1.PostgresCluster) v1alpha1.TuningStatus {
	if c.Status.Tuning == nil {
		return v1alpha1.TuningStatus{}
	}
	return *c.Status.Tuning
}

func isTried(s v1alpha1.TuningStatus) bool { return s.Trial != nil && s.Trial.Value == "128MB" }
func isKept(s v1alpha1.TuningStatus) bool {
	return s.Trial == nil && len(s.Settings) == 1 && s.Settings[0].Value == "128MB"
}
func isQuarantined(s v1alpha1.TuningStatus) bool {
	return s.Trial == nil && len(s.Settings) == 0 && len(s.Resting) == 1 && s.Resting[0].Quarantined
}
func isResting(s v1alpha1.TuningStatus) bool {
	return s.Trial == nil && len(s.Settings) == 0 && len(s.Resting) == 1 && !s.Resting[0].Quarantined
}
func isUntuned(s v1alpha1.TuningStatus) bool { return s.Trial == nil && len(s.Settings) == 0 }

// neverUnready judges versions of a cluster: a step of tuning shows in no condition.
func (w *world) neverUnready() func(v1alpha1.Cluster) {
	return func(c v1alpha1.Cluster) {
		for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionDegraded, v1alpha1.ConditionStalled} {
			if got := conditions.Get(c, kind); got != nil {
				w.t.Errorf("a step of tuning makes it %s: %s: %s", kind, got.Reason, got.Message)
			}
		}
		if !conditions.IsTrue(c, v1alpha1.ConditionReady) {
			w.t.Errorf("a step of tuning makes it not ready: %s", conditions.GetMessage(c, v1alpha1.ConditionReady))
		}
	}
}

// A value is tried after a day of measurements, stays after another, and goes once the spec
// declares one. Events report each step, and no condition.
func TestTuningIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c, o := w.tuning()
	seen := w.watch(w.neverUnready())
	w.measured(before...)
	w.awaitTuned(c, "a trial", "128MB", isTried)
	trial := c.Status.Tuning.Trial
	if trial.Name != "max_wal_size" || trial.From != "64MB" || trial.Primary != "orders-0" || trial.Evidence == "" || trial.Since.IsZero() {
		t.Errorf("%+v", trial)
	}
	w.awaitEvent(v1alpha1.ReasonTuningTried, "max_wal_size is tried at 128MB, and was 64MB", "checkpoints")
	w.awaitQuiet(c, o)
	w.get(c)
	if len(c.Status.Recommendations) > 0 {
		t.Errorf("what is tried is recommended, too: %+v", c.Status.Recommendations)
	}
	w.measured(better...)
	w.awaitTuned(c, "the value is kept", "128MB", isKept)
	w.awaitEvent(v1alpha1.ReasonTuningKept, "max_wal_size stays at 128MB", "5 % of the forced checkpoints", "Commit spec.parameters.max_wal_size")
	w.awaitQuiet(c, o)
	seen.atLeast(2)
	o.stop()
	o = w.operate(0)
	w.awaitSteady(o)
	if w.get(c); !isKept(readTuning(c)) {
		t.Errorf("after a restart of the operator it is %+v", c.Status.Tuning)
	}
	w.measured(slices.Concat(before, dayOf(now, 128, 0))...)
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters = v1alpha1.Parameters{"max_wal_size": "96MB"} })
	w.awaitTuned(c, "the declared value counts", "96MB", isUntuned)
	w.awaitEvent(v1alpha1.ReasonTuningReleased, "spec.parameters.max_wal_size is declared")
	w.awaitQuiet(c, o)
}

// Why a value is not tried is recorded with what is recommended, once: the API server takes it,
// and a steady cluster writes nothing more. It goes with the recommendation.
func TestUntriedIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c, o := w.tuning()
	edit(w, c, func(c *v1alpha1.PostgresCluster) {
		c.Spec.Tuning.Window = &v1alpha1.TuningWindow{Start: "00:00", End: "00:00"} // never
	})
	w.awaitReady(c)
	w.awaitSteady(o)
	w.measured(before...)
	await(w, c, "the window is named", func(c *v1alpha1.PostgresCluster) bool {
		w.simulation.Wake(client.ObjectKeyFromObject(c)) // as a member's report does
		list := c.Status.Recommendations
		return len(list) == 1 && list[0].Untried != nil && list[0].Untried.Reason == "WindowClosed" && strings.Contains(list[0].Untried.Message, "spec.tuning.window") && !list[0].Untried.Since.IsZero()
	})
	w.awaitQuiet(c, o)
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Tuning.Window = nil })
	w.awaitTuned(c, "a trial", "128MB", isTried)
	w.awaitQuiet(c, o)
	if w.get(c); len(c.Status.Recommendations) > 0 {
		t.Errorf("what is tried is recommended, too: %+v", c.Status.Recommendations)
	}
}

// A value that is no better is rolled back, and not tried again.
func TestTuningIsRolledBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	c, o := w.tuning()
	seen := w.watch(w.neverUnready())
	w.measured(before...)
	w.awaitTuned(c, "a trial", "128MB", isTried)
	w.measured(same...)
	w.awaitTuned(c, "the value is rolled back", "", isQuarantined)
	rests := c.Status.Tuning.Resting[0]
	if rests.Name != "max_wal_size" || rests.Value != "128MB" || rests.Reason == "" || time.Until(rests.Until.Time) < 29*24*time.Hour {
		t.Errorf("%+v", rests)
	}
	w.awaitEvent(v1alpha1.ReasonTuningQuarantined, "max_wal_size is 64MB again", "it is no better")
	w.measured(dayOf(now.Add(-24*time.Hour), 64, 20)...)
	w.awaitQuiet(c, o)
	w.get(c)
	if !isQuarantined(readTuning(c)) || len(c.Status.Recommendations) > 0 {
		t.Errorf("%+v, recommended is %+v", c.Status.Tuning, c.Status.Recommendations)
	}
	seen.atLeast(2)
}

// Another mode takes back what is tuned, and members get it at once.
func TestTuningEndsWithItsMode(t *testing.T) {
	t.Parallel()
	w, c, o := tryingWorld(t)
	w.measured(better...)
	w.awaitTuned(c, "the value is kept", "128MB", isKept)
	w.measured()
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Tuning.Mode = v1alpha1.TuningRecommend })
	w.awaitTuned(c, "nothing is tuned", "", isUntuned)
	w.awaitEvent(v1alpha1.ReasonTuningRolledBack, "max_wal_size is no longer tuned to 128MB: spec.tuning.mode is not Apply")
	w.awaitReady(c)
	w.awaitQuiet(c, o)
}

// While a cluster is suspended no trial ends and none begins: members get nothing.
func TestTuningOfASuspendedCluster(t *testing.T) {
	t.Parallel()
	w, c, o := tryingWorld(t)
	w.awaitSteady(o)
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Suspend = true })
	w.measured(same...)
	w.awaitQuiet(c, o)
	w.awaitTuned(c, "the trial goes on", "128MB", isTried)
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Suspend = false })
	w.awaitTuned(c, "the value before is in force", "", isQuarantined)
	w.awaitSteady(o)
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Suspend = true })
	w.writeTuning(c, nil)
	w.measured(dayOf(now.Add(-24*time.Hour), 64, 20)...)
	w.awaitSteady(o)
	if w.get(c); !isUntuned(readTuning(c)) {
		t.Errorf("%+v is tried while suspended", c.Status.Tuning)
	}
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Suspend = false })
	w.awaitTuned(c, "a trial", "128MB", isTried)
}

// The number of members may change in a trial; a change of what is measured ends it.
func TestTuningGoesOnWhileScaling(t *testing.T) {
	t.Parallel()
	w, c, o := tryingWorld(t)
	w.scale(c, 2)
	w.awaitReady(c)
	w.awaitSteady(o)
	w.awaitTuned(c, "the trial goes on", "128MB", isTried)
	edit(w, c, func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters = v1alpha1.Parameters{"work_mem": "9MB"} })
	w.awaitTuned(c, "the trial ends", "", isResting)
	w.awaitEvent(v1alpha1.ReasonTuningRolledBack, "the spec has changed")
}

// dieAfter has the operator die in its nth write from now on.
func (o *operator) dieAfter(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.limit = o.writes + n
}

// The operator dies in every write of a step, and another one goes on: what is tried, kept
// or rolled back is the same.
func TestCrashWhileTuning(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]struct {
		tried bool
		slots []agentapi.TuningSlot
		holds func(v1alpha1.TuningStatus) bool
		value string
		least int
	}{
		"a trial begins":   {false, before, isTried, "128MB", 2},
		"a value is kept":  {true, better, isKept, "128MB", 1},
		"one is taken off": {true, same, isQuarantined, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, postgresKind)
			c, o := w.tuning()
			crashed := 0
			for n := 1; n < 10; n++ {
				if step.tried {
					w.measured(before...)
					w.awaitTuned(c, "a trial", "128MB", isTried)
				}
				w.awaitSteady(o)
				o.dieAfter(n)
				w.measured(step.slots...)
				done := func(c v1alpha1.Cluster) bool {
					w.simulation.Wake(client.ObjectKeyFromObject(c))
					return step.holds(readTuning(asPostgres(c))) && w.memberConfig(t.Context(), c).Parameters["max_wal_size"] == step.value
				}
				if !w.awaitEnd(o, c, done) {
					break
				}
				crashed = n
				o = w.operate(0)
				w.awaitTuned(c, name, step.value, step.holds)
				w.awaitSteady(o)
				w.get(c)
				if len(readTuning(c).Settings)+len(readTuning(c).Resting) > 1 {
					t.Errorf("%+v was decided twice", c.Status.Tuning)
				}
				w.measured()
				w.writeTuning(c, nil)
				w.awaitTuned(c, "nothing is tuned", "", isUntuned)
				w.awaitSteady(o)
				o.stop()
				o = w.operate(0)
				w.awaitSteady(o)
			}
			if crashed < step.least {
				t.Errorf("a step of %d writes is less than it takes", crashed)
			}
		})
	}
}

// writeTuning has another client write what is remembered.
func (w *world) writeTuning(c *v1alpha1.PostgresCluster, tuning *v1alpha1.TuningStatus) {
	w.t.Helper()
	w.get(c)
	edited := c.DeepCopy()
	edited.Status.Tuning = tuning
	if err := w.person.Status().Patch(w.t.Context(), edited, client.MergeFrom(c)); err != nil {
		w.t.Fatal(err)
	}
}

// Other clients write what is remembered, or what members get: members never get a setting
// that may not be tuned, the operator's status is never refused, and nothing is written again
// and again.
func TestOthersWriteTuning(t *testing.T) {
	t.Parallel()
	w, c, o := tryingWorld(t)
	w.awaitSteady(o)

	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders-config"}}
	w.get(config)
	config.Data[agentapi.ConfigKey] = fmt.Sprintf(`{"parameters":{"max_wal_size":%q}}`, "1GB")
	if err := w.person.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.awaitEvent(v1alpha1.ReasonDriftReverted, "orders-config")
	w.awaitTuned(c, "the trial goes on", "128MB", isTried)

	w.measured()
	basis := tune.Spec{Memory: c.Spec.Resources.Limits.Memory().Value(), Volume: c.Spec.Storage.Size.Value()}.Basis()
	forged := &v1alpha1.TuningStatus{Settings: []v1alpha1.TunedSettingStatus{
		{Name: "fsync", Value: "off"}, {Name: "work_mem", Value: "9000GB"}, {Name: "max_wal_size", Value: "128MB", Basis: basis}, {Value: "1"},
	}}
	w.writeTuning(c, forged)
	w.awaitTuned(c, "what may be tuned stays", "128MB", isKept)
	if got := w.memberConfig(t.Context(), c).Parameters; len(got) != 1 {
		t.Errorf("members get %v", got)
	}
	w.awaitQuiet(c, o)

	part := `{"apiVersion":"holdfast.dev/v1alpha1","kind":"PostgresCluster","metadata":{"namespace":%q,"name":"orders"},"status":{"tuning":%s}}`
	for _, tuning := range []string{
		`{"trial":{"name":"work_mem"},"settings":[{"name":"max_wal_size"}]}`, `{"trial":{},"resting":[{}]}`, `{}`,
	} {
		owned := w.NewPostgresCluster("orders", 1)
		patch := client.RawPatch(types.ApplyPatchType, fmt.Appendf(nil, part, w.Namespace, tuning))
		if err := w.person.Status().Patch(t.Context(), owned, patch, client.FieldOwner("theirs"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
		w.awaitTuned(c, "nothing is tuned after "+tuning, "", func(s v1alpha1.TuningStatus) bool { return isUntuned(s) })
		w.awaitSteady(o)
		w.wantQuiet(c, o)
	}
	w.writeTuning(c, nil)
	w.measured(before...)
	w.awaitTuned(c, "a trial", "128MB", isTried)
	w.awaitQuiet(c, o)
}
