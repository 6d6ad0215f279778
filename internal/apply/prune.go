package apply

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// labelComponent says what an object is for.
const labelComponent = "app.kubernetes.io/component"

// pruneAll deletes what the owner controls and no longer wants, as the cache
// has it.
func (p *pass) pruneAll(ctx context.Context) error {
	var errs []error
	for _, gvk := range p.prune {
		if gvk.Kind == "PersistentVolumeClaim" || gvk.Kind == "Lease" {
			continue
		}
		errs = append(errs, p.pruneKind(ctx, gvk))
	}
	return errors.Join(errs...)
}

func (p *pass) pruneKind(ctx context.Context, gvk schema.GroupVersionKind) error {
	list, err := p.newList(gvk)
	if err != nil {
		return err
	}
	// Only metadata is read, so the cache's own objects will do.
	found := client.MatchingLabels(p.req.Labels)
	if found == nil {
		found = client.MatchingLabels{v1alpha1.LabelCluster: p.req.Owner.GetName()}
	}
	err = p.reader.List(ctx, list, client.InNamespace(p.req.Owner.GetNamespace()), found, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list %s to prune: %w", gvk.Kind, err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("list %s to prune: %w", gvk.Kind, err)
	}
	var errs []error
	for _, item := range items {
		obj, isObject := item.(client.Object)
		if !isObject {
			return fmt.Errorf("%s is no object", gvk)
		}
		id := ObjectID{GVK: gvk, Namespace: obj.GetNamespace(), Name: obj.GetName()}
		if !p.wanted[id] && p.isPrunable(gvk, obj) {
			errs = append(errs, p.pruneOne(ctx, id, obj))
		}
	}
	return errors.Join(errs...)
}

func (p *pass) newList(gvk schema.GroupVersionKind) (client.ObjectList, error) {
	listGVK := gvk.GroupVersion().WithKind(gvk.Kind + "List")
	if !p.scheme.Recognizes(listGVK) {
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(listGVK)
		return u, nil
	}
	obj, err := p.scheme.New(listGVK)
	if err != nil {
		return nil, fmt.Errorf("make a %s: %w", listGVK.Kind, err)
	}
	list, isList := obj.(client.ObjectList)
	if !isList {
		return nil, fmt.Errorf("%s is no list", listGVK)
	}
	return list, nil
}

// isPrunable says whether an object may be deleted at all. What holds data or
// credentials never is, nor what another owner shares.
func (p *pass) isPrunable(gvk schema.GroupVersionKind, obj client.Object) bool {
	controller := metav1.GetControllerOfNoCopy(obj)
	if controller == nil || controller.UID != p.req.Owner.GetUID() || obj.GetDeletionTimestamp() != nil {
		return false
	}
	if len(obj.GetOwnerReferences()) > 1 {
		return false
	}
	component := obj.GetLabels()[labelComponent]
	return gvk.Kind != "Secret" || component != "ca" && component != "internal"
}

func (p *pass) pruneOne(ctx context.Context, id ObjectID, obj client.Object) error {
	uid := obj.GetUID()
	err := p.writer.Delete(ctx, obj, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// Gone already, and the cache has yet to hear of it.
		return nil
	case err != nil:
		return fmt.Errorf("prune %s: %w", id, err)
	}
	delete(p.known.objects, id)
	if p.known.pruned == nil {
		p.known.pruned = map[types.UID]bool{}
	}
	p.known.pruned[uid] = true
	p.result.Changed = append(p.result.Changed, Change{Object: id, Pruned: true, UID: uid, ResourceVersion: obj.GetResourceVersion()})
	return nil
}

// forgetUnwanted drops what is remembered of objects that are not wanted.
func (p *pass) forgetUnwanted() {
	for id := range p.known.objects {
		if !p.wanted[id] {
			delete(p.known.objects, id)
		}
	}
}

// ListKinds lists the kinds of empty objects that are Kubernetes' own, for
// Options.Prune.
func ListKinds(objects []client.Object) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, obj := range objects {
		gvk, err := apiutil.GVKForObject(obj, clientgoscheme.Scheme)
		utilruntime.Must(err)
		kinds = append(kinds, gvk)
	}
	return kinds
}
