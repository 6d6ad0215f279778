package apply

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// readMetadata reads the metadata of an object from the API server itself, before its
// name is applied to for the first time. Of a stranger's object nothing else
// is read. A missing object is nil.
func (p *pass) readMetadata(ctx context.Context, id ObjectID) (*metav1.PartialObjectMetadata, error) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(id.GVK)
	err := p.writer.Get(ctx, client.ObjectKey{Namespace: id.Namespace, Name: id.Name}, found)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("look for %s: %w", id, err)
	}
	if err != nil {
		return nil, nil //nolint:nilnil // a missing object is no error
	}
	return found, nil
}

// isOurs says whether an object that exists belongs to the owner. A controller
// reference decides; without one (a retained volume) the labels do, or what is
// recorded of it where another client took them.
func (p *pass) isOurs(found *metav1.PartialObjectMetadata, d *desired) bool {
	if controller := metav1.GetControllerOfNoCopy(found); controller != nil && controller.UID == p.req.Owner.GetUID() {
		return true
	} else if controller != nil && !p.ownStatefulSet(controller) {
		return false
	}
	if p.req.ByReference {
		return false
	}
	if slices.Contains(p.req.Recorded, found.UID) {
		return true
	}
	if labels, err := d.desiredLabels(); err == nil && LostLabels(found, labels) {
		made := found.Annotations[v1alpha1.AnnotationCluster]
		return made == "" || made == string(p.req.Owner.GetUID())
	}
	kind, hasKind := found.Labels[v1alpha1.LabelKind]
	return found.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy &&
		found.Labels[v1alpha1.LabelCluster] == p.req.Owner.GetName() &&
		(!hasKind || kind == strings.ToLower(p.ownerKind))
}

// ownStatefulSet says whether a controller reference names the StatefulSet of
// the cluster, whose volumes are the cluster's.
func (p *pass) ownStatefulSet(ref *metav1.OwnerReference) bool {
	for id, r := range p.known.objects {
		if id.GVK.Kind == "StatefulSet" && ref.Kind == id.GVK.Kind && r.uid == ref.UID {
			return true
		}
	}
	return false
}

// describeOwner describes whose an object is.
func describeOwner(found metav1.Object) string {
	if controller := metav1.GetControllerOfNoCopy(found); controller != nil {
		return controller.Kind + "/" + controller.Name
	}
	if labels := found.GetLabels(); labels[v1alpha1.LabelCluster] != "" && labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy {
		return strings.TrimPrefix(labels[v1alpha1.LabelKind]+"/", "/") + labels[v1alpha1.LabelCluster]
	}
	for _, m := range found.GetManagedFields() {
		if m.Subresource == "" { // a status is written by controllers of everyone's objects
			return "field manager " + m.Manager
		}
	}
	return "another client"
}
