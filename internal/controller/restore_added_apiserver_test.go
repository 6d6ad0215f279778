//go:build apiserver

package controller_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apitest"
)

// restorable are the kinds that begin with a backup, with the least that they declare.
var restorable = map[string]map[string]any{
	"PostgresCluster": {"version": "17", "storage": map[string]any{"size": "1Gi"}},
	"MySQLCluster":    {"version": "9.7", "storage": map[string]any{"size": "1Gi"}},
	"EtcdCluster":     {"version": "3.5.26", "storage": map[string]any{"size": "1Gi"}},
	"Database":        {"engine": "postgres", "version": "17", "storage": "1Gi"},
}

// No kind takes spec.restore later than with its creation, or another one while a restore is
// under way. It can be removed at any time, and is free once the restore is done.
func TestRestoreIsNeverAdded(t *testing.T) {
	for kind, spec := range restorable {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := &world{Cluster: apitest.New(t), t: t}
			w.person = w.As(t, "kubectl-edit")
			create := func(name string, restore map[string]any) *unstructured.Unstructured {
				t.Helper()
				obj := &unstructured.Unstructured{Object: map[string]any{"spec": (&unstructured.Unstructured{Object: spec}).DeepCopy().Object}}
				obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
				obj.SetNamespace(w.Namespace)
				obj.SetName(name)
				if restore != nil {
					obj.Object["spec"].(map[string]any)["restore"] = restore
				}
				w.create(obj)
				return obj
			}
			declare := func(obj *unstructured.Unstructured, restore any) error {
				t.Helper()
				w.get(obj)
				before := obj.DeepCopy()
				obj.Object["spec"].(map[string]any)["restore"] = restore
				return w.person.Patch(t.Context(), obj, client.MergeFrom(before))
			}
			report := func(obj *unstructured.Unstructured, status map[string]any) {
				t.Helper()
				w.get(obj)
				before := obj.DeepCopy()
				if err := unstructured.SetNestedField(obj.Object, status, "status", "restore"); err != nil {
					t.Fatal(err)
				}
				if err := w.person.Status().Patch(t.Context(), obj, client.MergeFrom(before)); err != nil {
					t.Fatal(err)
				}
			}
			refused := func(what string, err error) {
				t.Helper()
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.restore cannot be added") {
					t.Errorf("%s: %v", what, err)
				}
			}
			accepted := func(what string, err error) {
				t.Helper()
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			monday, tuesday := map[string]any{"backup": "monday"}, map[string]any{"backup": "tuesday"}

			began := create("began", nil)
			refused("a restore is added", declare(began, monday))

			restored := create("restored", monday)
			accepted("another backup before the restore begins", declare(restored, tuesday))
			report(restored, map[string]any{"backup": "tuesday"})
			refused("another backup while a restore is under way", declare(restored, monday))
			accepted("the removal while a restore is under way", declare(restored, nil))
			refused("a restore is added again while one is under way", declare(restored, monday))
			report(restored, map[string]any{"backup": "tuesday", "completionTime": "2026-03-01T12:00:00Z"})
			accepted("another backup after the restore", declare(restored, monday))
		})
	}
}
