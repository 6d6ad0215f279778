package forecast

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// Advance lets one thing happen, to the first member of an order of ordinals to which
// something can: its pod appears or ends as the StatefulSet says, or its agent reports
// something new. It answers whether anything happened.
func (w *World) Advance(order []int) bool {
	set := w.Observed.StatefulSet
	if set == nil {
		return false
	}
	count := int(ptr.Deref(set.Spec.Replicas, 0))
	for _, n := range order {
		pod := w.Observed.Pods[n]
		switch {
		case n >= count && pod != nil:
			w.endPod(n, MemberLeaves, "")
			return true
		case n < count && pod == nil:
			w.startPod(n)
			return true
		case pod != nil && w.Refresh(n):
			return true
		}
	}
	return w.Agents.FollowRequests(w)
}

// Refresh has the agent of a member report. It answers whether that is news.
func (w *World) Refresh(ordinal int) bool {
	pod, at := w.Observed.Pods[ordinal], w.lifeOf(ordinal)
	at.reports++
	status := w.Agents.ReportStatus(w, ordinal)
	status.Time = w.Now
	before := w.Observed.Members[pod.Name].Status
	w.Observed.Members[pod.Name] = agentclient.Observation{Status: &status, Asked: w.Now, At: w.Now}
	if before != nil {
		was := *before
		was.Time = status.Time
		if reflect.DeepEqual(was, status) {
			return false
		}
	}
	w.publish(pod, status)
	return true
}

// publish puts a pod behind the Services of its role while it serves.
func (w *World) publish(pod *corev1.Pod, status agentapi.Status) {
	set := w.Set()
	for _, suffix := range set.Clients {
		delete(w.Observed.ServicePods[suffix], pod.Name)
	}
	pod.Status.Conditions = nil
	if !status.Serving {
		return
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	service := set.Clients[0]
	if status.Role == v1alpha1.RoleReplica && len(set.Clients) > 1 {
		service = set.Clients[1]
	}
	w.Observed.ServicePods[service][pod.Name] = true
}

// BaseStatus is what the agents of every engine report of a member that is present.
func (w *World) BaseStatus(ordinal int) agentapi.Status {
	pod, st := w.Observed.Pods[ordinal], w.Cluster.CommonStatus()
	return agentapi.Status{
		Pod: pod.Name, PodUID: string(pod.UID), Role: v1alpha1.RoleMember, State: agentapi.StateStarting,
		Version: w.lifeOf(ordinal).version, SystemIdentifier: w.identifier(ordinal, st.SystemIdentifier),
		ConfigHash: w.ConfigHash(), CertificateSerial: pki.ReadSerial(w.Observed.Minted.TLS["tls.crt"]),
	}
}

// identifier is that of the data on a member's volume, which may be of an earlier cluster
// of the name.
func (w *World) identifier(ordinal int, recorded string) string {
	if v := w.Observed.Volumes[ordinal]; recorded == "" && v != nil {
		return v.Annotations[v1alpha1.AnnotationSystemIdentifier]
	}
	return recorded
}

// archiveStatus is what a member reports that archives, and whose store takes all.
func (w *World) archiveStatus() *agentapi.ArchiveStatus {
	const after = 24 * time.Hour // any time after the archive began
	return &agentapi.ArchiveStatus{Last: "of a forecast", LastTime: w.began.Add(after)}
}

// startPod makes a pod as the StatefulSet declares it.
func (w *World) startPod(ordinal int) {
	w.started++
	pod := NewPod(w.Observed.StatefulSet, w.Set().PodName(ordinal), ordinal)
	pod.UID = types.UID(fmt.Sprintf("new-%s-%d", pod.Name, w.started))
	pod.CreationTimestamp = metav1.NewTime(w.Now)
	image := containerImage(pod, w.Set().Container)
	serve(pod, w.Set().Container)
	if digest := w.digest(image); digest != "" {
		repository, _, _ := strings.Cut(image, "@")
		repository, _, _ = cutTag(repository)
		pod.Status.ContainerStatuses[0].ImageID = repository + "@" + digest
	}
	w.Observed.Pods[ordinal] = pod
	config := w.ReadConfig()
	w.lives[pod.UID] = &life{
		version: resolveVersion(pod, w.Set().Container, w.Cluster.CommonStatus().Version), parameters: maps.Clone(config.Parameters), dataLimit: config.DataLimit,
	}
	if w.restarting[ordinal] {
		delete(w.restarting, ordinal)
		return
	}
	w.record(Step{Kind: MembersJoin, Members: []string{pod.Name}})
}

// NewPod is the pod of a member as a StatefulSet declares it, on a node of its own.
func NewPod(set *appsv1.StatefulSet, name string, ordinal int) *corev1.Pod {
	template := set.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: set.Namespace, Labels: template.Labels, Annotations: template.Annotations},
		Spec:       template.Spec,
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if set.Status.UpdateRevision != "" {
		pod.Labels[appsv1.ControllerRevisionHashLabelKey] = set.Status.UpdateRevision
	}
	pod.Spec.NodeName = fmt.Sprintf("node-%d", ordinal+1)
	return pod
}

// serve has the container of a pod run.
func serve(pod *corev1.Pod, container string) {
	image := ""
	for i := range pod.Status.ContainerStatuses {
		if pod.Status.ContainerStatuses[i].Name == container {
			image = pod.Status.ContainerStatuses[i].ImageID
		}
	}
	pod.DeletionTimestamp = nil
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.0.1", ContainerStatuses: []corev1.ContainerStatus{
		{Name: container, ImageID: image, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}
}

// endPod ends the pod of a member, and records what that means to clients.
func (w *World) endPod(ordinal int, kind StepKind, why string) {
	name, leader := w.Set().PodName(ordinal), w.Agents.FindLeader(w)
	step := Step{Kind: kind, Members: []string{name}, Message: why, Readers: w.countReaders()}
	w.RemovePod(ordinal)
	w.Agents.EndPod(w, ordinal)
	step.ReadersLeft = w.countReaders()
	if ordinal == leader {
		step.WritesPause = true
		if next := w.Agents.FindLeader(w); next != memberset.NoLeader && next != ordinal {
			step.Successor = true
			if w.isReader(next) {
				step.ReadersLeft--
			}
		}
	}
	if kind == MemberRestarts {
		w.restarting[ordinal] = true
	}
	w.record(step)
}

// RemovePod removes the pod of a member, and what was known of it.
func (w *World) RemovePod(ordinal int) {
	name := w.Set().PodName(ordinal)
	if pod := w.Observed.Pods[ordinal]; pod != nil {
		delete(w.lives, pod.UID)
	}
	delete(w.Observed.Pods, ordinal)
	delete(w.Observed.Members, name)
	for _, pods := range w.Observed.ServicePods {
		delete(pods, name)
	}
}

// countReaders is how many members the Service for reads sends clients to; that of all
// clients where there is no other.
func (w *World) countReaders() int {
	clients := w.Set().Clients
	return len(w.Observed.ServicePods[clients[len(clients)-1]])
}

// isReader says whether a member serves reads only, and does no more once it leads.
func (w *World) isReader(ordinal int) bool {
	clients := w.Set().Clients
	return len(clients) > 1 && w.Observed.ServicePods[clients[1]][w.Set().PodName(ordinal)]
}

// listReporting are the members whose agents have reported more than once since their pods
// began, ascending: their databases run.
func (w *World) listReporting() []int {
	var found []int
	for _, n := range slices.Sorted(maps.Keys(w.Observed.Pods)) {
		if w.Reports(n) > 1 {
			found = append(found, n)
		}
	}
	return found
}

func containerImage(pod *corev1.Pod, container string) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == container {
			return pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// cutTag divides a reference without a digest into its repository and its tag.
func cutTag(image string) (repository, tag string, found bool) {
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[:colon], image[colon+1:], true
	}
	return image, "", false
}

// resolveVersion is the version that a pod's database will report: that of its tag, if the
// tag is one. A tag that only begins the running version says nothing new.
func resolveVersion(pod *corev1.Pod, container, running string) string {
	image, _, _ := strings.Cut(containerImage(pod, container), "@")
	_, tag, found := cutTag(image)
	if !found {
		_, tag, found = cutTag(pod.Annotations[v1alpha1.AnnotationImage])
	}
	tag = strings.TrimPrefix(tag, "v")
	if !found || strings.Trim(tag, "0123456789.") != "" || tag == "" || strings.HasPrefix(running+".", tag+".") {
		return running
	}
	return tag
}
