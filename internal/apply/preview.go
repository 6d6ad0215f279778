package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Preview is what an apply of one object would change now.
type Preview struct {
	Object ObjectID
	// Live is the object as it is, Result as an apply would leave it: both
	// without status, managedFields, resourceVersion and generation. Live is nil
	// where the object is missing.
	Live, Result map[string]any
	// Known says that what would be applied is what Holdfast applied last, so
	// that every difference is another client's. Otherwise the spec changed since,
	// or what is desired was computed from other inputs.
	Known bool
	// Drifts are the differences that other clients made, as far as managedFields
	// show. They have neither time nor action.
	Drifts []Drift
}

// Hash of what an apply configuration says, as Holdfast notes it in the
// annotation v1alpha1.AnnotationAppliedHash.
func Hash(ac runtime.ApplyConfiguration) (string, error) {
	d, err := decodeDesired(ac)
	if err != nil {
		return "", err
	}
	return d.hash, nil
}

// Preview says what Sync would change in drift mode Revert, and changes
// nothing: it asks the API server by dry run. Pruning is not part of it. One
// object's failure keeps no other from being compared; errors come joined.
func (a *Applier) Preview(ctx context.Context, req Request) ([]Preview, error) {
	gvk, err := apiutil.GVKForObject(req.Owner, a.scheme)
	if err != nil {
		return nil, fmt.Errorf("the owner's kind: %w", err)
	}
	p := &pass{
		Applier: a, req: req, ownerKind: gvk.Kind, now: a.clock.Now(),
		known: &ownerMemory{objects: map[ObjectID]*record{}}, rules: newIgnoreRules(req.Drift.Ignore),
	}
	var out []Preview
	var errs []error
	for _, ac := range req.Objects {
		preview, err := p.previewObject(ctx, ac)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, *preview)
	}
	return out, errors.Join(errs...)
}

func (p *pass) previewObject(ctx context.Context, ac runtime.ApplyConfiguration) (*Preview, error) {
	d, err := decodeDesired(ac)
	if err != nil {
		return nil, err
	}
	found, err := p.readMetadata(ctx, d.id)
	if err != nil {
		return nil, err
	}
	if found == nil {
		answer, err := p.sendApply(ctx, d, target{}, true)
		if err != nil {
			return nil, err
		}
		return &Preview{Object: d.id, Result: answer.content, Known: true}, nil
	}
	if !p.isOurs(found, d) {
		return nil, &ConflictError{Object: d.id, Owner: describeOwner(found)}
	}
	live, err := p.readSnapshot(ctx, p.writer, d.id)
	if err != nil {
		return nil, err
	}
	if live == nil {
		return nil, fmt.Errorf("%s was just deleted: try again", d.id)
	}
	return p.compareDryRun(ctx, d, live)
}

// compareDryRun compares an object with the dry run of its apply, without what
// foreign managers added and the operator would remove.
func (p *pass) compareDryRun(ctx context.Context, d *desired, live *snapshot) (*Preview, error) {
	tampered, err := annotationTaken(live)
	if err != nil {
		return nil, err
	}
	out := &Preview{Object: d.id, Live: live.content, Known: live.applied == d.hash || tampered}
	sent, err := p.leaveIgnored(ctx, d, live)
	if err != nil {
		return nil, err
	}
	answer, err := p.applyUntangled(ctx, sent, live, true)
	if isInTheWay(err) {
		return nil, fmt.Errorf("what another client added to %s keeps a dry run from being valid: %w", d.id, err)
	}
	if err != nil {
		return nil, err
	}
	found, err := findDrift(live, answer, background{kept: out.Known})
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(f finding) bool {
		return !out.Known && f.path.Equals(hashPath) || p.rules.ignoreDifference(d.id, f.path, f.holder, live.content, answer.content)
	})
	out.Result = runtime.DeepCopyJSON(answer.content)
	unwanted, err := p.wouldExpel(ctx, d, live, answer, out.Result)
	if err != nil {
		return nil, err
	}
	for _, f := range append(found, keepUnspoken(unwanted, found)...) {
		out.Drifts = append(out.Drifts, p.newDrift(d.id, f, ""))
	}
	if !out.Known {
		out.Live, out.Result = withoutHash(out.Live), withoutHash(out.Result)
	}
	return out, nil
}

// wouldExpel takes out of result what foreign managers added and the operator
// would remove, and returns it. What the API server puts there by itself is
// none of it: a dry run of the removal shows what comes back.
func (p *pass) wouldExpel(ctx context.Context, d *desired, live, answer *snapshot, result map[string]any) ([]finding, error) {
	o, err := answer.parseOwnership()
	if err != nil {
		return nil, err
	}
	foreign, err := findAdditions(d.id.GVK.GroupKind(), live, o.own)
	if err != nil {
		return nil, err
	}
	unwanted := p.findExpelled(d, foreign, live, answer, nil)
	if len(unwanted) == 0 {
		return nil, nil
	}
	paths := make([]fieldpath.Path, len(unwanted))
	for i, f := range unwanted {
		paths[i] = f.path
	}
	data, err := guardedPatch(live, paths, removeOperations(live, paths)...)
	if err != nil {
		return nil, err
	}
	obj, err := p.newTypedObject(d.id)
	if err != nil {
		return nil, err
	}
	back := map[string]any{}
	err = p.writer.Patch(ctx, obj, client.RawPatch(types.JSONPatchType, data), client.FieldOwner(v1alpha1.FieldManager), client.DryRunAll)
	switch {
	case err == nil:
		end, err := newSnapshot(obj)
		if err != nil {
			return nil, err
		}
		back = end.content
	case !apierrors.IsInvalid(err):
		return nil, fmt.Errorf("dry run of a patch of %s: %w", d.id, err)
	}
	return slices.DeleteFunc(unwanted, func(f finding) bool {
		value, returns := lookupPath(back, f.path)
		removePath(result, f.path)
		if name := f.path[len(f.path)-1].FieldName; returns && name != nil {
			parent, _ := lookupPath(result, f.path[:len(f.path)-1])
			if fields, isMap := parent.(map[string]any); isMap {
				fields[*name] = value
			}
		}
		return returns && sameAt(live.content, back, f.path)
	}), nil
}

// keepUnspoken are the additions that no finding of ours speaks of already.
func keepUnspoken(unwanted, found []finding) []finding {
	return slices.DeleteFunc(unwanted, func(f finding) bool {
		return slices.ContainsFunc(found, func(k finding) bool { return k.ousted != nil && hasPrefix(f.path, k.ousted) })
	})
}

// withoutHash is the content without the annotation that changes whenever
// anything else does.
func withoutHash(content map[string]any) map[string]any {
	copied := runtime.DeepCopyJSON(content)
	metadata, _ := copied["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	delete(annotations, v1alpha1.AnnotationAppliedHash)
	return copied
}

// decodeDesired is a desired object that nothing is remembered of.
func decodeDesired(ac runtime.ApplyConfiguration) (*desired, error) {
	d, err := newDesired(ac)
	if err != nil {
		return nil, err
	}
	return d, d.decodeRendering()
}
