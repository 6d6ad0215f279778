//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// admissionLeft: what admission policies and a LimitRange make of pods and owned
// objects is reported and left. No pod is replaced for it, and at rest nothing
// is written. Policies that come later change nothing before a pod is made anew;
// nor do policies that go.
func admissionLeft(t *testing.T, k *kind) {
	needKind(t, k)
	begin := time.Now()
	mirrorImages(t, k)
	later := createSubject(t, k, newNamespace(t, "later"), orders, 1)
	namespace := newNamespace(t, "")
	lift := installRules(t, k, namespace)
	alone := createSubject(t, k, namespace, "alone", 1)
	several := createSubject(t, k, namespace, orders, 3, fmt.Sprintf("resources: {requests: {memory: 128Mi}, limits: {memory: %s}}", k.memory))
	all := []*subject{later, alone, several}
	for _, c := range all {
		c.waitReady()
	}
	t.Run("changed", func(t *testing.T) { admissionReported(t, alone.withTest(t), several.withTest(t)) })
	newDocsShell(t, namespace).runStep(t, "Admission", "message", "pg orders", k.resource()+" orders")
	several.kind.keepValue(several, "42")

	// The policies come to a cluster that runs.
	untouched := later.storedObjects()
	liftLater := installRules(t, k, later.namespace)
	members := fmt.Sprint(later.allIncarnations(), alone.allIncarnations(), several.allIncarnations())
	for _, c := range all {
		c.awaitHandled()
	}
	t.Run("at-rest", func(t *testing.T) { admissionAtRest(t, begin, all) })
	if now := fmt.Sprint(later.allIncarnations(), alone.allIncarnations(), several.allIncarnations()); now != members {
		t.Errorf("members were touched: %s\nbefore\n%s", now, members)
	}
	if now := later.storedObjects(); now != untouched {
		t.Errorf("policies changed what was there before them: %s\nbefore\n%s", now, untouched)
	}
	if said := syncedMessage(later); !strings.HasSuffix(said, ": every owned object is as declared") {
		t.Error(said)
	}
	t.Run("made-anew", func(t *testing.T) { admissionOfNewPod(t, later.withTest(t)) })

	lift(t)
	liftLater(t)
	t.Run("lifted", func(t *testing.T) { admissionLifted(t, several.withTest(t)) })
	if got := several.kind.keptValue(several); got != "42" {
		t.Errorf("kept %q", got)
	}
}

// admissionReported: the pods are as the policies want them, and Synced says it.
func admissionReported(t *testing.T, alone, several *subject) {
	for _, c := range []*subject{alone, several} {
		for _, pod := range c.listPods() {
			if err := changedByPolicies(c.kind, &pod, c == several); err != nil {
				t.Errorf("%s: %v", pod.Name, err)
			}
		}
		database := fmt.Sprintf(".spec.containers[name=%q]", c.kind.engine)
		words := []string{
			`Pod/` + c.podName(0), `.metadata.annotations["` + meshStatus + `"] (added)`, `.metadata.labels.` + admitted + ` (added)`,
			`.spec.containers[name="mesh"] (added)`, database + `.env[name="PROXY"] (added)`, database + `.resources`, `.spec.tolerations (added)`,
			`StatefulSet/` + c.name + ` `, `.spec.template.spec.containers[name="logs"] (added)`,
			`Service/` + c.name + c.kind.entry, `Service/` + c.name + c.kind.aside,
		}
		if c == several {
			words = append(words, database+".image (changed to "+mirror, `.spec.initContainers[name="install"].image (changed)`, `Pod/`+c.podName(2))
		}
		c.waitCondition(revertTimeout, v1alpha1.ConditionSynced, metav1.ConditionTrue, v1alpha1.ReasonSynced, words...)
		t.Log(syncedMessage(c))
	}
}

// syncedMessage is what the condition says.
func syncedMessage(c *subject) string {
	c.t.Helper()
	for _, condition := range c.getCluster().GetConditions() {
		if condition.Type == v1alpha1.ConditionSynced {
			return fmt.Sprintf("%s: Synced=%s/%s: %s", c.name, condition.Status, condition.Reason, condition.Message)
		}
	}
	return c.name + ": there is no condition Synced"
}

// changedByPolicies says what of the policies a member's pod does not have.
func changedByPolicies(k *kind, pod *corev1.Pod, mirrored bool) error {
	database := pod.Spec.Containers[0]
	var names []string
	for _, ctr := range pod.Spec.Containers {
		names = append(names, ctr.Name)
	}
	tolerated := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "databases" })
	proxied := slices.ContainsFunc(database.Env, func(e corev1.EnvVar) bool { return e.Name == "PROXY" })
	switch {
	case !slices.Contains(names, "mesh") || !slices.Contains(names, "logs"):
		return fmt.Errorf("containers %v", names)
	case !tolerated || !proxied:
		return fmt.Errorf("tolerated %v, proxied %v", tolerated, proxied)
	case database.Resources.Limits.Memory().String() != k.raisedMemory():
		return fmt.Errorf("limits %v", database.Resources.Limits)
	case strings.HasPrefix(database.Image, mirror) != mirrored || strings.HasPrefix(pod.Spec.InitContainers[0].Image, mirror) != mirrored:
		return fmt.Errorf("images %s and %s", database.Image, pod.Spec.InitContainers[0].Image)
	case pod.Labels[admitted] != "yes" || pod.Annotations[meshStatus] != "injected":
		return fmt.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	return nil
}

// storedObjects are the StatefulSet and the Services, as they are stored.
func (c *subject) storedObjects() string {
	c.t.Helper()
	var set appsv1.StatefulSet
	c.readObject(&set, c.name)
	var services corev1.ServiceList
	err := env.client.List(c.t.Context(), &services, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelCluster: c.name})
	must(c.t, err, "list the Services")
	text := fmt.Sprintf("StatefulSet %s of generation %d, labels %v\n", set.UID, set.Generation, set.Labels)
	for _, s := range services.Items {
		text += fmt.Sprintf("Service %s at %s, labels %v\n", s.Name, s.ResourceVersion, s.Labels)
	}
	return text
}

// admissionAtRest: the operator asks the API server for nothing. Beside other
// tests a replica may fall behind for a moment, which is reported: of a cluster
// with replicas, status and events are not counted; of one without, they are.
func admissionAtRest(t *testing.T, begin time.Time, all []*subject) {
	asked := func(from time.Time) []auditRow {
		return slices.DeleteFunc(auditRequests(t, from, installed.accounts(), true), func(r auditRow) bool {
			return r.Verb == "watch" || !slices.ContainsFunc(all, func(c *subject) bool { return c.namespace == r.Namespace })
		})
	}
	time.Sleep(settlePeriod)
	var marks []int
	for _, c := range all {
		marks = append(marks, c.markPlace())
	}
	from := time.Now()
	time.Sleep(quietMinute)
	mayLag := func(c *subject) bool { return c.getCluster().Common().DesiredReplicas() > 1 }
	noise := slices.DeleteFunc(asked(from), func(r auditRow) bool {
		report := strings.HasSuffix(r.Resource, "/status") || strings.HasPrefix(r.Resource, "events.")
		return report && slices.ContainsFunc(all, func(c *subject) bool {
			return c.namespace == r.Namespace && (r.Name == c.name || strings.HasPrefix(r.Name, c.name+".")) && mayLag(c)
		})
	})
	if len(noise) > 0 {
		t.Errorf("in %s with nothing to do the operator asked:\n%s", quietMinute, formatTable(noise))
	}
	for i, c := range all {
		if changes := len(c.sinceMark(marks[i])); changes > 0 && !mayLag(c) {
			t.Errorf("%s/%s changed %d times with nothing to do", c.namespace, c.name, changes)
		}
	}
	if !slices.ContainsFunc(asked(begin), auditRow.isWrite) {
		t.Error("the audit log shows none of the writes that made the clusters: it proves nothing")
	}
}

// admissionOfNewPod: a pod that is made anew is as the policies want it, once.
func admissionOfNewPod(t *testing.T, c *subject) {
	var pod corev1.Pod
	c.readObject(&pod, c.podName(0))
	must(t, env.client.Delete(t.Context(), &pod), "delete the pod")
	c.waitFor(readyTimeout, "another pod serves", func(obj v1alpha1.Cluster) error {
		pods := c.listPods()
		if len(pods) != 1 || pods[0].UID == pod.UID || !podReady(&pods[0]) {
			return fmt.Errorf("%d pods", len(pods))
		}
		return rolledOut(obj)
	})
	member := c.podIncarnation(0)
	c.waitCondition(revertTimeout, v1alpha1.ConditionSynced, metav1.ConditionTrue, v1alpha1.ReasonSynced, "Pod/"+c.podName(0),
		fmt.Sprintf(".spec.containers[name=%q].image (changed to %s", c.kind.engine, mirror), `.spec.containers[name="mesh"] (added)`, ".spec.tolerations (added)")
	t.Log(syncedMessage(c))
	c.awaitHandled()
	time.Sleep(settlePeriod)
	if now := c.podIncarnation(0); now != member {
		t.Errorf("the member was touched: %s, before %s", now, member)
	}
}

// admissionLifted: without the policies no pod is replaced either; one that is
// made anew is without them, and Synced names the others alone.
func admissionLifted(t *testing.T, c *subject) {
	others := fmt.Sprint(c.podIncarnation(0), c.podIncarnation(1))
	var pod corev1.Pod
	c.readObject(&pod, c.podName(2))
	must(t, env.client.Delete(t.Context(), &pod), "delete the pod")
	c.waitFor(readyTimeout, "another pod serves", func(obj v1alpha1.Cluster) error {
		pods := c.listPods()
		if len(pods) != 3 || pods[2].UID == pod.UID || !podReady(&pods[2]) {
			return fmt.Errorf("%d pods", len(pods))
		}
		return rolledOut(obj)
	})
	c.awaitHandled()
	c.waitFor(revertTimeout, "Synced names the pods that the policies made", func(v1alpha1.Cluster) error {
		said := syncedMessage(c)
		if strings.Contains(said, "Pod/"+c.podName(2)) {
			return fmt.Errorf("it says %s", said)
		}
		return holdsAll(said, "Pod/"+c.podName(0), "Pod/"+c.podName(1), `.spec.containers[name="mesh"] (added)`)
	})
	t.Log(syncedMessage(c))
	time.Sleep(settlePeriod)
	if now := fmt.Sprint(c.podIncarnation(0), c.podIncarnation(1)); now != others {
		t.Errorf("members were touched: %s\nbefore\n%s", now, others)
	}
	c.waitReady()
}
