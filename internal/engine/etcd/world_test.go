package etcd

import (
	"fmt"
	"slices"
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
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
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

const clusterID = "cdf818194e3a8c32"

// world is a cluster, what is observed of it, and the group that its members
// form, from which they say what they say.
type world struct {
	t *testing.T
	c *v1alpha1.EtcdCluster
	o Observation
	// group by ID, and the number of IDs given out.
	group map[string]etcdapi.GroupMember
	ids   int
	// leader's ID.
	leader string
	// data is the ID of the member whose data a volume holds, by ordinal.
	data map[int]string
	// lost is the ID of the member that a pod was before its volume was emptied.
	lost map[int]string
	// version of the members' binaries.
	version map[int]string
}

// newWorld is a cluster of n members that no pass has acted on yet.
func newWorld(t *testing.T, replicas int32) *world {
	t.Helper()
	return &world{
		t: t,
		c: &v1alpha1.EtcdCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "config", Namespace: "shop", UID: "cluster-uid", Generation: 1},
			Spec: v1alpha1.EtcdClusterSpec{
				CommonSpec: v1alpha1.CommonSpec{Replicas: &replicas, DeletionPolicy: v1alpha1.DeletionRetain},
				Version:    "3.5.26",
				Storage:    v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
			},
		},
		o: Observation{Tried: map[string]time.Time{}, Observation: memberset.Observation{
			Settings:       objects.Settings{ImageRepository: "quay.io/coreos/etcd", AgentImage: "holdfast:test", OperatorNamespace: "holdfast-system"},
			Pods:           map[int]*corev1.Pod{},
			Volumes:        map[int]*corev1.PersistentVolumeClaim{},
			Members:        map[string]agentclient.Observation{},
			ServicePods:    map[string]map[string]bool{suffixClient: {}},
			StorageClasses: map[string]storagev1.StorageClass{"standard": {AllowVolumeExpansion: new(true)}},
		}},
		group: map[string]etcdapi.GroupMember{}, data: map[int]string{}, lost: map[int]string{}, version: map[int]string{},
	}
}

// settled is a cluster of n members that are all as declared; the first leads.
func settled(t *testing.T, replicas int) *world {
	t.Helper()
	w := newWorld(t, int32(replicas))
	w.mint()
	w.c.Status.SystemIdentifier, w.c.Status.Version = clusterID, "3.5.26"
	w.statefulSet()
	for n := range replicas {
		w.volume(n, true)
		w.pod(n)
		w.join(n)
	}
	w.leader = w.data[0]
	w.say()
	return w
}

// mint makes what the steps would have made.
func (w *world) mint() {
	w.t.Helper()
	minted, err := forecast.Mint(membersOf(w.c), now)
	if err != nil {
		w.t.Fatal(err)
	}
	w.o.Minted = minted
}

func (w *world) statefulSet() {
	asked := specImage(w.c, w.o.Settings)
	w.o.StatefulSet = &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: w.c.Name, Namespace: w.c.Namespace, Generation: 1},
		Spec: appsv1.StatefulSetSpec{
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationImage: asked}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: containerName, Image: asked}}},
			},
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

// pod is a member's pod that runs what is declared.
func (w *world) pod(ordinal int) *corev1.Pod {
	asked := specImage(w.c, w.o.Settings)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: membersOf(w.c).PodName(ordinal), Namespace: w.c.Namespace, UID: types.UID(fmt.Sprintf("pod-%d", ordinal)),
			Labels:      membersOf(w.c).Selector(),
			Annotations: map[string]string{v1alpha1.AnnotationRollout: membersOf(w.c).RolloutHash(asked), v1alpha1.AnnotationImage: asked}},
		Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: objects.InstallerName, Image: w.o.Settings.AgentImage}},
			Containers: []corev1.Container{{Name: containerName, Image: asked}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.0.1",
			ContainerStatuses: []corev1.ContainerStatus{{Name: containerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
	}
	w.o.Pods[ordinal] = p
	w.version[ordinal] = w.c.Spec.Version
	return p
}

// admit gives a pod an ID in the group, without a vote.
func (w *world) admit(ordinal int) string {
	w.ids++
	id := fmt.Sprintf("%x", 0xa0+w.ids)
	w.group[id] = etcdapi.GroupMember{ID: id, PeerURL: peerURL(membersOf(w.c), ordinal), Learner: true}
	return id
}

// join makes a pod a voting member with data.
func (w *world) join(ordinal int) {
	id := w.admit(ordinal)
	w.data[ordinal] = id
	w.group[id] = etcdapi.GroupMember{ID: id, Name: membersOf(w.c).PodName(ordinal), PeerURL: peerURL(membersOf(w.c), ordinal)}
}

// quorate says whether the members that run can agree.
func (w *world) quorate() bool {
	voters, present := 0, 0
	for id, m := range w.group {
		if m.Learner {
			continue
		}
		voters++
		for n, data := range w.data {
			if data == id && w.o.Pods[n] != nil && w.o.Pods[n].DeletionTimestamp == nil {
				present++
			}
		}
	}
	return voters > 0 && present >= memberset.CountMajority(voters)
}

// say lets every pod's agent say what is true of its member.
func (w *world) say() {
	w.o.ServicePods[suffixClient] = map[string]bool{}
	view := etcdapi.Group{}
	for _, m := range w.group {
		view.Members = append(view.Members, m)
	}
	slices.SortFunc(view.Members, func(a, b etcdapi.GroupMember) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	if w.quorate() {
		view.Leader = w.leader
	}
	for n, pod := range w.o.Pods {
		m := w.saysOf(n, pod, view)
		w.o.Members[pod.Name] = agentclient.Observation{Status: m, Asked: now, At: now}
		pod.Status.Conditions = nil
		if m.Serving {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			w.o.ServicePods[suffixClient][pod.Name] = true
		}
	}
	hash := agentapi.HashConfig(w.config())
	for _, m := range w.o.Members {
		m.Status.ConfigHash = hash
	}
}

func (w *world) saysOf(n int, pod *corev1.Pod, view etcdapi.Group) *agentapi.Status {
	m := &agentapi.Status{
		Pod: pod.Name, PodUID: string(pod.UID), Role: v1alpha1.RoleMember, State: agentapi.StateWaiting, Version: w.version[n],
		CertificateSerial: pki.ReadSerial(w.o.Minted.TLS["tls.crt"]), TrustHash: agentapi.HashConfig(w.o.Minted.TLS["ca.crt"]),
	}
	id := w.data[n]
	counted, found := w.group[id]
	switch {
	case id == "" && w.lost[n] != "":
		m.State, m.Hold, m.Engine = agentapi.StateHeld, agentapi.HoldDataMissing, etcdapi.GroupStatus{LostMember: w.lost[n]}
		return m
	case id == "":
		return m
	case !found && view.Leader != "":
		m.SystemIdentifier, m.State, m.Hold = clusterID, agentapi.StateHeld, agentapi.HoldRemoved
		return m
	}
	m.SystemIdentifier = clusterID
	m.Engine = etcdapi.GroupStatus{Group: &etcdapi.Group{Self: id, Leader: view.Leader, Members: view.Members}}
	switch {
	case view.Leader == "":
		m.State = agentapi.StateDisconnected
	case counted.Learner:
		m.State = agentapi.StateCatchingUp
	default:
		m.State, m.Serving = agentapi.StateRunning, true
	}
	return m
}

// config as the members would get it now.
func (w *world) config() []byte {
	d, _ := w.desired()
	return d.Config
}

// view is what a pass would know of the world before it plans.
func (w *world) view() *memberset.View {
	view := memberset.NewView(membersOf(w.c), w.o.Observation, now)
	return &view
}

// desired is what a pass would make of the world.
func (w *world) desired() (objects.Desired, []condition.Fact) {
	view := w.view()
	v, g := readVersions(w.c, view), groupOf(w.c, w.o, view.Membership)
	d, _, facts := planDesired(w.c, view, v, g, recoveryOf(w.c, w.o, g), precautionOf(w.c, w.o, v, now), w.o.Quota)
	return d, facts
}

// status is what the member of an ordinal says, to be changed by a case.
func (w *world) status(ordinal int) *agentapi.Status {
	return w.o.Members[membersOf(w.c).PodName(ordinal)].Status
}

// changeGroup changes what of it only members of etcd report.
func (w *world) changeGroup(ordinal int, change func(*etcdapi.GroupStatus)) {
	agentapi.ChangeEngineStatus(w.status(ordinal), change)
}

// gone removes a member's pod.
func (w *world) gone(ordinal int) {
	delete(w.o.Pods, ordinal)
	delete(w.o.Members, membersOf(w.c).PodName(ordinal))
	w.elect()
}

// emptied gives a member an empty volume.
func (w *world) emptied(ordinal int) {
	w.lost[ordinal], w.data[ordinal] = w.data[ordinal], ""
	w.elect()
}

// unbound gives a member a claim that has no volume yet, and a pod that no node
// has space for.
func (w *world) unbound(ordinal int) {
	v := w.volume(ordinal, true)
	v.Spec.VolumeName, v.Status = "", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	w.pod(ordinal).Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}}
}

// elect makes sure that the leader runs.
func (w *world) elect() {
	for n := range objects.MostMembers {
		if m, found := w.group[w.leader]; found && !m.Learner && w.data[n] == w.leader && w.o.Pods[n] != nil {
			return
		}
	}
	w.leader = ""
	for n := range objects.MostMembers {
		if m, found := w.group[w.data[n]]; found && !m.Learner && w.o.Pods[n] != nil && w.leader == "" {
			w.leader = m.ID
		}
	}
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

func (w *world) replicas(n int32) { w.c.Spec.Replicas = &n }
