//go:build apiserver

package apply_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// installMutation installs an admission policy for ConfigMaps of the test's namespace.
func (w *world) installMutation(expression string) {
	w.t.Helper()
	admin, name := w.As(w.t, "admin"), w.Namespace
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{"CREATE", "UPDATE"},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				},
			}}},
			ReinvocationPolicy: "Never",
			Mutations: []admissionv1.Mutation{{
				PatchType:          admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: expression},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: name,
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.Namespace},
			}},
		},
	}
	for _, obj := range []client.Object{policy, binding} {
		if err := admin.Create(w.t.Context(), obj); err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Cleanup(func() { w.removeMutation() })
	w.awaitPolicy(true)
}

func (w *world) removeMutation() {
	w.t.Helper()
	for _, obj := range []client.Object{&admissionv1.MutatingAdmissionPolicyBinding{}, &admissionv1.MutatingAdmissionPolicy{}} {
		obj.SetName(w.Namespace)
		if err := client.IgnoreNotFound(w.As(w.t, "admin").Delete(context.Background(), obj)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// awaitPolicy waits until the API server has taken notice of the policy.
func (w *world) awaitPolicy(active bool) {
	w.t.Helper()
	apitest.Eventually(w.t, "the admission policy", func(ctx context.Context) (bool, string) {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: w.Namespace}, Data: map[string]string{"a.conf": "probe"}}
		if err := w.As(w.t, "probe").Create(ctx, probe, client.DryRunAll); err != nil {
			return false, err.Error()
		}
		return (probe.Data["a.conf"] != "probe" || len(probe.Data) > 1) == active, probe.Data["a.conf"]
	})
}

func TestAnAdmissionPolicyThatAltersOurFieldIsContestedWithoutAHotLoop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.installMutation(`Object{data: {"a.conf": "altered"}}`)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	r := w.settleSyncs()
	w.wantDrifts(r.Drifts, shortDrift{"ConfigMap/orders-config", `.data["a.conf"]`, "", "admission", "", "Contested"})
	ignoreTimes := cmpopts.IgnoreFields(apply.Contest{}, "Since", "Next")
	want := []apply.Contest{{Object: r.Contested[0].Object, Paths: []string{`.data["a.conf"]`}, Admission: true}}
	if diff := cmp.Diff(want, r.Contested, ignoreTimes); diff != "" {
		t.Errorf("contested (-want +got):\n%s", diff)
	}
	w.Requests.TakeRequests()
	for range 50 {
		w.wantDrifts(w.settleSyncs().Drifts)
	}
	if real, _ := countApplies(w.Requests.TakeRequests()); real != 0 {
		t.Errorf("%d applies while waiting, want none", real)
	}
	// An hour in steps of a second: 5s, 10s, 20s … 5min make 15 or 16 tries.
	for range 3600 {
		w.clock.SetTime(w.clock.Now().Add(time.Second))
		w.settleSyncs()
	}
	if real, _ := countApplies(w.Requests.TakeRequests()); real < 14 || real > 18 {
		t.Errorf("%d applies in an hour of being contested, want about 16", real)
	}
	w.removeMutation()
	w.awaitPolicy(false)
	w.clock.SetTime(w.clock.Now().Add(5 * time.Minute))
	if r := w.settleSyncs(); len(r.Contested) != 0 {
		t.Errorf("contested after the policy went: %v", r.Contested)
	}
}

func TestAdditionsOfAnAdmissionPolicyAreTolerated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.installMutation(`Object{data: {"mesh.conf": "injected"}}`)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.wantDrifts(w.settleSyncs().Drifts)
	w.Requests.TakeRequests()
	r := w.settleSyncs()
	w.wantDrifts(r.Drifts)
	if len(r.Contested) != 0 || len(w.Requests.TakeRequests()) != 0 {
		t.Errorf("contested: %v", r.Contested)
	}
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: w.Namespace}}
	w.getObject(live)
	if live.Data["mesh.conf"] != "injected" {
		t.Errorf("data is %v", live.Data)
	}
}

func TestAContenderThatComesBackAfterEveryRevertIsContested(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.settleSyncs()
	w.Requests.TakeRequests()
	var last apply.Result
	for range 60 {
		w.intrudeWith(w.configMap(), mergePatch(`{"data":{"a.conf":"mine"}}`))
		w.clock.SetTime(w.clock.Now().Add(time.Second))
		last = w.settleSyncs()
	}
	if real, _ := countApplies(w.Requests.TakeRequests()); real > 9 {
		t.Errorf("%d applies in a minute of fighting, want at most 9", real)
	}
	ignoreTimes := cmpopts.IgnoreFields(apply.Contest{}, "Since", "Next", "Object")
	want := []apply.Contest{{Paths: []string{`.data["a.conf"]`}, Manager: intruder}}
	if diff := cmp.Diff(want, last.Contested, ignoreTimes); diff != "" {
		t.Errorf("contested (-want +got):\n%s", diff)
	}
	w.clock.SetTime(w.clock.Now().Add(6 * time.Minute))
	w.settleSyncs()
	w.clock.SetTime(w.clock.Now().Add(6 * time.Minute))
	if r := w.settleSyncs(); len(r.Contested) != 0 {
		t.Errorf("contested after the contender stopped: %v", r.Contested)
	}
}

// A contest is about what an object says. That it is missing is put right at
// once, and at most once a second.
func TestADeletionDoesNotWaitForAContest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.req.Objects = []runtime.ApplyConfiguration{w.configMap()}
	w.settleSyncs()
	for range 6 {
		w.intrudeWith(w.configMap(), mergePatch(`{"data":{"a.conf":"mine"}}`))
		w.clock.SetTime(w.clock.Now().Add(time.Second))
		w.settleSyncs()
	}
	if r := w.settleSyncs(); len(r.Contested) != 1 || !r.Contested[0].Next.After(w.clock.Now()) {
		t.Fatalf("contested: %v at %s", r.Contested, w.clock.Now())
	}
	deleted := shortDrift{"ConfigMap/orders-config", "", "", "deleted", "", "Reverted"}
	live := w.emptyObjectOf(w.configMap())
	remove := func() {
		t.Helper()
		if err := w.As(t, intruder).Delete(t.Context(), live); err != nil {
			t.Fatal(err)
		}
		w.awaitCache(live)
	}
	remove()
	w.wantDrifts(w.settleSyncs().Drifts, deleted)
	w.awaitCache(live)
	w.getObject(live)

	w.settleSyncs()
	remove()
	r, err := w.syncOnce()
	if err != nil {
		t.Fatal(err)
	}
	w.wantDrifts(r.Drifts)
	if r.Settled || r.RetryAfter <= 0 || r.RetryAfter > time.Second {
		t.Errorf("made again within a second: settled %v, again in %s", r.Settled, r.RetryAfter)
	}
	w.clock.SetTime(w.clock.Now().Add(r.RetryAfter))
	w.wantDrifts(w.settleSyncs().Drifts, deleted)
	w.awaitCache(live)
	w.getObject(live)
}
