//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// plannedStep is what is read of a step of a plan.
type plannedStep struct {
	Kind        string   `json:"kind"`
	Members     []string `json:"members"`
	Volumes     []string `json:"volumes"`
	WritesPause bool     `json:"writesPause"`
	Successor   bool     `json:"successor"`
	// From and To are sizes.
	From string `json:"from"`
	To   string `json:"to"`
}

// refusal is why a plan says that an edit is refused.
type refusal struct {
	Reason string `json:"reason"`
}

// quotedPause is how long the next pause of writes by an event is expected to take, in
// seconds.
type quotedPause struct {
	Event v1alpha1.WritePauseEvent `json:"event"`
	Least float64                  `json:"least"`
	Most  float64                  `json:"most"`
}

// planned is what is read of a plan of one cluster.
type planned struct {
	Clusters []struct {
		Action   string        `json:"action"`
		UnderWay []plannedStep `json:"underWay"`
		Steps    []plannedStep `json:"steps"`
		Refused  []refusal     `json:"refused"`
		Pauses   []quotedPause `json:"pauses"`
	} `json:"clusters"`
}

// membersOf the steps of a kind, in order.
func (p planned) membersOf(kind string) []string {
	var names []string
	for _, s := range p.Clusters[0].Steps {
		if s.Kind == kind {
			names = append(names, s.Members...)
		}
	}
	return names
}

// podChanges are the pods of a cluster that ended and that began, in order.
type podChanges struct {
	mu           sync.Mutex
	ended, begun []string
	seen, gone   map[types.UID]bool
}

// followPods notes which pods of the cluster end and begin from now on.
func (c *subject) followPods() *podChanges {
	c.t.Helper()
	changes := &podChanges{seen: map[types.UID]bool{}, gone: map[types.UID]bool{}}
	for _, pod := range c.listPods() {
		changes.seen[pod.UID] = true
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w, err := env.client.Watch(ctx, &corev1.PodList{}, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelCluster: c.name, v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
			if err != nil {
				continue
			}
			for event := range w.ResultChan() {
				if pod, is := event.Object.(*corev1.Pod); is && pod.Labels["app.kubernetes.io/component"] == "database" {
					changes.note(pod, event.Type == watch.Deleted)
				}
			}
			w.Stop()
		}
	}()
	c.t.Cleanup(func() {
		cancel()
		<-done
	})
	return changes
}

func (p *podChanges) note(pod *corev1.Pod, deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.seen[pod.UID] {
		p.seen[pod.UID] = true
		p.begun = append(p.begun, pod.Name)
	}
	if (deleted || pod.DeletionTimestamp != nil) && !p.gone[pod.UID] {
		p.gone[pod.UID] = true
		p.ended = append(p.ended, pod.Name)
	}
}

// listChanges are the pods that ended and began so far.
func (p *podChanges) listChanges() (ended, begun []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ended), slices.Clone(p.begun)
}

// planEdit plans an edit of the cluster.
func (c *cluster) planEdit(code int, change func(*v1alpha1.PostgresCluster)) planned {
	c.t.Helper()
	obj := c.getCluster()
	change(obj)
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PostgresCluster",
		"metadata": map[string]any{"name": obj.Name, "namespace": obj.Namespace}, "spec": obj.Spec,
	})
	must(c.t, err, "write the manifest")
	stdout, stderr, got := c.runPlugin(string(manifest), "plan", "-f", "-", "-o", "json")
	var p planned
	if err := json.Unmarshal([]byte(stdout), &p); err != nil || got != code || len(p.Clusters) != 1 {
		c.t.Fatalf("the plan: exit code %d, want %d: %v\n%s%s", got, code, err, stdout, stderr)
	}
	if n := len(p.Clusters[0].UnderWay); n > 0 {
		c.t.Errorf("%d steps are under way in a cluster at rest: %+v", n, p.Clusters[0].UnderWay)
	}
	return p
}

// asPlanned makes an edit, and compares what happens with the plan of it.
func (c *cluster) asPlanned(change func(*v1alpha1.PostgresCluster)) {
	c.t.Helper()
	c.waitReady()
	p := c.planEdit(1, change)
	generation := c.getCluster().Generation
	changes := c.followPods()
	c.editCluster(change)
	c.waitFor(readyTimeout, "the edit is rolled out", func(obj *v1alpha1.PostgresCluster) error {
		if r := obj.Status.RolledOut; r == nil || r.Generation <= generation {
			return fmt.Errorf("rolled out: %+v", r)
		}
		return nil
	})
	restarts, joins, leaves := p.membersOf("MemberRestarts"), p.membersOf("MembersJoin"), p.membersOf("MemberLeaves")
	wantEnded, wantBegun := slices.Concat(restarts, leaves), slices.Concat(joins, restarts)
	eventually(c.t, podTimeout, "the pods change as planned", func(context.Context) error {
		ended, begun := changes.listChanges()
		if !slices.Equal(ended, wantEnded) || !sameNames(begun, wantBegun) {
			return fmt.Errorf("ended: %v, planned %v; begun: %v, planned %v", ended, wantEnded, begun, wantBegun)
		}
		return nil
	})
	c.comparePause(p, restarts)
}

// comparePause says whether exactly the steps pause writes that the primary takes part in.
func (c *cluster) comparePause(p planned, restarts []string) {
	c.t.Helper()
	for i, s := range p.Clusters[0].Steps {
		if s.Kind == "MemberRestarts" && s.WritesPause && !slices.Equal(s.Members, restarts[len(restarts)-1:]) {
			c.t.Errorf("step %d of the plan has %v as the primary, which is to restart last: %v", i, s.Members, restarts)
		}
	}
}

// sameNames compares lists whose order means nothing: pods begin beside each other.
func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// testPlan: what kubectl holdfast plan says of an edit is what happens when it is made.
func testPlan(t *testing.T) {
	c := newCluster(t, 2, func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters = v1alpha1.Parameters{"work_mem": "4MB"} })
	c.waitReady()
	if p := c.planEdit(0, func(*v1alpha1.PostgresCluster) {}); p.Clusters[0].Action != "no change" {
		t.Errorf("no edit is planned as %+v", p)
	}
	t.Run("Refused", func(t *testing.T) {
		c := c.withTest(t)
		p := c.planEdit(3, func(obj *v1alpha1.PostgresCluster) { obj.Spec.Storage.Size = resource.MustParse("512Mi") })
		if len(p.Clusters[0].Refused) == 0 {
			t.Errorf("smaller volumes are planned as %+v", p)
		}
	})
	for _, edit := range []struct {
		name   string
		change func(*v1alpha1.PostgresCluster)
	}{
		{"Reload", func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters["work_mem"] = "5MB" }},
		{"ScaleUp", func(obj *v1alpha1.PostgresCluster) { obj.Spec.Replicas = new(int32(3)) }},
		{"Restart", func(obj *v1alpha1.PostgresCluster) { obj.Spec.Parameters["max_connections"] = "120" }},
		{"PodLabels", func(obj *v1alpha1.PostgresCluster) { obj.Spec.PodLabels = map[string]string{"team": "shop"} }},
		{"ScaleDown", func(obj *v1alpha1.PostgresCluster) { obj.Spec.Replicas = new(int32(1)) }},
	} {
		t.Run(edit.name, func(t *testing.T) { c.withTest(t).asPlanned(edit.change) })
	}
}
