package memberset

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// The images of two releases of the operator.
const (
	agentBefore = "holdfast:v1"
	agentNow    = "holdfast:v2"
)

// agentWorld is a cluster of three members, whose agents are of the release before the
// operator's.
type agentWorld struct {
	c    *v1alpha1.PostgresCluster
	o    Observation
	want objects.Desired
	set  objects.Set
	// unfit is the engine's judgement of agents.
	unfit map[int]string
}

func newAgentWorld() *agentWorld {
	w := &agentWorld{c: viewCluster(), want: objects.Desired{Asked: "name:17", Image: "name:17", Count: 3, Config: []byte("settings")}}
	w.c.Status.SystemIdentifier = "7300000000000000001"
	w.c.Status.Agent = &v1alpha1.AgentStatus{Image: agentBefore}
	w.set = objects.Set{Kind: objects.Kind{Container: "db"}, Cluster: w.c}
	w.o = Observation{Settings: objects.Settings{AgentImage: agentNow}, Pods: map[int]*corev1.Pod{}, Members: map[string]agentclient.Observation{}}
	w.o.StatefulSet = setOfImage("name:17", "name:17")
	w.o.StatefulSet.Status.UpdateRevision = "revision-1"
	w.o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationRollout] = w.set.RolloutHash("name:17")
	w.declareAgent(agentBefore)
	for n := range 3 {
		w.createPod(n, agentBefore, "revision-1")
	}
	return w
}

func (w *agentWorld) declareAgent(image string) {
	w.o.StatefulSet.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: objects.InstallerName, Image: image}}
}

// applyAgent records the image that the StatefulSet was applied with.
func (w *agentWorld) applyAgent(image string) {
	w.o.StatefulSet.Annotations = map[string]string{v1alpha1.AnnotationAgentImage: image}
}

func (w *agentWorld) createPod(ordinal int, agent, revision string) *corev1.Pod {
	pod := databasePod("name:17", "name:17", "")
	pod.Name = w.set.PodName(ordinal)
	pod.Annotations[v1alpha1.AnnotationRollout] = w.set.RolloutHash("name:17")
	pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	pod.CreationTimestamp = metav1.NewTime(time.Date(2026, 3, 1, 12, ordinal, 0, 0, time.UTC))
	pod.Spec.InitContainers = []corev1.Container{{Name: objects.InstallerName, Image: agent}}
	w.o.Pods[ordinal] = pod
	w.o.Members[pod.Name] = agentclient.Observation{Status: &agentapi.Status{PodUID: string(pod.UID), ConfigHash: agentapi.HashConfig(w.want.Config), Serving: true}}
	return pod
}

func (w *agentWorld) requestUpdate(id string) {
	w.c.Annotations = map[string]string{v1alpha1.AnnotationUpdateAgents: id}
}

func (w *agentWorld) recordUpdate(id, result string) {
	w.c.Status.Requests = []v1alpha1.RequestStatus{{Type: requestUpdateAgents, ID: id, Result: result}}
}

// runUpdate has the request "one" run: the StatefulSet has the agent's new image, as a revision.
func (w *agentWorld) runUpdate(revision string) {
	w.recordUpdate("one", "")
	w.requestUpdate("one")
	w.c.Status.Agent.Image = agentNow
	w.o.StatefulSet.Status.UpdateRevision = revision
}

// view is one pass with what it decided on agents.
func (w *agentWorld) view() (*View, string) {
	view, d := NewView(w.set, w.o, time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)), w.want
	view.UnfitAgents = w.unfit
	view.SetDesired(&d)
	return &view, d.AgentImage
}

// An upgrade of the operator changes no agent. Each thing that does is one case, beside
// what resembles it.
func TestAgentImageStaysUntilPodsAreReplaced(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *agentWorld)
		want   string
	}{
		{"the operator was upgraded", func(*agentWorld) {}, agentBefore},
		{"a pod was deleted", func(w *agentWorld) { delete(w.o.Pods, 1) }, agentBefore},
		{"every pod was deleted", func(w *agentWorld) { clear(w.o.Pods) }, agentBefore},
		{"a member joins", func(w *agentWorld) { w.want.Count = 4 }, agentBefore},
		{"another client set the declared agent", func(w *agentWorld) { w.declareAgent("elsewhere:v9") }, agentBefore},
		{"another client changed what the StatefulSet declares", func(w *agentWorld) {
			w.o.StatefulSet.Spec.Template.Annotations[v1alpha1.AnnotationRollout] = "other"
		}, agentBefore},
		{"an earlier operator recorded none: the newest pod's", func(w *agentWorld) {
			w.c.Status.Agent = nil
			w.declareAgent("holdfast:v1.2")
			w.createPod(2, "holdfast:v1.1", "revision-0")
		}, "holdfast:v1.1"},
		{"the record is lost, and admission names a mirror", func(w *agentWorld) {
			w.c.Status.Agent = nil
			w.createPod(2, "mirror/"+agentBefore, "revision-1")
		}, agentBefore},
		{"the record is lost, and a pod of another template has a mirror's image", func(w *agentWorld) {
			w.c.Status.Agent = nil
			w.declareAgent("holdfast:v1.2")
			w.createPod(2, "mirror/"+agentBefore, "revision-0")
			w.o.Altered = map[string]PodComparison{"orders-2": {Made: true, Agent: agentBefore}}
		}, agentBefore},
		{"pods alone show the record, and admission names a mirror", func(w *agentWorld) {
			w.declareAgent("elsewhere:v9")
			w.o.Altered = map[string]PodComparison{}
			for n := range 3 {
				w.o.Altered[w.createPod(n, "mirror/"+agentBefore, "revision-1").Name] = PodComparison{Made: true, Agent: agentBefore}
			}
		}, agentBefore},
		{"the record and every pod are lost", func(w *agentWorld) { w.c.Status.Agent = nil; clear(w.o.Pods) }, agentBefore},
		{"the record was edited", func(w *agentWorld) { w.c.Status.Agent.Image = "elsewhere:v9" }, agentBefore},
		{"the record was emptied", func(w *agentWorld) { w.c.Status.Agent.Image = "" }, agentBefore},
		{"the record names what was never applied", func(w *agentWorld) {
			w.c.Status.Agent.Image = "holdfast:v1.9"
			w.createPod(2, agentBefore, "revision-0")
		}, agentBefore},
		{"an agent cannot serve its group", func(w *agentWorld) { w.unfit = map[int]string{1: "it is old"} }, agentNow},
		{"an agent cannot serve its group, and is the operator's", func(w *agentWorld) {
			w.unfit = map[int]string{1: "it is old"}
			w.createPod(1, agentNow, "revision-1")
		}, agentBefore},
		{"nothing was created yet", func(w *agentWorld) { w.c.Status.Agent, w.o.StatefulSet = nil, nil; clear(w.o.Pods) }, agentNow},
		{"the spec changed what pods are made of", func(w *agentWorld) { w.want.Asked = "name:17.1" }, agentNow},
		{"it did, and the cluster is suspended", func(w *agentWorld) { w.want.Asked, w.c.Spec.Suspend = "name:17.1", true }, agentBefore},
		{"a restart is pending", func(w *agentWorld) { w.o.Members["orders-1"].Status.PendingRestart = []string{"shared_buffers"} }, agentNow},
		{"a restart is pending of a member that leaves", func(w *agentWorld) {
			w.want.Count = 2
			w.o.Members["orders-2"].Status.PendingRestart = []string{"shared_buffers"}
		}, agentBefore},
		{"an agent does not know user-provided certificates", func(w *agentWorld) { w.o.Minted.User = UserCertificates{CA: &UserSecret{}} }, agentNow},
		{"the image of the agents is gone", func(w *agentWorld) {
			w.o.Pods[1].Status.InitContainerStatuses = waiting(objects.InstallerName, "ImagePullBackOff")
		}, agentNow},
		{"the image of the database is gone", func(w *agentWorld) {
			w.o.Pods[1].Status.ContainerStatuses = waiting("db", "ImagePullBackOff")
		}, agentBefore},
		{"an agent crashes again and again", func(w *agentWorld) { w.o.Pods[1].Status.ContainerStatuses = waiting("db", "CrashLoopBackOff") }, agentNow},
		{"the installer crashes again and again", func(w *agentWorld) {
			w.o.Pods[1].Status.InitContainerStatuses = waiting(objects.InstallerName, "CrashLoopBackOff")
		}, agentNow},
		{"a container that admission added crashes again and again", func(w *agentWorld) {
			w.o.Pods[1].Status.ContainerStatuses = waiting("mesh", "CrashLoopBackOff")
			w.o.Pods[1].Status.InitContainerStatuses = waiting("mesh-init", "CrashLoopBackOff")
		}, agentBefore},
		{"a pod finds no node", func(w *agentWorld) {
			w.o.Pods[1].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
		}, agentBefore},
		{"a request is not recorded yet", func(w *agentWorld) { w.requestUpdate("one") }, agentBefore},
		{"a request is recorded", func(w *agentWorld) { w.requestUpdate("one"); w.recordUpdate("one", "") }, agentNow},
		{"a request is recorded, and was withdrawn", func(w *agentWorld) { w.recordUpdate("one", "") }, agentBefore},
		{"a request was carried out before the upgrade", func(w *agentWorld) { w.requestUpdate("one"); w.recordUpdate("one", "done") }, agentBefore},
		{"an update was withdrawn and the operator was taken back before a pod was replaced", func(w *agentWorld) {
			w.c.Status.Agent.Image = "holdfast:v3"
			w.declareAgent("holdfast:v3")
			for n := range 3 {
				w.createPod(n, agentNow, "revision-0")
			}
		}, agentNow},
		{"it was taken back when a pod was replaced", func(w *agentWorld) {
			w.c.Status.Agent.Image = "holdfast:v3"
			w.declareAgent("holdfast:v3")
			w.createPod(1, agentNow, "revision-0")
			w.createPod(2, agentNow, "revision-0")
			w.createPod(0, "holdfast:v3", "revision-1")
		}, "holdfast:v3"},
		{"no member is declared", func(w *agentWorld) { w.want.Count = 0 }, agentBefore},
		{"it was, and that pod is lost", func(w *agentWorld) {
			w.c.Status.Agent.Image = "holdfast:v3"
			w.declareAgent("holdfast:v3")
			w.createPod(1, agentNow, "revision-0")
			w.createPod(2, agentNow, "revision-0")
			delete(w.o.Pods, 0)
		}, "holdfast:v3"},
		{"a request is recorded, and the cluster is suspended", func(w *agentWorld) { w.requestUpdate("one"); w.recordUpdate("one", ""); w.c.Spec.Suspend = true }, agentBefore},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newAgentWorld()
			tc.change(w)
			if _, got := w.view(); got != tc.want {
				t.Errorf("new pods have the agent of %s, want %s", got, tc.want)
			}
		})
	}
}

// waiting is the status of a container that does not start.
func waiting(container, reason string) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
}

// A pod whose database does not start is replaced once new pods have the operator's agent. One
// whose database serves stays, whatever the containers do that admission added.
func TestPodThatDoesNotStartGetsAnotherAgent(t *testing.T) {
	for container, want := range map[string]string{"db": "the pod does not start, and its agent is older than the operator", "mesh": ""} {
		for _, reason := range []string{"CrashLoopBackOff", "ImagePullBackOff", "CreateContainerError"} {
			w := newAgentWorld()
			w.o.Pods[1].Status.ContainerStatuses = waiting(container, reason)
			w.o.StatefulSet.Status.UpdateRevision = "revision-2"
			if view, _ := w.view(); view.FindOutdated(1) != "" {
				t.Errorf("%s of %s: replaced before the template has the agent: %s", reason, container, view.FindOutdated(1))
			}
			w.declareAgent(agentNow)
			view, _ := w.view()
			if got := view.FindOutdated(1); got != want {
				t.Errorf("%s of %s: replaced because %q, want %q", reason, container, got, want)
			}
		}
	}
}

// An agent that does not know user-provided certificates is replaced once the template declares
// the operator's: a new pod would have the same before.
func TestAgentThatIsTooOldIsReplacedOnceNewPodsHaveAnother(t *testing.T) {
	w := newAgentWorld()
	w.o.Minted.User = UserCertificates{CA: &UserSecret{}}
	w.o.StatefulSet.Status.UpdateRevision = "revision-2"
	if view, image := w.view(); view.FindOutdated(1) != "" || image != agentNow {
		t.Errorf("replaced because %q, declared is %s", view.FindOutdated(1), image)
	}
	w.declareAgent(agentNow)
	if view, _ := w.view(); view.FindOutdated(1) == "" {
		t.Error("it is not replaced")
	}
}

// The operator's upgrade alone makes no pod outdated, and status says who is behind.
func TestStatusSaysWhichAgentsAreBehind(t *testing.T) {
	w := newAgentWorld()
	w.createPod(1, agentNow, "revision-1")
	view, _ := w.view()
	for n := range 3 {
		if why := view.FindOutdated(n); why != "" {
			t.Errorf("member %d is replaced: %s", n, why)
		}
	}
	want := &v1alpha1.AgentStatus{Image: agentBefore, Available: agentNow, Outdated: []string{"orders-0", "orders-2"}}
	if diff := cmp.Diff(want, view.Report().Agent); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w.o.Settings.AgentImage = agentBefore // back to the release before
	w.createPod(1, agentBefore, "revision-1")
	view, _ = w.view()
	if diff := cmp.Diff(&v1alpha1.AgentStatus{Image: agentBefore}, view.Report().Agent); diff != "" {
		t.Errorf("after going back (-want +got):\n%s", diff)
	}
}

// A request is recorded first, replaces pods once the template declares the operator's
// agent, and ends when each pod has it, whatever admission makes of the image.
func TestRequestReplacesAgents(t *testing.T) {
	w := newAgentWorld()
	w.requestUpdate("one")
	w.createPod(1, agentBefore, "revision-0") // of another template, with the same agent
	recorded := func() v1alpha1.RequestStatus {
		t.Helper()
		view, _ := w.view()
		all := view.AddAgentRequest(nil)
		if len(all) != 1 {
			t.Fatalf("recorded: %v", all)
		}
		w.c.Status.Requests = all
		return all[0]
	}
	outdated := func() (list []int) {
		view, _ := w.view()
		for n := range 3 {
			if view.FindOutdated(n) != "" {
				list = append(list, n)
			}
		}
		return list
	}
	if got := recorded(); got != (v1alpha1.RequestStatus{Type: "update-agents", ID: "one"}) {
		t.Errorf("taken up: %+v", got)
	}
	if got := outdated(); got != nil {
		t.Errorf("replaced before the template has the agent: %v", got)
	}
	w.declareAgent(agentNow)
	w.o.StatefulSet.Status.UpdateRevision = "revision-2"
	if diff := cmp.Diff([]int{0, 1, 2}, outdated()); diff != "" {
		t.Errorf("replaced (-want +got):\n%s", diff)
	}
	w.createPod(2, agentNow, "revision-2")
	w.createPod(1, "mirror/"+agentNow, "revision-2") // by an admission policy
	if diff := cmp.Diff([]int{0}, outdated()); diff != "" {
		t.Errorf("replaced of the last (-want +got):\n%s", diff)
	}
	delete(w.o.Pods, 0)
	if got := recorded(); got.Result != "" {
		t.Errorf("ended while a pod is away: %+v", got)
	}
	w.createPod(0, agentNow, "revision-2").Status.Conditions[0].Status = corev1.ConditionFalse
	if got := recorded(); !strings.HasPrefix(got.Result, "done") {
		t.Errorf("every pod has the agent: %+v", got)
	}
	w.o.Settings.AgentImage = "holdfast:v3"
	if got := recorded(); !strings.HasPrefix(got.Result, "done") {
		t.Errorf("carried out again after the next upgrade: %+v", got)
	}
}

// Where admission rewrites the image in the StatefulSet itself, no pod and no template has the
// operator's: a request replaces each pod once, and ends.
func TestRequestEndsWhereAdmissionRewritesTheTemplate(t *testing.T) {
	w := newAgentWorld()
	w.recordUpdate("one", "")
	w.requestUpdate("one")
	w.declareAgent("mirror/" + agentBefore)
	for n := range 3 {
		w.createPod(n, "mirror/"+agentBefore, "revision-1")
	}
	view, image := w.view()
	if image != agentNow || view.FindOutdated(1) != "" {
		t.Fatalf("before the template has the agent: declared %s, replaced because %q", image, view.FindOutdated(1))
	}
	if got := view.reportAgent().Outdated; len(got) != 3 {
		t.Errorf("behind are %v", got)
	}
	w.c.Status.Agent = view.reportAgent()
	w.declareAgent("mirror/" + agentNow)
	w.applyAgent(agentNow)
	w.o.StatefulSet.Status.UpdateRevision = "revision-2"
	for n := range 3 {
		view, _ = w.view()
		if view.FindOutdated(n) == "" {
			t.Errorf("member %d keeps its agent", n)
		}
		w.createPod(n, "mirror/"+agentNow, "revision-2")
		view, _ = w.view()
		if why := view.FindOutdated(n); why != "" {
			t.Errorf("member %d is replaced again: %s", n, why)
		}
	}
	r := view.planAgentUpdate()
	if !strings.HasPrefix(r.Result, "done") {
		t.Errorf("the request: %+v", r)
	}
	w.recordUpdate("one", r.Result)
	if diff := cmp.Diff(&v1alpha1.AgentStatus{Image: agentNow}, view.reportAgent()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	w.o.Settings.AgentImage = "holdfast:v3"
	if view, image = w.view(); image != agentNow || len(view.reportAgent().Outdated) != 3 {
		t.Errorf("after the next upgrade: declared %s, behind %v", image, view.reportAgent().Outdated)
	}
	w.o.Settings.AgentImage = agentNow               // and back
	w.createPod(1, "mirror/"+agentNow, "revision-1") // another part of its template was changed
	w.recordUpdate("one", "")
	if view, image = w.view(); image != agentNow || view.reportAgent().Outdated != nil || view.FindOutdated(1) != "" {
		t.Errorf("after going back: declared %s, behind %v, replaced because %q", image, view.reportAgent().Outdated, view.FindOutdated(1))
	}
	w.c.Status.Agent, w.c.Status.Requests, w.o.Settings.AgentImage = nil, nil, "holdfast:v3"
	if _, image = w.view(); image != agentNow {
		t.Errorf("without a record the agent of %s is declared", image)
	}
}

// holdAgent has a field manager of the StatefulSet hold the image of its agents.
func (w *agentWorld) holdAgent(manager string, operation metav1.ManagedFieldsOperationType, since time.Time) {
	held := &metav1.FieldsV1{}
	held.SetRawBytes([]byte(`{"f:spec":{"f:template":{"f:spec":{"f:initContainers":{"k:{\"name\":\"` + objects.InstallerName + `\"}":{".":{},"f:image":{}}}}}}}`))
	w.o.StatefulSet.Name = w.c.Name
	w.o.StatefulSet.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: manager, Operation: operation, APIVersion: "apps/v1", FieldsType: "FieldsV1", FieldsV1: held, Time: new(metav1.NewTime(since))},
	}
}

// Another client sets the image back each time that it was applied, so pods that are new have the
// agent from before: the request is never done, replaces nothing meanwhile, and is stopped once
// the other client has held the image for long. What was changed once is put back, and
// does not stop it. Nor is one called needless then.
func TestRequestIsNotDoneWhileAnotherClientSetsTheImageBack(t *testing.T) {
	at := time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC) // the time of the pass
	const stopped = `stopped: the field manager "rollbacker" sets spec.template.spec.initContainers[name="install"].image of StatefulSet orders to holdfast:v1, ` +
		"and new pods get the agent of that image: have that client leave the field alone, then request the update with another ID"
	for _, tc := range []struct {
		name   string
		change func(w *agentWorld)
		result string
		again  time.Duration // when it is looked at again for the request
	}{
		{"a moment ago", func(w *agentWorld) {
			w.holdAgent("rollbacker", metav1.ManagedFieldsOperationUpdate, at.Add(-90*time.Second))
		}, "", 30 * time.Second},
		{"for long", func(w *agentWorld) {
			w.holdAgent("rollbacker", metav1.ManagedFieldsOperationUpdate, at.Add(-3*time.Minute))
		}, stopped, 0},
		{"for long, by server-side apply", func(w *agentWorld) {
			w.holdAgent("rollbacker", metav1.ManagedFieldsOperationApply, at.Add(-3*time.Minute))
		}, stopped, 0},
		{"for long, and took the record of what was applied along", func(w *agentWorld) {
			w.holdAgent("rollbacker", metav1.ManagedFieldsOperationUpdate, at.Add(-3*time.Minute))
			w.applyAgent(agentBefore)
		}, stopped, 0},
		{"for long, and pods have the operator's agents", func(w *agentWorld) {
			w.holdAgent("rollbacker", metav1.ManagedFieldsOperationUpdate, at.Add(-3*time.Minute))
			for n := range 3 {
				w.createPod(n, agentNow, "revision-2")
			}
		}, stopped, 0},
		{"for long, and the cluster is suspended", func(w *agentWorld) {
			w.holdAgent("rollbacker", metav1.ManagedFieldsOperationUpdate, at.Add(-3*time.Minute))
			w.c.Spec.Suspend = true
		}, "", 0},
		{"for long, and the operator has just started", func(w *agentWorld) {
			w.holdAgent("rollbacker", metav1.ManagedFieldsOperationUpdate, at.Add(-3*time.Minute))
			w.o.Asking, w.o.Members = true, map[string]agentclient.Observation{}
		}, "", 0},
		{"not at all: admission did", func(w *agentWorld) {
			w.holdAgent(v1alpha1.FieldManager, metav1.ManagedFieldsOperationApply, at.Add(-3*time.Minute))
		},
			"done: every member has the agent of holdfast:v2", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newAgentWorld()
			w.runUpdate("revision-2")
			w.applyAgent(agentNow)
			for n := range 3 {
				w.createPod(n, agentBefore, "revision-2")
			}
			tc.change(w)
			view, _ := w.view()
			if got := view.planAgentUpdate(); got.Result != tc.result {
				t.Errorf("the request: %q, want %q", got.Result, tc.result)
			}
			if got := view.agentHoldLeft(); got != tc.again {
				t.Errorf("looked at again after %s, want %s", got, tc.again)
			}
			for n := range 3 {
				if why := view.FindOutdated(n); why != "" {
					t.Errorf("member %d is replaced: %s", n, why)
				}
			}
		})
	}
	w := newAgentWorld()
	w.requestUpdate("one")
	w.applyAgent(agentNow)
	w.holdAgent("rollbacker", metav1.ManagedFieldsOperationUpdate, at.Add(-3*time.Minute))
	for n := range 3 {
		w.createPod(n, agentNow, "revision-2")
	}
	view, _ := w.view()
	if r := view.planAgentUpdate(); r == nil || r.Result != "" {
		t.Errorf("taken up: %+v", r)
	}
}

// What status says was not applied yet, or its apply failed, or the StatefulSet was read before
// it: no pod is replaced for the same agent, and the request goes on.
func TestRequestDoesNotEndBeforeTheTemplateHasTheAgent(t *testing.T) {
	for _, revision := range []string{"revision-1", "revision-0"} { // that of the StatefulSet, and an earlier one
		w := newAgentWorld()
		w.requestUpdate("one")
		w.recordUpdate("one", "")
		w.c.Status.Agent.Image = agentNow
		w.applyAgent(agentBefore)
		for n := range 3 {
			w.createPod(n, agentBefore, revision)
		}
		view, image := w.view()
		if r := view.planAgentUpdate(); r.Result != "" || image != agentNow || len(view.reportAgent().Outdated) != 3 {
			t.Errorf("%s: the request: %+v, declared %s, behind %v", revision, r, image, view.reportAgent().Outdated)
		}
		if why := view.FindOutdated(1); why != "" {
			t.Errorf("%s: replaced: %s", revision, why)
		}
	}
}

// A member that cannot serve with its agent is replaced by itself once the template declares the
// operator's, also while it says that it is at work.
func TestUnfitAgentIsReplaced(t *testing.T) {
	w := newAgentWorld()
	w.unfit = map[int]string{1: "it is old"}
	m := w.o.Members["orders-1"].Status
	m.Serving, m.State = false, agentapi.StateRecovering
	step := func() string {
		view, _ := w.view()
		for n := range 3 {
			view.Standings[n] = Standing{}
		}
		if s := view.ReplaceStep(0); s != nil {
			return s.Target + ": " + s.Message
		}
		return ""
	}
	if got := step(); got != "" {
		t.Errorf("replaced before the template has the agent: %s", got)
	}
	w.declareAgent(agentNow)
	w.o.StatefulSet.Status.UpdateRevision = "revision-2"
	if got := step(); got != "orders-1: it is old" {
		t.Errorf("replaced: %q", got)
	}
	w.createPod(1, agentNow, "revision-2")
	if got := step(); got != "" {
		t.Errorf("replaced again: %s", got)
	}
}

// A request whose annotation is removed while it runs ends, and the members that are left keep
// their agents, also at the next upgrade. It can be made again with another ID.
func TestRequestToUpdateAgentsIsWithdrawn(t *testing.T) {
	w := newAgentWorld()
	w.runUpdate("revision-2")
	w.declareAgent(agentNow)
	w.createPod(2, agentNow, "revision-2")
	if view, _ := w.view(); view.FindOutdated(0) == "" {
		t.Fatal("the request replaces nothing")
	}
	w.c.Annotations = nil
	view, _ := w.view()
	if why := view.FindOutdated(0); why != "" {
		t.Errorf("replaced after the request was withdrawn: %s", why)
	}
	r := view.planAgentUpdate()
	if r.ID != "one" || !strings.HasPrefix(r.Result, "withdrawn") {
		t.Errorf("the request: %+v", r)
	}
	w.recordUpdate("one", r.Result)
	w.o.Settings.AgentImage = "holdfast:v3"
	if _, image := w.view(); image != agentNow {
		t.Errorf("after the next upgrade new pods have the agent of %s", image)
	}
	w.requestUpdate("two")
	view, _ = w.view()
	if r := view.planAgentUpdate(); r.ID != "two" || r.Result != "" {
		t.Errorf("the next request: %+v", r)
	}
}

// A pod whose template declares the operator's agent has it, whatever admission made of the image,
// also after another part of the template was changed.
func TestAgentIsComparedWithThePodsOwnTemplate(t *testing.T) {
	w := newAgentWorld()
	w.runUpdate("revision-3")
	w.declareAgent(agentNow)
	w.createPod(1, "mirror/"+agentNow, "revision-2")
	w.createPod(2, "mirror/"+agentNow, "revision-2")
	w.o.Altered = map[string]PodComparison{"orders-1": {Made: true, Agent: agentNow}, "orders-2": {Agent: agentNow}} // of orders-2 the template is not known
	view, _ := w.view()
	if diff := cmp.Diff([]string{"orders-0", "orders-2"}, view.listOutdatedAgents()); diff != "" {
		t.Errorf("behind (-want +got):\n%s", diff)
	}
	if why := view.FindOutdated(1); why != "" {
		t.Errorf("orders-1 is replaced: %s", why)
	}
}

// The image that a pod's template declares is read with the template.
func TestAskedAgentIsReadFromTheRevision(t *testing.T) {
	w := newAgentWorld()
	set := w.o.StatefulSet
	set.Namespace, set.Name, set.UID = w.c.Namespace, w.c.Name, "set"
	pod := w.createPod(0, "mirror/"+agentBefore, "revision-1")
	pod.Namespace = w.c.Namespace
	template, err := json.Marshal(map[string]any{"spec": map[string]any{"template": set.Spec.Template}})
	if err != nil {
		t.Fatal(err)
	}
	revision := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: w.c.Namespace, Name: "revision-1"}, Data: runtime.RawExtension{Raw: template}}
	if err := controllerutil.SetControllerReference(set, revision, scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	k := &MemberEngine{Writer: fake.NewClientBuilder().WithObjects(pod, revision).Build()}
	w.declareAgent(agentNow)
	got, err := k.comparePod(t.Context(), set, pod)
	if err != nil || !got.Made || got.Agent != agentBefore {
		t.Errorf("%+v, %v", got, err)
	}
}

// Before Kubernetes has made a revision of a template, no pod is known to be of it: none is
// replaced for its agent, and neither status nor a request changes.
func TestAgentsAreNotJudgedByATemplateThatIsNotObserved(t *testing.T) {
	w := newAgentWorld()
	w.recordUpdate("one", "")
	w.requestUpdate("two")
	w.c.Status.Agent = &v1alpha1.AgentStatus{Image: agentNow, Available: agentNow, Outdated: []string{"orders-0"}}
	w.declareAgent(agentNow)
	w.o.StatefulSet.Status.UpdateRevision = "revision-2"
	w.createPod(1, "mirror/"+agentNow, "revision-2")
	w.createPod(2, "mirror/"+agentNow, "revision-2")
	for _, observed := range []bool{true, false} {
		w.o.StatefulSet.Generation = w.o.StatefulSet.Status.ObservedGeneration
		if !observed {
			w.o.StatefulSet.Generation++
		}
		view, _ := w.view()
		for n := range 3 {
			if why := view.FindOutdated(n); (why != "") != (observed && n == 0) {
				t.Errorf("observed %t: member %d is replaced because %q", observed, n, why)
			}
		}
		if diff := cmp.Diff(w.c.Status.Agent, view.reportAgent()); diff != "" {
			t.Errorf("observed %t: status (-want +got):\n%s", observed, diff)
		}
		if r := view.planAgentUpdate(); r == nil || r.ID != "one" || r.Result != "" {
			t.Errorf("observed %t: the request: %+v", observed, r)
		}
	}
}

// Nor is a request called needless then.
func TestRequestWaitsForATemplateThatIsObserved(t *testing.T) {
	w := newAgentWorld()
	w.requestUpdate("one")
	w.c.Status.Agent.Outdated = nil
	w.o.StatefulSet.Generation = w.o.StatefulSet.Status.ObservedGeneration + 1
	view, _ := w.view()
	if r := view.planAgentUpdate(); r != nil {
		t.Errorf("recorded: %+v", r)
	}
	w.o.StatefulSet.Generation = w.o.StatefulSet.Status.ObservedGeneration
	view, _ = w.view()
	if r := view.planAgentUpdate(); r == nil || r.Result != "" {
		t.Errorf("the template is observed: %+v", r)
	}
}

// What keeps a request from being taken up, or makes it needless.
func TestRequestToUpdateAgentsIsTakenUpOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(w *agentWorld)
		want   string // the result; - for no record
	}{
		{"nothing is behind", func(w *agentWorld) { w.o.Settings.AgentImage = agentBefore }, "not needed"},
		{"created with it", func(w *agentWorld) { w.c.Status.SystemIdentifier = "" }, "not carried out"},
		{"suspended", func(w *agentWorld) { w.c.Spec.Suspend = true }, "-"},
		{"a pod is away", func(w *agentWorld) { delete(w.o.Pods, 1) }, "-"},
		{"no request", func(w *agentWorld) { w.c.Annotations = nil }, "-"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newAgentWorld()
			w.requestUpdate("one")
			tc.change(w)
			view, _ := w.view()
			got := "-"
			if all := view.AddAgentRequest([]v1alpha1.RequestStatus{{Type: "switchover"}}); len(all) > 1 {
				got = all[1].Result
			}
			if !strings.HasPrefix(got, tc.want) || (got == "-") != (tc.want == "-") {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
