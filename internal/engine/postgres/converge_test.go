package postgres

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// model is a world that obeys: objects become pods and volumes, steps are
// done, and members move on, one random thing at a time.
type model struct {
	*world
	random *rand.Rand
	// replaced counts the pods that steps replaced.
	replaced int
	// build is what the image's tag stands for now; it moves.
	build int
	// started counts the pods, of which each has a UID of its own where members
	// report the Lease.
	started int
}

// startPod makes a pod as the StatefulSet declares it, of the build that its tag
// stands for at that moment.
func (m *model) startPod(ordinal int) {
	pod := m.pod(ordinal)
	if m.started++; m.lease != nil {
		pod.UID = types.UID(fmt.Sprintf("pod-%d-%d", ordinal, m.started))
	}
	template := m.o.StatefulSet.Spec.Template
	pod.Spec.Containers[0].Image = template.Spec.Containers[0].Image
	pod.Annotations[v1alpha1.AnnotationImage] = template.Annotations[v1alpha1.AnnotationImage]
	_, digest, pinned := strings.Cut(pod.Spec.Containers[0].Image, "@")
	if !pinned {
		digest = fmt.Sprintf("sha256:%064d", m.build)
	}
	pod.Status.ContainerStatuses[0].ImageID = repository + "@" + digest
}

// serveMember has the member serve, in the pod that is there.
func (m *model) serveMember(ordinal int) {
	old := *m.o.Pods[ordinal]
	m.member(ordinal)
	pod := m.o.Pods[ordinal]
	pod.UID, m.status(ordinal).PodUID = old.UID, string(old.UID)
	pod.Annotations, pod.Spec = old.Annotations, old.Spec
	pod.Status.ContainerStatuses = old.Status.ContainerStatuses
}

// carryOut does what one plan asks for.
func (m *model) carryOut(p engine.Plan) {
	d, writable, _ := m.desired()
	if writable && d.Minted.Complete {
		m.statefulSet()
		m.o.StatefulSet.Spec.Template.Spec.Containers[0].Image = d.Image
		m.o.StatefulSet.Spec.Template.Annotations = map[string]string{v1alpha1.AnnotationImage: d.Asked}
		m.c.Status.Image = d.Image
		for _, v := range d.Volumes {
			if m.o.Volumes[v.Ordinal] == nil {
				m.volume(v.Ordinal, true)
			}
			live := m.o.Volumes[v.Ordinal]
			delete(live.Labels, v1alpha1.LabelMember)
			if v.Member {
				live.Labels[v1alpha1.LabelMember] = fmt.Sprint(v.Ordinal)
			}
			declared := objects.VolumeClaim(membersOf(m.c), d.Desired, v)
			live.Annotations, live.OwnerReferences = declared.Annotations, nil
			if len(declared.OwnerReferences) > 0 {
				m.setOwner(live)
			}
			live.Spec.Resources.Requests["storage"] = v.Size
			live.Status.Capacity["storage"] = v.Size
		}
	}
	if p.Step == nil {
		return
	}
	switch p.Step.Type {
	case memberset.StepReplaceMember:
		m.replaced++
		for n, pod := range m.o.Pods {
			if pod.UID == p.Step.UID {
				m.removePod(n)
			}
		}
	case memberset.StepDeleteVolume:
		for n, v := range m.o.Volumes {
			if v.UID == p.Step.UID {
				delete(m.o.Volumes, n)
			}
		}
	default:
		m.mintSecrets()
	}
}

// advanceCluster lets the cluster move by one member: pods appear and vanish as the
// StatefulSet says, and agents take one step of their life.
func (m *model) advanceCluster() {
	if m.o.StatefulSet == nil {
		return
	}
	d, _, _ := m.desired()
	view := m.view()
	lead := findLeader(view.Set, view.Observed)
	view.SetDesired(d.Desired)
	for _, n := range m.random.Perm(objects.MostMembers) {
		pod := m.o.Pods[n]
		switch {
		case n >= d.Count && pod != nil:
			m.removePod(n)
			return
		case n < d.Count && pod == nil:
			m.startPod(n)
			return
		case n < d.Count && m.o.Member(n) == nil:
			m.serveMember(n)
			m.status(n).Serving, m.status(n).State = false, agentapi.StateCloning
			return
		case n < d.Count && !judgeStanding(view, lead, n).IsDone():
			m.serveMember(n)
			if n == 0 {
				m.c.Status.SystemIdentifier, m.c.Status.Version = "7300000000000000001", "17.4"
				m.status(n).SystemIdentifier = m.c.Status.SystemIdentifier
			}
			return
		}
	}
}

// countAway is how many members do not serve.
func (m *model) countAway() int {
	d, _, _ := m.desired()
	away := 0
	for n := range d.Count {
		if s := m.o.Member(n); s == nil || !s.Serving {
			away++
		}
	}
	return away
}

// editSpec changes the spec at random.
func (m *model) editSpec() {
	switch m.random.IntN(4) {
	case 0:
		m.declareReplicas(int32(1 + m.random.IntN(5)))
	case 1:
		m.c.Spec.PodLabels = map[string]string{"rev": fmt.Sprint(m.random.IntN(1000))}
	case 2:
		m.c.Spec.Storage.Size = resource.MustParse(fmt.Sprintf("%dGi", 1+m.random.IntN(3)))
	case 3:
		m.c.Spec.Parameters = map[string]string{"work_mem": fmt.Sprint(m.random.IntN(1000))}
	}
}

func testConvergence(t *testing.T, seed uint64) {
	m := &model{world: newWorld(t, 3), random: rand.New(rand.NewPCG(seed, 7))}
	for pass := range 600 {
		if pass < 300 && m.random.IntN(25) == 0 {
			m.editSpec()
		}
		if pass < 300 && m.random.IntN(40) == 0 && len(m.o.Pods) > 0 {
			m.removePod(m.random.IntN(len(m.o.Pods)))
		}
		p := m.plan()
		if p.Step != nil && p.Step.Type == memberset.StepDeleteVolume {
			t.Fatalf("seed %d: volume %s deleted under Retain", seed, p.Step.Target)
		}
		if p.Step != nil && p.Step.Type == memberset.StepReplaceMember {
			if serving := len(m.o.Pods) > 1 && m.countAway() > 0 && memberset.IsReady(podNamed(m, p.Step.Target)); serving {
				t.Fatalf("seed %d: %s replaced while another member is away", seed, p.Step.Target)
			}
		}
		for _, f := range p.Facts {
			if !condition.HasRank(f.Type, f.Reason) {
				t.Fatalf("seed %d: %s/%s has no rank: %s", seed, f.Type, f.Reason, f.Message)
			}
		}
		m.carryOut(p)
		m.build += m.random.IntN(2)
		m.advanceCluster()
	}
	p := m.plan()
	for _, f := range p.Facts {
		if f.Type == v1alpha1.ConditionReconciling {
			t.Fatalf("seed %d: never settles: %s: %s", seed, f.Reason, f.Message)
		}
	}
	if got, want := memberset.ReadMembership(membersOf(m.c), m.o).Count, m.c.Spec.DesiredReplicas(); got != want || len(m.o.Pods) != want {
		t.Fatalf("seed %d: %d members and %d pods, want %d", seed, got, len(m.o.Pods), want)
	}
	for n, pod := range m.o.Pods {
		if one, other := memberset.ImageDigest(membersOf(m.c), m.o.Pods[0]), memberset.ImageDigest(membersOf(m.c), pod); one != other || one == "" {
			t.Fatalf("seed %d: member %d runs build %q, member 0 %q", seed, n, other, one)
		}
	}
}

// Whatever is edited, whatever pods die and wherever the image's tag moves, the
// plan replaces one member at a time, keeps every volume, and comes to rest with
// one build everywhere.
func TestPlanConverges(t *testing.T) {
	for seed := range uint64(20) {
		testConvergence(t, seed)
	}
}

func FuzzPlanConverges(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { testConvergence(t, seed) })
}

func podNamed(m *model, name string) *corev1.Pod {
	for _, pod := range m.o.Pods {
		if pod.Name == name {
			return pod
		}
	}
	return nil
}
