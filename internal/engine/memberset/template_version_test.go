package memberset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// An upgrade of the operator changes no template of pods. Each thing that does is one case,
// beside what resembles it.
func TestTemplateStaysUntilPodsAreReplaced(t *testing.T) {
	resources := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
	for _, tc := range []struct {
		name   string
		change func(w *agentWorld)
		want   bool
	}{
		{"the operator was upgraded", func(*agentWorld) {}, true},
		{"a pod was deleted", func(w *agentWorld) { delete(w.o.Pods, 1) }, true},
		{"every pod was deleted", func(w *agentWorld) { clear(w.o.Pods) }, true},
		{"a member joins", func(w *agentWorld) { w.want.Count = 4 }, true},
		{"admission gave pods resources", func(w *agentWorld) {
			for _, pod := range w.o.Pods {
				pod.Spec.InitContainers[0].Resources = resources
			}
		}, true},
		{"there is no StatefulSet yet", func(w *agentWorld) { w.o.StatefulSet = nil }, false},
		{"the spec asks for other pods", func(w *agentWorld) { w.c.Spec.Resources = resources }, false},
		{"the agents are updated by request", func(w *agentWorld) {
			w.requestUpdate("one")
			w.recordUpdate("one", "")
		}, false},
		{"it is of version 2", func(w *agentWorld) {
			w.o.StatefulSet.Annotations = map[string]string{v1alpha1.AnnotationTemplateVersion: "2"}
			w.o.StatefulSet.Spec.Template.Spec.InitContainers[0].Resources = resources
		}, false},
		{"another client removed the resources", func(w *agentWorld) {
			w.o.StatefulSet.Annotations = map[string]string{v1alpha1.AnnotationTemplateVersion: "2"}
		}, false},
		{"another client removed the version", func(w *agentWorld) {
			w.o.StatefulSet.Spec.Template.Spec.InitContainers[0].Resources = resources
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newAgentWorld()
			tc.change(w)
			view, _ := w.view()
			if view.Desired.EarlierTemplate != tc.want {
				t.Errorf("the earlier template is kept: %t, want %t", view.Desired.EarlierTemplate, tc.want)
			}
		})
	}
}
