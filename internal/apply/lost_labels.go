package apply

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Objects are found by their labels: the cache selects by one, and engines observe
// by others. While an object lacks one of them, what is desired was computed as if
// it were not there. It must not be applied as a whole, then: fields that cannot
// change would come from nowhere. Only the labels are put back, and the next pass
// sees the object again.

// findsBy says whether objects are found by a label. An object has it from its
// first apply on.
func findsBy(label string) bool {
	switch label {
	case v1alpha1.LabelManagedBy, v1alpha1.LabelCluster, v1alpha1.LabelKind, v1alpha1.LabelBackup,
		v1alpha1.LabelRestore, v1alpha1.LabelStoreCheck, v1alpha1.LabelDrill:
		return true
	}
	return false
}

// LostLabels says whether an object that lacks some of the labels that it should
// have is one that Holdfast applied under them: no client gave it another value of
// any, one of those that name the cluster is left, and the API server's record
// says who applied it.
func LostLabels(obj metav1.Object, labels map[string]string) bool {
	lost, named := false, false
	for name, want := range labels {
		have, there := obj.GetLabels()[name]
		if there && have != want {
			return false
		}
		lost = lost || !there && findsBy(name)
		named = named || there && (name == v1alpha1.LabelCluster || name == "app.kubernetes.io/instance")
	}
	return lost && named && slices.ContainsFunc(obj.GetManagedFields(), isOwn)
}

// desiredLabels are the labels of the desired object.
func (d *desired) desiredLabels() (map[string]string, error) {
	if err := d.decodeRendering(); err != nil {
		return nil, err
	}
	labels, _, err := unstructured.NestedStringMap(d.content, "metadata", "labels")
	return labels, err
}

// lostLabels are the paths of the labels by which an object is found and that it
// does not have as desired; sorted.
func (p *pass) lostLabels(d *desired, live *snapshot) ([]fieldpath.Path, error) {
	labels, err := d.desiredLabels()
	if err != nil {
		return nil, err
	}
	have, _, _ := unstructured.NestedStringMap(live.content, "metadata", "labels")
	o, err := live.parseOwnership()
	if err != nil {
		return nil, err
	}
	var paths []fieldpath.Path
	for name, want := range labels {
		path := fieldpath.MakePathOrDie("metadata", "labels", name)
		if !findsBy(name) || have[name] == want || p.rules.ignoreDifference(d.id, path, o.findHolder(path), live.content, d.content) {
			continue
		}
		paths = append(paths, path)
	}
	slices.SortFunc(paths, fieldpath.Path.Compare)
	return paths, nil
}

// findAgain puts the labels back that known objects have lost, before anything is
// applied that was computed without them.
func (p *pass) findAgain(ctx context.Context, all []*desired) error {
	if p.req.Suspend || p.req.Drift.Mode == v1alpha1.DriftReport {
		return nil
	}
	for _, d := range all {
		r := p.known.objects[d.id]
		if r == nil || r.gone || !r.shownByCache {
			continue
		}
		live, err := p.readChanged(ctx, d, r)
		if err != nil {
			return err
		}
		if live == nil || live.uid != r.uid || live.deleting {
			continue
		}
		if err := p.restoreLabels(ctx, d, r, live); err != nil {
			return err
		}
	}
	return nil
}

// readChanged is an object that is another than at the last check, or that the cache
// does not show; nil where it is the same, or gone.
func (p *pass) readChanged(ctx context.Context, d *desired, r *record) (*snapshot, error) {
	obj, err := p.getObject(ctx, p.reader, d.id)
	if err != nil {
		return nil, err
	}
	if obj == nil {
		return p.readSnapshot(ctx, p.writer, d.id)
	}
	if r.judged.resourceVersion == obj.GetResourceVersion() || isOlder(obj.GetResourceVersion(), r.resourceVersion) {
		return nil, nil //nolint:nilnil // nothing to compare
	}
	return newSnapshot(obj)
}

// restoreLabels puts the labels back by which an object is found; nothing else of it is
// written in this pass.
func (p *pass) restoreLabels(ctx context.Context, d *desired, r *record, live *snapshot) error {
	lost, err := p.lostLabels(d, live)
	if err != nil || len(lost) == 0 {
		return err
	}
	p.left[d.id], p.result.Settled = true, false
	if r.isWaiting(p.now) {
		return nil
	}
	data, err := labelPatch(d, live, lost)
	if err != nil {
		return err
	}
	end, err := p.patchObject(ctx, d.id, data)
	if err != nil {
		return err
	}
	o, err := live.parseOwnership()
	if err != nil {
		return err
	}
	var found []finding
	for _, path := range lost {
		found = append(found, attributeChange(live, end, o, path))
	}
	r.resourceVersion, r.written = end.resourceVersion, p.now
	p.known.objects[d.id] = r
	p.result.Outdated = true
	p.metrics.countApply(d.id, "changed")
	p.result.Changed = append(p.result.Changed, newChange(d.id, end, false))
	p.reportFindings(d.id, found, ActionReverted)
	if r.countRevert(p.now) {
		paths, manager := summariseFindings(found)
		r.addAttempt(p.now, paths, manager)
	}
	return nil
}

// labelPatch is the patch that sets labels of the very object that was read.
func labelPatch(d *desired, live *snapshot, lost []fieldpath.Path) ([]byte, error) {
	labels, err := d.desiredLabels()
	if err != nil {
		return nil, err
	}
	var operations []operation
	if have, found, _ := unstructured.NestedMap(live.content, "metadata", "labels"); !found || len(have) == 0 {
		operations = append(operations, operation{Op: "add", Path: "/metadata/labels", Value: map[string]string{}})
	}
	for _, path := range lost {
		name := *path[len(path)-1].FieldName
		operations = append(operations, operation{Op: "add", Path: pointerString([]string{"metadata", "labels", name}), Value: labels[name]})
	}
	return guardedPatch(live, nil, operations...)
}
