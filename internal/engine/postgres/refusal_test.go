package postgres

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// What cannot be followed is said with the field as it was declared, and with
// what to write there.
func TestRefusalsNameTheField(t *testing.T) {
	const own = "registry.example/team/postgres:17"
	onOwnImage := func(w *world) {
		w.c.Spec.Image = own
		for n := range 2 {
			w.o.Pods[n].Annotations[v1alpha1.AnnotationImage] = own
		}
	}
	running := func(w *world) string { return w.status(0).Version }
	for _, tc := range []struct {
		name   string
		change func(w *world)
		says   func(w *world) []string
		never  string
	}{
		{"the version goes back to what was declared, not to what runs",
			func(w *world) { w.declareImage("postgres:17", repository+":17"); w.c.Spec.Version = "18" },
			func(*world) []string { return []string{`spec.version "18"`, `set spec.version to "17" again`} }, ""},
		{"a minor version that was declared is the one to go back to",
			func(w *world) {
				w.declareImage("postgres:17", repository+":"+running(w))
				w.c.Spec.Version = "18"
			},
			func(w *world) []string { return []string{`set spec.version to "` + running(w) + `" again`} }, `set spec.version to "17"`},
		{"an image of another major version is what is wrong, and not the version",
			func(w *world) { onOwnImage(w); w.c.Spec.Version = "18" },
			func(w *world) []string {
				return []string{"Stalled/DataVersionMismatch", `spec.image "` + own + `" holds PostgreSQL ` + running(w), "name an image of PostgreSQL 18 in spec.image"}
			}, "does not upgrade in place"},
		{"an image that cannot be pulled is spec.image's",
			func(w *world) {
				onOwnImage(w)
				p := w.o.Pods[1]
				p.Spec.Containers[0].Image = own
				p.Annotations[v1alpha1.AnnotationRollout] = membersOf(w.c).RolloutHash(own)
				p.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}
			},
			func(*world) []string { return []string{"check spec.image and spec.imagePullSecrets"} }, "spec.version"},
		{"growth by itself where the class allows none",
			func(w *world) {
				w.c.Spec.Storage.AutoGrow = &v1alpha1.AutoGrowSpec{MaxSize: resource.MustParse("2Gi")}
				for n := range 2 {
					w.o.Volumes[n].Spec.StorageClassName = new("fixed")
				}
			},
			func(*world) []string {
				return []string{"Degraded/StorageNotExpandable", "spec.storage.autoGrow has no effect", `"fixed"`, "allowVolumeExpansion"}
			}, ""},
		{"a smaller size beside growth by itself",
			func(w *world) {
				w.o.StatefulSet.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{*w.o.Volumes[0].DeepCopy()}
				w.c.Spec.Storage.AutoGrow = &v1alpha1.AutoGrowSpec{MaxSize: resource.MustParse("2Gi")}
				w.c.Spec.Storage.Size = resource.MustParse("512Mi")
			},
			func(*world) []string {
				return []string{"Stalled/StorageShrinkRefused", "spec.storage.size 512Mi", "set it to at least 1Gi"}
			}, ""},
		{"a pod that a quota keeps out",
			func(w *world) {
				w.removePod(1)
				w.o.Uncreated = map[int]string{1: `pods "orders-1" is forbidden: exceeded quota: compute, requested: limits.memory=1Gi, used: limits.memory=1Gi, limited: limits.memory=1Gi`}
			},
			func(*world) []string {
				return []string{"Stalled/Forbidden", "pod orders-1 cannot be created", "ResourceQuota compute is used up", "spec.resources"}
			}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 2)
			tc.change(w)
			var said []string
			for _, f := range w.plan().Facts {
				if f.Type == v1alpha1.ConditionStalled || f.Type == v1alpha1.ConditionDegraded {
					said = append(said, f.Type+"/"+f.Reason+" "+f.Message)
				}
			}
			text := strings.Join(said, "\n")
			for _, want := range tc.says(w) {
				if !strings.Contains(text, want) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			if tc.never != "" && strings.Contains(text, tc.never) {
				t.Errorf("it says %q:\n%s", tc.never, text)
			}
		})
	}
}
