//go:build apiserver

package controller_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// measuredLoad is a load that a setting is too small for, by kind.
type measuredLoad struct {
	field, current, value string
	// setting is its name as members report it, and now and next are its values in bytes.
	setting   string
	now, next float64
	sums      map[string]float64
	dataSize  float64
}

const mib = 1 << 20

var measuredLoads = map[string]measuredLoad{
	"PostgresCluster": {
		field: "spec.parameters.max_wal_size", current: "64MB", value: "128MB", setting: "max_wal_size", now: 64 * mib, next: 128 * mib,
		sums: map[string]float64{agentapi.TuningCheckpointsRequested: 20, agentapi.TuningWALBytes: 20 * 40 * mib},
	},
	"MySQLCluster": {
		field: "spec.parameters.innodb_redo_log_capacity", current: "48M", value: "96M", setting: "innodb_redo_log_capacity", now: 48 * mib, next: 96 * mib,
		sums: map[string]float64{agentapi.TuningRedoBytes: 20 * 48 * mib},
	},
	"EtcdCluster": {
		field: "spec.quota", current: "160Mi", value: "320Mi", setting: "quota", now: 160 * mib, next: 320 * mib,
		dataSize: 140 * mib,
	},
}

// declare has the spec declare what is recommended.
func (l measuredLoad) declare(w *world, c v1alpha1.Cluster) {
	if e, is := c.(*v1alpha1.EtcdCluster); is {
		e.Spec.Quota = new(resource.MustParse(l.value))
		return
	}
	parameters := w.kind.parameters(c)
	*parameters = maps.Clone(*parameters)
	if *parameters == nil {
		*parameters = v1alpha1.Parameters{}
	}
	(*parameters)[l.setting] = l.value
}

// slot is an hour with the load, ended now.
func (l measuredLoad) slot(times, setting float64) agentapi.TuningSlot {
	s := agentapi.TuningSlot{
		Start: time.Now().Add(-time.Hour), End: time.Now(), Seconds: 3600, Sums: map[string]float64{agentapi.TuningSamples: 60},
		Peaks: map[string]float64{agentapi.TuningDataSize: l.dataSize * times}, Settings: map[string]float64{l.setting: setting},
	}
	for name, value := range l.sums {
		s.Sums[name] = value * times
	}
	return s
}

// What members measure is recommended once. A load that goes on, grows, comes and goes, and
// an operator that is started anew, write nothing more.
func TestRecommendations(t *testing.T) { eachKind(t, recommendationsAreRecorded) }

func recommendationsAreRecorded(t *testing.T, w *world) {
	load := measuredLoads[w.kind.name]
	c, o := w.settled(1)
	if list := c.CommonStatus().Recommendations; len(list) > 0 {
		t.Errorf("a cluster of which nothing was measured has %+v", list)
	}
	recorded := w.awaitRecommended(c, load)
	if !ready(c) {
		t.Error("a recommendation makes a cluster not ready")
	}
	w.awaitSteady(o)
	for _, times := range []float64{1, 1.1, 0, 1, 0} {
		w.measured(load.slot(times, load.now))
		w.wantQuiet(c, o)
	}
	w.measured()
	w.wantKept(c, o, recorded)
}

// A recommendation that is committed goes at once, and stays away with its value in force.
// What is excluded is not recommended, and nothing is in mode Off.
func TestRecommendationsGo(t *testing.T) { eachKind(t, recommendationsGo) }

func recommendationsGo(t *testing.T, w *world) {
	load := measuredLoads[w.kind.name]
	c, o := w.settled(1)
	w.awaitRecommended(c, load)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Tuning.Exclude = []string{load.setting} })
	w.awaitNoneRecommended(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Tuning.Exclude = nil })
	w.awaitRecommended(c, load)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Tuning.Mode = v1alpha1.TuningOff })
	w.awaitNoneRecommended(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().Tuning.Mode = v1alpha1.TuningRecommend })
	w.awaitRecommended(c, load)
	edit(w, c, func(c v1alpha1.Cluster) { load.declare(w, c) })
	w.measured(load.slot(1, load.now), load.slot(0, load.next))
	w.awaitNoneRecommended(c)
	w.awaitReady(c)
	w.awaitQuiet(c, o)
	w.get(c)
	if list := c.CommonStatus().Recommendations; len(list) > 0 {
		t.Errorf("recommended again: %+v", list)
	}
}

// The API refuses modes that do not exist, and mode Apply of kinds whose settings are not
// tried, with what to declare instead.
func TestTuningModeIsChecked(t *testing.T) { eachKind(t, tuningModeIsChecked) }

func tuningModeIsChecked(t *testing.T, w *world) {
	c := w.cluster("orders", 1)
	c.Common().Tuning.Mode = "Automatic"
	if err := w.person.Create(t.Context(), c); err == nil {
		t.Error("mode Automatic is accepted")
	}
	c.Common().Tuning.Mode = v1alpha1.TuningApply
	err := w.person.Create(t.Context(), c)
	if w.kind == postgresKind {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), "spec.tuning.mode Apply is for PostgreSQL: use Recommend") {
		t.Errorf("mode Apply: %v", err)
	}
	front := &v1alpha1.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "front"},
		Spec:       v1alpha1.DatabaseSpec{Engine: "mysql", Version: "8.4", Storage: resource.MustParse("1Gi")},
	}
	front.Spec.Tuning.Mode = v1alpha1.TuningApply
	if err := w.person.Create(t.Context(), front); err == nil || !strings.Contains(err.Error(), "use Recommend with spec.engine mysql") {
		t.Errorf("mode Apply of a Database: %v", err)
	}
}

// A window whose times are none is refused.
func TestTuningWindowIsChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, postgresKind)
	for start, zone := range map[string]string{"24:00": "", "9:00": "", "22:00": "Europe/Nowhere"} {
		c := w.NewPostgresCluster("orders", 1)
		c.Spec.Tuning = v1alpha1.TuningSpec{Mode: v1alpha1.TuningApply, Window: &v1alpha1.TuningWindow{Start: start, End: "04:00", TimeZone: zone}}
		if err := w.person.Create(t.Context(), c); err == nil {
			t.Errorf("a window from %s in %q is accepted", start, zone)
		}
	}
}

// measured has the first member report what it measured.
func (w *world) measured(slots ...agentapi.TuningSlot) {
	w.simulation.change(func(s *simulation) { s.measured = slots })
}

// awaitRecommended has the load measured, and waits until its setting is recommended.
func (w *world) awaitRecommended(c v1alpha1.Cluster, load measuredLoad) []v1alpha1.RecommendationStatus {
	w.t.Helper()
	w.measured(load.slot(1, load.now))
	await(w, c, "a recommendation", func(c v1alpha1.Cluster) bool { return len(c.CommonStatus().Recommendations) == 1 })
	got := c.CommonStatus().Recommendations
	if r := got[0]; r.Field != load.field || r.Current != load.current || r.Value != load.value || r.Evidence == "" || r.Since.IsZero() {
		w.t.Errorf("recommended is %+v, want %+v", r, load)
	}
	return slices.Clone(got)
}

func (w *world) awaitNoneRecommended(c v1alpha1.Cluster) {
	w.t.Helper()
	await(w, c, "no recommendation", func(c v1alpha1.Cluster) bool { return len(c.CommonStatus().Recommendations) == 0 })
}

// wantKept has another operator begin, to which members have reported nothing yet: what was
// recommended stays.
func (w *world) wantKept(c v1alpha1.Cluster, o *operator, recorded []v1alpha1.RecommendationStatus) {
	w.t.Helper()
	o.stop()
	o = w.operate(0)
	w.awaitSteady(o)
	w.get(c)
	if got := c.CommonStatus().Recommendations; !equality.Semantic.DeepEqual(got, recorded) {
		w.t.Errorf("after a restart of the operator it is %+v, and was %+v", got, recorded)
	}
}

// awaitQuiet waits until the operator is at rest, and then wants that it stays so.
func (w *world) awaitQuiet(c v1alpha1.Cluster, o *operator) {
	w.t.Helper()
	w.awaitSteady(o)
	w.wantQuiet(c, o)
}

// wantQuiet has the operator look at a cluster again and again: it sends nothing.
func (w *world) wantQuiet(c v1alpha1.Cluster, o *operator) {
	w.t.Helper()
	for range 20 {
		w.simulation.Wake(client.ObjectKeyFromObject(c))
		time.Sleep(50 * time.Millisecond)
	}
	if seen := o.take(); len(seen) > 0 {
		w.t.Errorf("%d requests: %s", len(seen), fmt.Sprint(seen))
	}
}
