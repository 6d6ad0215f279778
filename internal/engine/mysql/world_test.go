package mysql

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
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
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
	c *v1alpha1.MySQLCluster
	o memberset.Observation
	t *testing.T
	// leads is the ordinal of the member that leads.
	leads int
}

// newWorld is a cluster of n members that no step has acted on yet.
func newWorld(t *testing.T, replicas int) *world {
	t.Helper()
	n := int32(replicas)
	return &world{
		t: t,
		c: &v1alpha1.MySQLCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "cluster-uid", Generation: 1},
			Spec: v1alpha1.MySQLClusterSpec{
				CommonSpec: v1alpha1.CommonSpec{Replicas: &n, DeletionPolicy: v1alpha1.DeletionRetain},
				Version:    "9.7",
				Storage:    v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
			},
		},
		o: memberset.Observation{
			Settings:       objects.Settings{ImageRepository: "docker.io/library/mysql", AgentImage: "holdfast:test", OperatorNamespace: "holdfast-system"},
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
	w.c.Status.SystemIdentifier, w.c.Status.Version = "5b8f3c1e-0000-5000-8000-000000000001", "9.7.4"
	w.statefulSet()
	for n := range replicas {
		w.volume(n, true)
	}
	var all []int
	for n := range replicas {
		w.member(n)
		all = append(all, n)
	}
	w.report(all...)
	w.takeUp()
	return w
}

// serverUUID of a member.
func serverUUID(ordinal int) string { return fmt.Sprintf("aaaaaaaa-0000-0000-0000-%012d", ordinal) }

// report has the members report their parts in a group of those with the ordinals, all
// online.
func (w *world) report(ordinals ...int) {
	var view []mysqlapi.ViewMember
	var uuids []string
	for _, n := range ordinals {
		pod := membersOf(w.c).PodName(n)
		view = append(view, mysqlapi.ViewMember{ServerUUID: serverUUID(n), Address: membersOf(w.c).PodHost(pod) + ":3306", State: mysqlapi.StateOnline, Primary: n == w.leads, Version: "9.7.4"})
		uuids = append(uuids, serverUUID(n))
	}
	for _, n := range ordinals {
		w.status(n).Engine = mysqlapi.GroupStatus{GroupReplication: &mysqlapi.MemberReport{
			ServerUUID: serverUUID(n), Group: w.c.Status.SystemIdentifier, Phase: mysqlapi.PhaseInGroup,
			Executed: w.c.Status.SystemIdentifier + ":1-9", ViewID: "17000000000000000:5", View: view, Persisted: uuids,
		}}
	}
}

// part is what the member of an ordinal reports of its part in the group, to be changed
// by a case.
func (w *world) part(ordinal int) *mysqlapi.MemberReport { return readReport(w.status(ordinal)) }

// detach has a member report that it is in no group, and waits for others.
func (w *world) detach(ordinal int, executed string, missing ...string) {
	m := w.status(ordinal)
	m.Role, m.State, m.Serving = v1alpha1.RoleMember, agentapi.StateWaiting, false
	m.Engine = mysqlapi.GroupStatus{GroupReplication: &mysqlapi.MemberReport{
		ServerUUID: serverUUID(ordinal), Group: w.c.Status.SystemIdentifier, Phase: mysqlapi.PhaseDetached,
		Executed: w.c.Status.SystemIdentifier + ":" + executed, Missing: missing, Persisted: []string{serverUUID(0), serverUUID(1), serverUUID(2)},
	}}
}

// empty has a member report that its volume is empty.
func (w *world) empty(ordinal int) {
	m := w.status(ordinal)
	m.Role, m.State, m.Serving, m.SystemIdentifier = v1alpha1.RoleMember, agentapi.StateWaiting, false, ""
	m.Engine = mysqlapi.GroupStatus{GroupReplication: &mysqlapi.MemberReport{Phase: mysqlapi.PhaseEmpty}}
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
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: containerName, Image: specImage(w.c, w.o.Settings)}}}},
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
	g := readGroup(view.Set, view.Observed)
	return planDesired(w.c, view, g, readVersions(w.c, view, g))
}

// takeUp has every member that answers take up the present settings.
func (w *world) takeUp() {
	d, _, _ := w.desired()
	for n := range w.o.Pods {
		if m := w.o.Member(n); m != nil {
			m.ConfigHash = agentapi.HashConfig(d.Config)
		}
	}
}

// member is a pod that serves in its role, with the present settings.
func (w *world) member(ordinal int) *agentapi.Status {
	p := w.pod(ordinal)
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	d, _, _ := w.desired()
	m := &agentapi.Status{
		Pod: p.Name, PodUID: string(p.UID), Role: v1alpha1.RoleReplica, State: agentapi.StateStreaming, Serving: true,
		Version: "9.7.4", SystemIdentifier: w.c.Status.SystemIdentifier,
		ConfigHash:        agentapi.HashConfig(d.Config),
		CertificateSerial: pki.ReadSerial(w.o.Minted.TLS["tls.crt"]),
		TLSHash:           agentapi.HashTLS(w.o.Minted.TLS),
	}
	if ordinal == w.leads {
		m.Role, m.State = v1alpha1.RolePrimary, agentapi.StateRunning
		w.o.ServicePods[suffixRW][p.Name] = true
	} else {
		w.o.ServicePods[suffixRO][p.Name] = true
	}
	w.o.Members[p.Name] = agentclient.Observation{Status: m, Asked: now, At: now}
	return m
}

// status is what the member of an ordinal says, to be changed by a case.
func (w *world) status(ordinal int) *agentapi.Status {
	return w.o.Members[membersOf(w.c).PodName(ordinal)].Status
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
