package postgres

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/forecast"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// now of every table; certificates of the worlds are issued at this time.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a cluster and what is observed of it.
type world struct {
	c *v1alpha1.PostgresCluster
	o memberset.Observation
	t *testing.T
	// leads is the ordinal of the member that leads, and lease what members report
	// of the Lease. Agents of earlier versions report none.
	leads int
	lease *postgresapi.LeaseState
	// election is what members report of their part in it; nil of agents of earlier
	// versions.
	election *postgresapi.ElectionState
}

// newWorld is a cluster of n members that no step has acted on yet.
func newWorld(t *testing.T, replicas int) *world {
	t.Helper()
	n := int32(replicas)
	return &world{
		t: t,
		c: &v1alpha1.PostgresCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "cluster-uid", Generation: 1},
			Spec: v1alpha1.PostgresClusterSpec{
				CommonSpec: v1alpha1.CommonSpec{Replicas: &n, DeletionPolicy: v1alpha1.DeletionRetain},
				Version:    "17",
				Storage:    v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
			},
		},
		o: memberset.Observation{
			Settings:       objects.Settings{ImageRepository: "docker.io/library/postgres", AgentImage: "holdfast:test", OperatorNamespace: "holdfast-system"},
			Pods:           map[int]*corev1.Pod{},
			Volumes:        map[int]*corev1.PersistentVolumeClaim{},
			Members:        map[string]agentclient.Observation{},
			ServicePods:    map[string]map[string]bool{suffixRW: {}, suffixRO: {}},
			StorageClasses: map[string]storagev1.StorageClass{"standard": {AllowVolumeExpansion: new(true)}, "fixed": {}},
		},
	}
}

// settled is a cluster of n members that are all as declared.
func settled(t *testing.T, replicas int) *world {
	t.Helper()
	w := newWorld(t, replicas)
	w.mintSecrets()
	w.c.Status.SystemIdentifier, w.c.Status.Version = "7300000000000000001", "17.4"
	w.statefulSet()
	for n := range replicas {
		w.volume(n, true)
	}
	for n := range replicas {
		w.member(n)
	}
	return w
}

// ledBy is a settled cluster of n members, of which one leads by the Lease.
func ledBy(t *testing.T, replicas, leader int) *world {
	t.Helper()
	w := settled(t, replicas)
	w.changeLeader(leader)
	return w
}

// changeLeader has another member lead, or the same one in the next term; every
// member with a pod follows it.
func (w *world) changeLeader(ordinal int) {
	w.leads = ordinal
	w.claimLease(w.o.Pods[ordinal])
	w.o.ServicePods = map[string]map[string]bool{suffixRW: {}, suffixRO: {}}
	for n := range w.o.Pods {
		w.member(n)
	}
}

// claimLease has a pod hold the Lease in the next term.
func (w *world) claimLease(pod *corev1.Pod) {
	next := postgresapi.LeaseState{HolderUID: string(pod.UID), HolderPod: pod.Name, Term: 1}
	if w.lease != nil {
		next.Term = w.lease.Term + 1
	}
	w.lease = &next
}

// reportLease has a member report a state of the Lease; nil for none.
func (w *world) reportLease(ordinal int, lease *postgresapi.LeaseState) {
	w.changeReplication(ordinal, func(r *postgresapi.ReplicationStatus) { r.Lease = lease })
}

// mintSecrets makes what the steps would have made.
func (w *world) mintSecrets() {
	w.t.Helper()
	minted, err := forecast.Mint(membersOf(w.c), now)
	if err != nil {
		w.t.Fatal(err)
	}
	minted.Internal[keyAppPassword] = []byte("secret")
	w.o.Minted = minted
}

func (w *world) statefulSet() {
	w.o.StatefulSet = &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.c.Name, Namespace: w.c.Namespace, Generation: 1},
		Spec: appsv1.StatefulSetSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: objects.InstallerName, Image: w.o.Settings.AgentImage}}, Containers: []corev1.Container{{Name: containerName, Image: specImage(w.c, w.o.Settings)}}}},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{Spec: corev1.PersistentVolumeClaimSpec{
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: w.c.Spec.Storage.Size}}}}},
		},
		Status: appsv1.StatefulSetStatus{ObservedGeneration: 1},
	}
}

func (w *world) volume(ordinal int, member bool) *corev1.PersistentVolumeClaim {
	size := w.c.Spec.Storage.Size.DeepCopy()
	v := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: membersOf(w.c).VolumeName(ordinal), Namespace: w.c.Namespace, UID: types.UID(fmt.Sprintf("volume-%d", ordinal)),
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("standard"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: size}},
	}
	if member {
		v.Labels[v1alpha1.LabelMember] = strconv.Itoa(ordinal)
	}
	w.o.Volumes[ordinal] = v
	return v
}

// pod is a member's pod that runs and whose agent has said nothing yet.
func (w *world) pod(ordinal int) *corev1.Pod {
	img := specImage(w.c, w.o.Settings)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: membersOf(w.c).PodName(ordinal), Namespace: w.c.Namespace, UID: types.UID(fmt.Sprintf("pod-%d", ordinal)),
			Labels:      membersOf(w.c).Selector(),
			Annotations: map[string]string{v1alpha1.AnnotationRollout: membersOf(w.c).RolloutHash(img)}},
		Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", ordinal+1),
			InitContainers: []corev1.Container{{Name: objects.InstallerName, Image: w.o.Settings.AgentImage}}, Containers: []corev1.Container{{Name: containerName, Image: img}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.0.1",
			ContainerStatuses: []corev1.ContainerStatus{{Name: containerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
	}
	w.o.Pods[ordinal] = p
	return p
}

// view is what a pass would know of the world before it plans.
func (w *world) view() *memberset.View {
	view := memberset.NewView(membersOf(w.c), w.o, now)
	return &view
}

// desired is what a pass would make of the world.
func (w *world) desired() (desired, bool, []condition.Fact) {
	view := w.view()
	lead := findLeader(view.Set, view.Observed)
	return planDesired(w.c, view, lead, readVersions(w.c, view, lead))
}

// member is a pod that serves in its role, with the present settings.
func (w *world) member(ordinal int) *agentapi.Status {
	w.pod(ordinal)
	return w.serveMember(ordinal)
}

// serveMember has the member serve, in the pod that is there.
func (w *world) serveMember(ordinal int) *agentapi.Status {
	p, m := w.o.Pods[ordinal], w.report(ordinal)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if ordinal == w.leads {
		w.o.ServicePods[suffixRW][p.Name] = true
	} else {
		w.o.ServicePods[suffixRO][p.Name] = true
	}
	w.o.Members[p.Name] = agentclient.Observation{Status: m, Asked: now, At: now}
	return m
}

// report is what a member reports that serves in its role, with the present settings.
func (w *world) report(ordinal int) *agentapi.Status {
	p := w.o.Pods[ordinal]
	d, _, _ := w.desired()
	m := &agentapi.Status{
		Pod: p.Name, PodUID: string(p.UID), Role: v1alpha1.RoleReplica, State: agentapi.StateStreaming, Serving: true,
		Version: "17.4", SystemIdentifier: w.c.Status.SystemIdentifier,
		ConfigHash:        agentapi.HashConfig(d.Config),
		CertificateSerial: pki.ReadSerial(w.o.Minted.TLS["tls.crt"]),
		TLSHash:           agentapi.HashTLS(w.o.Minted.TLS),
	}
	if w.lease != nil {
		m.Engine = postgresapi.ReplicationStatus{Lease: w.lease, Election: w.election}
	}
	if ordinal == w.leads {
		m.Role, m.State, m.Flushed = v1alpha1.RolePrimary, agentapi.StateRunning, true
	}
	return m
}

// status is what the member of an ordinal says, to be changed by a case.
func (w *world) status(ordinal int) *agentapi.Status {
	return w.o.Members[membersOf(w.c).PodName(ordinal)].Status
}

// changeReplication changes what of it only members of PostgreSQL report.
func (w *world) changeReplication(ordinal int, change func(*postgresapi.ReplicationStatus)) {
	agentapi.ChangeEngineStatus(w.status(ordinal), change)
}

// plan is what is planned from what is observed, with pods as the cache holds them.
func (w *world) plan() engine.Plan {
	w.t.Helper()
	o := w.o
	o.Pods = map[int]*corev1.Pod{}
	for n, pod := range w.o.Pods {
		lean := pod.DeepCopy()
		if _, err := engine.LeanObject(lean); err != nil {
			w.t.Fatal(err)
		}
		o.Pods[n] = lean
	}
	return planCluster(w.c, o, now)
}

// removePod removes a member's pod.
func (w *world) removePod(ordinal int) {
	name := membersOf(w.c).PodName(ordinal)
	delete(w.o.Pods, ordinal)
	delete(w.o.Members, name)
	delete(w.o.ServicePods[suffixRO], name)
	delete(w.o.ServicePods[suffixRW], name)
}

// declareReplicas changes what is declared.
func (w *world) declareReplicas(n int32) { w.c.Spec.Replicas = &n }

// setWaiting puts a pod's container into a waiting state of the kubelet.
func (w *world) setWaiting(ordinal int, reason string) {
	p := w.o.Pods[ordinal]
	p.Status.Conditions = nil
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: containerName, Image: p.Spec.Containers[0].Image,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	w.o.Members[p.Name] = agentclient.Observation{}
}
