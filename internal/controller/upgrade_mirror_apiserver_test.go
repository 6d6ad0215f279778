//go:build apiserver

package controller_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A policy names a mirror in the StatefulSet itself, so no template has the image that was
// applied: the operator is upgraded and taken back, and no pod is replaced. A request replaces
// each pod once, and ends.
func TestUpgradeOfTheOperatorBehindAMirror(t *testing.T) {
	eachKind(t, upgradeOfTheOperatorBehindAMirror)
}

func upgradeOfTheOperatorBehindAMirror(t *testing.T, w *world) {
	const before, next, mirror = agentImage, "holdfast:next", "mirror.example/"
	labels := map[string]string{"a": "b"}
	probe := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe", Labels: labels}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: w.probePod().Spec}}}
	const installer = "object.spec.template.spec.initContainers[0].image"
	w.admit(policy{group: "apps", resource: "statefulsets", operations: []admissionv1.OperationType{"CREATE", "UPDATE"}, patches: []string{addLabel,
		`JSONPatch{op: "replace", path: "/spec/template/spec/initContainers/0/image", value: ` + installer + `.startsWith("` + mirror + `") ? ` + installer + ` : "` + mirror + `" + ` + installer + `}`,
	}}, probe)
	c := w.cluster("orders", w.kind.several)
	w.create(c)
	o := w.operate(0)
	w.awaitReady(c)
	awaitAgents := func(want v1alpha1.AgentStatus) {
		t.Helper()
		await(w, c, "the agents in status", func(c v1alpha1.Cluster) bool {
			return c.CommonStatus().Agent != nil && cmp.Equal(want, *c.CommonStatus().Agent)
		})
	}
	awaitAgents(v1alpha1.AgentStatus{Image: before})
	pods, members := w.podUIDs(c), podNames(c, w.kind.several)
	revision := w.declaredAgent(c, mirror+before)
	for _, image := range []string{next, before, next} {
		o.stop()
		w.agent = image
		o = w.operate(0)
		if image == before {
			awaitAgents(v1alpha1.AgentStatus{Image: before})
		} else {
			awaitAgents(v1alpha1.AgentStatus{Image: before, Available: next, Outdated: members})
		}
		if now := w.declaredAgent(c, mirror+before); now != revision {
			t.Errorf("operator %s: the template changed: revision %s, before %s", image, now, revision)
		}
		if diff := cmp.Diff(pods, w.podUIDs(c)); diff != "" {
			t.Errorf("operator %s: pods were replaced (-before +now):\n%s", image, diff)
		}
	}
	edit(w, c, func(c v1alpha1.Cluster) { c.SetAnnotations(map[string]string{v1alpha1.AnnotationUpdateAgents: "now"}) })
	await(w, c, "the request is done", func(c v1alpha1.Cluster) bool {
		return slices.ContainsFunc(c.CommonStatus().Requests, func(r v1alpha1.RequestStatus) bool {
			return r.Type == "update-agents" && r.ID == "now" && strings.HasPrefix(r.Result, "done")
		})
	})
	w.awaitReady(c)
	awaitAgents(v1alpha1.AgentStatus{Image: next})
	if images := w.agentImages(c); !slices.Equal(images, []string{mirror + next}) {
		t.Errorf("after the request the agents are of %v", images)
	}
	updated := w.podUIDs(c)
	for name, uid := range updated {
		if pods[name] == uid {
			t.Errorf("pod %s was not replaced", name)
		}
	}
	w.declaredAgent(c, mirror+next)
}
