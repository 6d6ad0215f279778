//go:build apiserver

package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// A cluster is created, grows, shrinks and takes up settings, and no version
// of its status ever says more than is true.
func TestLifecycle(t *testing.T) { eachKind(t, lifecycle) }

func lifecycle(t *testing.T, w *world) {
	seen := w.watch()
	w.operate(0)
	c := w.cluster("orders", 1)
	w.create(c)
	w.awaitReady(c)
	w.wantMembers(c, 1)

	w.scale(c, w.kind.more)
	w.awaitReady(c)
	w.wantMembers(c, int(w.kind.more))

	edit(w, c, func(c v1alpha1.Cluster) { *w.kind.parameters(c) = map[string]string{w.kind.setting: w.kind.value} })
	w.awaitReady(c)
	if received := w.memberConfig(t.Context(), c); !maps.Equal(received.Parameters, *w.kind.parameters(c)) {
		t.Errorf("members have %v", received.Parameters)
	}

	before := w.podUIDs(c)
	edit(w, c, func(c v1alpha1.Cluster) { c.Common().PodLabels = map[string]string{"team": "shop"} })
	w.awaitReady(c)
	for name, uid := range w.podUIDs(c) {
		if before[name] == uid {
			t.Errorf("pod %s was not replaced for the new label", name)
		}
	}

	w.scale(c, w.kind.several)
	w.awaitReady(c)
	w.wantMembers(c, int(w.kind.several))
	if diff := cmp.Diff(volumes(c, w.kind.more), w.objects(c)["PersistentVolumeClaim"]); diff != "" {
		t.Errorf("volumes under Retain (-want +got):\n%s", diff)
	}
	seen.atLeast(10)
}

// Growing and shrinking under deletionPolicy Delete takes the volume along.
func TestShrinkDeletes(t *testing.T) { eachKind(t, shrinkDeletes) }

func shrinkDeletes(t *testing.T, w *world) {
	w.operate(0)
	c := w.cluster("orders", w.kind.several)
	c.Common().DeletionPolicy = v1alpha1.DeletionDelete
	w.create(c)
	w.awaitReady(c)
	w.scale(c, 1)
	w.awaitReady(c)
	apitest.Eventually(t, "the volume goes", func(context.Context) (bool, string) {
		left := w.objects(c)["PersistentVolumeClaim"]
		return cmp.Equal(left, volumes(c, 1)), fmt.Sprint(left)
	})
}

// volumes of so many members.
func volumes(c v1alpha1.Cluster, members int32) []string {
	var names []string
	for n := range members {
		names = append(names, fmt.Sprintf("data-%s-%d", c.GetName(), n))
	}
	return names
}

func (w *world) wantMembers(c v1alpha1.Cluster, n int) {
	w.t.Helper()
	if pods := w.objects(c)["Pod"]; len(pods) != n {
		w.t.Errorf("pods %v, want %d", pods, n)
	}
	said := c.CommonStatus()
	if len(said.Members) != n || said.ReadyReplicas != int32(n) || said.Primary == "" || !w.kind.leads && said.Primary != w.kind.primary {
		w.t.Errorf("status says %d members, %d ready, primary %q; want %d", len(said.Members), said.ReadyReplicas, said.Primary, n)
	}
	if said.SystemIdentifier != system || said.Version != w.kind.version || said.CredentialsSecret != c.GetName()+"-app" {
		w.t.Errorf("status says system %q, version %q, credentials %q", said.SystemIdentifier, said.Version, said.CredentialsSecret)
	}
}

func (w *world) podUIDs(c v1alpha1.Cluster) map[string]string {
	w.t.Helper()
	var pods corev1.PodList
	if err := w.person.List(w.t.Context(), &pods, client.InNamespace(c.GetNamespace()), client.MatchingLabels{v1alpha1.LabelCluster: c.GetName()}); err != nil {
		w.t.Fatal(err)
	}
	uids := map[string]string{}
	for i := range pods.Items {
		uids[pods.Items[i].Name] = string(pods.Items[i].UID)
	}
	return uids
}

// memberConfig is what the ConfigMap has for the members now.
func (w *world) memberConfig(ctx context.Context, c v1alpha1.Cluster) agentapi.ClusterConfig {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.GetNamespace(), Name: c.GetName() + "-config"}}
	var received agentapi.ClusterConfig
	if err := w.person.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
		w.t.Error(err)
		return received
	}
	if err := json.Unmarshal([]byte(config.Data[agentapi.ConfigKey]), &received); err != nil {
		w.t.Error(err)
	}
	return received
}

// statusWatch sees every version of every cluster in the namespace.
type statusWatch struct {
	w     *world
	watch watch.Interface
	done  chan struct{}
	count int
}

// watch judges every version by what every version must be, and by what a test
// wants besides.
func (w *world) watch(judges ...func(v1alpha1.Cluster)) *statusWatch {
	w.t.Helper()
	c, err := client.NewWithWatch(w.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		w.t.Fatal(err)
	}
	watching, err := c.Watch(w.t.Context(), w.kind.list(), client.InNamespace(w.Namespace))
	if err != nil {
		w.t.Fatal(err)
	}
	s := &statusWatch{w: w, watch: watching, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for event := range watching.ResultChan() {
			if c, ok := event.Object.(v1alpha1.Cluster); ok && event.Type != watch.Deleted {
				s.count++
				s.judge(c)
				for _, judge := range judges {
					judge(c)
				}
			}
		}
	}()
	w.t.Cleanup(func() { watching.Stop(); <-s.done })
	return s
}

// atLeast ends the watch and wants it to have seen something.
func (s *statusWatch) atLeast(n int) {
	s.w.t.Helper()
	s.watch.Stop()
	<-s.done
	if s.count < n {
		s.w.t.Errorf("saw %d versions, want at least %d", s.count, n)
	}
}

// judge holds one version against what every version must be.
func (s *statusWatch) judge(c v1alpha1.Cluster) {
	t := s.w.t
	result := kstatus(c)
	if len(c.GetConditions()) == 0 {
		if result != "InProgress" {
			t.Errorf("a new cluster is %s by kstatus", result)
		}
		return
	}
	for _, fault := range faults(c) {
		t.Errorf("%s: %s", describeDrifts(c), fault)
	}
	isReady := conditions.IsTrue(c, v1alpha1.ConditionReady)
	if isReady != (result == "Current") && c.CommonStatus().ObservedGeneration == c.GetGeneration() {
		t.Errorf("%s by kstatus: %s", result, describeDrifts(c))
	}
	if ready(c) {
		s.judgeReady(c)
	}
}

// faults are what no version of a status may have; the rules are those of
// fluxcd/pkg/runtime/conditions/check.
func faults(c conditions.Getter) []string {
	var found []string
	has := func(condition string) bool { return conditions.Has(c, condition) }
	if !has(v1alpha1.ConditionReady) || conditions.IsUnknown(c, v1alpha1.ConditionReady) {
		found = append(found, "Ready must be True or False")
	}
	if has(v1alpha1.ConditionReconciling) && has(v1alpha1.ConditionStalled) {
		found = append(found, "Reconciling and Stalled exclude each other")
	}
	for _, abnormal := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if has(abnormal) && (!conditions.IsTrue(c, abnormal) || conditions.IsTrue(c, v1alpha1.ConditionReady)) {
			found = append(found, abnormal+" is True or absent, and excludes Ready")
		}
	}
	observed := observedGeneration(c)
	if observed > c.GetGeneration() {
		found = append(found, "a generation is observed that does not exist")
	}
	types := map[string]bool{}
	for _, cond := range c.GetConditions() {
		if types[cond.Type] {
			found = append(found, cond.Type+" stands twice")
		}
		if cond.ObservedGeneration != observed && conditions.IsTrue(c, v1alpha1.ConditionReady) {
			found = append(found, cond.Type+" speaks of another generation than Ready")
		}
		types[cond.Type] = true
	}
	return found
}

// judgeReady wants a cluster that calls itself ready to be what it declares.
func (s *statusWatch) judgeReady(c v1alpha1.Cluster) {
	ctx := context.Background()
	received := s.w.memberConfig(ctx, c)
	pods := &corev1.PodList{}
	if err := s.w.person.List(ctx, pods, client.InNamespace(c.GetNamespace()), client.MatchingLabels{v1alpha1.LabelCluster: c.GetName()}); err != nil {
		s.w.t.Error(err)
	}
	now := s.w.kind.cluster(s.w)
	if err := s.w.person.Get(ctx, client.ObjectKeyFromObject(c), now); err != nil || now.GetGeneration() != c.GetGeneration() {
		return // the spec moved on meanwhile
	}
	if c.Common().Tuning.Mode == v1alpha1.TuningApply { // beside what is declared
		maps.DeleteFunc(received.Parameters, func(name, _ string) bool { return (*s.w.kind.parameters(c))[name] == "" })
	}
	if !maps.Equal(received.Parameters, *s.w.kind.parameters(c)) || len(received.Members) != c.Common().DesiredReplicas() || len(pods.Items) != c.Common().DesiredReplicas() {
		s.w.t.Errorf("Ready at generation %d with parameters %v, members %v and %d pods", c.GetGeneration(), received.Parameters, received.Members, len(pods.Items))
	}
	for i := range pods.Items {
		for k, v := range c.Common().PodLabels {
			if pods.Items[i].Labels[k] != v {
				s.w.t.Errorf("Ready at generation %d with %s without label %s", c.GetGeneration(), pods.Items[i].Name, k)
			}
		}
	}
}

// kstatus decides as the library of that name does, in its order.
func kstatus(c conditions.Getter) string {
	switch {
	case c.GetDeletionTimestamp() != nil:
		return "Terminating"
	case observedGeneration(c) != c.GetGeneration():
		return "InProgress"
	case conditions.IsTrue(c, v1alpha1.ConditionReconciling):
		return "InProgress"
	case conditions.IsTrue(c, v1alpha1.ConditionStalled):
		return "Failed"
	case conditions.Has(c, v1alpha1.ConditionReady) && !conditions.IsTrue(c, v1alpha1.ConditionReady):
		return "InProgress"
	}
	return "Current"
}

// observedGeneration is the generation that a status speaks of.
func observedGeneration(c conditions.Getter) int64 {
	switch c := c.(type) {
	case v1alpha1.Cluster:
		return c.CommonStatus().ObservedGeneration
	case *v1alpha1.Backup:
		return c.Status.ObservedGeneration
	case *v1alpha1.Database:
		return c.Status.ObservedGeneration
	}
	return -1
}
