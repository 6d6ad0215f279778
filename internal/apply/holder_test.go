package apply

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// The holder of an image is the manager that set it last, and none while Holdfast's own entry has it.
func TestFindInitImageHolder(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const image = `{"f:spec":{"f:template":{"f:spec":{"f:initContainers":{"k:{\"name\":\"install\"}":{"f:image":{}}}}}}}`
	const other = `{"f:spec":{"f:template":{"f:spec":{"f:initContainers":{"k:{\"name\":\"install\"}":{"f:args":{}},"k:{\"name\":\"mesh\"}":{"f:image":{}}}}}}}`
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string, minutes time.Duration) metav1.ManagedFieldsEntry {
		f := &metav1.FieldsV1{}
		f.SetRawBytes([]byte(fields))
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: f, Time: new(metav1.NewTime(at.Add(minutes * time.Minute)))}
	}
	for _, tc := range []struct {
		name    string
		managed []metav1.ManagedFieldsEntry
		manager string
		since   time.Time
	}{
		{"no fields", nil, "", time.Time{}},
		{"ours", []metav1.ManagedFieldsEntry{entry(v1alpha1.FieldManager, metav1.ManagedFieldsOperationApply, image, 0)}, "", time.Time{}},
		{"ours, and shared", []metav1.ManagedFieldsEntry{
			entry("kustomize-controller", metav1.ManagedFieldsOperationApply, image, 1), entry(v1alpha1.FieldManager, metav1.ManagedFieldsOperationApply, image, 0),
		}, "", time.Time{}},
		{"another's other fields", []metav1.ManagedFieldsEntry{entry("mesh", metav1.ManagedFieldsOperationUpdate, other, 0)}, "", time.Time{}},
		{"another's", []metav1.ManagedFieldsEntry{
			entry(v1alpha1.FieldManager, metav1.ManagedFieldsOperationApply, other, 0), entry("kubectl-edit", metav1.ManagedFieldsOperationUpdate, image, 1),
		}, "kubectl-edit", at.Add(time.Minute)},
		{"several others'", []metav1.ManagedFieldsEntry{
			entry("helm", metav1.ManagedFieldsOperationApply, image, 2), entry("kubectl-edit", metav1.ManagedFieldsOperationUpdate, image, 1),
		}, "helm", at.Add(2 * time.Minute)},
	} {
		manager, since, err := FindInitImageHolder(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.managed}}, "install")
		if err != nil || manager != tc.manager || !since.Equal(tc.since) {
			t.Errorf("%s: %q since %s, %v", tc.name, manager, since, err)
		}
	}
}
