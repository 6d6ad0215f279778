package notify

import (
	"context"

	corev1 "k8s.io/api/core/v1"
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

// subject is what an event is about. It is small and shares no memory with the object,
// which others may change while the event waits.
type subject struct {
	kind, namespace, name string
	// by is what declares it; nil where its labels do not say.
	by *corev1.ObjectReference
	// ownerKind and ownerName are of what it is made for, in its namespace: a Backup's
	// cluster, and the Database of a cluster. They are empty for nothing.
	ownerKind, ownerName string
}

// describeSubject takes from an object what notifications need.
func (n *Notifier) describeSubject(object client.Object) subject {
	s := subject{namespace: object.GetNamespace(), name: object.GetName(), by: readDeclarer(object.GetLabels())}
	if gvk, err := apiutil.GVKForObject(object, n.scheme); err == nil {
		s.kind = gvk.Kind
	}
	if b, is := object.(*v1alpha1.Backup); is {
		s.ownerKind, s.ownerName = b.Spec.ClusterRef.Kind, b.Spec.ClusterRef.Name
	} else if owner := metav1.GetControllerOf(object); owner != nil && owner.APIVersion == v1alpha1.GroupVersion.String() {
		s.ownerKind, s.ownerName = owner.Kind, owner.Name
	}
	return s
}

// mayBeDeclared says whether Flux declares the subject, or may declare what it is made for.
func (s subject) mayBeDeclared() bool { return s.by != nil || s.ownerKind != "" }

// findDeclarer finds what declares a subject, or what that is made for. It returns nil for
// what Flux does not declare.
func (n *Notifier) findDeclarer(ctx context.Context, about subject) *corev1.ObjectReference {
	for range maxOwners {
		if about.by != nil || about.ownerKind == "" {
			return about.by
		}
		owner := n.readOwner(ctx, about)
		if owner == nil {
			return nil
		}
		about = n.describeSubject(owner)
	}
	return nil
}

// readDeclarer reads the labels that Flux gives what it applies.
func readDeclarer(labels map[string]string) *corev1.ObjectReference {
	for _, tool := range tools {
		name, namespace := labels[tool.Group+"/name"], labels[tool.Group+"/namespace"]
		if name != "" && namespace != "" {
			apiVersion, kind := tool.ToAPIVersionAndKind()
			return &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}
		}
	}
	return nil
}

// readOwner reads from the cache what a subject is made for; nil for nothing.
func (n *Notifier) readOwner(ctx context.Context, of subject) client.Object {
	made, err := n.scheme.New(v1alpha1.GroupVersion.WithKind(of.ownerKind))
	if err != nil {
		return nil
	}
	owner, is := made.(client.Object)
	if !is || n.reader.Get(ctx, client.ObjectKey{Namespace: of.namespace, Name: of.ownerName}, owner) != nil {
		return nil
	}
	return owner
}
