package notify

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// tools of Flux, by the group of their labels.
var tools = []schema.GroupVersionKind{
	{Group: "kustomize.toolkit.fluxcd.io", Version: "v1", Kind: "Kustomization"},
	{Group: "helm.toolkit.fluxcd.io", Version: "v2", Kind: "HelmRelease"},
}

// maxOwners is how far it is from a Backup to the Database of its cluster.
const maxOwners = 3

// findDeclarer finds what declares an object, or what the object is made for: a Backup's
// cluster, and the Database of a cluster. It returns nil for what Flux does not declare.
func (n *Notifier) findDeclarer(ctx context.Context, about client.Object) *metav1.PartialObjectMetadata {
	for range maxOwners {
		if by := readDeclarer(about); by != nil {
			return by
		}
		if about = n.findOwner(ctx, about); about == nil {
			return nil
		}
	}
	return nil
}

// readDeclarer reads the labels that Flux gives what it applies.
func readDeclarer(about client.Object) *metav1.PartialObjectMetadata {
	labels := about.GetLabels()
	for _, tool := range tools {
		name, namespace := labels[tool.Group+"/name"], labels[tool.Group+"/namespace"]
		if name == "" || namespace == "" {
			continue
		}
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		object.SetGroupVersionKind(tool)
		return object
	}
	return nil
}

// findOwner reads from the cache what an object is made for; nil for nothing.
func (n *Notifier) findOwner(ctx context.Context, about client.Object) client.Object {
	var kind, name string
	if b, is := about.(*v1alpha1.Backup); is {
		kind, name = b.Spec.ClusterRef.Kind, b.Spec.ClusterRef.Name
	} else if owner := metav1.GetControllerOf(about); owner != nil && owner.APIVersion == v1alpha1.GroupVersion.String() {
		kind, name = owner.Kind, owner.Name
	}
	made, err := n.scheme.New(v1alpha1.GroupVersion.WithKind(kind))
	if err != nil {
		return nil
	}
	owner, is := made.(client.Object)
	if !is || n.reader.Get(ctx, client.ObjectKey{Namespace: about.GetNamespace(), Name: name}, owner) != nil {
		return nil
	}
	return owner
}

// kindOf an object; empty for one that the scheme does not know.
func (n *Notifier) kindOf(about client.Object) string {
	gvk, err := apiutil.GVKForObject(about, n.scheme)
	if err != nil {
		return ""
	}
	return gvk.Kind
}
