package apply

import (
	"context"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// ignoreRules say what drift to leave alone.
type ignoreRules struct {
	rules  []ignoreRule
	digest sum
}

type ignoreRule struct {
	kind, name string
	paths      [][]string
	managers   []string
}

func newIgnoreRules(declared []v1alpha1.DriftIgnore) *ignoreRules {
	out := &ignoreRules{}
	if len(declared) == 0 {
		return out
	}
	for _, r := range declared {
		rule := ignoreRule{kind: r.Kind, name: r.Name, managers: r.Managers}
		for _, path := range r.Paths {
			rule.paths = append(rule.paths, parsePointer(path))
		}
		out.rules = append(out.rules, rule)
	}
	// Strings and lists of them: this cannot fail.
	data, _ := json.Marshal(declared) //nolint:errchkjson
	out.digest = sumOf(data)
	return out
}

// concernObject says whether any rule speaks of the object.
func (i *ignoreRules) concernObject(id ObjectID) bool {
	return slices.ContainsFunc(i.rules, func(r ignoreRule) bool { return r.concernsObject(id) })
}

func (r ignoreRule) concernsObject(id ObjectID) bool {
	return (r.kind == "" || r.kind == id.GVK.Kind) && (r.name == "" || r.name == id.Name)
}

// ignoreDifference says whether a difference at the path is to be left alone. A JSON
// pointer counts a list's items as the object or our answer has them.
func (i *ignoreRules) ignoreDifference(id ObjectID, path fieldpath.Path, holder *entry, contents ...map[string]any) bool {
	return slices.ContainsFunc(i.rules, func(r ignoreRule) bool {
		if !r.concernsObject(id) || len(r.managers) > 0 && (holder == nil || !slices.Contains(r.managers, holder.manager)) {
			return false
		}
		return len(r.paths) == 0 || slices.ContainsFunc(contents, func(content map[string]any) bool {
			segments, found := pointerTo(content, path)
			return found && r.coversPath(segments)
		})
	})
}

func (r ignoreRule) coversPath(segments []string) bool {
	return slices.ContainsFunc(r.paths, func(prefix []string) bool {
		return len(prefix) <= len(segments) && slices.Equal(prefix, segments[:len(prefix)])
	})
}

// leaveIgnored is the desired object without the fields that another manager took and
// may keep: ownership of them is released. A dry run shows which those are.
func (p *pass) leaveIgnored(ctx context.Context, d *desired, before *snapshot) (*desired, error) {
	if !p.rules.concernObject(d.id) {
		return d, nil
	}
	answer, err := p.applyUntangled(ctx, d, before, true)
	if isInTheWay(err) {
		// A foreign list item is in the way, and goes with the apply.
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	owned, err := before.parseOwnership()
	if err != nil {
		return nil, err
	}
	would, err := answer.parseOwnership()
	if err != nil {
		return nil, err
	}
	if owned.own.Empty() {
		// An object that we never applied, or whose managedFields were
		// cleared: nothing was taken from us.
		return d, nil
	}
	var left []fieldpath.Path
	would.own.Difference(owned.own).Leaves().Iterate(func(path fieldpath.Path) {
		if p.rules.ignoreDifference(d.id, path, owned.findHolder(path), before.content, answer.content) {
			left = append(left, path.Copy())
		}
	})
	if len(left) == 0 {
		return d, nil
	}
	sent := &desired{id: d.id, rendering: d.rendering, hash: d.hash, content: runtime.DeepCopyJSON(d.content)}
	for _, path := range left {
		removePath(sent.content, strippablePath(path, before.content))
	}
	return sent, nil
}

// strippablePath is the path itself, or the list item above it that is gone: an
// item without its key cannot be applied.
func strippablePath(path fieldpath.Path, content map[string]any) fieldpath.Path {
	for depth, element := range path {
		item := path[:depth+1]
		if _, found := lookupPath(content, item); !found && element.FieldName == nil {
			return item
		}
	}
	return path
}
