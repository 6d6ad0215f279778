package postgres

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

const (
	repository = "docker.io/library/postgres"

	older = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	newer = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
)

// runImage is a pod that runs a build of what the spec asks for.
func (w *world) runImage(ordinal int, digest string) *corev1.Pod {
	p := w.o.Pods[ordinal]
	p.Annotations[v1alpha1.AnnotationImage] = specImage(w.c, w.o.Settings)
	p.Status.ContainerStatuses[0].ImageID = digest
	if digest != "" {
		p.Status.ContainerStatuses[0].ImageID = repository + "@" + digest
	}
	return p
}

// declareImage is what the StatefulSet declares.
func (w *world) declareImage(img, asked string) {
	w.o.StatefulSet.Spec.Template.Spec.Containers[0].Image = img
	w.o.StatefulSet.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationImage: asked}
}

func TestATagIsResolvedOnce(t *testing.T) {
	asked := specImage(newWorld(t, 1).c, newWorld(t, 1).o.Settings)
	at := func(digest string) string { return repository + "@" + digest }
	for _, test := range []struct {
		name  string
		world func(w *world)
		want  string
	}{
		{"before anything runs", func(w *world) { w.removePod(0); w.removePod(1) }, asked},
		{"of images that came by hand no digest is known", func(w *world) {
			w.runImage(0, "").Status.ContainerStatuses[0].ImageID = older
		}, asked},
		{"nor of those that kind loads, under a name of its own", func(w *world) {
			w.runImage(0, "").Status.ContainerStatuses[0].ImageID = "docker.io/library/import-2026-06-03@" + older
		}, asked},
		{"nor where the node had the image under another name first", func(w *world) {
			w.runImage(0, "").Status.ContainerStatuses[0].ImageID = "ghcr.io/mirrors/postgres@" + older
		}, asked},
		{"by an older runtime's word", func(w *world) {
			w.runImage(0, "").Status.ContainerStatuses[0].ImageID = "docker-pullable://" + at(older)
		}, at(older)},
		{"by the pod of an operator that did not resolve tags", func(w *world) {
			delete(w.runImage(0, older).Annotations, v1alpha1.AnnotationImage)
		}, at(older)},
		{"not by such a pod of another version", func(w *world) {
			p := w.runImage(0, older)
			delete(p.Annotations, v1alpha1.AnnotationImage)
			p.Spec.Containers[0].Image = repository + ":17.1"
		}, asked},
		{"by the first member's build", func(w *world) { w.runImage(0, older); w.runImage(1, newer) }, at(older)},
		{"by the member that ran first", func(w *world) {
			w.runImage(0, newer).CreationTimestamp = metav1.NewTime(now.Add(time.Hour))
			w.runImage(1, older).CreationTimestamp = metav1.NewTime(now)
		}, at(older)},
		{"not by a container that does not run", func(w *world) {
			w.runImage(0, older).Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
			w.runImage(1, newer)
		}, at(newer)},
		{"and stays when every pod is gone", func(w *world) {
			w.declareImage(at(older), asked)
			w.c.Status.Image = at(older)
			w.removePod(0)
			w.removePod(1)
		}, at(older)},
		{"and stays when a newer build appears", func(w *world) {
			w.declareImage(at(older), asked)
			w.c.Status.Image = at(older)
			w.runImage(0, newer)
			w.runImage(1, newer)
		}, at(older)},
		{"again when the StatefulSet and the status are lost", func(w *world) {
			w.o.StatefulSet = nil
			w.runImage(0, older).Spec.Containers[0].Image = at(older)
		}, at(older)},
		{"not to what another client wrote into the StatefulSet", func(w *world) {
			w.declareImage(at(newer), asked)
			w.c.Status.Image = at(older)
			w.runImage(0, older)
		}, at(older)},
		{"not to another image that another client set on a pod", func(w *world) {
			w.runImage(0, newer).Spec.Containers[0].Image = "example.invalid/miner:1"
			w.runImage(1, older)
		}, at(older)},
		{"afresh for another version", func(w *world) {
			w.declareImage(at(older), asked)
			w.c.Status.Image = at(older)
			w.runImage(0, older)
			w.c.Spec.Version = "17.9"
		}, repository + ":17.9"},
		{"never when the spec names a digest", func(w *world) {
			w.runImage(0, older)
			w.c.Spec.Image = "example.com/pg@" + newer
		}, "example.com/pg@" + newer},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := settled(t, 2)
			test.world(w)
			if d, _, _ := w.desired(); d.Image != test.want {
				t.Errorf("the image is %s, want %s", d.Image, test.want)
			}
		})
	}
}

// Pinning restarts nothing by itself; another build of the same tag is put
// right.
func TestAPinnedImageReplacesOnlyOtherBuilds(t *testing.T) {
	w := settled(t, 2)
	w.runImage(0, older)
	w.runImage(1, older)
	if step := w.plan().Step; step != nil {
		t.Fatalf("step %+v", step)
	}
	w.runImage(1, newer)
	step := w.plan().Step
	if step == nil || step.Type != memberset.StepReplaceMember || step.Target != membersOf(w.c).PodName(1) {
		t.Fatalf("step %+v", step)
	}
}

// Nor does another build that admission policies gave the pod, also when the
// StatefulSet's template has changed since: a new pod would get it again.
func TestAdmissionsImageIsNoOtherBuild(t *testing.T) {
	w := settled(t, 2)
	w.runImage(0, older)
	pod := w.runImage(1, newer)
	difference := apply.PodDifference{Path: `.spec.containers[name="postgres"].image`, Change: "changed"}
	for _, made := range []bool{true, false} {
		w.o.Altered = map[string]memberset.PodComparison{pod.Name: {Differences: []apply.PodDifference{difference}, Made: made}}
		if step := w.plan().Step; (step == nil) != made {
			t.Errorf("the pod's own template was read: %v; step %+v", made, step)
		}
	}
	difference.Manager = "kubectl-edit"
	w.o.Altered[pod.Name] = memberset.PodComparison{Differences: []apply.PodDifference{difference}, Made: true}
	pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	if step := w.plan().Step; step == nil || step.Target != pod.Name {
		t.Errorf("a client's image: step %+v", step)
	}
}

// An upgrade of the operator restarts no database, whatever builds it finds.
func TestAPinReplacesNoPodOfAnOlderOperator(t *testing.T) {
	w := settled(t, 2)
	for n, digest := range []string{older, newer} {
		delete(w.runImage(n, digest).Annotations, v1alpha1.AnnotationImage)
	}
	if step := w.plan().Step; step != nil {
		t.Fatalf("step %+v", step)
	}
}
