package controller

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// An order is an annotation, which changes no generation; what others note
// down wakes no reconciler.
func TestOrdersWakeTheLoop(t *testing.T) {
	object := func(annotations map[string]string) *v1alpha1.EtcdCluster {
		c := &v1alpha1.EtcdCluster{}
		c.Annotations = annotations
		return c
	}
	for _, tc := range []struct {
		name     string
		old, now map[string]string
		wakes    bool
	}{
		{"an order", nil, map[string]string{v1alpha1.AnnotationRecoverQuorum: "first"}, true},
		{"another token", map[string]string{v1alpha1.AnnotationRecoverQuorum: "first"}, map[string]string{v1alpha1.AnnotationRecoverQuorum: "second"}, true},
		{"an order that goes", map[string]string{v1alpha1.AnnotationRecoverQuorum: "first"}, nil, true},
		{"an order that stays", map[string]string{v1alpha1.AnnotationRecoverQuorum: "first"}, map[string]string{v1alpha1.AnnotationRecoverQuorum: "first"}, false},
		{"a note of somebody else", nil, map[string]string{"example.com/note": "x"}, false},
	} {
		if got := requestPredicate().Update(event.UpdateEvent{ObjectOld: object(tc.old), ObjectNew: object(tc.now)}); got != tc.wakes {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
