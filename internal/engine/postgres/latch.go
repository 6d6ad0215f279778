package postgres

import (
	"cmp"
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

// latch is the image to declare for members whose spec asks for an image. What
// the StatefulSet says counts only when the status says it too: somebody else
// may have written the former.
func latch(c *v1alpha1.PostgresCluster, o Observation, asked string) string {
	repository := repositoryOf(asked)
	if repository == "" || digestOf(asked) != "" {
		return asked
	}
	if current := currentImage(o); current == c.Status.Image && repositoryOf(current) == repository &&
		digestOf(current) != "" && o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationImage] == asked {
		return current
	}
	pods := make([]*corev1.Pod, 0, len(o.Pods))
	for _, n := range sortedKeys(o.Pods) {
		pods = append(pods, o.Pods[n])
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Compare(a.CreationTimestamp.Unix(), b.CreationTimestamp.Unix())
	})
	for _, pod := range pods {
		if digest := build(pod); digest != "" && runs(pod, asked) {
			return repository + "@" + digest
		}
	}
	return asked
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
func runs(pod *corev1.Pod, asked string) bool {
	ctr := databaseContainer(pod.Spec)
	if ctr == nil || orDefault(pod.Annotations[v1alpha1.AnnotationImage], ctr.Image) != asked {
		return false
	}
	return ctr.Image == asked || digestOf(ctr.Image) != "" && repositoryOf(ctr.Image) == repositoryOf(asked)
}

// build is the digest of the image that the pod's database runs; empty where
// no pod could ask for it. Of an image that came by hand a runtime reports
// none, or one under a name that no registry knows; of an image that came
// under several names, that of any.
func build(pod *corev1.Pod) string {
	ctr := databaseContainer(pod.Spec)
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == containerName && s.State.Running != nil && ctr != nil && sameRepository(s.ImageID, ctr.Image) {
			return digestOf(s.ImageID)
		}
	}
	return ""
}

// sameRepository says whether a runtime's word for an image is of the
// repository of a reference: docker.io/library/postgres is postgres.
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
func (d desired) resolved() string {
	if d.image == d.asked {
		return ""
	}
	return "; " + d.asked + " was this digest when the first member ran it: name another version to go on"
}

// strays says whether the pod runs another image than the cluster's: one that
// somebody set, or another build of the same tag.
func (d desired) strays(pod *corev1.Pod) string {
	ctr := databaseContainer(pod.Spec)
	if ctr == nil || ctr.Image == d.image {
		return ""
	}
	if ctr.Image != d.asked {
		return "the pod's image was changed to " + ctr.Image + " by somebody else"
	}
	if pod.Annotations[v1alpha1.AnnotationImage] == "" {
		return "" // an older operator's: an upgrade of the operator restarts nothing
	}
	if digest := build(pod); digest != "" && digest != digestOf(d.image) {
		return "the pod runs another build of " + d.asked + " than the cluster: " + digest
	}
	return ""
}
