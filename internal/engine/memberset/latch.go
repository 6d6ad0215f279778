package memberset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A tag such as 17 moves. So that the members of a cluster never run different
// builds under one tag, the tag is resolved once, to the digest that the
// node's runtime reports for the first member, and stays there until the spec
// names another image.

// latch is the image to declare for members whose spec asks for an image; pull
// is what to pull until its digest is known. What the StatefulSet says counts
// only when the status says it too: somebody else may have written the former.
func (s Set) latch(o Observation, asked, pull string) string {
	repository := repositoryOf(asked)
	if repository == "" || digestOf(asked) != "" {
		return asked
	}
	if current := s.currentImage(o); current == s.Cluster.CommonStatus().Image && repositoryOf(current) == repository &&
		o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationImage] == asked {
		if digestOf(current) != "" {
			return current
		}
		if pull != asked {
			pull = current // a newer operator may know of a newer patch
		}
	}
	pods := make([]*corev1.Pod, 0, len(o.Pods))
	for _, n := range slices.Sorted(maps.Keys(o.Pods)) {
		pods = append(pods, o.Pods[n])
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
	for _, pod := range pods {
		if digest := s.Build(pod); digest != "" && s.runs(pod, asked, pull) {
			return repository + "@" + digest
		}
	}
	return pull
}

// repositoryOf a reference that has a tag or a digest; empty for what is no
// reference.
func repositoryOf(image string) string {
	ref, err := reference.Parse(image)
	if err != nil {
		return ""
	}
	named, ok := ref.(reference.Named)
	if !ok {
		return ""
	}
	return named.Name()
}

// digestOf a reference; empty when it has none.
func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}

// runs says whether the pod's database was made from an image, by its tag or
// by a digest that the tag once stood for. An older operator's pod says nothing
// of what was asked for.
func (s Set) runs(pod *corev1.Pod, asked, pull string) bool {
	ctr := s.container(pod.Spec)
	if ctr == nil || cmp.Or(pod.Annotations[v1alpha1.AnnotationImage], ctr.Image) != asked {
		return false
	}
	return ctr.Image == asked || ctr.Image == pull || digestOf(ctr.Image) != "" && repositoryOf(ctr.Image) == repositoryOf(asked)
}

// Build is the digest of the image that the pod's database runs; empty where
// no pod could ask for it. Of an image that came by hand a runtime reports
// none, or one under a name that no registry knows; of an image that came
// under several names, that of any.
func (s Set) Build(pod *corev1.Pod) string {
	ctr := s.container(pod.Spec)
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name == s.Container && status.State.Running != nil && ctr != nil && sameRepository(status.ImageID, ctr.Image) {
			return digestOf(status.ImageID)
		}
	}
	return ""
}

// sameRepository says whether a runtime's word for an image is of the
// repository of a reference: docker.io/library/name is name.
func sameRepository(imageID, image string) bool {
	if _, rest, found := strings.Cut(imageID, "://"); found {
		imageID = rest
	}
	one, err := reference.ParseNormalizedNamed(imageID)
	if err != nil {
		return false
	}
	other, err := reference.ParseNormalizedNamed(image)
	return err == nil && one.Name() == other.Name()
}

// resolved tells of a tag that is latched, for messages on an image that cannot
// be had any more.
func (d Desired) resolved() string {
	if d.Image == d.Asked {
		return ""
	}
	return "; " + d.Asked + " was this digest when the first member ran it: name another version to go on"
}

// strays says whether the pod runs another image than the cluster's that a new
// pod would not: one that a client set on the pod, or another build of the same
// tag. What admission makes of the image stays: it would make it again.
func (j *Judgement) strays(pod *corev1.Pod) string {
	ctr, d := j.container(pod.Spec), j.Desired
	if ctr == nil || ctr.Image == d.Image {
		return ""
	}
	if pod.Annotations[v1alpha1.AnnotationImage] == d.Asked && digestOf(d.Image) != "" && j.Build(pod) == digestOf(d.Image) {
		return "" // that very build, by whatever tag
	}
	for _, difference := range j.Seen.Altered[pod.Name] {
		if difference.Manager != "" && difference.Path == imagePath(j.Container) {
			return "the pod's image was changed to " + ctr.Image + " by " + difference.Manager
		}
	}
	if pod.Annotations[v1alpha1.AnnotationImage] == "" || j.current(j.Seen, d, pod) {
		return "" // an older operator's: an upgrade of the operator restarts nothing
	}
	if repositoryOf(ctr.Image) != repositoryOf(d.Image) {
		return ""
	}
	want, digest := digestOf(d.Image), cmp.Or(digestOf(ctr.Image), j.Build(pod))
	if want != "" && digest != "" && digest != want {
		return "the pod runs another build of " + d.Asked + " than the cluster: " + digest
	}
	return ""
}

// imagePath is where a pod names the image of a container.
func imagePath(container string) string {
	return fmt.Sprintf(".spec.containers[name=%q].image", container)
}

// currentImage is what the StatefulSet declares now.
func (s Set) currentImage(o Observation) string {
	if o.StatefulSet == nil {
		return ""
	}
	if ctr := s.container(o.StatefulSet.Spec.Template.Spec); ctr != nil {
		return ctr.Image
	}
	return ""
}

// container finds the database's container in a pod.
func (s Set) container(spec corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == s.Container {
			return &spec.Containers[i]
		}
	}
	return nil
}
