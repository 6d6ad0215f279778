//go:build apiserver

package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/apitest"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// nodeName is where simulated pods run: endpoint slices list no pod without a
// node.
const nodeName, nodeZone = "simulated", "zone-1"

// system is the identifier of every simulated database.
const system = "7300000000000000001"

// simulation plays scheduler, volume binder, kubelet and agents of one
// namespace, and is what the operator asks about members.
type simulation struct {
	t       *testing.T
	world   *apitest.Cluster
	kind    *kind
	kubelet client.Client

	mu      sync.Mutex
	said    map[types.NamespacedName]map[string]agentclient.Observation
	wakes   map[*int]func(types.NamespacedName)
	address int
	jobs    jobs
	// restores, drills and imports are played like jobs.
	restores restores
	checks   checks
	drills   drills
	imports  imports
	// used is what members say of their volumes, in bytes by pod.
	used map[string]int64
	// altered is what members say that they have reset.
	altered map[string][]postgresapi.Reset
	// silent says that no agent answers.
	silent bool
	// insights are what members found in their text logs, by class.
	insights []agentapi.Insight
	// measured is what the first member measured of its database; nil for nothing.
	measured []agentapi.TuningSlot
	// taken is max_wal_size in the configuration that members have taken, by pod.
	taken map[string]string
	// sized is what members measured of their containers, by pod; nil for nothing.
	sized map[string]*agentapi.Sizing
	// pauses are what was measured of writes.
	pauses []agentclient.Pause
	// also changes what agents say; nil for nothing.
	also func(m *agentapi.Status)
	// unpullable is why the database's image cannot be had; empty where it can.
	unpullable string
	// homeless is why the scheduler finds no node for members; empty where it does.
	homeless string
}

// Pauses are what was measured of the cluster.
func (s *simulation) Pauses(types.NamespacedName) []agentclient.Pause {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pauses
}

// change has agents or the kubelet do something else from now on.
func (s *simulation) change(change func(s *simulation)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// silence has every agent answer no longer, or again.
func (s *simulation) silence(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
}

// alter has a member say what it reset of ALTER SYSTEM.
func (s *simulation) alter(pod string, resets ...postgresapi.Reset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.altered == nil {
		s.altered = map[string][]postgresapi.Reset{}
	}
	s.altered[pod] = resets
}

// use has a member say how much of its volume is used.
func (s *simulation) use(pod string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[pod] = bytes
}

// faults are what keeps pods from running; empty where nothing does.
func (s *simulation) faults() (homeless, unpullable string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.homeless, s.unpullable
}

// simulate runs until the test ends.
func simulate(t *testing.T, world *apitest.Cluster, k *kind) *simulation {
	t.Helper()
	s := &simulation{
		t: t, world: world, kind: k, kubelet: world.As(t, "kubelet"),
		said: map[types.NamespacedName]map[string]agentclient.Observation{}, wakes: map[*int]func(types.NamespacedName){}, used: map[string]int64{},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{
		corev1.LabelTopologyZone: nodeZone, corev1.LabelTopologyRegion: "region-1",
	}}}
	if err := s.kubelet.Create(t.Context(), node); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// run looks again every moment: a simulation needs no watches.
func (s *simulation) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.step(ctx); err != nil && ctx.Err() == nil {
			s.t.Errorf("simulation: %v", err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *simulation) step(ctx context.Context) error {
	var volumes corev1.PersistentVolumeClaimList
	var pods corev1.PodList
	ours := []client.ListOption{client.InNamespace(s.world.Namespace), client.HasLabels{v1alpha1.LabelCluster}}
	if err := s.world.Cache.List(ctx, &volumes, ours...); err != nil {
		return err
	}
	if err := s.world.Cache.List(ctx, &pods, ours...); err != nil {
		return err
	}
	for i := range volumes.Items {
		if err := s.bindVolume(ctx, &volumes.Items[i]); err != nil && !passing(err) {
			return err
		}
	}
	heard := map[types.NamespacedName]map[string]agentclient.Observation{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Labels[v1alpha1.LabelBackup] != "" {
			if err := s.jobs.step(ctx, s, pod); err != nil && !passing(err) {
				return err
			}
			continue
		}
		if pod.Labels[v1alpha1.LabelRestore] != "" {
			if err := s.restores.step(ctx, s, pod); err != nil && !passing(err) {
				return err
			}
			continue
		}
		if pod.Labels[v1alpha1.LabelStoreCheck] != "" {
			if err := s.checks.step(ctx, s, pod); err != nil && !passing(err) {
				return err
			}
			continue
		}
		if pod.Labels[v1alpha1.LabelDrill] != "" {
			if err := s.drills.step(ctx, s, pod); err != nil && !passing(err) {
				return err
			}
			continue
		}
		if pod.Labels[v1alpha1.LabelImport] != "" {
			if err := s.imports.step(ctx, s, pod); err != nil && !passing(err) {
				return err
			}
			continue
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[v1alpha1.LabelCluster]}
		status, err := s.live(ctx, pod)
		if err != nil && !passing(err) {
			return err
		}
		if heard[name] == nil {
			heard[name] = map[string]agentclient.Observation{}
		}
		heard[name][pod.Name] = s.answer(status)
	}
	s.hear(heard)
	return nil
}

// answer is what the operator hears of an agent.
func (s *simulation) answer(status *agentapi.Status) agentclient.Observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent {
		return agentclient.Observation{Err: "no answer"}
	}
	o := agentclient.Observation{Status: status}
	if status != nil && s.insights != nil {
		o.Insights = &agentapi.Insights{Pod: status.Pod, PodUID: status.PodUID, Classes: s.insights}
	}
	if status != nil && s.measured != nil && strings.HasSuffix(status.Pod, "-0") {
		o.Tuning = &agentapi.Tuning{Pod: status.Pod, PodUID: status.PodUID, Slots: s.stampSlots(status)}
	}
	if status != nil && s.sized[status.Pod] != nil {
		if o.Tuning == nil {
			o.Tuning = &agentapi.Tuning{Pod: status.Pod, PodUID: status.PodUID}
		}
		o.Tuning.Sizing = s.sized[status.Pod]
	}
	return o
}

// stampSlots are what was measured, with the configuration that the last slot belongs to: the
// one that the member has taken, if that has the slot's setting.
func (s *simulation) stampSlots(status *agentapi.Status) []agentapi.TuningSlot {
	slots := slices.Clone(s.measured)
	if len(slots) == 0 {
		return slots
	}
	last := &slots[len(slots)-1]
	taken := s.taken[status.Pod]
	if taken == "" {
		taken = "64MB" // what agents compute
	}
	if taken == fmt.Sprintf("%.0fMB", last.Settings["max_wal_size"]/mib) {
		last.ConfigHash = status.ConfigHash
	}
	return slots
}

// passing errors come of a cache that is behind.
func passing(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

func (s *simulation) bindVolume(ctx context.Context, v *corev1.PersistentVolumeClaim) error {
	want := v.Spec.Resources.Requests[corev1.ResourceStorage]
	have := v.Status.Capacity[corev1.ResourceStorage]
	if v.DeletionTimestamp != nil || v.Status.Phase == corev1.ClaimBound && have.Cmp(want) >= 0 {
		return nil
	}
	bound := v.DeepCopy()
	bound.Status.Phase = corev1.ClaimBound
	bound.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: want}
	return s.kubelet.Status().Patch(ctx, bound, client.MergeFrom(v))
}

// live takes a pod one step further, and says what its agent says.
func (s *simulation) live(ctx context.Context, pod *corev1.Pod) (*agentapi.Status, error) {
	homeless, _ := s.faults()
	switch {
	case pod.DeletionTimestamp != nil:
		return nil, s.kubelet.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	case pod.Spec.NodeName == "" && homeless != "":
		waits := pod.DeepCopy()
		waits.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: homeless}}
		return nil, s.kubelet.Status().Patch(ctx, waits, client.MergeFrom(pod))
	case pod.Spec.NodeName == "":
		return nil, s.kubelet.SubResource("binding").Create(ctx, pod, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})
	case pod.Status.Phase != corev1.PodRunning:
		return nil, s.startPod(ctx, pod)
	}
	status, err := s.agent(ctx, pod)
	if err != nil || pod.Labels[v1alpha1.LabelRole] == status.Role {
		return status, err
	}
	label := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"uid":%q,"labels":{%q:%q}}}`, pod.Name, pod.UID, v1alpha1.LabelRole, status.Role)
	return status, s.kubelet.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.ApplyPatchType, []byte(label)),
		client.FieldOwner(v1alpha1.AgentFieldManager), client.ForceOwnership)
}

func (s *simulation) startPod(ctx context.Context, pod *corev1.Pod) error {
	if _, unpullable := s.faults(); unpullable != "" {
		return s.failPull(ctx, pod, unpullable)
	}
	s.address++
	running := pod.DeepCopy()
	running.Status.Phase = corev1.PodRunning
	running.Status.PodIP = fmt.Sprintf("10.1.%d.%d", s.address/250, s.address%250+1)
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

// failPull is what the kubelet says of a pod whose image cannot be had.
func (s *simulation) failPull(ctx context.Context, pod *corev1.Pod, unpullable string) error {
	waits, ctr := pod.DeepCopy(), pod.Spec.Containers[0]
	waits.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: ctr.Name, Image: ctr.Image,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: unpullable}}}}
	return s.kubelet.Status().Patch(ctx, waits, client.MergeFrom(pod))
}

// agent is what the agent of a running pod says.
func (s *simulation) agent(ctx context.Context, pod *corev1.Pod) (*agentapi.Status, error) {
	cluster := pod.Labels[v1alpha1.LabelCluster]
	config, tls := &corev1.ConfigMap{}, &corev1.Secret{}
	if err := s.world.Cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: cluster + "-config"}, config); err != nil {
		return nil, err
	}
	if err := s.world.Cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: cluster + "-tls"}, tls); err != nil {
		return nil, err
	}
	m := &agentapi.Status{
		Pod: pod.Name, PodUID: string(pod.UID), Serving: true, SystemIdentifier: system,
		ConfigHash:        agentapi.HashConfig([]byte(config.Data[agentapi.ConfigKey])),
		CertificateSerial: pki.ReadSerial(tls.Data["tls.crt"]),
		TLSHash:           agentapi.HashTLS(tls.Data),
	}
	var received agentapi.ClusterConfig
	if err := json.Unmarshal([]byte(config.Data[agentapi.ConfigKey]), &received); err != nil {
		m.ConfigError = err.Error()
	}
	if claim := new(corev1.PersistentVolumeClaim); s.world.Cache.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: "data-" + pod.Name}, claim) == nil {
		if s.restores.halfFilled(claim) {
			s.t.Errorf("%s runs on a volume that is not restored yet", pod.Name)
		}
		s.mu.Lock()
		capacity := claim.Status.Capacity[corev1.ResourceStorage]
		m.VolumeSize, m.VolumeUsed = capacity.Value(), s.used[pod.Name]
		if resets := s.altered[pod.Name]; len(resets) > 0 {
			m.Engine = postgresapi.ReplicationStatus{Resets: resets}
		}
		s.mu.Unlock()
	}
	s.kind.says(s, pod, m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == nil {
		s.taken = map[string]string{}
	}
	s.taken[pod.Name] = received.Parameters["max_wal_size"]
	if s.also != nil {
		s.also(m)
	}
	return m, nil
}

// hear remembers what members say, and wakes the operators for what is new.
func (s *simulation) hear(heard map[types.NamespacedName]map[string]agentclient.Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.said
	s.said = heard
	for name := range heard {
		if !cmp.Equal(before[name], heard[name]) {
			s.wake(name)
		}
	}
	for name := range before {
		if heard[name] == nil {
			s.wake(name)
		}
	}
}

func (s *simulation) wake(name types.NamespacedName) {
	for _, wake := range s.wakes {
		wake(name)
	}
}

// Wake makes every operator look at a cluster.
func (s *simulation) Wake(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake(name)
}

// source is of one operator.
func (s *simulation) source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		id := new(int)
		s.wakes[id] = func(name types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: name}) }
		context.AfterFunc(ctx, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.wakes, id)
		})
		return nil
	})
}

// Watch implements postgres.Members.
func (s *simulation) Watch(types.NamespacedName, types.UID, agentclient.Target) {}

// Get implements postgres.Members.
func (s *simulation) Get(name types.NamespacedName) map[string]agentclient.Observation {
	s.mu.Lock()
	defer s.mu.Unlock()
	said := maps.Clone(s.said[name])
	for pod, o := range said {
		o.Asked = time.Now()
		if o.Status != nil && o.Status.Role == v1alpha1.RolePrimary {
			status := *o.Status
			status.Flushed = status.Serving
			o.Status = &status
		}
		said[pod] = o
	}
	return said
}
