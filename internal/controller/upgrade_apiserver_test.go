//go:build apiserver

package controller_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// An operator of another image takes clusters over and gives them back: no pod is
// replaced, none is created with its agent, and no status says that a cluster is not
// ready. By request each pod is replaced once.
func TestUpgradeOfTheOperator(t *testing.T) { eachKind(t, upgradeOfTheOperator) }

func upgradeOfTheOperator(t *testing.T, w *world) {
	const before, next = agentImage, "holdfast:next"
	var steadySince, judged atomic.Int64 // resourceVersions; 0 for none
	version := func(c v1alpha1.Cluster) int64 {
		number, err := strconv.ParseInt(c.GetResourceVersion(), 10, 64)
		if err != nil {
			t.Error(err)
		}
		return number
	}
	seen := w.watch(func(c v1alpha1.Cluster) {
		judged.Store(version(c))
		if since := steadySince.Load(); since > 0 && version(c) > since && !ready(c) {
			t.Errorf("an exchange of the operator shows: %s", describeDrifts(c))
		}
	})
	c := w.cluster("orders", w.kind.several)
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	pods := w.podUIDs(c)
	revision := w.declaredAgent(c, before)

	steadySince.Store(version(c))
	for _, image := range []string{next, before, next} {
		o.stop()
		w.agent = image
		o = w.operate(0)
		want := v1alpha1.AgentStatus{Image: before}
		if image == next {
			want.Available, want.Outdated = next, podNames(c, w.kind.several)
		}
		await(w, c, "the agents in status", func(c v1alpha1.Cluster) bool {
			return c.CommonStatus().Agent != nil && cmp.Equal(want, *c.CommonStatus().Agent)
		})
		if now := w.declaredAgent(c, before); now != revision {
			t.Errorf("the template changed: revision %s, before %s", now, revision)
		}
		if diff := cmp.Diff(pods, w.podUIDs(c)); diff != "" {
			t.Errorf("pods were replaced (-before +now):\n%s", diff)
		}
	}
	edited := []byte(`{"status":{"agent":{"image":"elsewhere:v9"}}}`)
	if err := w.person.Status().Patch(t.Context(), c, client.RawPatch(types.MergePatchType, edited)); err != nil {
		t.Fatal(err)
	}
	// Nothing is done for a status alone: the next pass puts it back.
	edit(w, c, func(c v1alpha1.Cluster) {
		c.SetAnnotations(map[string]string{meta.ReconcileRequestAnnotation: "edited"})
	})
	await(w, c, "the image that a person wrote into the status is put back", func(c v1alpha1.Cluster) bool { return c.CommonStatus().Agent.Image == before })
	if now := w.declaredAgent(c, before); now != revision {
		t.Errorf("the template changed: revision %s, before %s", now, revision)
	}
	// Each version is compared with the pods that there are when it is judged: before one is
	// deleted, every version has to be.
	await(w, c, "every status is judged", func(c v1alpha1.Cluster) bool { return judged.Load() >= version(c) })
	seen.atLeast(3)

	lost := podNames(c, w.kind.several)[w.kind.several-1]
	if err := w.person.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: lost}}); err != nil {
		t.Fatal(err)
	}
	await(w, c, "another pod", func(c v1alpha1.Cluster) bool { uid := w.podUIDs(c)[lost]; return uid != "" && uid != pods[lost] })
	w.awaitReady(c)
	if images := w.agentImages(c); !slices.Equal(images, []string{before}) {
		t.Errorf("the pod that returned made the agents %v", images)
	}

	pods = w.podUIDs(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.SetAnnotations(map[string]string{v1alpha1.AnnotationUpdateAgents: "now"}) })
	await(w, c, "the request is done", func(c v1alpha1.Cluster) bool {
		return slices.ContainsFunc(c.CommonStatus().Requests, func(r v1alpha1.RequestStatus) bool {
			return r.Type == "update-agents" && r.ID == "now" && strings.HasPrefix(r.Result, "done")
		})
	})
	w.awaitReady(c)
	if images := w.agentImages(c); !slices.Equal(images, []string{next}) {
		t.Errorf("after the request the agents are of %v", images)
	}
	for name, uid := range w.podUIDs(c) {
		if pods[name] == uid {
			t.Errorf("pod %s was not replaced", name)
		}
	}
	w.declaredAgent(c, next)
}

// Another client sets the agents' image back each time that it is applied. The request to update
// them is not done, status lists who is behind, and once the other client stops, it goes on.
func TestAgentsAreNotUpdatedWhileAnotherClientSetsThemBack(t *testing.T) {
	t.Parallel()
	const before, next = agentImage, "holdfast:next"
	w := newWorld(t, postgresKind)
	c := w.cluster("orders", w.kind.several)
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	o.stop()

	rollbacker := w.As(t, "rollbacker")
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			set := &appsv1.StatefulSet{}
			if rollbacker.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: "orders"}, set) != nil {
				continue
			}
			if i := slices.IndexFunc(set.Spec.Template.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == objects.InstallerName && c.Image != before }); i >= 0 {
				set.Spec.Template.Spec.InitContainers[i].Image = before
				if err := rollbacker.Update(ctx, set); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	}()
	t.Cleanup(func() { stop(); <-stopped })

	w.agent = next
	w.operate(0)
	edit(w, c, func(c v1alpha1.Cluster) { c.SetAnnotations(map[string]string{v1alpha1.AnnotationUpdateAgents: "now"}) })
	request := func(c v1alpha1.Cluster) string {
		for _, r := range c.CommonStatus().Requests {
			if r.Type == "update-agents" && r.ID == "now" {
				return r.Result
			}
		}
		return "not recorded"
	}
	await(w, c, "it is contested, and members are behind", func(c v1alpha1.Cluster) bool {
		if strings.HasPrefix(request(c), "done") {
			t.Fatalf("the request is %s; the agents are of %v", request(c), w.agentImages(c))
		}
		agent := c.CommonStatus().Agent
		return conditions.GetReason(c, v1alpha1.ConditionSynced) == v1alpha1.ReasonContested && request(c) == "" && agent != nil && len(agent.Outdated) > 0 && agent.Available == next
	})
	if said := conditions.GetMessage(c, v1alpha1.ConditionSynced); !strings.Contains(said, "rollbacker") {
		t.Errorf("the other client is not named: %s", said)
	}
	stop()
	<-stopped
	await(w, c, "the request is done", func(c v1alpha1.Cluster) bool { return strings.HasPrefix(request(c), "done") })
	if images := w.agentImages(c); !slices.Equal(images, []string{next}) {
		t.Errorf("after the request the agents are of %v", images)
	}
}

// podNames of so many members.
func podNames(c v1alpha1.Cluster, members int32) (names []string) {
	for _, volume := range volumes(c, members) {
		names = append(names, strings.TrimPrefix(volume, "data-"))
	}
	return names
}

// declaredAgent checks the agents' image that the StatefulSet declares, and returns the
// revision of its template.
func (w *world) declaredAgent(c v1alpha1.Cluster, want string) (revision string) {
	w.t.Helper()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: c.GetName()}}
	w.get(set)
	if got := installerOf(w, set.Spec.Template.Spec); got != want {
		w.t.Errorf("new pods would have the agent of %s, want %s", got, want)
	}
	return set.Status.UpdateRevision
}

// agentImages are the images that the members' pods have agents from, without repetition.
func (w *world) agentImages(c v1alpha1.Cluster) (images []string) {
	w.t.Helper()
	var pods corev1.PodList
	if err := w.person.List(w.t.Context(), &pods, client.InNamespace(c.GetNamespace()), client.MatchingLabels{v1alpha1.LabelCluster: c.GetName()}); err != nil {
		w.t.Fatal(err)
	}
	for i := range pods.Items {
		images = append(images, installerOf(w, pods.Items[i].Spec))
	}
	slices.Sort(images)
	return slices.Compact(images)
}

func installerOf(w *world, spec corev1.PodSpec) string {
	w.t.Helper()
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == objects.InstallerName {
			return spec.InitContainers[i].Image
		}
	}
	w.t.Error("there is no installer")
	return ""
}
