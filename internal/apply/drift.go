package apply

import (
	"reflect"

	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// finding is one difference, before it becomes a Drift.
type finding struct {
	path      fieldpath.Path
	shown     string
	holder    *entry
	operation string
	// ousted is the list item that took the place of ours under another key
	// (a port whose number was edited); empty for all other findings.
	ousted fieldpath.Path
}

// background is what is known of the time before an apply.
type background struct {
	// kept says that the desired content is what was applied last. Every
	// difference is drift then. Otherwise only fields are that another manager took
	// after our last apply.
	kept bool
}

// findDrift finds what another client had changed: before is the object ahead of
// our apply, after is the API server's answer to it.
func findDrift(before, after *snapshot, known background) ([]finding, error) {
	owned, err := before.parseOwnership()
	if err != nil {
		return nil, err
	}
	now, err := after.parseOwnership()
	if err != nil {
		return nil, err
	}
	candidates := now.own.Difference(owned.own)
	if known.kept {
		candidates = now.own.Union(owned.own)
	}
	var found []finding
	candidates.Leaves().Iterate(func(p fieldpath.Path) {
		path := p.Copy()
		if sameAt(before.content, after.content, path) {
			return
		}
		f := attributeChange(before, after, owned, path)
		if !known.kept && !takenSince(owned, f.holder) {
			return
		}
		found = append(found, f)
	})
	return condenseFindings(found, before, after), nil
}

// takenSince says whether the holder got its fields after our last apply. The
// API server gives changes of the scale subresource no time.
func takenSince(owned *ownership, holder *entry) bool {
	if owned.since == nil || holder == nil {
		return false
	}
	return holder.time == nil || !holder.time.Before(owned.since)
}

func attributeChange(before, after *snapshot, owned *ownership, path fieldpath.Path) finding {
	f := finding{path: path, shown: showPath(path, after.content, before.content)}
	f.holder = owned.findHolder(path)
	switch {
	case owned.own.Has(path):
		// We still hold it, so another holder never changed it.
		f.holder, f.operation = nil, OperationUnattributed
	case f.holder != nil:
		f.operation = f.holder.operation
	default:
		f.operation = OperationRemoved
		if _, there := lookupPath(before.content, path); there {
			// Scaled to zero, or the record of who did it was cleared.
			f.operation = OperationUnattributed
		}
		f.replacedItem(before, after, owned)
	}
	return f
}

// replacedItem recognises a list item whose key was edited: ours is gone, and
// another one has its name.
func (f *finding) replacedItem(before, after *snapshot, owned *ownership) {
	for depth, element := range f.path {
		if element.Key == nil {
			continue
		}
		item := f.path[:depth+1]
		if _, found := lookupPath(before.content, item); found {
			continue
		}
		name, named := itemName(after.content, item)
		if !named {
			return
		}
		list, _ := lookupPath(before.content, f.path[:depth])
		for _, key := range *element.Key {
			other, found := findNamesake(list, name, element, key.Name)
			if !found {
				continue
			}
			f.ousted = append(f.path[:depth].Copy(), other)
			if f.holder = owned.findHolder(f.ousted); f.holder != nil {
				f.operation = f.holder.operation
			}
			f.path = item.Copy()
			f.shown = showPath(item, after.content) + "." + key.Name
			return
		}
		return
	}
}

// findNamesake finds the item of that name in a list, and its key, where the key's
// part differs from ours.
func findNamesake(list any, name string, ours fieldpath.PathElement, part string) (fieldpath.PathElement, bool) {
	items, isList := list.([]any)
	if !isList {
		return fieldpath.PathElement{}, false
	}
	for _, item := range items {
		fields, isMap := item.(map[string]any)
		if !isMap || fields["name"] != name || part == "name" {
			continue
		}
		pairs := make([]any, 0, 2*len(*ours.Key))
		differs := false
		for _, k := range *ours.Key {
			pairs = append(pairs, k.Name, fields[k.Name])
			differs = differs || k.Name == part && !reflect.DeepEqual(k.Value.Unstructured(), fields[k.Name])
		}
		if differs {
			return fieldpath.PathElement{Key: fieldpath.KeyByFields(pairs...)}, true
		}
	}
	return fieldpath.PathElement{}, false
}

// condenseFindings makes one finding of those that are below something which came or
// went as a whole, and of equal ones.
func condenseFindings(found []finding, before, after *snapshot) []finding {
	type group struct{ top, manager, operation string }
	tops := make([]fieldpath.Path, len(found))
	members := map[group]int{}
	key := func(i int) group {
		g := group{top: tops[i].String(), operation: found[i].operation}
		if found[i].holder != nil {
			g.manager = found[i].holder.manager
		}
		return g
	}
	for i, f := range found {
		tops[i] = topmostLacking(f.path, before, after)
		members[key(i)]++
	}
	var out []finding
	seen := map[group]bool{}
	for i, f := range found {
		g := key(i)
		if members[g] > 1 && seen[g] {
			continue
		}
		seen[g] = true
		if members[g] > 1 && f.ousted == nil {
			f.path = tops[i]
			f.shown = showPath(f.path, after.content, before.content)
		}
		out = append(out, f)
	}
	return out
}

// topmostLacking is the topmost part of the path that one of the two objects lacks; the
// path itself where both have it.
func topmostLacking(path fieldpath.Path, before, after *snapshot) fieldpath.Path {
	for depth := range path {
		top := path[:depth+1]
		_, inBefore := lookupPath(before.content, top)
		_, inAfter := lookupPath(after.content, top)
		if !inBefore || !inAfter {
			return top.Copy()
		}
	}
	return path
}

// sameAt says whether two contents have the same at a path. What is empty and
// what is absent are the same.
func sameAt(a, b map[string]any, path fieldpath.Path) bool {
	inA, _ := lookupPath(a, path)
	inB, _ := lookupPath(b, path)
	return reflect.DeepEqual(dropEmpty(inA), dropEmpty(inB))
}

// findDisputed are the fields that the API server's answer has otherwise than they
// were sent: admission changed them. Normalized is what was sent as the kind's
// Go type writes it.
func findDisputed(sent, normalized map[string]any, answer *snapshot) ([]fieldpath.Path, error) {
	now, err := answer.parseOwnership()
	if err != nil {
		return nil, err
	}
	var paths []fieldpath.Path
	now.own.Leaves().Iterate(func(p fieldpath.Path) {
		if _, wasSent := lookupSent(sent, p); !wasSent {
			return
		}
		want, _ := lookupSent(normalized, p)
		have, _ := lookupPath(answer.content, p)
		if !coversValue(dropEmpty(have), dropEmpty(want)) {
			paths = append(paths, p.Copy())
		}
	})
	return paths, nil
}

// coversValue says whether have says all that want says: defaults that the API
// server added are no difference.
func coversValue(have, want any) bool { //nolint:gocyclo // an ordered switch: first match wins
	switch want := want.(type) {
	case nil:
		return isZero(have)
	case map[string]any:
		fields, isMap := have.(map[string]any)
		if !isMap {
			return false
		}
		_, isObject := want["metadata"]
		for k, v := range want {
			// An object within an object (a claim template) comes without its
			// type where it was sent as protobuf.
			if isObject && (k == "kind" || k == "apiVersion") && fields[k] == nil {
				continue
			}
			if !coversValue(fields[k], v) {
				return false
			}
		}
		return true
	case []any:
		items, isList := have.([]any)
		if !isList || len(items) != len(want) {
			return false
		}
		for i := range want {
			if !coversValue(items[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(have, want) || isZero(have) && isZero(want)
}

// isZero says whether a value is one that Go types leave out. A struct of
// defaults below what was sent empty counts too.
func isZero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return true
	case []any:
		return len(v) == 0
	}
	return reflect.ValueOf(v).IsZero()
}
