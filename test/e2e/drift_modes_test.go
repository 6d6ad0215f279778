//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// allowDisruptions edits the budget, a field that changes nothing for the database.
func allowDisruptions(n int32) func(context.Context, client.Object, client.FieldOwner) error {
	return updateObject(func(b *policyv1.PodDisruptionBudget) { b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(n)) })
}

func (c *subject) allowedDisruptions() int {
	c.t.Helper()
	var b policyv1.PodDisruptionBudget
	c.readObject(&b, c.name)
	return b.Spec.MaxUnavailable.IntValue()
}

func driftModes(t *testing.T, k *kind) {
	c := newSubject(t, k, 1, "drift: {mode: Report}")
	c.waitReady()
	t.Run("Report", func(t *testing.T) {
		c := c.withTest(t)
		d := drift{name: "reported", object: &policyv1.PodDisruptionBudget{}, change: allowDisruptions(3)}
		start := time.Now().Truncate(time.Second)
		var b policyv1.PodDisruptionBudget
		c.readObject(&b, c.name)
		must(t, d.change(t.Context(), &b, client.FieldOwner(d.fieldManager())), "edit the budget")
		d.awaitReported(t, c, trace{path: ".spec.maxUnavailable", operation: byUpdate}, start, "Reported")
		c.waitCondition(revertTimeout, v1alpha1.ConditionSynced, metav1.ConditionFalse, v1alpha1.ReasonDrifted, "PodDisruptionBudget/"+c.name, d.fieldManager())
		c.awaitHandled()
		if n := c.allowedDisruptions(); n != 3 {
			t.Errorf("reported drift was put back: %d", n)
		}
		c.waitReady()
	})
	t.Run("BackToRevert", func(t *testing.T) {
		c := c.withTest(t)
		c.changeSpec("drift: {mode: Revert}")
		c.waitCondition(revertTimeout, v1alpha1.ConditionSynced, metav1.ConditionTrue, v1alpha1.ReasonSynced)
		if n := c.allowedDisruptions(); n != 1 {
			t.Errorf("synced, and the budget allows %d", n)
		}
	})
	t.Run("Ignore", func(t *testing.T) { ignoredDrift(t, c.withTest(t)) })
}

// ignoredDrift leaves one field of an object alone, and puts another back.
func ignoredDrift(t *testing.T, c *subject) {
	c.changeSpec("drift: {ignore: [{kind: PodDisruptionBudget, paths: [/spec/maxUnavailable]}]}")
	c.waitReady()
	var b policyv1.PodDisruptionBudget
	c.readObject(&b, c.name)
	must(t, allowDisruptions(4)(t.Context(), &b, "e2e-ignored"), "edit the budget")
	c.awaitHandled()
	guarded := drift{"beside-ignored", &policyv1.PodDisruptionBudget{}, "", mergePatch(`{"metadata":{"labels":{"app.kubernetes.io/component":"mine"}}}`),
		[]trace{{path: ".metadata.labels", operation: byUpdate}}}
	guarded.makeAndAwaitReverted(t, c)
	if n := c.allowedDisruptions(); n != 4 {
		t.Errorf("ignored drift was put back: %d", n)
	}
	for _, r := range c.waitReady().CommonStatus().Drift.Last {
		if r.Manager == "e2e-ignored" {
			t.Errorf("ignored drift is reported: %+v", r)
		}
	}
	c.waitCondition(revertTimeout, v1alpha1.ConditionSynced, metav1.ConditionTrue, v1alpha1.ReasonSynced)
}

// driftContested: an admission policy changes the budget whenever it is
// written. It cannot be won; it must be reported, with few writes, and be over
// when the policy is.
func driftContested(t *testing.T, k *kind) {
	c := newSubject(t, k, 1)
	c.waitReady()
	drop := fightBack(t, c.namespace)
	var b policyv1.PodDisruptionBudget
	eventually(t, revertTimeout, "the policy is in force", func(ctx context.Context) error {
		c.readObject(&b, c.name)
		if b.Spec.MaxUnavailable.IntValue() == 2 {
			return nil
		}
		return errors.Join(errors.New("not yet"), mergePatch(fmt.Sprintf(`{"metadata":{"annotations":{"e2e":"%d"}}}`, time.Now().UnixNano()))(ctx, &b, "e2e-contest"))
	})
	c.waitCondition(revertTimeout, v1alpha1.ConditionSynced, metav1.ConditionFalse, v1alpha1.ReasonContested, "PodDisruptionBudget/"+c.name, "maxUnavailable")
	c.waitReady()
	from := time.Now()
	time.Sleep(contestPeriod)
	writes := 0
	for _, r := range auditRequests(t, from, installed.accounts(), true) {
		if r.Namespace == c.namespace && r.Name == c.name && r.Resource == "poddisruptionbudgets.policy" && r.isWrite() {
			writes += r.Count
		}
	}
	if writes > 6 {
		t.Errorf("%d writes in %s to an object that something else keeps changing", writes, contestPeriod)
	}
	t.Logf("%d writes in %s", writes, contestPeriod)
	drop()
	c.waitCondition(2*revertTimeout, v1alpha1.ConditionSynced, metav1.ConditionTrue, v1alpha1.ReasonSynced)
	if n := c.allowedDisruptions(); n != 1 {
		t.Errorf("synced, and the budget allows %d", n)
	}
}

// fightBack installs the policy for one namespace, and returns what deletes it.
func fightBack(t *testing.T, namespace string) func() {
	t.Helper()
	meta := metav1.ObjectMeta{Name: namespace}
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy:      ptr.To(admissionv1.Fail),
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{"policy"}, APIVersions: []string{"v1"}, Resources: []string{"poddisruptionbudgets"}},
			}}},
		},
		Mutations: []admissionv1.Mutation{{
			PatchType: admissionv1.PatchTypeJSONPatch,
			JSONPatch: &admissionv1.JSONPatch{Expression: `[JSONPatch{op: "replace", path: "/spec/maxUnavailable", value: 2}]`},
		}},
	}}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: namespace}}
	must(t, env.client.Create(t.Context(), policy), "create the policy")
	drop := func() {
		for _, obj := range []client.Object{binding, policy} {
			if err := env.client.Delete(context.Background(), obj); client.IgnoreNotFound(err) != nil {
				t.Errorf("delete the policy: %v", err)
			}
		}
	}
	t.Cleanup(drop)
	must(t, env.client.Create(t.Context(), binding), "bind the policy")
	return drop
}
