package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/value"
)

// A new process remembers nothing, and would apply every object of every cluster again.
// Most are as the process before it left them: that can be read off the cache.

// adoptCached remembers an object that the cache shows as the owner's and as it should be.
// All others are looked up: the cache is behind where another process was the leader until
// now, or where this one has deleted the object. So are claims: what is desired was made
// by their identity, which must be certain.
func (p *pass) adoptCached(ctx context.Context, d *desired) (adopted bool, err error) {
	if d.id.GVK.Kind == "PersistentVolumeClaim" {
		return false, nil
	}
	obj, err := p.getObject(ctx, p.reader, d.id)
	if err != nil || obj == nil || obj.GetDeletionTimestamp() != nil || !metav1.IsControlledBy(obj, p.req.Owner) || p.known.pruned[obj.GetUID()] {
		return false, err
	}
	live, err := newSnapshot(obj)
	if err != nil {
		return false, err
	}
	r := &record{uid: live.uid, shownByCache: true, applied: live.applied, resourceVersion: live.resourceVersion}
	if unchanged, err := p.isUnchanged(d, live); err != nil || !unchanged {
		return false, err
	}
	return true, p.adoptUnchanged(d, r, live)
}

// isUnchanged says whether an apply would find nothing to do: the object carries the hash of
// what is desired, under our name; all that was sent is ours still, in its order, and
// says the same; nothing else is; and no one added anything. In doubt, it is not, and nor
// where only a reference tells whose the object is.
func (p *pass) isUnchanged(d *desired, live *snapshot) (bool, error) {
	if err := d.decodeRendering(); err != nil {
		return false, err
	}
	if live.applied != d.hash || p.req.ByReference || p.rules.concernObject(d.id) {
		return false, nil
	}
	o, err := live.parseOwnership()
	if err != nil {
		return false, err
	}
	if len(o.leftovers) > 0 || !ownsObject(o.own, d.content, live.content) || ownsMore(o.own, d.content) {
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
// for those that no one can own, and whether it lists them in the order that was sent.
func ownsObject(own *fieldpath.Set, sent, live map[string]any) bool {
	for name, child := range sent {
		if name == "apiVersion" || name == "kind" {
			continue
		}
		if meta, isMap := child.(map[string]any); isMap && name == "metadata" {
			child = withoutIdentity(meta)
		}
		if !ownsElement(own, fieldpath.PathElement{FieldName: &name}, child, live[name]) {
			return false
		}
	}
	return true
}

// ownsMore says whether a set has a field that was not sent.
func ownsMore(own *fieldpath.Set, sent map[string]any) (more bool) {
	own.Leaves().Iterate(func(path fieldpath.Path) {
		if _, wasSent := lookupSent(sent, path); !wasSent {
			more = true
		}
	})
	return more
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
func ownsElement(own *fieldpath.Set, element fieldpath.PathElement, sent, live any) bool {
	below := own.WithPrefix(element)
	if below.Empty() {
		return own.Members.Has(element)
	}
	switch sent := sent.(type) {
	case map[string]any:
		fields, _ := live.(map[string]any)
		for name, child := range sent {
			if !ownsElement(below, fieldpath.PathElement{FieldName: &name}, child, fields[name]) {
				return false
			}
		}
		return true
	case []any:
		items, _ := live.([]any)
		last := -1
		for _, item := range sent {
			element, found := findElement(below, item)
			if !found {
				return false
			}
			at, there := indexOf(items, element, false)
			if !there || at <= last || !ownsElement(below, element, item, items[at]) {
				return false
			}
			last = at
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
