package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func TestReadVersions(t *testing.T) {
	const own = "registry.example/postgres:17"
	for _, tc := range []struct {
		name   string
		change func(w *world)
		want   versions
	}{
		{"the primary's version", func(w *world) { w.status(1).Version = "17.3" }, versions{running: "17.4", declared: "17.4"}},
		{"as the spec said it", func(w *world) {
			w.o.StatefulSet.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationImage: w.o.Settings.ImageRepository + ":17"}
		}, versions{running: "17.4", declared: "17"}},
		{"as the spec said it of another major version", func(w *world) {
			w.o.StatefulSet.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationImage: w.o.Settings.ImageRepository + ":18"}
		}, versions{running: "17.4", declared: "17.4"}},
		{"what status remembers, while no primary is heard", func(w *world) {
			w.c.Status.Version = "17.2"
			delete(w.o.Members, w.o.Pods[0].Name)
		}, versions{running: "17.2", declared: "17.2"}},
		{"an image of one's own", func(w *world) {
			w.c.Spec.Image = own
			w.o.Pods[0].Annotations[v1alpha1.AnnotationImage] = own
		}, versions{running: "17.4", declared: "17.4", ownImage: true}},
		{"an image of one's own that only a replica runs", func(w *world) {
			w.c.Spec.Image = own
			w.o.Pods[1].Annotations[v1alpha1.AnnotationImage] = own
		}, versions{running: "17.4", declared: "17.4"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 2)
			tc.change(w)
			if diff := cmp.Diff(tc.want, readVersions(w.c, w.view(), findLeader(membersOf(w.c), w.o)), cmp.AllowUnexported(versions{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
