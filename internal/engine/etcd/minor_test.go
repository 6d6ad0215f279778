package etcd

import (
	"strings"
	"testing"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/etcdversion"
)

const (
	older = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	newer = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

// ofMinor is a settled cluster whose spec names a minor version alone; its pods
// run a patch of it.
func ofMinor(t *testing.T, tag string) *world {
	t.Helper()
	w := settled(t, 3)
	w.c.Spec.Version = "3.6"
	w.c.Status.Version = strings.TrimPrefix(tag, "v")
	w.statefulSet()
	declared := w.o.Settings.ImageRepository + ":" + tag
	w.o.StatefulSet.Spec.Template.Spec.Containers[0].Image = declared
	w.c.Status.Image = declared
	for n := range 3 {
		w.pod(n).Spec.Containers[0].Image = declared
	}
	w.say()
	for n := range 3 {
		w.status(n).Version = w.c.Status.Version
	}
	return w
}

// runs says which build of its image a pod has.
func (w *world) runs(ordinal int, digest string) {
	w.o.Pods[ordinal].Status.ContainerStatuses[0].ImageID = w.o.Settings.ImageRepository + "@" + digest
}

// A minor version alone is the newest patch that is known, once: what runs stays,
// whatever a newer operator knows.
func TestMinorVersionIsPinned(t *testing.T) {
	const repository = "quay.io/coreos/etcd"
	known, _ := etcdversion.NewestPatch(6)
	next, _ := etcdversion.NewestPatch(7)
	for _, tc := range []struct {
		name  string
		world func(t *testing.T) *world
		want  string
	}{
		{"before anything runs it is the newest that is known", func(t *testing.T) *world {
			w := newWorld(t, 3)
			w.c.Spec.Version = "3.6"
			return w
		}, repository + ":v" + known.String()},
		{"a patch that an older operator chose stays", func(t *testing.T) *world { return ofMinor(t, "v3.6.11") }, repository + ":v3.6.11"},
		{"its build is pinned", func(t *testing.T) *world {
			w := ofMinor(t, "v3.6.11")
			w.runs(0, older)
			return w
		}, repository + "@" + older},
		{"and stays when another one appears", func(t *testing.T) *world {
			w := ofMinor(t, "v3.6.11")
			w.o.StatefulSet.Spec.Template.Spec.Containers[0].Image = repository + "@" + older
			w.c.Status.Image = repository + "@" + older
			w.runs(0, newer)
			return w
		}, repository + "@" + older},
		{"a patch that is newer than any known is not gone back from", func(t *testing.T) *world {
			w := ofMinor(t, "v3.6.300")
			w.o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationImage] = repository + ":v3.6.300" // spec said so
			return w
		}, repository + ":v3.6.300"},
		{"the next minor version waits for its backup", func(t *testing.T) *world {
			w := ofMinor(t, "v3.6.11")
			w.c.Spec.Version, w.c.Spec.Backup = "3.7", &v1alpha1.ClusterBackup{}
			return w
		}, repository + ":v3.6.11"},
		{"and is begun without where backups are off", func(t *testing.T) *world {
			w := ofMinor(t, "v3.6.11")
			w.c.Spec.Version = "3.7"
			return w
		}, repository + ":v" + next.String()},
		{"an image of one's own is what it is", func(t *testing.T) *world {
			w := ofMinor(t, "v3.6.11")
			w.c.Spec.Image = "example.com/etcd:3.6"
			return w
		}, "example.com/etcd:3.6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := tc.world(t)
			d, facts := w.desired()
			if d.Image != tc.want {
				t.Errorf("the image is %s, want %s; %v", d.Image, tc.want, facts)
			}
		})
	}
}

// Neither pinning nor a newer operator replaces a pod; another build does.
func TestMinorVersionReplacesOnlyOtherBuilds(t *testing.T) {
	w := ofMinor(t, "v3.6.11")
	if step := w.plan().Step; step != nil {
		t.Fatalf("step %+v", step)
	}
	for n := range 3 {
		w.runs(n, older)
	}
	if step := w.plan().Step; step != nil {
		t.Fatalf("pinned: step %+v", step)
	}
	w.runs(1, newer)
	if step := w.plan().Step; step == nil || step.Type != memberset.StepReplaceMember || step.Target != w.o.Pods[1].Name {
		t.Fatalf("another build: step %+v", step)
	}
}

// What is chosen for a minor version can be upgraded from.
func TestNewestPatches(t *testing.T) {
	for minor := 5; minor <= 7; minor++ {
		have, known := etcdversion.NewestPatch(minor)
		if !known {
			t.Fatalf("no patch of 3.%d is known", minor)
		}
		if obstacle, first := etcdversion.FindObstacle(have, etcdversion.Version{Minor: minor + 1}); obstacle != etcdversion.None {
			t.Errorf("%s cannot be upgraded before %s", have, first)
		}
	}
	if _, ok := etcdversion.ParseDeclared("3.6.x"); ok {
		t.Error("3.6.x is no version")
	}
}
