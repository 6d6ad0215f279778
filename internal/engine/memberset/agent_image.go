package memberset

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// Members take their agents from an image of the operator. An upgrade of the operator
// leaves that image where it is, also for pods that Kubernetes creates again and for
// members that join: their agents are the ones that the cluster runs already, so going
// back to the previous operator finds no volume that a newer agent wrote. The image
// moves with the first change that replaces pods anyway, or by request.

// requestUpdateAgents is the type of the request that replaces pods whose agent is not
// the operator's.
var requestUpdateAgents = RequestType(v1alpha1.AnnotationUpdateAgents)

// agentHold is that another manager has set the image for agents which the StatefulSet declares.
type agentHold struct {
	// manager that holds the field; empty for none.
	manager string
	since   time.Time
}

// agentHoldLimit is how long another manager may hold the image of the agents before a request to
// update them is stopped: what changed it once is put back before, also where thousands of
// clusters have passes to wait for, and one that always sets it back is waited for longer in the end.
const agentHoldLimit = 2 * time.Minute

// findAgentHold finds who set another image for agents than was applied, or than a request asks
// for. What admission makes of the image has no other holder.
func (view *View) findAgentHold() agentHold {
	own := view.Observed.Settings.AgentImage
	if view.Observed.StatefulSet == nil || view.declaredAgent() == own || view.appliedAgent() != own && !view.isUpdatingAgents() {
		return agentHold{}
	}
	manager, since, err := apply.FindInitImageHolder(view.Observed.StatefulSet, objects.InstallerName)
	if err != nil {
		return agentHold{} // the API server makes no fields that cannot be read
	}
	return agentHold{manager: manager, since: since}
}

// agentHoldLeft is how long another manager may still hold the image of the agents while a
// request to update them runs; 0 where none does, or where it has for long.
func (view *View) agentHoldLeft() time.Duration {
	if view.agentHold.manager == "" || !view.isUpdatingAgents() || view.Cluster.Common().Suspend {
		return 0
	}
	return max(0, view.agentHold.since.Add(agentHoldLimit).Sub(view.Now))
}

// chooseAgentImage is the image to declare for agents: the one that is pinned, or the
// operator's own where pods are replaced in any case. It needs the age of the pods.
func (view *View) chooseAgentImage() string {
	own, pinned := view.Observed.Settings.AgentImage, view.findAgentPin()
	switch {
	case pinned == "" || pinned == own:
		return own
	case view.Cluster.Common().Suspend:
		return pinned
	case view.isUpdatingAgents() || view.hasOnlyOwnAgents():
		return own
	}
	for n := range view.Desired.Count {
		if view.needsOwnAgent(n) {
			return own
		}
	}
	return pinned
}

// findAgentPin is the image that members take their agents from until pods are
// replaced; empty where there is none. An image in status counts that something declares
// or runs: one that a person wrote there, or that was never applied, does not. Without one
// it is what the newest pod was created with, so that no member goes back.
func (view *View) findAgentPin() string {
	if st := view.Cluster.CommonStatus().Agent; st != nil && st.Image != "" && view.isAgentKnown(st.Image) {
		return st.Image
	}
	var newest *corev1.Pod
	current := true
	for _, n := range slices.Sorted(maps.Keys(view.Observed.Pods)) {
		if pod := view.Observed.Pods[n]; newest == nil || newest.CreationTimestamp.Before(&pod.CreationTimestamp) {
			newest, current = pod, view.ages[n].current
		}
	}
	if current { // what admission made of the image in the pod is not to be declared
		return view.appliedAgent()
	}
	return view.Observed.findAskedAgent(newest)
}

// isAgentKnown says whether an image is the operator's, or that of the StatefulSet or of a pod.
// While there is no pod, the record alone says it.
func (view *View) isAgentKnown(image string) bool {
	if image == view.Observed.Settings.AgentImage || view.declaresAgent(image) || len(view.Observed.Pods) == 0 {
		return true
	}
	for _, pod := range view.Observed.Pods {
		if view.Observed.findAskedAgent(pod) == image {
			return true
		}
	}
	return false
}

// hasOnlyOwnAgents says that each member has a pod, with the operator's agent. The pinned
// image is then that of an update that was withdrawn, or of an operator that was taken back,
// before a pod had it.
func (view *View) hasOnlyOwnAgents() bool {
	for n := range view.Desired.Count {
		if pod := view.Observed.Pods[n]; pod == nil || view.Observed.findAskedAgent(pod) != view.Observed.Settings.AgentImage {
			return false
		}
	}
	return view.Desired.Count > 0
}

// needsOwnAgent says whether a member's pod is to be replaced in any case, or cannot
// do without the operator's agent.
func (view *View) needsOwnAgent(ordinal int) bool {
	pod, m := view.Observed.Pods[ordinal], view.Observed.Member(ordinal)
	if pod == nil || pod.DeletionTimestamp != nil {
		return false
	}
	return view.ages[ordinal].older || view.restartNeeded(m) || view.Observed.isAgentTooOld(pod, m) || view.isAgentUnfit(ordinal) ||
		view.agentFails(pod) && view.Observed.findAskedAgent(pod) != view.Observed.Settings.AgentImage
}

// agentFails says whether a pod cannot have the image of its agent, or the agent ends again
// and again, in its installer or in the database's container: a newer one may do better.
func (view *View) agentFails(pod *corev1.Pod) bool {
	return slices.ContainsFunc(view.listAgentContainers(pod), func(s corev1.ContainerStatus) bool {
		w := s.State.Waiting
		return w != nil && (w.Reason == reasonCrashLoop || s.Name == objects.InstallerName && slices.Contains(imageReasons, w.Reason))
	})
}

// listAgentContainers are a pod's containers that the operator declares. Those that admission
// adds say nothing of the agent, and the database serves whatever becomes of them.
func (view *View) listAgentContainers(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.DeleteFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.Name != objects.InstallerName && s.Name != view.Container
	})
}

// isAgentOutdated says whether a pod has another agent than a pod would have that is
// created from the operator's image. What admission makes of that image stays: a new
// pod would have it too.
func (view *View) isAgentOutdated(ordinal int) bool {
	pod, own := view.Observed.Pods[ordinal], view.Observed.Settings.AgentImage
	if pod == nil || !view.isTemplateObserved() || InstallerImage(pod) == "" || view.Observed.findAskedAgent(pod) == own {
		return false
	}
	return !view.declaresOwnAgent() || !view.hasDeclaredAgent(pod, view.ages[ordinal].current)
}

// wouldUpdateAgent says whether a new pod would have the operator's agent, and a pod has another
// one. Before the template declares the operator's, a new pod would not.
func (view *View) wouldUpdateAgent(pod *corev1.Pod, current bool) bool {
	return view.Observed.findAskedAgent(pod) != view.Observed.Settings.AgentImage && view.declaresOwnAgent() && !view.hasDeclaredAgent(pod, current)
}

// hasDeclaredAgent says whether a new pod would have the same agent as a pod, whatever admission
// makes of the image.
func (view *View) hasDeclaredAgent(pod *corev1.Pod, current bool) bool {
	return current || view.Observed.findAskedAgent(pod) == view.declaredAgent()
}

// declaredAgent is the image for agents that the StatefulSet declares; empty without one.
func (view *View) declaredAgent() string {
	if view.Observed.StatefulSet == nil {
		return ""
	}
	return findInstaller(view.Observed.StatefulSet.Spec.Template.Spec)
}

// appliedAgent is the image for agents that the StatefulSet was applied with, whatever admission
// made of it in the template; empty without one. Earlier operators did not record it.
func (view *View) appliedAgent() string {
	if set := view.Observed.StatefulSet; set != nil && set.Annotations[v1alpha1.AnnotationAgentImage] != "" {
		return set.Annotations[v1alpha1.AnnotationAgentImage]
	}
	return view.declaredAgent()
}

// isTemplateObserved says whether Kubernetes has made a revision of the template that the
// StatefulSet declares. Before, no pod is known to be of it.
func (view *View) isTemplateObserved() bool {
	set := view.Observed.StatefulSet
	return set == nil || set.Status.ObservedGeneration == set.Generation
}

// declaresOwnAgent says whether new pods have the operator's agent. They do not while another
// client sets the image, whatever was applied.
func (view *View) declaresOwnAgent() bool {
	return view.isTemplateObserved() && view.agentHold.manager == "" && view.declaresAgent(view.Observed.Settings.AgentImage)
}

// declaresAgent says whether the StatefulSet declares an image for agents, or what admission
// made of it. What status says is no sign of it: that is written also if the apply failed, and
// may be newer than the StatefulSet that was read.
func (view *View) declaresAgent(image string) bool {
	return view.Observed.StatefulSet != nil && (view.declaredAgent() == image || view.appliedAgent() == image)
}

// isAgentUnfit says whether a member will not serve with the agent that it has, and the
// operator's is another one.
func (view *View) isAgentUnfit(ordinal int) bool {
	pod := view.Observed.Pods[ordinal]
	return pod != nil && view.UnfitAgents[ordinal] != "" && view.Observed.findAskedAgent(pod) != view.Observed.Settings.AgentImage
}

// listOutdatedAgents are the members whose agent is not the operator's, by their pods; as they
// were while that cannot be said.
func (view *View) listOutdatedAgents() []string {
	if st := view.Cluster.CommonStatus().Agent; st != nil && !view.isTemplateObserved() {
		return st.Outdated
	}
	var pods []string
	for n := range view.Desired.Count {
		if view.isAgentOutdated(n) {
			pods = append(pods, view.PodName(n))
		}
	}
	return pods
}

// reportAgent is what status says of the members' agents; nil before there are any.
func (view *View) reportAgent() *v1alpha1.AgentStatus {
	image := view.Desired.AgentImage
	if image == "" {
		return nil
	}
	st := &v1alpha1.AgentStatus{Image: image, Outdated: view.listOutdatedAgents()}
	if own := view.Observed.Settings.AgentImage; image != own || len(st.Outdated) > 0 {
		st.Available = own
	}
	return st
}

// AddAgentRequest adds what status records of the request to update agents to the
// records of an engine's own requests.
func (view *View) AddAgentRequest(recorded []v1alpha1.RequestStatus) []v1alpha1.RequestStatus {
	recorded = slices.DeleteFunc(slices.Clone(recorded), func(r v1alpha1.RequestStatus) bool { return r.Type == requestUpdateAgents })
	if r := view.planAgentUpdate(); r != nil {
		recorded = append(recorded, *r)
	}
	return recorded
}

// isUpdatingAgents says whether a request to update agents runs, and was not withdrawn.
func (view *View) isUpdatingAgents() bool {
	return view.Cluster.GetAnnotations()[v1alpha1.AnnotationUpdateAgents] != "" && IsRunning(FindRequest(view.Cluster, requestUpdateAgents))
}

// planAgentUpdate takes up a request once, and ends it when no pod is left with another
// agent than the operator's, when its annotation is removed, or when another manager keeps the agents'
// image at another one; nil without one. It does not
// wait for the last one to be ready: one that is held would have it act on the operator's
// next version, too. Pods are
// replaced once it is recorded.
func (view *View) planAgentUpdate() *v1alpha1.RequestStatus {
	r := FindRequest(view.Cluster, requestUpdateAgents)
	id := view.Cluster.GetAnnotations()[v1alpha1.AnnotationUpdateAgents]
	switch {
	case IsRunning(r) && id == "":
		r.Result = "withdrawn: the annotation " + v1alpha1.AnnotationUpdateAgents + " was removed; members keep the agents that they have by now"
	case !view.isTemplateObserved():
		// no pod can be judged
	case IsRunning(r):
		r.Result = view.findAgentResult()
	case id != "" && (r == nil || r.ID != id):
		return view.beginAgentUpdate(r, id)
	}
	return r
}

// findAgentResult is how the request that runs ends; empty while it does not.
func (view *View) findAgentResult() string {
	switch {
	case view.agentHold.manager != "":
		// Whatever pods have: the next ones have what the other manager set.
		if view.agentHoldLeft() == 0 && !view.Cluster.Common().Suspend && !view.Observed.AwaitsFirstAnswer() {
			return view.explainAgentHold()
		}
	case len(view.listOutdatedAgents()) == 0 && view.hasAllPods():
		return "done: every member has the agent of " + view.Observed.Settings.AgentImage
	}
	return ""
}

// beginAgentUpdate takes up the request with an ID, in place of the last one; that stays
// while members cannot be judged.
func (view *View) beginAgentUpdate(last *v1alpha1.RequestStatus, id string) *v1alpha1.RequestStatus {
	r := &v1alpha1.RequestStatus{Type: requestUpdateAgents, ID: id}
	switch {
	case view.Cluster.CommonStatus().SystemIdentifier == "":
		r.Result = NotAtCreation
	case view.Cluster.Common().Suspend || view.Observed.AwaitsFirstAnswer() || !view.hasAllPods():
		return last // it waits for members that can be judged
	case len(view.listOutdatedAgents()) == 0 && view.agentHold.manager == "":
		r.Result = "not needed: every member has the agent of " + view.Observed.Settings.AgentImage
	}
	return r
}

// explainAgentHold is the result of a request that another manager works against.
func (view *View) explainAgentHold() string {
	return fmt.Sprintf("stopped: the field manager %q sets spec.template.spec.initContainers[name=%q].image of StatefulSet %s to %s, and new pods get the agent of that image: "+
		"have that client leave the field alone, then request the update with another ID", view.agentHold.manager, objects.InstallerName, view.Observed.StatefulSet.Name, view.declaredAgent())
}

// hasAllPods says whether each member has a pod that stays.
func (view *View) hasAllPods() bool {
	for n := range view.Desired.Count {
		if pod := view.Observed.Pods[n]; pod == nil || pod.DeletionTimestamp != nil {
			return false
		}
	}
	return true
}

// explainAgentUpdate says that the request to update agents replaces a pod; empty where
// it does not.
func (view *View) explainAgentUpdate(pod *corev1.Pod, current bool) string {
	if !view.isUpdatingAgents() || !view.wouldUpdateAgent(pod, current) {
		return ""
	}
	return fmt.Sprintf("its agent is of %s, and %s asks for that of the operator", view.Observed.findAskedAgent(pod), v1alpha1.AnnotationUpdateAgents)
}
