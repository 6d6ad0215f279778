//go:build apiserver

package toyengine

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// nodeName is where simulated pods run.
const nodeName = "simulated"

// refusedGreeting is one that the simulated database does not take.
const refusedGreeting = "go away"

// simulation plays the scheduler, the volume binder, the kubelet, and the agent
// and the database of each pod.
type simulation struct {
	t       *testing.T
	cluster *apitest.Cluster
	kubelet client.Client

	mu        sync.Mutex
	reports   map[types.NamespacedName]map[string]agentclient.Observation
	greetings map[types.UID]string
	forgotten map[types.NamespacedName]bool
	wake      func(types.NamespacedName)
	addresses int
}

// simulate runs until the test ends.
func simulate(t *testing.T, cluster *apitest.Cluster) *simulation {
	t.Helper()
	s := &simulation{
		t: t, cluster: cluster, kubelet: cluster.As(t, "kubelet"), greetings: map[types.UID]string{},
		forgotten: map[types.NamespacedName]bool{}, wake: func(types.NamespacedName) {},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelTopologyZone: "zone-1"}}}
	if err := s.kubelet.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func (s *simulation) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.observePods(ctx)
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			s.t.Errorf("simulation: %v", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// observePods takes each volume and pod one step further, and collects what the
// agents report.
func (s *simulation) observePods(ctx context.Context) error {
	var volumes corev1.PersistentVolumeClaimList
	var pods corev1.PodList
	ours := []client.ListOption{client.InNamespace(s.cluster.Namespace), client.HasLabels{v1alpha1.LabelCluster}}
	if err := s.cluster.Cache.List(ctx, &volumes, ours...); err != nil {
		return err
	}
	if err := s.cluster.Cache.List(ctx, &pods, ours...); err != nil {
		return err
	}
	for i := range volumes.Items {
		if err := s.bindVolume(ctx, &volumes.Items[i]); err != nil {
			return err
		}
	}
	reports := map[types.NamespacedName]map[string]agentclient.Observation{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		status, err := s.runPod(ctx, pod)
		if err != nil {
			return err
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[v1alpha1.LabelCluster]}
		if reports[name] == nil {
			reports[name] = map[string]agentclient.Observation{}
		}
		reports[name][pod.Name] = agentclient.Observation{Status: status}
	}
	s.publish(reports)
	return nil
}

func (s *simulation) bindVolume(ctx context.Context, v *corev1.PersistentVolumeClaim) error {
	if v.DeletionTimestamp != nil || v.Status.Phase == corev1.ClaimBound {
		return nil
	}
	bound := v.DeepCopy()
	bound.Status.Phase, bound.Status.Capacity = corev1.ClaimBound, v.Spec.Resources.Requests
	return s.kubelet.Status().Patch(ctx, bound, client.MergeFrom(v))
}

// runPod takes a pod one step further; once it runs, its agent labels it and
// reports.
func (s *simulation) runPod(ctx context.Context, pod *corev1.Pod) (*agentapi.Status, error) {
	switch {
	case pod.DeletionTimestamp != nil:
		return nil, s.kubelet.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	case pod.Spec.NodeName == "":
		return nil, s.kubelet.SubResource("binding").Create(ctx, pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})
	case pod.Status.Phase != corev1.PodRunning:
		return nil, s.startPod(ctx, pod)
	case pod.Labels[v1alpha1.LabelRole] == "":
		label := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"uid":%q,"labels":{%q:%q}}}`, pod.Name, pod.UID, v1alpha1.LabelRole, v1alpha1.RoleMember)
		return nil, s.kubelet.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.ApplyPatchType, []byte(label)), client.FieldOwner(v1alpha1.AgentFieldManager))
	}
	return s.report(ctx, pod)
}

func (s *simulation) startPod(ctx context.Context, pod *corev1.Pod) error {
	s.addresses++
	running := pod.DeepCopy()
	running.Status.Phase, running.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.1.0.%d", s.addresses)
	running.Status.PodIPs = []corev1.PodIP{{IP: running.Status.PodIP}}
	for _, t := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		running.Status.Conditions = append(running.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	for _, c := range pod.Spec.Containers {
		running.Status.ContainerStatuses = append(running.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		})
	}
	return s.kubelet.Status().Patch(ctx, running, client.MergeFrom(pod))
}

// report is what the agent of a running pod reports.
func (s *simulation) report(ctx context.Context, pod *corev1.Pod) (*agentapi.Status, error) {
	cluster := pod.Labels[v1alpha1.LabelCluster]
	config, tls := &corev1.ConfigMap{}, &corev1.Secret{}
	if err := s.cluster.Cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: cluster + "-config"}, config); err != nil {
		return nil, err
	}
	if err := s.cluster.Cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: cluster + "-tls"}, tls); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &agentapi.Status{
		Pod: pod.Name, PodUID: string(pod.UID), Role: v1alpha1.RoleMember, State: agentapi.StateRunning, Serving: true,
		Version: "1.0", SystemIdentifier: "toy-system",
		ConfigHash:        agentapi.HashConfig([]byte(config.Data[agentapi.ConfigKey])),
		CertificateSerial: pki.ReadSerial(tls.Data["tls.crt"]), TLSHash: agentapi.HashTLS(tls.Data),
		Details: map[string]string{DetailGreeting: s.greetings[pod.UID]},
	}, nil
}

// publish remembers what members report, and asks for a pass where it is new.
func (s *simulation) publish(reports map[types.NamespacedName]map[string]agentclient.Observation) {
	s.mu.Lock()
	before, wake := s.reports, s.wake
	s.reports = reports
	s.mu.Unlock()
	for _, names := range []map[types.NamespacedName]map[string]agentclient.Observation{before, reports} {
		for name := range names {
			if !reflect.DeepEqual(before[name], reports[name]) {
				wake(name)
			}
		}
	}
}

// SetGreeting implements Database.
func (s *simulation) SetGreeting(_ context.Context, pod *corev1.Pod, greeting string) error {
	if greeting == refusedGreeting {
		return ErrGreetingRefused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.greetings[pod.UID] = greeting
	return nil
}

// Watch implements memberset.Members.
func (s *simulation) Watch(types.NamespacedName, types.UID, agentclient.Target) {}

// Get implements memberset.Members.
func (s *simulation) Get(name types.NamespacedName) map[string]agentclient.Observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	reports := maps.Clone(s.reports[name])
	for pod, o := range reports {
		o.Asked = time.Now()
		reports[pod] = o
	}
	return reports
}

// Forget implements controller.Forgetter.
func (s *simulation) Forget(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten[name] = true
}

// EventSource implements Members.
func (s *simulation) EventSource() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wake = func(name types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: name}) }
		return nil
	})
}
