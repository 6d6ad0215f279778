package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
)

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// guardedPatch is a JSON patch that does nothing where the object is another one by
// now, or where a list item on one of the paths is no longer at its index. The
// resourceVersion would be too strict a guard: status is written all the time.
func guardedPatch(s *snapshot, paths []fieldpath.Path, operations ...operation) ([]byte, error) {
	all := []operation{{Op: "test", Path: "/metadata/uid", Value: string(s.uid)}}
	for _, path := range paths {
		for depth, element := range path {
			item := path[:depth+1]
			segments, found := pointerTo(s.content, item)
			if element.Key == nil || !found {
				continue
			}
			for _, part := range *element.Key {
				test := operation{
					Op: "test", Path: pointerString(append(segments, part.Name)), Value: part.Value.Unstructured(),
				}
				if !slices.Contains(all, test) {
					all = append(all, test)
				}
			}
		}
	}
	data, err := json.Marshal(append(all, operations...))
	if err != nil {
		return nil, fmt.Errorf("marshal a JSON patch: %w", err)
	}
	return data, nil
}

// removeOperations take the paths out, the last items of a list first, so that no
// index is moved by an earlier one.
func removeOperations(s *snapshot, paths []fieldpath.Path) []operation {
	pointers := make([][]string, 0, len(paths))
	for _, path := range paths {
		if segments, found := pointerTo(s.content, path); found {
			pointers = append(pointers, segments)
		}
	}
	slices.SortFunc(pointers, func(a, b []string) int { return slices.CompareFunc(b, a, compareSegments) })
	operations := make([]operation, len(pointers))
	for i, segments := range pointers {
		operations[i] = operation{Op: "remove", Path: pointerString(segments)}
	}
	return operations
}

func compareSegments(a, b string) int {
	i, notA := strconv.Atoi(a)
	j, notB := strconv.Atoi(b)
	if notA == nil && notB == nil {
		return cmp.Compare(i, j)
	}
	return cmp.Compare(a, b)
}

// expelAdditions removes what foreign managers added where only we have anything to
// add. It returns what is gone, or what could not be removed.
func (p *pass) expelAdditions(ctx context.Context, d *desired, answer *snapshot, known []finding) (end *snapshot, gone, stuck []finding, err error) {
	o, err := answer.parseOwnership()
	if err != nil {
		return nil, nil, nil, err
	}
	foreign, err := findAdditions(d.id.GVK.GroupKind(), answer, o.own)
	if err != nil {
		return nil, nil, nil, err
	}
	unwanted := p.findExpelled(d, foreign, answer, answer, known)
	if len(unwanted) == 0 {
		return answer, nil, nil, nil
	}
	paths := make([]fieldpath.Path, len(unwanted))
	for i, f := range unwanted {
		paths[i] = f.path
	}
	data, err := guardedPatch(answer, paths, removeOperations(answer, paths)...)
	if err != nil {
		return nil, nil, nil, err
	}
	end, err = p.patchObject(ctx, d.id, data)
	if apierrors.IsInvalid(err) {
		// Another client was faster, or the object cannot be without it: both are
		// tried again later.
		return answer, nil, unwanted, nil
	}
	if err != nil {
		return nil, nil, nil, err
	}
	// What comes back is a default that another client spelled out: no drift.
	gone = slices.DeleteFunc(unwanted, func(f finding) bool { return sameAt(answer.content, end.content, f.path) })
	return end, gone, nil, nil
}

// findExpelled are the findings of foreign additions, without the ignored and the
// ones that a finding of ours speaks of already.
func (p *pass) findExpelled(d *desired, foreign []addition, before, after *snapshot, known []finding) []finding {
	var found []finding
	for _, f := range foreign {
		spoken := slices.ContainsFunc(known, func(k finding) bool { return k.ousted != nil && hasPrefix(f.path, k.ousted) })
		if spoken || p.rules.ignoreDifference(d.id, f.path, f.holder, before.content, after.content) {
			continue
		}
		found = append(found, finding{
			path: f.path, shown: showPath(f.path, after.content, before.content), holder: f.holder, operation: f.holder.operation,
		})
	}
	return found
}

// applyUntangled sends an apply. Where a foreign list item keeps ours from being
// valid (two ports of one name), the list is put right first.
func (p *pass) applyUntangled(ctx context.Context, d *desired, before *snapshot, dry bool) (*snapshot, error) {
	there := target{uid: before.uid}
	if p.req.ByReference && !dry {
		there.resourceVersion = before.resourceVersion
	}
	answer, err := p.sendApply(ctx, d, there, dry)
	if dry || !isInTheWay(err) {
		return answer, err
	}
	repair, repairErr := p.untanglePatch(d, before)
	if repairErr != nil || repair == nil {
		return nil, err
	}
	if _, repairErr := p.patchObject(ctx, d.id, repair); repairErr != nil {
		return nil, err
	}
	return p.sendApply(ctx, d, there, false)
}

// untanglePatch is the patch that makes every list with foreign items what was
// desired; nil where there is none.
func (p *pass) untanglePatch(d *desired, before *snapshot) ([]byte, error) {
	o, err := before.parseOwnership()
	if err != nil {
		return nil, err
	}
	foreign, err := findAdditions(d.id.GVK.GroupKind(), before, o.own)
	if err != nil {
		return nil, err
	}
	var operations []operation
	var lists []fieldpath.Path
	done := map[string]bool{}
	for _, f := range foreign {
		list := f.path[:len(f.path)-1]
		want, declared := lookupSent(d.content, list)
		segments, found := pointerTo(before.content, list)
		if f.path[len(f.path)-1].Key == nil || !declared || !found || done[list.String()] {
			continue
		}
		done[list.String()] = true
		lists = append(lists, list)
		operations = append(operations, operation{Op: "replace", Path: pointerString(segments), Value: want})
	}
	if len(operations) == 0 {
		return nil, nil
	}
	return guardedPatch(before, lists, operations...)
}

// dropLeftovers removes managedFields entries that only repeat what we own:
// with them, a field that we no longer declare would stay.
func (p *pass) dropLeftovers(ctx context.Context, id ObjectID, s *snapshot) (*snapshot, error) {
	o, err := s.parseOwnership()
	if err != nil || len(o.leftovers) == 0 {
		return s, err
	}
	slices.Sort(o.leftovers)
	slices.Reverse(o.leftovers)
	var operations []operation
	for _, index := range o.leftovers {
		at := "/metadata/managedFields/" + strconv.Itoa(index)
		operations = append(operations,
			operation{Op: "test", Path: at + "/manager", Value: s.managed[index].Manager},
			operation{Op: "test", Path: at + "/operation", Value: string(s.managed[index].Operation)},
			operation{Op: "remove", Path: at})
	}
	data, err := guardedPatch(s, nil, operations...)
	if err != nil {
		return nil, err
	}
	end, err := p.patchObject(ctx, id, data)
	if apierrors.IsInvalid(err) {
		// Another client wrote in between: the next apply handles it.
		return s, nil
	}
	return end, err
}
