package postgres

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/forecast"
	"github.com/holdfast-db/holdfast/internal/forecast/settings"
)

// model is a world that follows plans, in which members move on one random thing at a
// time. Its agents are those of the tests: they report what a test has them report.
type model struct {
	*world
	follows *forecast.World
	random  *rand.Rand
	// build is what the image's tag stands for now; it moves.
	build int
}

func newModel(w *world, random *rand.Rand) *model {
	m := &model{world: w, random: random}
	m.follows = forecast.Around(forecast.Engine{
		Members: func(c v1alpha1.Cluster) objects.Set { return membersOf(c.(*v1alpha1.PostgresCluster)) },
		Plan:    func(*forecast.World) engine.Plan { return planCluster(m.c, m.o, now) },
		Agents:  m,
	}, w.c, &w.o, now)
	m.follows.Build = m.findDigest
	return m
}

// findDigest is that of an image, or of the build that its tag stands for at that moment.
func (m *model) findDigest(image string) string {
	if _, digest, pinned := strings.Cut(image, "@"); pinned {
		return digest
	}
	return fmt.Sprintf("sha256:%064d", m.build)
}

// ReportStatus implements forecast.Agents: a member clones, and then serves.
func (m *model) ReportStatus(_ *forecast.World, ordinal int) agentapi.Status {
	s := *m.report(ordinal)
	switch {
	case m.follows.Reports(ordinal) == 1:
		s.Serving, s.State = false, agentapi.StateCloning
	case ordinal == 0 && s.SystemIdentifier == "":
		s.SystemIdentifier = "7300000000000000001"
	}
	return s
}

// EndPod, FollowRequests, CarryOut, FindLeader and EffectOf implement forecast.Agents: what
// becomes of the members is the test's.
func (m *model) EndPod(*forecast.World, int) {}

func (m *model) FollowRequests(*forecast.World) bool { return false }

func (m *model) CarryOut(*forecast.World, engine.Step) bool { return false }

func (m *model) FindLeader(*forecast.World) int { return m.leads }

func (m *model) EffectOf(*forecast.World, string) settings.Effect { return settings.Reload }

// carryOut does what one plan asks for.
func (m *model) carryOut(p engine.Plan) { m.follows.FollowPlan(p) }

// advanceCluster lets the cluster move by one member: pods appear and vanish as the
// StatefulSet says, and agents take one step of their life.
func (m *model) advanceCluster() { m.follows.Advance(m.random.Perm(objects.MostMembers)) }

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
	m := newModel(newWorld(t, 3), rand.New(rand.NewPCG(seed, 7)))
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
