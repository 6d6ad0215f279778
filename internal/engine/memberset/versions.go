package memberset

import (
	"cmp"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Versions is what the StatefulSet declares and what each pod and member runs.
type Versions struct {
	// Declared is the image that the StatefulSet declares, and Asked the one that
	// the spec asked for when it was declared. Both are empty without a StatefulSet.
	Declared, Asked string
	// Members are those that have a pod, by ordinal.
	Members map[int]MemberVersion
}

// MemberVersion is what one member's pod runs.
type MemberVersion struct {
	// Image of the database's container; empty where the pod has none.
	Image string
	// Asked is the image that the spec asked for when the pod was made; empty for a
	// pod of an operator that did not record it.
	Asked string
	// Digest is that of the image, as the runtime reports it; empty while it
	// reports none that a registry knows.
	Digest string
	// Reported is the version that the member's agent reports; empty while it
	// reports nothing that is fresh and its own.
	Reported string
	// Serving says that the database of that version serves.
	Serving bool
}

// ReadVersions reads off an observation what runs.
func ReadVersions(s objects.Set, o Observation) Versions {
	v := Versions{Members: make(map[int]MemberVersion, len(o.Pods))}
	if o.StatefulSet != nil {
		v.Asked = o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationImage]
		if ctr := findContainer(s, o.StatefulSet.Spec.Template.Spec); ctr != nil {
			v.Declared = ctr.Image
		}
	}
	for n, pod := range o.Pods {
		member := MemberVersion{Image: RunningImage(s, pod), Asked: pod.Annotations[v1alpha1.AnnotationImage], Digest: ImageDigest(s, pod)}
		if m := o.Member(n); m != nil {
			member.Reported, member.Serving = m.Version, m.Serving
		}
		v.Members[n] = member
	}
	return v
}

// isMadeFrom says whether the pod's database was made from an image, by its tag or
// by a digest that the tag once stood for. An older operator's pod says nothing
// of what was asked for.
func (m MemberVersion) isMadeFrom(asked, pull string) bool {
	if m.Image == "" || cmp.Or(m.Asked, m.Image) != asked {
		return false
	}
	return m.Image == asked || m.Image == pull || digestOf(m.Image) != "" && repositoryOf(m.Image) == repositoryOf(asked)
}

// differs says whether the pod runs another image than the desired one, by
// whatever name.
func (m MemberVersion) differs(d objects.Desired) bool {
	return m.Image != "" && m.Image != d.Image && m.Image != d.Pull && cmp.Or(m.Asked, m.Image) != d.Asked
}

// A tag such as 17 moves. So that the members of a cluster never run different
// builds under one tag, the tag is resolved once, to the digest that the
// node's runtime reports for the first member, and stays there until the spec
// names another image.

// pinImage is the image to declare for members whose spec asks for an image; pull
// is what to pull until its digest is known. What the StatefulSet says counts
// only when the status says it too: another client may have written the former.
func pinImage(view *View, asked, pull string) string {
	repository := repositoryOf(asked)
	if repository == "" || digestOf(asked) != "" {
		return asked
	}
	if current := view.Versions.Declared; current == view.Cluster.CommonStatus().Image && repositoryOf(current) == repository &&
		view.Versions.Asked == asked {
		if digestOf(current) != "" {
			return current
		}
		if pull != asked {
			pull = current // a newer operator may know of a newer patch
		}
	}
	oldest := slices.Clone(view.Membership.Pods)
	slices.SortStableFunc(oldest, func(a, b int) int {
		return cmp.Compare(view.Observed.Pods[a].CreationTimestamp.Unix(), view.Observed.Pods[b].CreationTimestamp.Unix())
	})
	for _, n := range oldest {
		if runs := view.Versions.Members[n]; runs.Digest != "" && runs.isMadeFrom(asked, pull) {
			return repository + "@" + runs.Digest
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

// findContainer finds the database's container in a pod.
func findContainer(s objects.Set, spec corev1.PodSpec) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == s.Container {
			return &spec.Containers[i]
		}
	}
	return nil
}
