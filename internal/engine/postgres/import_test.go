package postgres

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// importing is a settled cluster whose import is not done: no Service sends clients to it.
func importing(t *testing.T, replicas int) *world {
	t.Helper()
	w := settled(t, replicas)
	w.c.Spec.Bootstrap.Import = &v1alpha1.ImportSource{Host: "old", Database: "shop", User: "reader"}
	w.c.Status.Import = &v1alpha1.ImportStatus{StartTime: &metav1.Time{Time: now}}
	w.status(0).Details = map[string]string{postgresapi.DetailDatabase: "app", postgresapi.DetailOwner: "app"}
	w.keepOut()
	return w
}

// A cluster whose spec was rolled out has let clients in, whatever is known of its import.
func TestImportOfAnOpenedCluster(t *testing.T) {
	w := importing(t, 1)
	if w.plan().Import.Opened {
		t.Error("clients are let in before the import is done")
	}
	w.c.Status.RolledOut = &v1alpha1.RolledOutStatus{Generation: 1}
	if !w.plan().Import.Opened {
		t.Error("a cluster that was rolled out counts as one without clients")
	}
}

func (w *world) keepOut() { w.o.ServicePods = map[string]map[string]bool{suffixRW: {}, suffixRO: {}} }

// keptOut are the Services that send clients to no member.
func (w *world) keptOut() (names []string) {
	for _, obj := range w.plan().Objects {
		if s, is := obj.(*corev1ac.ServiceApplyConfiguration); is && s.Spec.Selector[v1alpha1.LabelImport] != "" {
			names = append(names, *s.Name)
		}
	}
	return names
}

func TestClientsAreKeptOutUntilAnImportIsDone(t *testing.T) {
	w := importing(t, 3)
	if diff := cmp.Diff([]string{"orders-rw", "orders-ro"}, w.keptOut()); diff != "" {
		t.Errorf("while it is under way (-want +got):\n%s", diff)
	}
	for _, f := range w.plan().Facts {
		if f.Type == v1alpha1.ConditionAvailable && (f.Status != metav1.ConditionFalse || f.Reason != v1alpha1.ReasonImporting) {
			t.Errorf("%+v", f)
		}
	}
	w.c.Spec.Bootstrap.Import = nil // given up: until that is recorded, a pod may still write
	if got := w.keptOut(); len(got) != 2 {
		t.Errorf("once the spec declares it no more: %v", got)
	}
	w.c.Status.Import.CompletionTime = &metav1.Time{Time: now}
	if got := w.keptOut(); got != nil {
		t.Errorf("once it is done: %v", got)
	}
}

// What an import waits for, such as an image with an extension, is rolled out to all members
// while clients are kept out.
func TestRolloutGoesOnDuringAnImport(t *testing.T) {
	w := importing(t, 3)
	w.c.Generation, w.c.Spec.PodLabels = 2, map[string]string{"team": "shop"}
	for _, want := range []int{2, 1} {
		step := w.plan().Step
		if step == nil || step.Target != membersOf(w.c).PodName(want) {
			t.Fatalf("%+v, want member %d to be replaced", step, want)
		}
		w.member(want)
		w.keepOut()
	}
	if step := w.plan().Step; step == nil {
		t.Error("the primary stays as it was")
	}
}

func TestPlanImport(t *testing.T) {
	for name, c := range map[string]struct {
		world  func() *world
		want   bool
		living bool
		serves bool
	}{
		"none is declared": {func() *world { return settled(t, 1) }, false, false, false},
		"before there is anything": {func() *world {
			w := newWorld(t, 1)
			w.c.Spec.Bootstrap.Import = &v1alpha1.ImportSource{}
			return w
		}, true, false, false},
		"where an earlier cluster's volume is": {func() *world {
			w := newWorld(t, 1)
			w.c.Spec.Bootstrap.Import = &v1alpha1.ImportSource{}
			w.mintSecrets()
			w.volume(0, true)
			return w
		}, true, true, false},
		"where an earlier cluster's volume goes": {func() *world {
			w := newWorld(t, 1)
			w.c.Spec.Bootstrap.Import = &v1alpha1.ImportSource{}
			w.mintSecrets()
			w.volume(0, true)
			w.o.Volumes[0].Annotations = map[string]string{v1alpha1.AnnotationCluster: "earlier"}
			w.o.Volumes[0].DeletionTimestamp = &metav1.Time{Time: now}
			return w
		}, true, false, false},
		"where a member takes writes": {func() *world { return importing(t, 3) }, true, true, true},
		"before the first database is there": {func() *world {
			w := importing(t, 3)
			w.status(0).Details = nil
			return w
		}, true, true, false},
		"while no member leads": {func() *world {
			w := importing(t, 3)
			w.removePod(0)
			return w
		}, true, true, false},
		"that the spec declares no more": {func() *world {
			w := importing(t, 1)
			w.c.Spec.Bootstrap.Import = nil
			return w
		}, true, true, true},
		"that is done": {func() *world {
			w := importing(t, 1)
			w.c.Status.Import.CompletionTime = &metav1.Time{Time: now}
			return w
		}, false, false, false},
	} {
		w := c.world()
		got := w.plan().Import
		if (got != nil) != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		if got == nil {
			continue
		}
		if (got.Leaving != "") != strings.HasSuffix(name, "goes") {
			t.Errorf("%s: leaving is %q", name, got.Leaving)
		}
		if got.Living != c.living || got.Serving != c.serves || len(got.Hosts) != int(*w.c.Spec.Replicas) || got.Secret != "orders-app" || (got.Source == nil) != (w.c.Spec.Bootstrap.Import == nil) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
