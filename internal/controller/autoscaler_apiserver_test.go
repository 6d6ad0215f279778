//go:build apiserver

package controller_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// readScale reads a cluster's scale subresource.
func (w *world) readScale(c v1alpha1.Cluster) *autoscalingv1.Scale {
	w.t.Helper()
	s := &autoscalingv1.Scale{}
	if err := w.person.SubResource("scale").Get(w.t.Context(), c, s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// tryScale asks for a number of members as an autoscaler does.
func (w *world) tryScale(c v1alpha1.Cluster, members int32) error {
	w.t.Helper()
	s := w.readScale(c)
	s.Spec.Replicas = members
	return w.person.SubResource("scale").Update(w.t.Context(), c, client.WithSubResourceBody(s))
}

// What an autoscaler reads is of the members alone, and what it writes is the spec's.
func TestScaleSubresource(t *testing.T) { eachKind(t, scaleSubresource) }

func scaleSubresource(t *testing.T, w *world) {
	c, o := w.settled(1)
	if err := w.tryScale(c, w.kind.several); err != nil {
		t.Fatal(err)
	}
	w.awaitReady(c)
	s := w.readScale(c)
	if s.Spec.Replicas != w.kind.several || s.Status.Replicas != w.kind.several {
		t.Errorf("%d of %d members, want %d", s.Status.Replicas, s.Spec.Replicas, w.kind.several)
	}
	members, err := labels.Parse(s.Status.Selector)
	if err != nil {
		t.Fatal(err)
	}
	// A Job's pod carries the cluster's label, too.
	job := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "a-job", Labels: map[string]string{v1alpha1.LabelCluster: c.GetName(), v1alpha1.LabelKind: "import"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}
	job.Labels[v1alpha1.LabelImport] = strings.ToLower(w.kind.name) // played as one that does nothing
	w.create(job)
	var pods corev1.PodList
	if err := w.person.List(t.Context(), &pods, client.InNamespace(w.Namespace), client.MatchingLabelsSelector{Selector: members}); err != nil {
		t.Fatal(err)
	}
	var names, want []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	for n := range w.kind.several {
		want = append(want, fmt.Sprintf("%s-%d", c.GetName(), n))
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s selects %v, want %v", s.Status.Selector, names, want)
	}
	w.wantSpecLeftAlone(c, o)
}

// wantSpecLeftAlone checks that the operator has neither written the cluster itself nor called
// another number of members drift.
func (w *world) wantSpecLeftAlone(c v1alpha1.Cluster, o *operator) {
	w.t.Helper()
	for _, request := range o.take() {
		path, _, _ := strings.Cut(request, "?")
		if !isRead(request) && strings.HasSuffix(path, "/"+c.GetName()) && strings.Contains(path, "clusters/") {
			w.t.Errorf("the operator writes the cluster: %s", request)
		}
	}
	w.get(c)
	if drift := c.CommonStatus().Drift; drift != nil && len(drift.Last) > 0 {
		w.t.Errorf("drift is reported: %+v", drift.Last)
	}
}

// Fewer members than synchronous replication needs, and an even number where that bears no
// more failures, are refused as in a spec.
func TestScaleSubresourceIsValidated(t *testing.T) {
	t.Parallel()
	w := &world{Cluster: apitest.New(t), t: t}
	w.person = w.As(t, "kubectl-edit")
	pg, my, ec := postgresKind.cluster(w), mysqlKind.cluster(w), etcdKind.cluster(w)
	asPostgres(pg).Spec.Synchronous = &v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousQuorum, Number: 2}
	for c, says := range map[v1alpha1.Cluster]string{pg: "spec.synchronous.number must be less than spec.replicas", my: "spec.replicas must be odd", ec: "spec.replicas must be odd"} {
		c.SetName("orders")
		c.SetNamespace(w.Namespace)
		c.Common().Replicas = new(int32(3))
		w.create(c)
		if err := w.tryScale(c, 2); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%T: two members: %v", c, err)
		}
		if err := w.tryScale(c, 10); !apierrors.IsInvalid(err) {
			t.Errorf("%T: ten members: %v", c, err)
		}
		if err := w.tryScale(c, 5); err != nil {
			t.Errorf("%T: five members: %v", c, err)
		}
	}
}

// The autoscaler of Kubernetes drives the number of members of a cluster whose Git declares
// none, within the bounds that Git declares, and what Git applies meanwhile changes nothing.
func TestAutoscaler(t *testing.T) {
	t.Parallel()
	host := newWorld(t, postgresKind)
	metrics := apitest.ServeExternalMetrics(t, "localhost", host.Namespace)
	host.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: metrics.Namespace, Name: metrics.Service},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}})
	metrics.RegisterAPI(t, host.person)
	for _, each := range []struct {
		kind *kind
		file string
		// wanted by the metric, one after the other, with the members that there are then.
		wanted []int64
		are    []int32
	}{
		{postgresKind, "postgres.yaml", []int64{1, 4, 9, 2}, []int32{3, 4, 5, 3}},
		{mysqlKind, "mysql.yaml", []int64{1, 5, 6, 3}, []int32{3, 5, 5, 3}},
	} {
		t.Run(each.kind.name, func(t *testing.T) {
			w := newWorld(t, each.kind)
			scaler := w.readAutoscaler(each.file)
			git := w.declareWithoutReplicas(scaler.Spec.ScaleTargetRef.Name)
			git()
			c := w.cluster(scaler.Spec.ScaleTargetRef.Name, 0)
			o := w.operate(0)
			w.awaitReady(c)
			metrics.SetValue(w.Namespace, each.wanted[0])
			w.create(scaler)
			for i, wanted := range each.wanted {
				metrics.SetValue(w.Namespace, wanted)
				w.awaitAutoscaled(c, scaler, wanted, each.are[i])
				git()
				w.get(c)
				if now := int32(c.Common().DesiredReplicas()); now != each.are[i] {
					t.Errorf("after Git applied again: %d members, want %d", now, each.are[i])
				}
			}
			w.wantSpecLeftAlone(c, o)
		})
	}
}

// readAutoscaler reads an example. The time that it waits for, by which a load that comes and
// goes is not followed, is left out.
func (w *world) readAutoscaler(file string) *autoscalingv2.HorizontalPodAutoscaler {
	w.t.Helper()
	text, err := os.ReadFile("../../examples/autoscaling/" + file)
	if err != nil {
		w.t.Fatal(err)
	}
	scaler := &autoscalingv2.HorizontalPodAutoscaler{}
	if err := yaml.UnmarshalStrict(text, scaler); err != nil {
		w.t.Fatal(err)
	}
	scaler.Namespace = w.Namespace
	none := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: new(int32)}
	scaler.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: none, ScaleDown: none}
	return scaler
}

// declareWithoutReplicas is what a Git tool does that applies a cluster whose manifest has no
// replicas.
func (w *world) declareWithoutReplicas(name string) (apply func()) {
	w.t.Helper()
	c := w.cluster(name, 0)
	c.Common().Replicas = nil
	text, err := yaml.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	manifest := map[string]any{}
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		w.t.Fatal(err)
	}
	delete(manifest, "status")
	manifest["apiVersion"], manifest["kind"] = v1alpha1.GroupVersion.String(), w.kind.name
	data, err := yaml.Marshal(manifest)
	if err != nil {
		w.t.Fatal(err)
	}
	return func() {
		w.t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": manifest["apiVersion"], "kind": w.kind.name}}
		o.SetNamespace(w.Namespace)
		o.SetName(name)
		err := w.person.Patch(w.t.Context(), o, client.RawPatch(types.ApplyPatchType, data), client.ForceOwnership, client.FieldOwner("kustomize-controller"))
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// awaitAutoscaled waits until a cluster has members, and its autoscaler has nothing left to
// do for a value of the metric: they are as many, or it says why not.
func (w *world) awaitAutoscaled(c v1alpha1.Cluster, scaler *autoscalingv2.HorizontalPodAutoscaler, wanted int64, members int32) {
	w.t.Helper()
	apitest.Eventually(w.t, fmt.Sprintf("%d members for %d", members, wanted), func(ctx context.Context) (bool, string) {
		if err := w.person.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return false, err.Error()
		}
		if err := w.person.Get(ctx, client.ObjectKeyFromObject(scaler), scaler); err != nil {
			return false, err.Error()
		}
		says := fmt.Sprintf("%d of %d members, and the autoscaler: %+v", c.CommonStatus().ReadyReplicas, c.Common().DesiredReplicas(), scaler.Status)
		judged := false // this value, and not the one before
		for _, metric := range scaler.Status.CurrentMetrics {
			average := metric.External.Current.AverageValue
			judged = average != nil && average.MilliValue()*int64(members) >= 990*wanted && average.MilliValue()*int64(members) <= 1010*wanted
		}
		if int64(members) != wanted { // a bound, or what the API refuses
			limited := slices.ContainsFunc(scaler.Status.Conditions, func(cond autoscalingv2.HorizontalPodAutoscalerCondition) bool {
				return cond.Type == autoscalingv2.ScalingLimited && cond.Status == corev1.ConditionTrue ||
					cond.Type == autoscalingv2.AbleToScale && cond.Reason == "FailedUpdateScale" && strings.Contains(cond.Message, "must be odd")
			})
			judged = limited
		}
		return judged && ready(c) && c.CommonStatus().ReadyReplicas == members, says
	})
}
