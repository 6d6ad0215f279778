package postgres

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// model is a world that obeys: objects become pods and volumes, steps are
// done, and members move on, one random thing at a time.
type model struct {
	*world
	random *rand.Rand
	// replaced counts the pods that steps replaced.
	replaced int
}

// obey does what one plan asks for.
func (m *model) obey(p engine.Plan) {
	d, writable, _ := desire(m.c, m.o)
	if writable && d.minted.complete() {
		m.statefulSet()
		m.o.StatefulSet.Spec.Template.Spec.Containers[0].Image = d.image
		for _, v := range d.volumes {
			if m.o.Volumes[v.ordinal] == nil {
				m.volume(v.ordinal, true)
			}
			live := m.o.Volumes[v.ordinal]
			delete(live.Labels, v1alpha1.LabelMember)
			if v.member {
				live.Labels[v1alpha1.LabelMember] = fmt.Sprint(v.ordinal)
			}
			live.Annotations = dataAnnotations(d)
			live.Spec.Resources.Requests["storage"] = v.size
			live.Status.Capacity["storage"] = v.size
		}
	}
	if p.Step == nil {
		return
	}
	switch p.Step.Type {
	case stepReplaceMember:
		m.replaced++
		for n, pod := range m.o.Pods {
			if pod.UID == p.Step.UID {
				m.gone(n)
			}
		}
	case stepDeleteVolume:
		for n, v := range m.o.Volumes {
			if v.UID == p.Step.UID {
				delete(m.o.Volumes, n)
			}
		}
	default:
		m.mint()
	}
}

// happen lets the cluster move by one member: pods appear and vanish as the
// StatefulSet says, and agents take one step of their life.
func (m *model) happen() {
	if m.o.StatefulSet == nil {
		return
	}
	d, _, _ := desire(m.c, m.o)
	for _, n := range m.random.Perm(mostMembers) {
		pod := m.o.Pods[n]
		switch {
		case n >= d.count && pod != nil:
			m.gone(n)
			return
		case n < d.count && pod == nil:
			m.pod(n)
			return
		case n < d.count && m.o.member(n) == nil:
			m.member(n)
			m.status(n).Serving, m.status(n).State = false, memberapi.StateCloning
			return
		case n < d.count && !stand(m.c, m.o, d, n).done():
			uid := pod.UID
			annotation := pod.Annotations[v1alpha1.AnnotationRollout]
			m.member(n)
			m.o.Pods[n].UID, m.status(n).PodUID = uid, string(uid)
			m.o.Pods[n].Annotations[v1alpha1.AnnotationRollout] = annotation
			if n == 0 {
				m.c.Status.SystemIdentifier, m.c.Status.Version = "7300000000000000001", "17.4"
				m.status(n).SystemIdentifier = m.c.Status.SystemIdentifier
			}
			return
		}
	}
}

// away is how many members do not serve.
func (m *model) away() int {
	d, _, _ := desire(m.c, m.o)
	away := 0
	for n := range d.count {
		if s := m.o.member(n); s == nil || !s.Serving {
			away++
		}
	}
	return away
}

// edit changes the spec at random.
func (m *model) edit() {
	switch m.random.IntN(4) {
	case 0:
		m.replicas(int32(1 + m.random.IntN(5)))
	case 1:
		m.c.Spec.PodLabels = map[string]string{"rev": fmt.Sprint(m.random.IntN(1000))}
	case 2:
		m.c.Spec.Storage.Size = resource.MustParse(fmt.Sprintf("%dGi", 1+m.random.IntN(3)))
	case 3:
		m.c.Spec.Parameters = map[string]string{"work_mem": fmt.Sprint(m.random.IntN(1000))}
	}
}

func converge(t *testing.T, seed uint64) {
	m := &model{world: newWorld(t, 3), random: rand.New(rand.NewPCG(seed, 7))}
	for pass := range 600 {
		if pass < 300 && m.random.IntN(25) == 0 {
			m.edit()
		}
		if pass < 300 && m.random.IntN(40) == 0 && len(m.o.Pods) > 0 {
			m.gone(m.random.IntN(len(m.o.Pods)))
		}
		p := plan(m.c, m.o, now)
		if p.Step != nil && p.Step.Type == stepDeleteVolume {
			t.Fatalf("seed %d: volume %s deleted under Retain", seed, p.Step.Target)
		}
		if p.Step != nil && p.Step.Type == stepReplaceMember {
			if serving := len(m.o.Pods) > 1 && m.away() > 0 && ready(podNamed(m, p.Step.Target)); serving {
				t.Fatalf("seed %d: %s replaced while another member is away", seed, p.Step.Target)
			}
		}
		m.obey(p)
		m.happen()
	}
	p := plan(m.c, m.o, now)
	for _, f := range p.Facts {
		if f.Type == v1alpha1.ConditionReconciling {
			t.Fatalf("seed %d: never settles: %s: %s", seed, f.Reason, f.Message)
		}
	}
	if got, want := membership(m.o), m.c.Spec.DesiredReplicas(); got != want || len(m.o.Pods) != want {
		t.Fatalf("seed %d: %d members and %d pods, want %d", seed, got, len(m.o.Pods), want)
	}
}

// Whatever is edited and whatever pods die, the plan replaces one member at a
// time, keeps every volume, and comes to rest.
func TestPlanConverges(t *testing.T) {
	for seed := range uint64(20) {
		converge(t, seed)
	}
}

func FuzzPlanConverges(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { converge(t, seed) })
}

func podNamed(m *model, name string) *corev1.Pod {
	for _, pod := range m.o.Pods {
		if pod.Name == name {
			return pod
		}
	}
	return nil
}
