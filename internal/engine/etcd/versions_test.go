package etcd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
)

// What the members run, beside what is declared: the next minor version.
func TestReadVersions(t *testing.T) {
	const own = "registry.example/etcd:mine"
	next := etcdversion.Version{Minor: 6, Patch: 12}
	running := versions{running: "3.5.26", have: etcdversion.Version{Minor: 5, Patch: 26}, want: next, hasHave: true, hasWant: true}
	with := func(change func(v *versions)) versions {
		v := running
		change(&v)
		return v
	}
	for _, tc := range []struct {
		name   string
		change func(w *world)
		want   versions
	}{
		{"an upgrade is asked for", func(*world) {}, running},
		{"it has begun at one member", func(w *world) { w.status(2).Version = "3.6.12" }, with(func(v *versions) { v.begun = true })},
		{"it is declared for all", func(w *world) {
			w.o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationImage] = specImage(w.c, w.o.Settings)
		}, with(func(v *versions) { v.begun = true })},
		{"it is done", func(w *world) {
			for n := range 3 {
				w.status(n).Version = "3.6.12"
			}
		}, versions{running: "3.6.12", have: next, want: next, hasHave: true, hasWant: true, begun: true}},
		{"a member that does not answer may run what status remembers", func(w *world) {
			w.status(0).Version, w.status(1).Version = "3.6.12", "3.6.12"
			w.gone(2)
		}, with(func(v *versions) { v.begun = true })},
		{"a member is restarted first", func(w *world) { w.status(1).PendingRestart = []string{etcdapi.PendingLog} },
			with(func(v *versions) { v.logsWait = true })},
		{"an image of one's own on every pod", func(w *world) {
			w.c.Spec.Image = own
			for n := range 3 {
				w.o.Pods[n].Annotations[v1alpha1.AnnotationImage] = own
			}
		}, with(func(v *versions) { v.ownImage = true })},
		{"an image of one's own on one pod", func(w *world) {
			w.c.Spec.Image = own
			w.o.Pods[1].Annotations[v1alpha1.AnnotationImage] = own
		}, running},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 3)
			w.c.Spec.Version = "3.6.12"
			tc.change(w)
			if diff := cmp.Diff(tc.want, readVersions(w.c, w.view()), cmp.AllowUnexported(versions{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Who is in a group, and how far each has come.
func TestGroupCountsItsMembers(t *testing.T) {
	g := group{joining: -1, members: map[int]etcdapi.GroupMember{
		0: {ID: "a", Name: "config-0"}, 1: {ID: "b", Name: "config-1"}, 4: {ID: "c", Name: "config-4", Learner: true}, 5: {ID: "d"},
	}, strangers: []etcdapi.GroupMember{{ID: "e", Name: "other"}, {ID: "f", Learner: true}}}
	g.countMembers()
	if g.voters != 4 || g.joining != 4 || g.ordinals != 6 || g.started != 5 {
		t.Errorf("%d voters, %d joining, %d ordinals, %d started; want 4, 4, 6, 5", g.voters, g.joining, g.ordinals, g.started)
	}
	settledGroup := group{joining: -1, members: map[int]etcdapi.GroupMember{0: {ID: "a", Name: "config-0"}}}
	if settledGroup.countMembers(); settledGroup.joining != -1 || settledGroup.voters != 1 {
		t.Errorf("of a group of one, %d joins and %d vote", settledGroup.joining, settledGroup.voters)
	}
}

func TestVersions(t *testing.T) {
	cases := []struct{ name, running, declared, reason, remedy string }{
		{"the same", "3.5.26", "3.5.26", "", ""},
		{"a newer patch", "3.5.26", "3.5.30", "", ""},
		{"the next minor version", "3.5.26", "3.6.12", "", ""},
		{"from a patch that is too old", "3.5.25", "3.6.12", "UpgradePathRefused", `"3.5.26"`},
		{"likewise a version later", "3.6.10", "3.7.0", "UpgradePathRefused", `"3.6.11"`},
		{"two minor versions at once", "3.5.26", "3.7.0", "UpgradePathRefused", "3.6"},
		{"an older minor version", "3.6.12", "3.5.26", "DowngradeRefused", `"3.6.12"`},
		{"an older patch is taken back", "3.5.26", "3.5.9", "", ""},
		{"a patch with more digits", "3.5.9", "3.5.26", "", ""},
		{"the minor version that runs", "3.5.9", "3.5", "", ""},
		{"the minor version of a patch that is newer than any known", "3.5.200", "3.5", "", ""},
		{"the next one without its patch", "3.5.26", "3.6", "", ""},
		{"likewise from a patch that is too old", "3.5.25", "3.6", "UpgradePathRefused", `"3.5.26"`},
		{"two at once without a patch", "3.5.26", "3.7", "UpgradePathRefused", "3.6"},
		{"an older one without its patch", "3.6.12", "3.5", "DowngradeRefused", `"3.6.12"`},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 3)
			for n := range 3 {
				w.status(n).Version = tc.running
			}
			w.c.Spec.Version = tc.declared
			reason, message := readVersions(w.c, w.view()).explainRefusal(w.c)
			if reason != tc.reason || !strings.Contains(message, tc.remedy) || reason != "" && !strings.Contains(message, "spec.version") {
				t.Errorf("%s: %s", reason, message)
			}
		})
	}
	t.Run("a failed upgrade may be taken back while a member runs the old version", func(t *testing.T) {
		w := settled(t, 3)
		w.status(2).Version = "3.6.12"
		if reason, message := readVersions(w.c, w.view()).explainRefusal(w.c); reason != "" {
			t.Errorf("%s: %s", reason, message)
		}
		w.status(0).Version, w.status(1).Version = "3.6.12", "3.6.12"
		if reason, _ := readVersions(w.c, w.view()).explainRefusal(w.c); reason == "" {
			t.Error("taken back after the whole cluster was upgraded")
		}
	})
	t.Run("a member without a pod may be at the old version", func(t *testing.T) {
		w := settled(t, 3)
		w.status(1).Version, w.status(2).Version = "3.6.12", "3.6.12"
		w.gone(0)
		w.c.Spec.Version = "3.7.0"
		if reason, _ := readVersions(w.c, w.view()).explainRefusal(w.c); reason == "" || w.plan().Report.Version != "3.5.26" {
			t.Errorf("%q; the cluster is at %s", reason, w.plan().Report.Version)
		}
	})
	t.Run("what is refused changes no pod", func(t *testing.T) {
		w := settled(t, 3)
		w.c.Spec.Version = "3.7.0"
		if got := judge(w.plan()); got.Step != "" || !strings.Contains(strings.Join(got.Facts, " "), "Stalled/UpgradePathRefused") {
			t.Errorf("%+v", got)
		}
	})
}
