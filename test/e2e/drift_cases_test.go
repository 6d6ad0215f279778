//go:build e2e || soak

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// harmlessDrifts are changes to what surrounds the database. None of them, and
// nothing that puts them back, may touch a pod.
func harmlessDrifts(k *kind) []drift {
	return append([]drift{
		{"service", &corev1.Service{}, k.entry, updateObject(func(s *corev1.Service) {
			s.Spec.Selector["app"] = "another-client"
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "extra", Port: 9999, TargetPort: intstr.FromInt32(9999)})
		}), []trace{{path: ".spec.selector", operation: byUpdate}, {path: ".spec.ports", operation: byUpdate}}},
		{"service-deleted", &corev1.Service{}, k.aside, deleteObject, []trace{{operation: deleted, unattributed: true}}},
		{"role", &rbacv1.Role{}, "", updateObject(func(r *rbacv1.Role) {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"endpoints"}, Verbs: []string{"get"}})
		}), []trace{{path: ".rules", operation: byUpdate}}},
		{"rolebinding", &rbacv1.RoleBinding{}, "", updateObject(func(r *rbacv1.RoleBinding) {
			r.Subjects = append(r.Subjects, rbacv1.Subject{Kind: "ServiceAccount", Name: "default", Namespace: r.Namespace})
		}), []trace{{path: ".subjects", operation: byUpdate}}},
		{"serviceaccount", &corev1.ServiceAccount{}, "", mergePatch(`{"metadata":{"labels":{"app.kubernetes.io/name":null}}}`),
			[]trace{{path: ".metadata.labels", operation: removed, unattributed: true}}},
		{"serviceaccount-unlabelled", &corev1.ServiceAccount{}, "", mergePatch(`{"metadata":{"labels":{"` + v1alpha1.LabelCluster + `":null}}}`),
			[]trace{{path: ".metadata.labels", operation: removed, unattributed: true}}},
		{"secret-key", &corev1.Secret{}, "-app", mergePatch(`{"stringData":{"smuggled":"in"}}`),
			[]trace{{path: ".data", operation: byUpdate}}},
		{"secret-deleted", &corev1.Secret{}, "-app", deleteObject, []trace{{operation: deleted, unattributed: true}}},
		{"configmap", &corev1.ConfigMap{}, "-config", mergePatch(`{"data":{"cluster.json":"{}"}}`),
			[]trace{{path: ".data", operation: byUpdate}}},
		{"scale", &appsv1.StatefulSet{}, "", scaleSet, []trace{{path: ".spec.replicas", operation: byUpdate, subresource: "scale"}}},
		{"image", &appsv1.StatefulSet{}, "", strategicPatch(`{"spec":{"template":{"spec":{"containers":[{"name":"` + k.engine + `","image":"example.invalid/database:1"}]}}}}`),
			[]trace{{path: ".image", operation: byUpdate}}},
		{"container", &appsv1.StatefulSet{}, "", strategicPatch(`{"spec":{"template":{"spec":{"containers":[
			{"name":"miner","image":"example.invalid/miner:1"},{"name":"` + k.engine + `","env":[{"name":"` + k.poison + `","value":"-c fsync=off"}]}]}}}}`),
			[]trace{{path: "miner", operation: byUpdate}, {path: k.poison, operation: byUpdate}}},
		{"budget-deleted", &policyv1.PodDisruptionBudget{}, "", deleteObject, []trace{{operation: deleted, unattributed: true}}},
		{"networkpolicy", &networkingv1.NetworkPolicy{}, "", updateObject(func(p *networkingv1.NetworkPolicy) {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{})
		}), []trace{{path: ".spec.ingress", operation: byUpdate}}},
	}, k.drifts...)
}

// scaleSet is kubectl scale statefulset: up, so that reverting it must not
// leave a stray member, and one that would start at once.
func scaleSet(ctx context.Context, obj client.Object, manager client.FieldOwner) error {
	return env.client.SubResource("scale").Patch(ctx, obj, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":5}}`)), manager)
}

func driftReverted(t *testing.T, k *kind) {
	c := newSubject(t, k, k.several)
	c.waitReady()
	k.keepValue(c, "42")
	members := c.allIncarnations()
	for _, d := range harmlessDrifts(k) {
		t.Run(d.name, func(t *testing.T) { d.makeAndAwaitReverted(t, c.withTest(t)) })
	}
	t.Run("managedfields-cleared", func(t *testing.T) { clearedManagedFields(t, c.withTest(t)) })
	c.waitReady()
	if now := c.allIncarnations(); now != members {
		t.Errorf("members were touched: %s\nbefore\n%s", now, members)
	}
	t.Run("pod-image", func(t *testing.T) { podImageEdited(t, c.withTest(t)) })
	if got := k.checkServes(t, c); got != "42" {
		t.Errorf("an application reads %q", got)
	}
}

// clearedManagedFields: what we own is taken back, and then guarded as before.
func clearedManagedFields(t *testing.T, c *subject) {
	var s corev1.Service
	c.readObject(&s, c.name+c.kind.entry)
	must(t, env.client.Patch(t.Context(), &s, client.RawPatch("application/json-patch+json",
		[]byte(`[{"op":"replace","path":"/metadata/managedFields","value":[{}]}]`))), "clear managedFields")
	eventually(t, revertTimeout, "the fields are ours again", func(ctx context.Context) error {
		var now corev1.Service
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(&s), &now); err != nil {
			return err
		}
		owners := map[string]bool{}
		for _, m := range now.ManagedFields {
			owners[m.Manager+"/"+string(m.Operation)] = true
		}
		if !owners[v1alpha1.FieldManager+"/Apply"] || owners["before-first-apply/Update"] {
			return fmt.Errorf("they are owned by %v", owners)
		}
		return nil
	})
	drift{"after-clearing", &corev1.Service{}, c.kind.entry, updateObject(func(s *corev1.Service) {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.Ports[0].TargetPort = intstr.FromInt32(1)
	}), []trace{{path: ".targetPort", operation: byUpdate}}}.makeAndAwaitReverted(t, c)
}

// podImageEdited is kubectl set image pod: the last member's is replaced, and no
// other.
func podImageEdited(t *testing.T, c *subject) {
	k, last := c.kind, int(c.kind.several)-1
	other := k.otherImage(t)
	var others []string
	for n := range last {
		others = append(others, c.podIncarnation(n))
	}
	var pod corev1.Pod
	c.readObject(&pod, c.podName(last))
	before, want := pod.DeepCopy(), c.getCluster().CommonStatus().Image
	must(t, strategicPatch(fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":%q}]}}`, k.engine, other))(
		t.Context(), &pod, client.FieldOwner("kubectl-set")), "set the pod's image")
	eventually(t, readyTimeout, "the pod is replaced", func(ctx context.Context) error {
		var now corev1.Pod
		if err := env.client.Get(ctx, client.ObjectKeyFromObject(before), &now); err != nil {
			return err
		}
		i := slices.IndexFunc(now.Spec.Containers, func(c corev1.Container) bool { return c.Name == k.engine })
		if now.UID == before.UID || now.Spec.Containers[i].Image != want || !podReady(&now) {
			return fmt.Errorf("pod %s runs %s", now.UID, now.Spec.Containers[i].Image)
		}
		return nil
	})
	c.waitFor(readyTimeout, "the cluster is whole again", checkWhole)
	waitEvent(t, c, v1alpha1.ReasonStepStarted, c.podName(last), "image")
	for n, before := range others {
		if now := c.podIncarnation(n); now != before {
			t.Errorf("another member was touched: %s, before %s", now, before)
		}
	}
	k.awaitUnited(c, last+1)
}

// checkWhole: rolled out, and nothing is broken.
func checkWhole(obj v1alpha1.Cluster) error {
	if err := rolledOut(obj); err != nil {
		return err
	}
	for _, cond := range obj.GetConditions() {
		if cond.Type == v1alpha1.ConditionDegraded && cond.Status == metav1.ConditionTrue {
			return fmt.Errorf("degraded: %s", cond.Message)
		}
	}
	return nil
}

// driftWhileDown: what happened while no operator ran is put back when one
// starts, and reported with the name of the client that did it.
func driftWhileDown(t *testing.T, k *kind) {
	c := newOperated(t, k, 1)
	c.waitReady()
	member := c.podIncarnation(0)
	c.operator.scaleTo(t, 0)
	unseen := drift{"while-down", &corev1.Service{}, k.entry, updateObject(func(s *corev1.Service) {
		s.Spec.Selector = map[string]string{"app": "another-client"}
	}), []trace{{path: ".spec.selector", operation: byUpdate}}}
	var service, before corev1.Service
	c.readObject(&before, c.name+k.entry)
	c.readObject(&service, c.name+k.entry)
	start := metav1.Now().Rfc3339Copy().Time
	must(t, unseen.change(t.Context(), &service, client.FieldOwner(unseen.fieldManager())), "edit the Service")
	must(t, env.client.Delete(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}}), "delete the budget")
	c.operator.scaleTo(t, 1)
	unseen.awaitReported(t, c, unseen.traces[0], start, "Reverted")
	eventually(t, revertTimeout, "Service and budget are back", func(ctx context.Context) error {
		if err := env.client.Get(ctx, c.nameOf(""), &policyv1.PodDisruptionBudget{}); err != nil {
			return err
		}
		var now corev1.Service
		if err := env.client.Get(ctx, c.nameOf(k.entry), &now); err != nil {
			return err
		}
		if fmt.Sprint(now.Spec.Selector) != fmt.Sprint(before.Spec.Selector) {
			return fmt.Errorf("the selector is %v", now.Spec.Selector)
		}
		return nil
	})
	c.waitReady()
	if now := c.podIncarnation(0); now != member {
		t.Errorf("the member was touched: %s, before %s", now, member)
	}
}
