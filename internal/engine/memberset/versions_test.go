package memberset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

const older = "sha256:1111111111111111111111111111111111111111111111111111111111111111"

const newer = "sha256:2222222222222222222222222222222222222222222222222222222222222222"

// databasePod runs an image that the spec asked for by another name; digest is
// what the runtime reports.
func databasePod(image, asked, digest string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orders-0", UID: "pod", Annotations: map[string]string{}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "mesh", Image: "mesh:1"}, {Name: "db", Image: image}}}}
	if asked != "" {
		pod.Annotations[v1alpha1.AnnotationImage] = asked
	}
	if digest != "" {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "db", ImageID: "docker.io/library/name@" + digest,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	}
	return pod
}

// setOfImage is a StatefulSet that declares an image.
func setOfImage(image, asked string) *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{}
	set.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationImage: asked}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "db", Image: image}}
	return set
}

func TestReadVersions(t *testing.T) {
	s := objects.Set{Kind: objects.Kind{Container: "db"}, Cluster: viewCluster()}
	said := func(status agentapi.Status) map[string]agentclient.Observation {
		return map[string]agentclient.Observation{"orders-0": {Status: &status}}
	}
	bare := databasePod("name:17", "", "")
	bare.Spec.Containers = bare.Spec.Containers[:1]
	for _, tc := range []struct {
		name string
		o    Observation
		want Versions
	}{
		{"nothing is there", Observation{}, Versions{}},
		{"a StatefulSet alone", Observation{StatefulSet: setOfImage("name@"+older, "name:17")}, Versions{Declared: "name@" + older, Asked: "name:17"}},
		{"a member that answers", Observation{
			Pods:    map[int]*corev1.Pod{0: databasePod("name@"+older, "name:17", older)},
			Members: said(agentapi.Status{PodUID: "pod", Version: "17.4", Serving: true}),
		}, Versions{Members: map[int]MemberVersion{0: {Image: "name@" + older, Asked: "name:17", Digest: older, Reported: "17.4", Serving: true}}}},
		{"the answer of the pod before it", Observation{
			Pods:    map[int]*corev1.Pod{0: databasePod("name:17", "name:17", "")},
			Members: said(agentapi.Status{PodUID: "earlier", Version: "17.4", Serving: true}),
		}, Versions{Members: map[int]MemberVersion{0: {Image: "name:17", Asked: "name:17"}}}},
		{"a pod of an older operator, and one without the container", Observation{
			Pods: map[int]*corev1.Pod{0: databasePod("name:17", "", ""), 1: bare},
		}, Versions{Members: map[int]MemberVersion{0: {Image: "name:17"}, 1: {}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.want.Members == nil {
				tc.want.Members = map[int]MemberVersion{}
			}
			if diff := cmp.Diff(tc.want, ReadVersions(s, tc.o)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMemberVersion(t *testing.T) {
	pinned := objects.Desired{Asked: "name:17", Pull: "name:17", Image: "name@" + older}
	for _, tc := range []struct {
		name           string
		runs           MemberVersion
		made, differed bool
	}{
		{"the pinned build", MemberVersion{Image: "name@" + older, Asked: "name:17"}, true, false},
		{"the tag, before it was pinned", MemberVersion{Image: "name:17", Asked: "name:17"}, true, false},
		{"the tag, of an older operator", MemberVersion{Image: "name:17"}, true, false},
		{"another build of the tag", MemberVersion{Image: "name@" + newer, Asked: "name:17"}, true, false},
		{"another tag", MemberVersion{Image: "name:16", Asked: "name:16"}, false, true},
		{"a build of another repository", MemberVersion{Image: "other@" + older, Asked: "name:17"}, false, false},
		{"no container of the database", MemberVersion{Asked: "name:17"}, false, false},
	} {
		if got := tc.runs.isMadeFrom("name:17", "name:17"); got != tc.made {
			t.Errorf("%s: made from the image %v", tc.name, got)
		}
		if got := tc.runs.differs(pinned); got != tc.differed {
			t.Errorf("%s: differs %v", tc.name, got)
		}
	}
}

// Each way in which a pod can be behind what is desired, and the ways in which it
// only seems so.
func TestComparePods(t *testing.T) {
	s := objects.Set{Kind: objects.Kind{Container: "db"}, Cluster: viewCluster()}
	d := objects.Desired{Asked: "name:17", Pull: "name:17", Image: "name@" + older, Config: []byte("settings")}
	rollout := s.RolloutHash(d.Asked)
	pod := func(change func(p *corev1.Pod, m *agentapi.Status)) Observation {
		p := databasePod("name@"+older, "name:17", older)
		p.Annotations[v1alpha1.AnnotationRollout] = rollout
		m := &agentapi.Status{PodUID: "pod", ConfigHash: agentapi.HashConfig(d.Config)}
		if change != nil {
			change(p, m)
		}
		return Observation{Pods: map[int]*corev1.Pod{0: p}, Members: map[string]agentclient.Observation{"orders-0": {Status: m}}}
	}
	declaring := func(o Observation, hash string) Observation {
		o.StatefulSet = setOfImage(d.Image, d.Asked)
		o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationRollout] = hash
		return o
	}
	aged := func(p *corev1.Pod, _ *agentapi.Status) { p.Annotations[v1alpha1.AnnotationRollout] = "before" }
	for _, tc := range []struct {
		name string
		o    Observation
		want podAge
	}{
		{"as desired", pod(nil), podAge{}},
		{"of the spec before", pod(aged), podAge{older: true, outdated: "the pod is older than what the spec declares for it"}},
		{"of the spec before, whose template is declared still", declaring(pod(aged), "before"), podAge{older: true}},
		{"of the spec before, and leaving", pod(func(p *corev1.Pod, m *agentapi.Status) {
			aged(p, m)
			p.DeletionTimestamp = new(metav1.Now())
		}), podAge{older: true}},
		{"another build", pod(func(p *corev1.Pod, _ *agentapi.Status) {
			p.Spec.Containers[1].Image, p.Status.ContainerStatuses[0].ImageID = "name@"+newer, "docker.io/library/name@"+newer
		}),
			podAge{stray: "the pod runs another build of name:17 than the cluster: " + newer, outdated: "the pod runs another build of name:17 than the cluster: " + newer}},
		{"that build by its tag", pod(func(p *corev1.Pod, _ *agentapi.Status) { p.Spec.Containers[1].Image = "name:17" }), podAge{}},
		{"another build, of an older operator", pod(func(p *corev1.Pod, _ *agentapi.Status) {
			p.Spec.Containers[1].Image = "name@" + newer
			delete(p.Annotations, v1alpha1.AnnotationImage)
		}), podAge{}},
		{"a restart is pending", pod(func(_ *corev1.Pod, m *agentapi.Status) { m.PendingRestart = []string{"shared_buffers"} }),
			podAge{outdated: "a restart is needed for shared_buffers"}},
		{"a restart is pending for settings before", pod(func(_ *corev1.Pod, m *agentapi.Status) {
			m.PendingRestart, m.ConfigHash = []string{"shared_buffers"}, "before"
		}), podAge{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			view := NewView(s, tc.o, time.Time{})
			view.SetDesired(&d)
			if diff := cmp.Diff(tc.want, view.ages[0], cmp.AllowUnexported(podAge{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if view.FindOutdated(0) != tc.want.outdated || view.FindOutdated(1) != "" {
				t.Errorf("outdated: %q, and %q without a pod", view.FindOutdated(0), view.FindOutdated(1))
			}
		})
	}
}

func TestSameRepository(t *testing.T) {
	for _, c := range []struct {
		imageID, image string
		want           bool
	}{
		{"docker.io/library/name@" + older, "name:17", true},
		{"docker.io/library/name@" + older, "docker.io/name:17", true},
		{"localhost:5000/db@" + older, "localhost:5000/db:17", true},
		{"docker.io/library/import-2026-06-03@" + older, "name:17", false},
		{"docker.io/name/name@" + older, "name:17", false},
		{older, "name:17", false},
		{"", "name:17", false},
	} {
		if got := sameRepository(c.imageID, c.image); got != c.want {
			t.Errorf("%s and %s: %v", c.imageID, c.image, got)
		}
	}
}
