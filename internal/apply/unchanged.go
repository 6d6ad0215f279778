package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// A new process remembers nothing, and would apply every object of every cluster again.
// Most are as the process before it left them: that can be read off the cache.

// findMetadata finds whose a name is. The cache answers where it shows an object that the
// owner controls. What was lost, claims, whose identity what is desired was made
// by, and names that only a reference tells apart are looked up.
func (p *pass) findMetadata(ctx context.Context, d *desired, lost *record) (*metav1.PartialObjectMetadata, error) {
	if lost != nil || p.req.ByReference || d.id.GVK.Kind == "PersistentVolumeClaim" {
		return p.readMetadata(ctx, d.id)
	}
	obj, err := p.getObject(ctx, p.reader, d.id)
	if err != nil {
		return nil, err
	}
	if obj == nil || obj.GetDeletionTimestamp() != nil || !metav1.IsControlledBy(obj, p.req.Owner) {
		return p.readMetadata(ctx, d.id)
	}
	found := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(), OwnerReferences: obj.GetOwnerReferences(),
	}}
	found.SetGroupVersionKind(d.id.GVK)
	return found, nil
}

// isUnchanged says whether an apply would find nothing to do: the object carries the hash of
// what is desired, under our name; all that was sent is ours still and says the
// same; and no one added anything. In doubt, it is not.
func (p *pass) isUnchanged(d *desired, r *record, live *snapshot) (bool, error) {
	if err := d.decodeRendering(); err != nil {
		return false, err
	}
	if live.applied != d.hash || r.applied != d.hash || p.req.ByReference || p.rules.concernObject(d.id) {
		return false, nil
	}
	o, err := live.parseOwnership()
	if err != nil {
		return false, err
	}
	if len(o.leftovers) > 0 || !o.own.Has(hashPath) || !ownsObject(o.own, d.content) {
		return false, nil
	}
	normal, err := d.normalizeContent(p.scheme)
	if err != nil {
		return false, err
	}
	if differs, err := findDisputed(d.content, normal, live); err != nil || len(differs) > 0 {
		return false, err
	}
	foreign, err := findAdditions(d.id.GVK.GroupKind(), live, o.own)
	return len(foreign) == 0, err
}

// adoptUnchanged remembers an object that is as it should be, as an apply would have. The
// next apply is due at any time of the next interval, since a new process finds
// all objects at once.
func (p *pass) adoptUnchanged(d *desired, r *record, live *snapshot) error {
	p.recordWrite(r, d, live)
	p.known.objects[d.id] = r
	if err := p.recordOutcome(d, r, live, nil, nil); err != nil {
		return err
	}
	r.backstop = spreadBackstop(p.now)
	return nil
}

// ownsObject says whether the fields of a set are all that an object was sent with, but
// for those that no one can own.
func ownsObject(own *fieldpath.Set, sent map[string]any) bool {
	for name, child := range sent {
		if name == "apiVersion" || name == "kind" {
			continue
		}
		if meta, isMap := child.(map[string]any); isMap && name == "metadata" {
			child = withoutIdentity(meta)
		}
		if !ownsElement(own, fieldpath.PathElement{FieldName: &name}, child) {
			return false
		}
	}
	return true
}

// withoutIdentity is metadata without what says which object is meant.
func withoutIdentity(meta map[string]any) map[string]any {
	kept := make(map[string]any, len(meta))
	for k, v := range meta {
		if k != "name" && k != "namespace" {
			kept[k] = v
		}
	}
	return kept
}

// ownsElement says whether an element is in the set, with all that was sent below it.
// Nothing is below what is owned as a whole.
func ownsElement(own *fieldpath.Set, element fieldpath.PathElement, sent any) bool {
	below := own.WithPrefix(element)
	if below.Empty() {
		return own.Members.Has(element)
	}
	switch sent := sent.(type) {
	case map[string]any:
		for name, child := range sent {
			if !ownsElement(below, fieldpath.PathElement{FieldName: &name}, child) {
				return false
			}
		}
		return true
	case []any:
		for _, item := range sent {
			element, found := findElement(below, item)
			if !found || !ownsElement(below, element, item) {
				return false
			}
		}
		return true
	}
	return false
}

// findElement finds the element of a list's item among those that are owned. A key that
// was left to its default matches any.
func findElement(own *fieldpath.Set, item any) (element fieldpath.PathElement, found bool) {
	own.Members.Iterate(func(e fieldpath.PathElement) {
		if !found && (e.Key != nil && hasKey(item, *e.Key, true) || e.Value != nil && value.Equals(*e.Value, value.NewValueInterface(item))) {
			element, found = e, true
		}
	})
	return element, found
}
