package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// pass is one Sync. It has a method for each question about an object and each
// request: all depend on what the owner's memory and the pass so far know.
type pass struct {
	*Applier
	req       Request
	ownerKind string
	known     *ownerMemory
	now       time.Time
	rules     *ignoreRules
	result    Result
	wanted    map[ObjectID]bool
	// foreignClaim says that a claim of a needed name is another owner's.
	foreignClaim bool
	// left are objects that are left as they are in this pass, since what is desired
	// of them was computed without them.
	left map[ObjectID]bool
	// retried are objects that an apply found gone in this pass.
	retried map[ObjectID]bool
}

// Sync makes the objects what they should be, and says what it found and did.
// One object's failure keeps no other from being handled, but for a claim that
// is another owner's and the StatefulSet whose pods would mount it; errors come joined,
// and errors.As finds a *ConflictError or an API error in them.
//
// In Report mode drift stays: only a change of what is desired is applied, and
// that apply, which takes the whole object, also puts drift on declared fields
// back. A missing object is always made, because after a restart it cannot be
// distinguished from one that was never there. Suspend writes nothing at all.
func (a *Applier) Sync(ctx context.Context, req Request) (Result, error) {
	gvk, err := apiutil.GVKForObject(req.Owner, a.scheme)
	if err != nil {
		return Result{}, fmt.Errorf("the owner's kind: %w", err)
	}
	known := a.memory.ofOwner(req.Owner.GetUID())
	known.mu.Lock()
	defer known.mu.Unlock()
	p := &pass{
		Applier: a, req: req, ownerKind: gvk.Kind, known: known, now: a.clock.Now(),
		rules: newIgnoreRules(req.Drift.Ignore), wanted: map[ObjectID]bool{},
		retried: map[ObjectID]bool{}, left: map[ObjectID]bool{},
	}
	p.result.Settled, p.result.Generations = true, map[ObjectID]int64{}
	errs := p.syncAll(ctx)
	if req.Complete && !req.Suspend && !p.result.Outdated {
		errs = append(errs, p.pruneAll(ctx))
		p.forgetUnwanted()
	}
	p.summariseResult()
	return p.result, errors.Join(errs...)
}

func (p *pass) syncAll(ctx context.Context) []error {
	var errs []error
	var wanted []*desired
	for _, ac := range p.req.Objects {
		d, err := newDesired(ac)
		if err == nil {
			p.wanted[d.id] = true
			err = p.known.computeHash(d)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		wanted = append(wanted, d)
	}
	if err := p.findAgain(ctx, wanted); err != nil || p.result.Outdated {
		return append(errs, err)
	}
	for _, d := range wanted {
		if err := ctx.Err(); err != nil {
			return append(errs, err)
		}
		errs = append(errs, p.syncOne(ctx, d))
	}
	return errs
}

func (p *pass) syncOne(ctx context.Context, d *desired) error {
	if p.left[d.id] {
		return nil
	}
	if (p.foreignClaim || p.result.Outdated) && d.id.GVK.Kind == "StatefulSet" {
		return nil // its pods mount claims by name, whichever owner they have
	}
	err := p.syncObject(ctx, d)
	if conflict := (*ConflictError)(nil); d.id.GVK.Kind == "PersistentVolumeClaim" && errors.As(err, &conflict) {
		p.foreignClaim = true
	}
	return err
}

// syncObject takes one object through: what the cache and memory say decides
// whether anything has to be done at all.
func (p *pass) syncObject(ctx context.Context, d *desired) error { //nolint:gocyclo // an ordered switch: first match wins
	r := p.known.objects[d.id]
	if r == nil || r.gone {
		return p.applyFirst(ctx, d, r)
	}
	obj, err := p.getObject(ctx, p.reader, d.id)
	switch {
	case err != nil:
		return err
	case obj == nil:
		return p.handleAbsent(ctx, d, r)
	case isOlder(obj.GetResourceVersion(), r.resourceVersion):
		p.result.Settled = false
		return nil
	case obj.GetUID() != r.uid:
		r.gone = true
		return p.applyFirst(ctx, d, r)
	case obj.GetDeletionTimestamp() != nil:
		p.result.Settled = false
		return nil
	case p.req.ByReference && !metav1.IsControlledBy(obj, p.req.Owner):
		return &ConflictError{Object: d.id, Owner: describeOwner(obj)}
	}
	r.shownByCache = true
	if r.judged.resourceVersion == obj.GetResourceVersion() && !p.isDue(d, r) {
		return nil
	}
	cached, err := newSnapshot(obj)
	if err != nil {
		return err
	}
	if p.isClean(d, r, cached) || r.isWaiting(p.now) && r.applied == d.hash {
		return nil
	}
	return p.evaluateObject(ctx, d, r, cached)
}

// isDue says whether the object must be compared, whatever it says.
func (p *pass) isDue(d *desired, r *record) bool {
	later := !p.now.Before(r.backstop) || r.contest != nil && !r.isWaiting(p.now)
	pending := r.applied != d.hash && !p.req.Suspend || len(r.standing) > 0 && !p.isDry(d, r)
	return later || pending || r.judged.desired != d.hash || r.judged.rules != p.rules.digest
}

// isClean says whether nothing happened since the object was last compared.
func (p *pass) isClean(d *desired, r *record, cached *snapshot) bool {
	if p.isDue(d, r) {
		return false
	}
	if r.judged.resourceVersion == cached.resourceVersion {
		return true
	}
	if r.judged.content != cached.contentDigest() || r.judged.own != cached.ownDigest() {
		return false
	}
	r.judged.resourceVersion, r.generation = cached.resourceVersion, cached.generation
	return true
}

// isDry says whether the object is to be left as it is.
func (p *pass) isDry(d *desired, r *record) bool {
	return p.req.Suspend || p.req.Drift.Mode == v1alpha1.DriftReport && r.applied == d.hash
}

// applyFirst deals with a name that we never applied to, or that our object lost.
func (p *pass) applyFirst(ctx context.Context, d *desired, lost *record) error { //nolint:gocyclo // an ordered switch: first match wins
	if lost == nil {
		if adopted, err := p.adoptCached(ctx, d); err != nil || adopted {
			return err
		}
	}
	found, err := p.readMetadata(ctx, d.id)
	switch {
	case err != nil:
		return err
	case found == nil:
		return p.createObject(ctx, d, lost)
	case !p.isOurs(found, d):
		return &ConflictError{Object: d.id, Owner: describeOwner(found)}
	case p.isOutdatedClaim(d.id, found.UID):
		return nil
	case found.DeletionTimestamp != nil:
		p.result.Settled = false
		return nil
	}
	live, err := p.readSnapshot(ctx, p.reader, d.id)
	cached := live != nil && live.uid == found.UID
	if err == nil && (!cached || isOlder(live.resourceVersion, found.ResourceVersion)) {
		live, err = p.readSnapshot(ctx, p.writer, d.id)
	}
	if err != nil {
		return err
	}
	if live == nil || live.uid != found.UID {
		// It went in between: next time it is missing, or another one.
		p.result.Settled = false
		return nil
	}
	r := &record{uid: live.uid, shownByCache: cached, applied: live.applied, resourceVersion: live.resourceVersion}
	if tampered, err := annotationTaken(live); err != nil {
		return err
	} else if tampered {
		r.applied = d.hash
	}
	if lost != nil {
		r.reverts, r.contest = lost.reverts, lost.contest
	} else if unchanged, err := p.isUnchanged(d, live); err != nil {
		return err
	} else if unchanged {
		return p.adoptUnchanged(d, r, live)
	}
	if !p.isDry(d, r) {
		if err := p.restoreLabels(ctx, d, r, live); err != nil || p.left[d.id] {
			return err
		}
	}
	if err := p.evaluateObject(ctx, d, r, live); err != nil {
		return err
	}
	if lost != nil && lost.uid != live.uid {
		p.reportFindings(d.id, []finding{{operation: OperationDeleted}}, ActionReverted)
	}
	return nil
}

// annotationTaken says whether another client changed the annotation that holds the
// hash: what it says is then no sign of what we applied.
func annotationTaken(live *snapshot) (bool, error) {
	o, err := live.parseOwnership()
	if err != nil {
		return false, err
	}
	return !o.own.Empty() && !o.own.Has(hashPath), nil
}

// handleAbsent deals with an object that we know and that the cache lacks.
func (p *pass) handleAbsent(ctx context.Context, d *desired, r *record) error {
	checkAt := r.written.Add(unseenPeriod)
	if !r.shownByCache && p.now.Before(checkAt) {
		p.result.Settled = false
		p.wakeAt(checkAt)
		return nil
	}
	live, err := p.readSnapshot(ctx, p.writer, d.id)
	switch {
	case err != nil:
		return err
	case live == nil && p.req.Suspend:
		p.setStanding(d.id, r, []finding{{operation: OperationDeleted}})
		return nil
	case live == nil:
		return p.createObject(ctx, d, r)
	case live.uid != r.uid:
		r.gone = true
		return p.applyFirst(ctx, d, r)
	case live.deleting:
		p.result.Settled = false
		return nil
	}
	// The cache selects by label, which was taken and is to stay as it is.
	if p.isClean(d, r, live) {
		return nil
	}
	return p.evaluateObject(ctx, d, r, live)
}

// isOutdatedClaim says whether a claim, of which is known who it is now, is not the one
// that what is desired of it was made by.
func (p *pass) isOutdatedClaim(id ObjectID, now types.UID) bool {
	observed, known := p.req.Claims[id.Name]
	if id.GVK.Kind != "PersistentVolumeClaim" || !known || observed == now {
		return false
	}
	p.result.Settled, p.result.Outdated = false, true
	return true
}

// createObject makes an object. Where lost says that we had it, its absence is drift,
// which no contest holds up: it is made again at once, at most once a second.
func (p *pass) createObject(ctx context.Context, d *desired, lost *record) error {
	if p.req.Suspend {
		return nil
	}
	if p.isOutdatedClaim(d.id, "") {
		return nil
	}
	r := &record{}
	if lost != nil {
		lost.gone = true
		if again := lost.made.Add(remakePeriod); p.now.Before(again) {
			p.result.Settled = false
			p.wakeAt(again)
			return nil
		}
		r.reverts, r.contest = lost.reverts, lost.contest
	}
	if err := d.decodeRendering(); err != nil {
		return err
	}
	answer, err := p.sendApply(ctx, d, p.absentTarget(), false)
	if p.req.ByReference && isTaken(err) && !p.retried[d.id] {
		p.retried[d.id] = true
		return p.applyFirst(ctx, d, lost)
	}
	if err != nil {
		return err
	}
	p.metrics.countApply(d.id, "created")
	p.recordWrite(r, d, answer)
	r.made = p.now
	p.known.objects[d.id] = r
	p.result.Settled = false
	p.result.Changed = append(p.result.Changed, newChange(d.id, answer, true))
	var deleted []finding
	if lost != nil {
		deleted = []finding{{operation: OperationDeleted}}
	}
	p.reportFindings(d.id, deleted, ActionReverted)
	return p.recordOutcome(d, r, answer, deleted, nil)
}

// absentTarget is what the apply that makes an object is for. An object that is the
// owner's only by its controller reference must not exist yet: the apply would give that
// reference to one that another client made since its name was looked for.
func (p *pass) absentTarget() target {
	if p.req.ByReference {
		return target{resourceVersion: noVersion}
	}
	return target{}
}

func newChange(id ObjectID, s *snapshot, created bool) Change {
	return Change{Object: id, Created: created, UID: s.uid, ResourceVersion: s.resourceVersion, Generation: s.generation}
}

// summariseResult fills what the result says of all objects, compared or not.
func (p *pass) summariseResult() {
	for id, r := range p.known.objects {
		if !p.wanted[id] {
			continue
		}
		p.result.Generations[id] = r.generation
		p.result.Standing = append(p.result.Standing, r.standing...)
		if len(r.tolerated) > 0 {
			p.result.Tolerated = append(p.result.Tolerated, Tolerated{Object: id, Paths: r.tolerated})
		}
		if r.contest != nil {
			p.result.Contested = append(p.result.Contested, Contest{
				Object: id, Paths: r.contest.paths, Manager: r.contest.manager, Admission: r.contest.admission,
				Since: r.contest.since, Next: r.contest.next,
			})
			p.wakeAt(r.contest.next)
		}
		if !r.backstop.IsZero() {
			p.wakeAt(r.backstop)
		}
	}
	sortResult(&p.result)
}

// wakeAt asks for a Sync no later than at a time.
func (p *pass) wakeAt(at time.Time) {
	in := max(at.Sub(p.now), time.Millisecond)
	if p.result.RetryAfter == 0 || in < p.result.RetryAfter {
		p.result.RetryAfter = in
	}
}

// isOlder says whether a resource version is from before another one.
func isOlder(a, b string) bool {
	if b == "" || a == b {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// isTaken says whether an apply of what must not exist found an object of that name:
// 422 for the resourceVersion that says so, or 409 where both were sent at once.
func isTaken(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsInvalid(err) && namesField(err, "metadata.resourceVersion")
}

// isGone says whether an apply found its object missing (409) or another one in
// its place (422 for the uid, which is immutable).
func isGone(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) && namesField(err, "metadata.uid")
}

func namesField(err error, field string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == field })
}

// isInTheWay says whether something foreign may be what makes an apply invalid.
func isInTheWay(err error) bool { return apierrors.IsInvalid(err) && !namesField(err, "metadata.uid") }
