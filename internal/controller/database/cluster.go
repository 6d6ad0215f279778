package database

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
)

// structs are the fields of a cluster's spec that Go writes as {} where they were not
// declared. Of all others, {} was declared, and may mean something.
var structs = []string{"resources", "drift", "bootstrap"}

// declareCluster makes the cluster of a Database. It carries no label or annotation
// of the Database's own but requests: Git tools track by them what they applied
// themselves, and nothing else.
func declareCluster(d *v1alpha1.Database, e Engine) (runtime.ApplyConfiguration, error) {
	data, err := json.Marshal(e.Declare(d.Spec))
	if err != nil {
		return nil, fmt.Errorf("declare %s: %w", e.Kind, err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("declare %s: %w", e.Kind, err)
	}
	for _, name := range structs {
		if fields, is := spec[name].(map[string]any); is && len(fields) == 0 {
			delete(spec, name)
		}
	}
	c := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	c.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(e.Kind))
	c.SetNamespace(d.Namespace)
	c.SetName(d.Name)
	c.SetLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
	c.SetAnnotations(e.listRequests(d))
	c.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(d, v1alpha1.GroupVersion.WithKind("Database"))})
	return client.ApplyConfigurationFromUnstructured(c), nil
}

// listRequests are the annotations that ask for something: they are passed on. Nil
// for none.
func (e Engine) listRequests(d *v1alpha1.Database) map[string]string {
	var requests map[string]string
	for name, value := range d.Annotations {
		if name == fluxmeta.ReconcileRequestAnnotation || slices.Contains(e.Requests, name) {
			if requests == nil {
				requests = map[string]string{}
			}
			requests[name] = value
		}
	}
	return requests
}

// idOf is the cluster of a Database as the applier names it.
func idOf(d *v1alpha1.Database, kind string) apply.ObjectID {
	return apply.ObjectID{GVK: v1alpha1.GroupVersion.WithKind(kind), Namespace: d.Namespace, Name: d.Name}
}

// nameOf is a cluster's kind and name for people.
func nameOf(d *v1alpha1.Database, kind string) string { return kind + " " + d.Name }

// describeOwner says whose a cluster is that is not the Database's.
func describeOwner(c metav1.Object) string {
	if owner := metav1.GetControllerOfNoCopy(c); owner != nil {
		return strings.Join([]string{owner.Kind, owner.Name}, " ")
	}
	return "no Database"
}
