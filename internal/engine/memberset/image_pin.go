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
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// A tag such as 17 moves. So that the members of a cluster never run different
// builds under one tag, the tag is resolved once, to the digest that the
// node's runtime reports for the first member, and stays there until the spec
// names another image.

// pinImage is the image to declare for members whose spec asks for an image; pull
// is what to pull until its digest is known. What the StatefulSet says counts
// only when the status says it too: another client may have written the former.
func pinImage(s objects.Set, o Observation, asked, pull string) string {
	repository := repositoryOf(asked)
	if repository == "" || digestOf(asked) != "" {
		return asked
	}
	if current := currentImage(s, o); current == s.Cluster.CommonStatus().Image && repositoryOf(current) == repository &&
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
		if digest := ImageDigest(s, pod); digest != "" && runsImage(s, pod, asked, pull) {
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

// runsImage says whether the pod's database was made from an image, by its tag or
// by a digest that the tag once stood for. An older operator's pod says nothing
// of what was asked for.
func runsImage(s objects.Set, pod *corev1.Pod, asked, pull string) bool {
	ctr := findContainer(s, pod.Spec)
	if ctr == nil || cmp.Or(pod.Annotations[v1alpha1.AnnotationImage], ctr.Image) != asked {
		return false
	}
	return ctr.Image == asked || ctr.Image == pull || digestOf(ctr.Image) != "" && repositoryOf(ctr.Image) == repositoryOf(asked)
}

// ImageDigest is the digest of the image that the pod's database runs; empty where
// no pod could ask for it. Of an image that came by hand a runtime reports
// none, or one under a name that no registry knows; of an image that came
// under several names, that of any.
func ImageDigest(s objects.Set, pod *corev1.Pod) string {
	ctr := findContainer(s, pod.Spec)
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

// describePin names a tag that is pinned, for messages on an image that cannot
// be had any more.
func describePin(d objects.Desired) string {
	if d.Image == d.Asked {
		return ""
	}
	return "; " + d.Asked + " was this digest when the first member ran it: name another version to go on"
}

// findStrayImage says whether the pod runs another image than the cluster's that a new
// pod would not: one that a client set on the pod, or another build of the same
// tag. What admission makes of the image stays: it would make it again.
func (view *View) findStrayImage(pod *corev1.Pod) string {
	ctr, d := findContainer(view.Set, pod.Spec), view.Desired
	if ctr == nil || ctr.Image == d.Image {
		return ""
	}
	if pod.Annotations[v1alpha1.AnnotationImage] == d.Asked && digestOf(d.Image) != "" && ImageDigest(view.Set, pod) == digestOf(d.Image) {
		return "" // that very build, by whatever tag
	}
	manager, admitted := imageChanged(view.Set, view.Observed, pod)
	if manager != "" {
		return "the pod's image was changed to " + ctr.Image + " by " + manager
	}
	if admitted {
		return ""
	}
	if pod.Annotations[v1alpha1.AnnotationImage] == "" || isCurrent(view.Set, view.Observed, d, pod) {
		return "" // an older operator's: an upgrade of the operator restarts nothing
	}
	if repositoryOf(ctr.Image) != repositoryOf(d.Image) {
		return ""
	}
	want, digest := digestOf(d.Image), cmp.Or(digestOf(ctr.Image), ImageDigest(view.Set, pod))
	if want != "" && digest != "" && digest != want {
		return "the pod runs another build of " + d.Asked + " than the cluster: " + digest
	}
	return ""
}

// imageChanged says which client changed the image of a pod's database since the
// pod was made, or that admission changed it then.
func imageChanged(s objects.Set, o Observation, pod *corev1.Pod) (manager string, admitted bool) {
	altered := o.Altered[pod.Name]
	for _, difference := range altered.Differences {
		if difference.Path == imagePath(s.Container) {
			return difference.Manager, difference.Manager == "" && altered.Made
		}
	}
	return "", false
}

// imagePath is where a pod names the image of a container.
func imagePath(container string) string {
	return fmt.Sprintf(".spec.containers[name=%q].image", container)
}

// currentImage is what the StatefulSet declares now.
func currentImage(s objects.Set, o Observation) string {
	if o.StatefulSet == nil {
		return ""
	}
	if ctr := findContainer(s, o.StatefulSet.Spec.Template.Spec); ctr != nil {
		return ctr.Image
	}
	return ""
}

// findContainer finds the database's container in a pod.
func findContainer(s objects.Set, spec corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == s.Container {
			return &spec.Containers[i]
		}
	}
	return nil
}
