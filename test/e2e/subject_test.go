//go:build e2e || soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// orders is the name of nearly every cluster here: namespaces distinguish them.
const orders = "orders"

// subject is a cluster under test, of whichever kind.
type subject struct {
	t               *testing.T
	kind            *kind
	namespace, name string
	// operator that acts on it.
	operator *operator
	*history
}

// newSubject creates one in a namespace of its own and follows its status from
// the first on. The spec's lines come on top of the kind's own.
func newSubject(t *testing.T, k *kind, replicas int32, spec ...string) *subject {
	t.Helper()
	needKind(t, k)
	return createSubject(t, k, newNamespace(t, ""), orders, replicas, spec...)
}

func createSubject(t *testing.T, k *kind, namespace, name string, replicas int32, spec ...string) *subject {
	t.Helper()
	c := followSubject(t, k, namespace, name)
	c.createCluster(replicas, spec...)
	return c
}

// followSubject is a cluster that another client creates.
func followSubject(t *testing.T, k *kind, namespace, name string) *subject {
	t.Helper()
	return &subject{t: t, kind: k, namespace: namespace, name: name, operator: installed, history: followName(t, k, namespace, name)}
}

func (c *subject) createCluster(replicas int32, spec ...string) {
	c.t.Helper()
	obj := c.kind.newManifest(c.t, c.namespace, c.name, append([]string{fmt.Sprintf("replicas: %d", replicas)}, spec...)...)
	must(c.t, createStrictly(c.t, obj), "create the cluster")
}

// withTest is the same cluster, for a part of a test.
func (c *subject) withTest(t *testing.T) *subject {
	part := *c
	part.t = t
	return &part
}

func (c *subject) nameOf(suffix string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.namespace, Name: c.name + suffix}
}

// leading stands for the ordinal of the member that leads at the time.
const leading = -1

func (c *subject) podName(ordinal int) string {
	if ordinal == leading {
		ordinal = c.findLeading()
	}
	return fmt.Sprintf("%s-%d", c.name, ordinal)
}

// ordinalOf a member by its pod's name.
func (c *subject) ordinalOf(pod string) (ordinal int) {
	c.t.Helper()
	_, err := fmt.Sscanf(strings.TrimPrefix(pod, c.name+"-"), "%d", &ordinal)
	must(c.t, err, "read the ordinal of "+pod)
	return ordinal
}

// awaitNewPod waits until another pod of the same name runs.
func (c *subject) awaitNewPod(before *corev1.Pod) *corev1.Pod {
	c.t.Helper()
	var pod corev1.Pod
	eventually(c.t, goneTimeout, "a new pod "+before.Name+" runs", func(ctx context.Context) error {
		if err := env.client.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: before.Name}, &pod); err != nil {
			return err
		}
		if pod.UID == before.UID || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod is %s of UID %s", pod.Status.Phase, pod.UID)
		}
		return nil
	})
	return &pod
}

// findLeading waits for a member to lead, and returns its ordinal.
func (c *subject) findLeading() (ordinal int) {
	c.t.Helper()
	eventually(c.t, readyTimeout, "a member of "+c.name+" leads", func(ctx context.Context) error {
		var pods corev1.PodList
		err := env.client.List(ctx, &pods, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelCluster: c.name, v1alpha1.LabelRole: v1alpha1.RolePrimary})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("%d pods are labelled as the primary", len(pods.Items))
		}
		if err == nil {
			_, err = fmt.Sscanf(strings.TrimPrefix(pods.Items[0].Name, c.name+"-"), "%d", &ordinal)
		}
		return err
	})
	return ordinal
}

func (c *subject) volumeName(ordinal int) string { return "data-" + c.podName(ordinal) }

// readObject fetches an object of the cluster's namespace.
func (c *subject) readObject(obj client.Object, name string) {
	c.t.Helper()
	err := env.client.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, obj)
	must(c.t, err, fmt.Sprintf("read %T %s", obj, name))
}

func (c *subject) getCluster() v1alpha1.Cluster {
	c.t.Helper()
	obj := c.kind.empty()
	c.readObject(obj, c.name)
	return obj
}

// changeSpec merges lines of YAML into the spec; null takes a field away.
func (c *subject) changeSpec(lines ...string) {
	c.t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": specOf(c.t, lines...)})
	must(c.t, err, "marshal the change")
	err = env.client.Patch(c.t.Context(), c.getCluster(), client.RawPatch(types.MergePatchType, patch), client.FieldOwner("e2e"))
	must(c.t, err, "change the cluster")
}

// currentSpec is the whole spec as it is now.
func (c *subject) currentSpec() any {
	c.t.Helper()
	return unstructuredOf(c.t, c.getCluster()).Object["spec"]
}

// restoreSpec puts a whole spec in the place of the present one.
func (c *subject) restoreSpec(spec any) {
	c.t.Helper()
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": spec}})
	must(c.t, err, "marshal the spec")
	err = env.client.Patch(c.t.Context(), c.getCluster(), client.RawPatch(types.JSONPatchType, patch), client.FieldOwner("e2e"))
	must(c.t, err, "restore the spec")
}

// scaleTo goes through the scale subresource, as kubectl scale does.
func (c *subject) scaleTo(replicas int32) {
	c.t.Helper()
	body := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	err := env.client.SubResource("scale").Patch(c.t.Context(), c.getCluster(), client.RawPatch(types.MergePatchType, body), client.FieldOwner("e2e"))
	must(c.t, err, "scale the cluster")
}

// rolledOut says why the current generation is not ready; nil when it is, by
// the condition and by kstatus.
func rolledOut(c v1alpha1.Cluster) error {
	result, err := computeStatus(c)
	if err != nil {
		return err
	}
	ready := meta.FindStatusCondition(c.GetConditions(), v1alpha1.ConditionReady)
	generation, observed := c.GetGeneration(), c.CommonStatus().ObservedGeneration
	switch {
	case ready == nil:
		return errors.New("there is no condition Ready")
	case observed != generation:
		return fmt.Errorf("generation %d is not observed, but %d", generation, observed)
	case ready.ObservedGeneration != generation || ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("Ready is %s for generation %d: %s: %s", ready.Status, ready.ObservedGeneration, ready.Reason, ready.Message)
	case result.Status != status.CurrentStatus:
		return fmt.Errorf("kstatus says %s: %s", result.Status, result.Message)
	}
	return nil
}

// computeStatus is what Flux and others who use kstatus conclude.
func computeStatus(c v1alpha1.Cluster) (*status.Result, error) {
	fields, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		return nil, err
	}
	gvk, err := apiutil.GVKForObject(c, env.client.Scheme())
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(gvk)
	return status.Compute(u)
}

// waitFor waits until the object is as the condition wants it.
func (c *subject) waitFor(timeout time.Duration, what string, condition func(v1alpha1.Cluster) error) v1alpha1.Cluster {
	c.t.Helper()
	var obj v1alpha1.Cluster
	eventually(c.t, timeout, what, func(ctx context.Context) error {
		obj = c.kind.empty()
		if err := env.client.Get(ctx, c.nameOf(""), obj); err != nil {
			return err
		}
		return condition(obj)
	})
	return obj
}

// waitReady waits until the current generation is rolled out.
func (c *subject) waitReady() v1alpha1.Cluster {
	c.t.Helper()
	return c.waitFor(readyTimeout, "the cluster is ready", rolledOut)
}

// waitStalled waits until the current generation is Stalled for a reason, with
// a message that holds every one of the words.
func (c *subject) waitStalled(reason string, words ...string) {
	c.t.Helper()
	c.waitCondition(stalledTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, words...)
	result, err := computeStatus(c.getCluster())
	must(c.t, err, "kstatus")
	if result.Status != status.FailedStatus {
		c.t.Errorf("kstatus says %s of a stalled cluster: %s", result.Status, result.Message)
	}
}

// waitCondition waits for a condition of the current generation.
func (c *subject) waitCondition(timeout time.Duration, kind string, want metav1.ConditionStatus, reason string, words ...string) {
	c.t.Helper()
	c.waitFor(timeout, fmt.Sprintf("%s=%s/%s", kind, want, reason), func(obj v1alpha1.Cluster) error {
		cond := meta.FindStatusCondition(obj.GetConditions(), kind)
		if cond == nil {
			return fmt.Errorf("there is no condition %s; phase %s: %w", kind, obj.CommonStatus().Phase, rolledOut(obj))
		}
		if cond.Status != want || cond.Reason != reason || cond.ObservedGeneration != obj.GetGeneration() {
			return fmt.Errorf("%s=%s/%s for generation %d: %s", kind, cond.Status, cond.Reason, cond.ObservedGeneration, cond.Message)
		}
		return holdsAll(cond.Message, words...)
	})
}

// listPods reads the pods of the members, by ordinal.
func (c *subject) listPods() []corev1.Pod {
	c.t.Helper()
	pods, err := memberPods(c.t.Context(), c.namespace, c.name)
	must(c.t, err, "list the members' pods")
	return pods
}

func memberPods(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := env.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelCluster: name})
	list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.Labels[batchv1.JobNameLabel] != "" })
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		if len(a.Name) != len(b.Name) {
			return len(a.Name) - len(b.Name)
		}
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list.Items, err
}

func podReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// podIncarnation is a pod and how often it restarted: the same one never went
// away in between.
func (c *subject) podIncarnation(ordinal int) string {
	c.t.Helper()
	var pod corev1.Pod
	c.readObject(&pod, c.podName(ordinal))
	restarts := int32(0)
	for _, s := range pod.Status.ContainerStatuses {
		restarts += s.RestartCount
	}
	return fmt.Sprintf("%s uid %s restarts %d", pod.Name, pod.UID, restarts)
}

// allIncarnations are those of every member.
func (c *subject) allIncarnations() string {
	c.t.Helper()
	var all []string
	for n := range c.listPods() {
		all = append(all, c.podIncarnation(n))
	}
	return strings.Join(all, "\n")
}

// podsBehind names the pods that a Service sends clients to.
func podsBehind(ctx context.Context, namespace, service string) ([]string, error) {
	var list discoveryv1.EndpointSliceList
	err := env.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service})
	var pods []string
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef != nil && ptr.Deref(e.Conditions.Ready, true) {
				pods = append(pods, e.TargetRef.Name)
			}
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods), err
}

// waitBehind waits until exactly these pods are behind a Service.
func (c *subject) waitBehind(suffix string, want ...string) {
	c.t.Helper()
	eventually(c.t, serviceTimeout, fmt.Sprintf("%s%s sends clients to %v", c.name, suffix, want), func(ctx context.Context) error {
		have, err := podsBehind(ctx, c.namespace, c.name+suffix)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("to %v", have)
		}
		return err
	})
}

// readSecret is the content of one of the cluster's Secrets.
func (c *subject) readSecret(suffix string) map[string][]byte {
	c.t.Helper()
	var s corev1.Secret
	c.readObject(&s, c.name+suffix)
	return s.Data
}
