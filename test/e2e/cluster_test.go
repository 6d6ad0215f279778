//go:build e2e || soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// orders is the name of nearly every cluster here: namespaces tell them apart.
const orders = "orders"

// cluster is one under test.
type cluster struct {
	t               *testing.T
	namespace, name string
	*history
}

// small is a cluster of few resources, of the version of the quickstart.
func small(namespace, name string, replicas int32) *v1alpha1.PostgresCluster {
	return &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.PostgresClusterSpec{
			Version:    "17",
			CommonSpec: v1alpha1.CommonSpec{Replicas: &replicas},
			Storage:    v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
}

// newCluster creates one in a namespace of its own and follows its status from
// the first on.
func newCluster(t *testing.T, replicas int32, edits ...func(*v1alpha1.PostgresCluster)) *cluster {
	t.Helper()
	needImages(t, "postgres", "17", 1)
	return createCluster(t, newNamespace(t, ""), orders, replicas, edits...)
}

func createCluster(t *testing.T, namespace, name string, replicas int32, edits ...func(*v1alpha1.PostgresCluster)) *cluster {
	t.Helper()
	c := &cluster{t: t, namespace: namespace, name: name}
	c.history = follow(t, namespace, name)
	c.create(replicas, edits...)
	return c
}

func (c *cluster) create(replicas int32, edits ...func(*v1alpha1.PostgresCluster)) {
	c.t.Helper()
	obj := small(c.namespace, c.name, replicas)
	for _, edit := range edits {
		edit(obj)
	}
	must(c.t, env.client.Create(c.t.Context(), obj), "create the cluster")
}

// with is the same cluster, for a part of a test.
func (c *cluster) with(t *testing.T) *cluster {
	part := *c
	part.t = t
	return &part
}

func (c *cluster) key(suffix string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.namespace, Name: c.name + suffix}
}

func (c *cluster) pod(ordinal int) string { return fmt.Sprintf("%s-%d", c.name, ordinal) }

func (c *cluster) volume(ordinal int) string { return "data-" + c.pod(ordinal) }

// read fetches an object of the cluster's namespace.
func (c *cluster) read(obj client.Object, name string) {
	c.t.Helper()
	err := env.client.Get(c.t.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, obj)
	must(c.t, err, fmt.Sprintf("read %T %s", obj, name))
}

func (c *cluster) get() *v1alpha1.PostgresCluster {
	c.t.Helper()
	var obj v1alpha1.PostgresCluster
	c.read(&obj, c.name)
	return &obj
}

// edit changes the object as a client with that field manager would.
func (c *cluster) edit(change func(*v1alpha1.PostgresCluster)) {
	c.t.Helper()
	obj := c.get()
	before := client.MergeFrom(obj.DeepCopy())
	change(obj)
	must(c.t, env.client.Patch(c.t.Context(), obj, before, client.FieldOwner("e2e")), "edit the cluster")
}

// scale goes through the scale subresource, as kubectl scale does.
func (c *cluster) scale(replicas int32) {
	c.t.Helper()
	body := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	err := env.client.SubResource("scale").Patch(c.t.Context(), c.get(), client.RawPatch(types.MergePatchType, body), client.FieldOwner("e2e"))
	must(c.t, err, "scale the cluster")
}

// rolledOut says why the current generation is not ready; nil when it is, by
// the condition and by kstatus.
func rolledOut(c *v1alpha1.PostgresCluster) error {
	result, err := compute(c)
	if err != nil {
		return err
	}
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return errors.New("there is no condition Ready")
	case c.Status.ObservedGeneration != c.Generation:
		return fmt.Errorf("generation %d is not observed, but %d", c.Generation, c.Status.ObservedGeneration)
	case ready.ObservedGeneration != c.Generation || ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("Ready is %s for generation %d: %s: %s", ready.Status, ready.ObservedGeneration, ready.Reason, ready.Message)
	case result.Status != status.CurrentStatus:
		return fmt.Errorf("kstatus says %s: %s", result.Status, result.Message)
	}
	return nil
}

// compute is what Flux and others who use kstatus conclude.
func compute(c *v1alpha1.PostgresCluster) (*status.Result, error) {
	fields, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("PostgresCluster"))
	return status.Compute(u)
}

// waitFor waits until the object is as the condition wants it.
func (c *cluster) waitFor(timeout time.Duration, what string, condition func(*v1alpha1.PostgresCluster) error) *v1alpha1.PostgresCluster {
	c.t.Helper()
	var obj v1alpha1.PostgresCluster
	eventually(c.t, timeout, what, func(ctx context.Context) error {
		obj = v1alpha1.PostgresCluster{}
		if err := env.client.Get(ctx, c.key(""), &obj); err != nil {
			return err
		}
		return condition(&obj)
	})
	return &obj
}

// waitReady waits until the current generation is rolled out.
func (c *cluster) waitReady() *v1alpha1.PostgresCluster {
	c.t.Helper()
	return c.waitFor(readyTimeout, "the cluster is ready", rolledOut)
}

// waitStalled waits until the current generation is Stalled for a reason, with
// a message that holds every one of the words.
func (c *cluster) waitStalled(reason string, words ...string) {
	c.t.Helper()
	c.waitCondition(stalledTimeout, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, words...)
	result, err := compute(c.get())
	must(c.t, err, "kstatus")
	if result.Status != status.FailedStatus {
		c.t.Errorf("kstatus says %s of a stalled cluster: %s", result.Status, result.Message)
	}
}

// waitCondition waits for a condition of the current generation.
func (c *cluster) waitCondition(timeout time.Duration, kind string, want metav1.ConditionStatus, reason string, words ...string) {
	c.t.Helper()
	c.waitFor(timeout, fmt.Sprintf("%s=%s/%s", kind, want, reason), func(obj *v1alpha1.PostgresCluster) error {
		cond := meta.FindStatusCondition(obj.Status.Conditions, kind)
		if cond == nil {
			return fmt.Errorf("there is no condition %s; phase %s: %w", kind, obj.Status.Phase, rolledOut(obj))
		}
		if cond.Status != want || cond.Reason != reason || cond.ObservedGeneration != obj.Generation {
			return fmt.Errorf("%s=%s/%s for generation %d: %s", kind, cond.Status, cond.Reason, cond.ObservedGeneration, cond.Message)
		}
		return holdsAll(cond.Message, words...)
	})
}

// pods of the members, by ordinal.
func (c *cluster) pods() []corev1.Pod {
	c.t.Helper()
	pods, err := memberPods(c.t.Context(), c.namespace, c.name)
	must(c.t, err, "list the members' pods")
	return pods
}

func memberPods(ctx context.Context, namespace, name string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := env.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelCluster: name})
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

// incarnation is a pod and how often it restarted: the same one never went
// away in between.
func (c *cluster) incarnation(ordinal int) string {
	c.t.Helper()
	var pod corev1.Pod
	c.read(&pod, c.pod(ordinal))
	restarts := int32(0)
	for _, s := range pod.Status.ContainerStatuses {
		restarts += s.RestartCount
	}
	return fmt.Sprintf("%s uid %s restarts %d", pod.Name, pod.UID, restarts)
}

// behind names the pods that a Service sends clients to.
func behind(ctx context.Context, namespace, service string) ([]string, error) {
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
func (c *cluster) waitBehind(suffix string, want ...string) {
	c.t.Helper()
	eventually(c.t, serviceTimeout, fmt.Sprintf("%s%s sends clients to %v", c.name, suffix, want), func(ctx context.Context) error {
		have, err := behind(ctx, c.namespace, c.name+suffix)
		if err == nil && !slices.Equal(have, want) {
			err = fmt.Errorf("to %v", have)
		}
		return err
	})
}

// sql runs a query in a member as the superuser.
func (c *cluster) sql(ordinal int, query string) string {
	c.t.Helper()
	out, err := local(c.t.Context(), c.namespace, c.pod(ordinal), "app", query)
	must(c.t, err, c.pod(ordinal)+": "+query)
	return out
}

// secret is the content of one of the cluster's Secrets.
func (c *cluster) secret(suffix string) map[string][]byte {
	c.t.Helper()
	var s corev1.Secret
	c.read(&s, c.name+suffix)
	return s.Data
}

// uri that applications connect with.
func (c *cluster) uri() string {
	c.t.Helper()
	uri := string(c.secret("-app")["uri"])
	if uri == "" {
		c.t.Fatal("the connection Secret has no uri")
	}
	return uri
}
