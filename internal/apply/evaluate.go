package apply

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

var hashPath = fieldpath.MakePathOrDie("metadata", "annotations", v1alpha1.AnnotationAppliedHash)

// evaluateObject applies, really or as a dry run, and says what the answer shows of
// the time before.
func (p *pass) evaluateObject(ctx context.Context, d *desired, r *record, before *snapshot) error {
	if err := d.decodeRendering(); err != nil {
		return err
	}
	dry := p.isDry(d, r)
	sent, err := p.leaveIgnored(ctx, d, before)
	if err != nil {
		return p.unlessGone(ctx, d, r, err)
	}
	answer, err := p.applyUntangled(ctx, sent, before, dry)
	if isInTheWay(err) && dry {
		return p.reportObstacle(d, r, before, err)
	}
	if err != nil {
		return p.unlessGone(ctx, d, r, err)
	}
	found, err := p.findChanges(d, r, before, answer)
	if err != nil {
		return err
	}
	if dry {
		// What is ours and changed cannot be left out of an apply, but it can be
		// left unsaid.
		found = slices.DeleteFunc(found, func(f finding) bool {
			return p.rules.ignoreDifference(d.id, f.path, f.holder, before.content, answer.content)
		})
		p.metrics.countApply(d.id, "dryrun")
		return p.reportOnly(d, r, before, answer, found)
	}
	return p.finishApply(ctx, d, sent, r, before, answer, found)
}

// findChanges are what was lost or changed, but for what is ignored.
func (p *pass) findChanges(d *desired, r *record, before, answer *snapshot) ([]finding, error) {
	kept := r.applied == d.hash
	if !kept && r.judged.content == before.contentDigest() && r.judged.own == before.ownDigest() {
		// Untouched since it was last checked: all that changes is what is desired.
		return nil, nil
	}
	found, err := findDrift(before, answer, background{kept: kept})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(f finding) bool { return !kept && f.path.Equals(hashPath) }), nil
}

// unlessGone makes an object again that an apply found missing.
func (p *pass) unlessGone(ctx context.Context, d *desired, r *record, err error) error {
	if !isGone(err) || p.retried[d.id] {
		return err
	}
	p.retried[d.id] = true
	if p.req.Suspend {
		p.setStanding(d.id, r, []finding{{operation: OperationDeleted}})
		p.known.objects[d.id] = r
		return nil
	}
	r.gone = true
	return p.applyFirst(ctx, d, r)
}

// finishApply is what follows a real apply: foreign additions go, so does what the
// API server files of a time without managedFields, and the rest is remembered.
func (p *pass) finishApply(ctx context.Context, d, sent *desired, r *record, before, answer *snapshot, found []finding) error {
	p.recordWrite(r, d, answer)
	p.known.objects[d.id] = r
	end, gone, stuck, err := p.expelAdditions(ctx, d, answer, found)
	if err != nil {
		return err
	}
	found = append(found, gone...)
	left := end
	if end, err = p.dropLeftovers(ctx, d.id, end); err != nil {
		return err
	}
	p.recordWrite(r, d, end)
	if end.contentDigest() != left.contentDigest() {
		end = left // another client wrote in between: the next pass compares that
	}
	if changed := end.contentDigest() != before.contentDigest(); changed {
		p.metrics.countApply(d.id, "changed")
		p.result.Changed = append(p.result.Changed, newChange(d.id, end, false))
	} else {
		p.metrics.countApply(d.id, "unchanged")
	}
	if end.resourceVersion != before.resourceVersion {
		p.result.Settled = false
	}
	p.reportFindings(d.id, found, ActionReverted)
	return p.recordOutcome(sent, r, end, found, stuck)
}

// recordOutcome remembers the state that an apply left. Reverted is the drift that
// it put back, stuck what it could not.
func (p *pass) recordOutcome(sent *desired, r *record, end *snapshot, reverted, stuck []finding) error {
	r.standing = nil
	r.backstop = nextBackstop(p.now)
	r.judged = judged{
		rendering: sent.rendering, desired: sent.hash, rules: p.rules.digest,
		content: end.contentDigest(), own: end.ownDigest(), resourceVersion: end.resourceVersion,
	}
	if err := p.tolerateUnowned(sent.id, r, end); err != nil {
		return err
	}
	altered, err := p.findAltered(sent, end)
	if err != nil {
		return err
	}
	stuck = append(stuck, altered...)
	switch {
	case len(stuck) > 0:
		if paths, manager := summariseFindings(stuck); r.addAttempt(p.now, paths, manager) {
			p.reportFindings(sent.id, stuck, ActionContested)
		}
		r.contest.admission = len(altered) > 0
	case len(reverted) == 0:
		r.contest = nil
	case r.countRevert(p.now):
		paths, manager := summariseFindings(reverted)
		r.addAttempt(p.now, paths, manager)
		r.contest.admission = false
	}
	return nil
}

// findAltered are the fields that admission made something else of.
func (p *pass) findAltered(sent *desired, end *snapshot) ([]finding, error) {
	normal, err := sent.normalizeContent(p.scheme)
	if err != nil {
		return nil, err
	}
	paths, err := findDisputed(sent.content, normal, end)
	if err != nil {
		return nil, err
	}
	var found []finding
	for _, path := range paths {
		if !p.rules.ignoreDifference(sent.id, path, nil, end.content) {
			found = append(found, finding{path: path, shown: showPath(path, end.content), operation: OperationAdmission})
		}
	}
	return found, nil
}

// summariseFindings is where findings are, and who the last known holder is.
func summariseFindings(found []finding) (paths []string, manager string) {
	for _, f := range found {
		switch {
		case f.operation == OperationDeleted:
			paths = append(paths, "(deleted)")
		case f.shown != "":
			paths = append(paths, f.shown)
		}
		if f.holder != nil {
			manager = f.holder.manager
		}
	}
	return paths, manager
}

// recordWrite remembers the answer to a write.
func (p *pass) recordWrite(r *record, d *desired, answer *snapshot) {
	r.uid, r.resourceVersion, r.generation, r.written = answer.uid, answer.resourceVersion, answer.generation, p.now
	r.applied, r.gone = d.hash, false
}

// reportObstacle reports what another manager added that makes even a dry run invalid.
// Where there is nothing of that kind, the error is about what is desired.
func (p *pass) reportObstacle(d *desired, r *record, before *snapshot, invalid error) error {
	o, err := before.parseOwnership()
	if err != nil {
		return err
	}
	foreign, err := findAdditions(d.id.GVK.GroupKind(), before, o.own)
	if err != nil {
		return err
	}
	if len(foreign) == 0 {
		return invalid
	}
	return p.reportOnly(d, r, before, before, nil)
}

// reportOnly remembers what a dry run showed, and changes nothing.
func (p *pass) reportOnly(d *desired, r *record, before, answer *snapshot, found []finding) error {
	o, err := answer.parseOwnership()
	if err != nil {
		return err
	}
	foreign, err := findAdditions(d.id.GVK.GroupKind(), answer, o.own)
	if err != nil {
		return err
	}
	found = append(found, p.findExpelled(d, foreign, before, answer, found)...)
	p.known.objects[d.id] = r
	r.contest, r.generation = nil, before.generation
	r.backstop = nextBackstop(p.now)
	r.judged = judged{
		rendering: d.rendering, desired: d.hash, rules: p.rules.digest,
		content: before.contentDigest(), own: before.ownDigest(), resourceVersion: before.resourceVersion,
	}
	p.setStanding(d.id, r, found)
	return p.tolerateUnowned(d.id, r, before)
}

// setStanding replaces what is known to differ and to stay; what is new among it is
// reported.
func (p *pass) setStanding(id ObjectID, r *record, found []finding) {
	was := r.standing
	r.standing = nil
	for _, f := range found {
		drift := p.newDrift(id, f, ActionReported)
		i := slices.IndexFunc(was, func(old Drift) bool {
			return old.Path == drift.Path && old.Manager == drift.Manager && old.Operation == drift.Operation
		})
		if i >= 0 {
			drift = was[i]
		} else {
			p.announceDrift(drift)
		}
		r.standing = append(r.standing, drift)
	}
}

// reportFindings says what was found.
func (p *pass) reportFindings(id ObjectID, found []finding, action string) {
	for _, f := range found {
		p.announceDrift(p.newDrift(id, f, action))
	}
}

func (p *pass) announceDrift(d Drift) {
	p.metrics.countDrift(d)
	p.result.Drifts = append(p.result.Drifts, d)
}

func (p *pass) newDrift(id ObjectID, f finding, action string) Drift {
	drift := Drift{Time: metav1.NewTime(p.clock.Now()), Object: id, Path: f.shown, Operation: f.operation, Action: action}
	if f.holder != nil {
		drift.Manager, drift.Subresource, drift.ManagerTime = f.holder.manager, f.holder.subresource, f.holder.time
	}
	return drift
}

func sortResult(r *Result) {
	byObject := func(a, b ObjectID) int {
		return cmp.Or(cmp.Compare(a.GVK.Kind, b.GVK.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.GVK.Group, b.GVK.Group))
	}
	slices.SortStableFunc(r.Standing, func(a, b Drift) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), byObject(a.Object, b.Object), cmp.Compare(a.Path, b.Path))
	})
	slices.SortFunc(r.Tolerated, func(a, b Tolerated) int { return byObject(a.Object, b.Object) })
	slices.SortFunc(r.Contested, func(a, b Contest) int { return byObject(a.Object, b.Object) })
}
