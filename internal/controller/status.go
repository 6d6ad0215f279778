package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/controller/driftreport"
)

// writeStatus computes the status of this pass and writes it in one forced
// apply, if it changed. What it could not say of drift, the next pass says.
func (r *Reconciler[C, O]) writeStatus(ctx context.Context, p *pass[C]) error {
	p.drifts = slices.Concat(p.sync.Drifts, r.memory.unreportedDrifts(p.c))
	before := p.c.CommonStatus().DeepCopy()
	before.Requests, before.Orders = p.readRequests, p.readOrders
	r.fillStatus(p)
	if equality.Semantic.DeepEqual(before, p.c.CommonStatus()) {
		r.memory.keepUnreportedDrifts(p.c, nil)
		return nil
	}
	gvk, err := apiutil.GVKForObject(p.c, r.Client.Scheme())
	if err != nil {
		return err
	}
	answer := r.New()
	answer.SetNamespace(p.c.GetNamespace())
	answer.SetName(p.c.GetName())
	write := func(version string) error {
		body, err := json.Marshal(map[string]any{
			"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind, "status": p.c.CommonStatus(),
			"metadata": map[string]any{"namespace": p.c.GetNamespace(), "name": p.c.GetName(), "resourceVersion": version},
		})
		if err != nil {
			return err
		}
		return r.Client.Status().Patch(ctx, answer, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership)
	}
	// A request is accepted once: of two passes that see none recorded, one must fail. So is
	// a step of tuning, which the next pass carries out, too.
	requests := !equality.Semantic.DeepEqual(before.Requests, p.c.CommonStatus().Requests) || !equality.Semantic.DeepEqual(before.Tuning, p.c.CommonStatus().Tuning)
	version, once := r.chooseVersion(p, before)
	err = write(version)
	if apierrors.IsConflict(err) {
		version, other := r.findUnchangedVersion(ctx, p.c, before, schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind})
		if other != nil {
			err = other
		} else if !once && !requests {
			err = write(version)
		}
	}
	if err != nil {
		r.memory.keepUnreportedDrifts(p.c, p.drifts)
	}
	if apierrors.IsConflict(err) {
		// No watch reports the status that the cache does not show yet.
		p.statusStale = true
		return nil
	}
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	p.requests = requests
	r.memory.recordWrite(p.c, answer.GetResourceVersion())
	r.announceStatus(p.c, before)
	r.announceTuning(p, before)
	return nil
}

// chooseVersion is at which version a status is written, and whether only there: what says
// more than what was read may not be written over what others wrote.
func (r *Reconciler[C, O]) chooseVersion(p *pass[C], before *v1alpha1.CommonStatus) (version string, once bool) {
	// Until a restore is done, a lagging writer must not take off the record that it is.
	restoring := (before.Restore != nil || p.c.Common().Restore != nil) && !before.Restore.Done()
	retains := p.deletion == v1alpha1.DeletionRetain && before.DeletionPolicy != p.deletion
	if p.restored.mustRecord || p.imported.mustRecord || retains {
		return p.c.GetResourceVersion(), true // it is of the spec that was read
	}
	importing := before.Import != nil && !before.Import.Done()
	return r.memory.findVersion(p.c), restoring || importing
}

// findUnchangedVersion asks for the newest version of a cluster that others have written
// since it was read. It fails with NotFound where the name is another one's by
// now: the API server compares no UIDs where a status is applied, and a cluster
// that was made anew must not get what was recorded for the one before. It fails
// with a conflict where its status is another: it may say what this pass does not
// know, as that of an operator that leads by now.
func (r *Reconciler[C, O]) findUnchangedVersion(ctx context.Context, c C, before *v1alpha1.CommonStatus, kind schema.GroupResource) (string, error) {
	now := r.New()
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(c), now); err != nil {
		return "", err
	}
	if now.GetUID() != c.GetUID() {
		return "", apierrors.NewNotFound(kind, c.GetName())
	}
	r.memory.dropRewound(now)
	if !equality.Semantic.DeepEqual(before, now.CommonStatus()) {
		return "", apierrors.NewConflict(kind, c.GetName(), errors.New("another client wrote its status"))
	}
	return now.GetResourceVersion(), nil
}

// fillStatus turns what the pass knows into the status of its cluster.
func (r *Reconciler[C, O]) fillStatus(p *pass[C]) {
	c, st := p.c, p.c.CommonStatus()
	deleting := c.GetDeletionTimestamp() != nil
	if p.deletion != "" {
		st.DeletionPolicy = p.deletion
	}
	if !deleting && len(p.plan.Facts) == 0 {
		// Nothing can be judged: what was said before stands. Drift is seen
		// once, and must not be lost.
		st.Drift = driftreport.RecordDrifts(st.Drift, p.drifts)
		return
	}
	in := condition.Input{
		Facts:     append(p.facts, p.plan.Facts...),
		Rewritten: wroteRequestedChange(p.sync), Unsettled: !p.sync.Settled || p.stepped,
		Suspended: c.Common().Suspend, Deleting: deleting, Error: p.err,
		Standing: driftreport.DescribeDrifts(p.sync.Standing), Contested: driftreport.DescribeContests(p.sync.Contested),
		Tolerated: slices.Concat(p.plan.Tolerated, driftreport.GroupTolerated(p.sync.Tolerated)),
		Resets:    p.plan.Resets,
		Deadline:  progressDeadline(c),
	}
	if !deleting {
		fillReport(st, p)
		if r.Pauses != nil {
			st.WritePauses = mergePauses(st.WritePauses, r.Pauses(client.ObjectKeyFromObject(c)))
		}
	}
	in.Stuck = r.memory.measureStandstill(c, describeProgress(c, in), r.Clock.Now())
	condition.Resolve(c, in)
	r.memory.watchDeadline(c, in.Deadline, conditions.Has(c, v1alpha1.ConditionReconciling))
	st.Phase = describePhase(c, deleting)
	st.ObservedGeneration = c.GetGeneration()
	st.LastHandledReconcileAt = readRequestedAt(c)
	st.Drift = driftreport.RecordDrifts(st.Drift, p.drifts)
}

func fillReport[C v1alpha1.Cluster](st *v1alpha1.CommonStatus, p *pass[C]) {
	r := p.plan.Report
	st.Image, st.Version, st.Primary = r.Image, r.Version, r.Primary
	st.Replicas, st.ReadyReplicas, st.Selector = r.Replicas, r.ReadyReplicas, r.Selector
	st.Ready = fmt.Sprintf("%d/%d", r.ReadyReplicas, p.c.Common().DesiredReplicas())
	st.Members, st.Endpoints = r.Members, r.Endpoints
	st.CredentialsSecret, st.SystemIdentifier = r.CredentialsSecret, r.SystemIdentifier
	record := p.backups.Record
	if !p.backups.Known {
		record = backups.FindScheduleRecord(st) // a slot that is due is not lost with a failed read
	}
	drills := p.drills.record
	if !p.drills.known {
		drills = backups.FindRecord(st, backups.DrillSchedule)
	} else {
		st.Drill = p.drills.status
	}
	st.Requests, st.Schedules = r.Requests, slices.Clone(r.Schedules)
	st.Archive, st.Election, st.Insights, st.Agent = r.Archive, r.Election, r.Insights, r.Agent
	st.Recommendations, st.Tuning = r.Recommendations, r.Tuning
	st.Restore, st.Import = p.restored.status, p.imported.status
	if p.backups.Known {
		st.LastBackup, st.NextBackup, st.StoreCheck = p.backups.Last, nil, p.store.check
		st.BackupPlace = p.backups.Place
	}
	if record != nil {
		st.Schedules = append(st.Schedules, *record)
		if p.backups.Wait > 0 && p.backups.Removed == "" {
			st.NextBackup = record.NextSlot
		}
	}
	if drills != nil {
		st.Schedules = append(st.Schedules, *drills)
	}
}

func progressDeadline(c v1alpha1.Cluster) time.Duration {
	if s := c.Common().ProgressDeadlineSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 10 * time.Minute
}

// wroteRequestedChange says whether the pass wrote something else than what another client had
// changed.
func wroteRequestedChange(sync apply.Result) bool {
	reverted := map[apply.ObjectID]bool{}
	for _, d := range sync.Drifts {
		reverted[d.Object] = d.Action == apply.ActionReverted
	}
	for _, change := range sync.Changed {
		if !reverted[change.Object] {
			return true
		}
	}
	return false
}

// describeProgress names what moves while there is progress.
func describeProgress(c v1alpha1.Cluster, in condition.Input) string {
	facts := in.Facts
	if in.Error != nil {
		facts = append(facts, condition.Fact{Message: "error"})
	}
	return fmt.Sprint(c.GetGeneration(), c.CommonStatus().Members, facts)
}

// unnamedSteps are the reasons of Reconciling that are no phase of their own.
var unnamedSteps = []string{
	v1alpha1.ReasonApplying, v1alpha1.ReasonProgressing, v1alpha1.ReasonConfiguring,
	v1alpha1.ReasonMemberDown, v1alpha1.ReasonMemberUnreachable,
}

// describePhase is a word for people, made from the conditions. No decision reads it.
func describePhase(c v1alpha1.Cluster, deleting bool) string {
	reconciling := conditions.GetReason(c, v1alpha1.ConditionReconciling)
	switch {
	case deleting:
		return "Deleting"
	case c.Common().Suspend:
		return "Suspended"
	case conditions.Has(c, v1alpha1.ConditionStalled):
		return "Failed"
	case slices.Contains(unnamedSteps, reconciling):
		return "Updating"
	case reconciling != "":
		return reconciling
	case conditions.Has(c, v1alpha1.ConditionDegraded) || !conditions.IsTrue(c, v1alpha1.ConditionReady):
		return "Degraded"
	}
	return "Ready"
}
