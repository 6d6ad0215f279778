package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/controller/inventory"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// reconcileDrills has backups restored on trial, as their schedule says. What it could
// not do is done in the next pass.
func (r *Reconciler[C, O]) reconcileDrills(ctx context.Context, p *pass[C], o O) error {
	if len(p.plan.Facts) == 0 {
		return nil // the status stays as it is
	}
	seen := drillObservation{cluster: p.c, agentImage: r.AgentImage, now: r.Clock.Now()}
	st := p.c.CommonStatus().Drill
	if st == nil && !p.c.Common().Backup.RunsDrills() {
		p.drills.known = true
		return nil
	}
	if st != nil && st.Running != nil {
		seen.how = r.Engine.PlanRestore(p.c, o)
		seen.how.Image = cmp.Or(p.plan.Report.Image, seen.how.Image) // the spec may ask for one that waits
	}
	if err := r.observeDrills(ctx, &seen); err != nil {
		return fmt.Errorf("observe restore drills: %w", err)
	}
	p.drills = planDrills(seen)
	err := r.executeDrillPlan(ctx, p)
	p.facts = append(p.facts, p.drills.facts...)
	p.backups.Verdicts.Drill = p.drills.failing
	r.reportSkippedDrills(p)
	return err
}

// executeDrillPlan does what was planned. A drill whose objects are refused was not
// tried, and the cluster goes on.
func (r *Reconciler[C, O]) executeDrillPlan(ctx context.Context, p *pass[C]) error {
	if p.c.Common().Suspend {
		return nil
	}
	var rest error
	for _, ac := range p.drills.create {
		err := r.createOnce(ctx, p, ac)
		stuck := engine.FindBlocked(err)
		switch {
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		case stuck != nil && p.drills.status.Running != nil:
			p.trace.AddBlocked(stuck.Reason)
			p.drills.reportUntried("%s", stuck.Message)
		case stuck == nil:
			rest = errors.Join(rest, err)
		}
	}
	return errors.Join(rest, r.removeAll(ctx, p, p.drills.remove))
}

// reportSkippedDrills says once that slots are being skipped.
func (r *Reconciler[C, O]) reportSkippedDrills(p *pass[C]) {
	was, is := backups.FindRecord(p.c.CommonStatus(), backups.DrillSchedule), p.drills.record
	if was == nil || is == nil || is.Skipped == was.Skipped || was.Message != "" {
		return
	}
	newest := is.LastSkipped[0]
	r.recordEvent(p.c, warning, v1alpha1.ReasonDrillSkipped, "Schedule", "%d slots have restored no backup on trial, the last at %s: %s",
		is.Skipped-was.Skipped, newest.Slot.UTC().Format(time.RFC3339), newest.Reason)
}

// announceDrill says that a drill has begun, and how it has ended.
func (r *Reconciler[C, O]) announceDrill(c C, before, after *v1alpha1.DrillStatus) {
	if after == nil {
		return
	}
	if before == nil {
		before = &v1alpha1.DrillStatus{}
	}
	if run := after.Running; run != nil && (before.Running == nil || before.Running.Job != run.Job) {
		r.recordEvent(c, normal, v1alpha1.ReasonDrillStarted, "Drill", "backup %s is restored on trial by Job %s", run.Backup, run.Job)
	}
	switch {
	case after.Job == before.Job || after.Job == "":
	case after.Result == v1alpha1.DrillPassed:
		r.recordEvent(c, normal, v1alpha1.ReasonDrillPassed, "Drill", "backup %s was restored on trial in %s: %s", after.Backup, after.Duration, strings.Join(after.Checked, "; "))
	default:
		r.recordEvent(c, warning, v1alpha1.ReasonDrillFailed, "Drill", "backup %s cannot be relied on: %s", after.Backup, after.Message)
	}
}

// observeDrills reads, and never judges. Once drills are turned off, no pass comes
// back for what no cache shows yet.
func (r *Reconciler[C, O]) observeDrills(ctx context.Context, s *drillObservation) error {
	gvk, err := apiutil.GVKForObject(s.cluster, r.Client.Scheme())
	if err != nil {
		return err
	}
	s.kind = gvk.Kind
	var jobs batchv1.JobList
	var pods corev1.PodList
	var claims corev1.PersistentVolumeClaimList
	ours := client.MatchingLabels{v1alpha1.LabelCluster: s.cluster.GetName(), v1alpha1.LabelKind: kindDrill, v1alpha1.LabelDrill: strings.ToLower(s.kind)}
	reader := client.Reader(r.Client)
	if !s.cluster.Common().Backup.RunsDrills() {
		reader = r.Live
	}
	for _, list := range []client.ObjectList{&jobs, &pods, &claims} {
		if err := reader.List(ctx, list, client.InNamespace(s.cluster.GetNamespace()), ours); err != nil {
			return err
		}
	}
	for i := range jobs.Items {
		if s.ofDrill(&jobs.Items[i]) {
			s.jobs = append(s.jobs, &jobs.Items[i])
		}
	}
	slices.SortFunc(s.jobs, func(a, b *batchv1.Job) int { return strings.Compare(a.Name, b.Name) }) // by their slots
	for i := range claims.Items {
		if s.ofDrill(&claims.Items[i]) {
			s.claims = append(s.claims, &claims.Items[i])
		}
	}
	s.pods = pods.Items
	all, err := inventory.ListBackups(ctx, r.Client, v1alpha1.ClusterReference{Kind: s.kind, Name: s.cluster.GetName()}, s.cluster.GetNamespace())
	if err != nil {
		return err
	}
	s.own = backups.FilterOwn(s.cluster, all)
	return r.observeDrillKeys(ctx, s)
}

// ofDrill says whether an object was made for a drill of the cluster. Labels are
// copied, and volumes of members may have the same owner.
func (s *drillObservation) ofDrill(obj client.Object) bool {
	return strings.HasPrefix(obj.GetName(), s.cluster.GetName()+v1alpha1.InfixDrill) && metav1.IsControlledBy(obj, s.cluster)
}

// observeDrillKeys looks whether the credentials of the store are there when a slot has
// come. Nothing but their metadata is read.
func (r *Reconciler[C, O]) observeDrillKeys(ctx context.Context, s *drillObservation) error {
	record, newest := backups.FindRecord(s.cluster.CommonStatus(), backups.DrillSchedule), backups.FindNewestGood(s.own)
	if record == nil || record.NextSlot == nil || record.NextSlot.After(s.now) || newest == nil || newest.Status.Location.CredentialsSecret == "" {
		return nil
	}
	keys := &metav1.PartialObjectMetadata{}
	keys.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: s.cluster.GetNamespace(), Name: newest.Status.Location.CredentialsSecret}, keys)
	if apierrors.IsNotFound(err) {
		s.missing = newest.Status.Location.CredentialsSecret
	}
	return client.IgnoreNotFound(err)
}
