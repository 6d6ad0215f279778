package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/apply"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/controller/driftreport"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

// reconcileRestore goes on with the restore that a cluster begins with. It says whether
// the members wait for it: then the pass is done.
func (r *Reconciler[C, O]) reconcileRestore(ctx context.Context, p *pass[C], o O) (held bool, err error) {
	p.restored.status = p.c.CommonStatus().Restore
	if p.restored.status == nil && p.c.Common().Restore == nil {
		return false, nil
	}
	seen := restoreObservation{cluster: p.c, agentImage: r.AgentImage, now: r.Clock.Now()}
	if !p.restored.status.Done() {
		// Of a cluster that is restored nothing more is asked in each pass.
		seen.how = r.Engine.PlanRestore(p.c, o)
	}
	if err := r.observeRestore(ctx, &seen); err != nil {
		return true, fmt.Errorf("observe the restore: %w", err)
	}
	p.restored = planRestore(seen)
	if err := p.extractBlocked(r.removeAll(ctx, p, p.restored.remove)); err != nil {
		return p.restored.holds, err
	}
	p.stepped = p.stepped || p.restored.mustRecord
	if !p.restored.holds {
		p.facts = append(p.facts, p.restored.facts...)
		return false, nil
	}
	p.plan = engine.Plan{Recheck: p.restored.recheck, Facts: append(p.restored.facts, condition.Fact{
		Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRestoring, Message: "the first member waits for the restore",
	})}
	p.plan.Report.SystemIdentifier = p.c.CommonStatus().SystemIdentifier
	if result := p.restored.status; result.Done() && result.Result != nil {
		p.plan.Report.SystemIdentifier = result.Result.SystemIdentifier
	}
	if p.c.Common().Suspend {
		p.plan.Step = r.Engine.Plan(p.c, o, r.Clock.Now()).Step
	}
	return true, p.extractBlocked(r.applyRestore(ctx, p))
}

// applyRestore writes what the restore needs. What is recorded must be there
// first.
func (r *Reconciler[C, O]) applyRestore(ctx context.Context, p *pass[C]) error {
	p.sync.Settled = true
	if p.restored.mustRecord || p.c.Common().Suspend {
		return nil
	}
	var err error
	p.sync, err = r.Applier.Sync(ctx, apply.Request{
		Owner: p.c, Objects: p.restored.objects, Claims: p.restored.claims, Drift: p.c.Common().Drift,
	})
	driftreport.ReportDrifts(ctx, r.events(), p.c, p.sync)
	if p.discardOutdatedPlan() || err != nil || p.restored.create == nil {
		return err
	}
	return r.createOnce(ctx, p, p.restored.create)
}

// createOnce makes an object that must not be there. One that the cache lacks is ours, or
// keeps the restore from going on. What was not made is not tried again before
// something changes, or some time has passed.
func (r *Reconciler[C, O]) createOnce(ctx context.Context, p *pass[C], ac runtime.ApplyConfiguration) error {
	data, err := json.Marshal(ac)
	if err != nil {
		return err
	}
	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(data); err != nil {
		return err
	}
	err = r.Client.Create(ctx, obj, client.FieldOwner(v1alpha1.FieldManager))
	if err == nil {
		p.stepped = true
		logf.FromContext(ctx).Info("made for a Job", "object", obj.GetKind()+"/"+obj.GetName())
		return nil
	}
	p.plan.Recheck = findSoonest(p.plan.Recheck, job.RecheckInterval)
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make %s %s: %w", obj.GetKind(), obj.GetName(), err)
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(obj.GroupVersionKind())
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(obj), there); err != nil {
		return client.IgnoreNotFound(err)
	}
	if owner := metav1.GetControllerOf(there); owner != nil && owner.UID == p.c.GetUID() || isImportReport(there, p.c) || there.Annotations[v1alpha1.AnnotationRestoredBy] == string(p.c.GetUID()) {
		return r.restoreLabels(ctx, there, obj.GetLabels())
	}
	return &apply.ConflictError{Object: apply.ObjectID{GVK: obj.GroupVersionKind(), Namespace: obj.GetNamespace(), Name: obj.GetName()}, Owner: "another client"}
}

// restoreLabels puts back the labels of an object of ours: no cache shows it without. The rest
// of it is not touched; a Job could not be applied over another.
func (r *Reconciler[C, O]) restoreLabels(ctx context.Context, there *metav1.PartialObjectMetadata, labels map[string]string) error {
	before := there.DeepCopy()
	if there.Labels == nil {
		there.Labels = map[string]string{}
	}
	maps.Copy(there.Labels, labels)
	if there.DeletionTimestamp != nil || maps.Equal(before.Labels, there.Labels) {
		return nil // it goes, or the cache is behind
	}
	err := r.Client.Patch(ctx, there, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(v1alpha1.FieldManager))
	if err := client.IgnoreNotFound(err); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("label %s %s: %w", there.Kind, there.Name, err)
	}
	return nil
}

// removeAll deletes exactly the objects that were observed.
func (r *Reconciler[C, O]) removeAll(ctx context.Context, p *pass[C], objects []client.Object) error {
	if p.c.Common().Suspend {
		return nil
	}
	for _, obj := range objects {
		uid := obj.GetUID()
		how := metav1.DeletePropagationBackground
		if _, isJob := obj.(*batchv1.Job); isJob {
			how = metav1.DeletePropagationForeground // it is there as long as its pods are
		}
		err := r.Client.Delete(ctx, obj, client.Preconditions{UID: &uid}, client.PropagationPolicy(how))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("remove %T %s: %w", obj, obj.GetName(), err)
		}
		p.stepped = true
	}
	return nil
}

// observeRestore reads, and never judges.
func (r *Reconciler[C, O]) observeRestore(ctx context.Context, s *restoreObservation) error {
	gvk, err := apiutil.GVKForObject(s.cluster, r.Client.Scheme())
	if err != nil {
		return err
	}
	s.kind = gvk.Kind
	if err := r.observeRestoreJob(ctx, s); err != nil || s.cluster.CommonStatus().Restore.Done() {
		return err
	}
	said := &corev1.ConfigMap{}
	found, err := r.findObject(ctx, s, said, s.jobName())
	if err != nil {
		return err
	}
	if found && metav1.IsControlledBy(said, s.cluster) {
		s.report = reportOf(said, string(s.cluster.GetUID()))
	}
	if err := r.observeSource(ctx, s); err != nil {
		return err
	}
	return errors.Join(r.observeHidden(ctx, s), r.observeRestoreKeys(ctx, s))
}

// observeHidden looks for a volume that seems to have gone from under a restore:
// one whose labels another client took is in no cache.
func (r *Reconciler[C, O]) observeHidden(ctx context.Context, s *restoreObservation) error {
	if s.how.Volume != nil || s.how.Claim == nil || s.job == nil && s.report == nil {
		return nil
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: s.cluster.GetNamespace(), Name: *s.how.Claim.Name}, there)
	s.hidden = err == nil && there.DeletionTimestamp == nil && there.Annotations[v1alpha1.AnnotationRestoredBy] == string(s.cluster.GetUID())
	return client.IgnoreNotFound(err)
}

// observeRestoreJob finds the Job and its pods.
func (r *Reconciler[C, O]) observeRestoreJob(ctx context.Context, s *restoreObservation) error {
	job := &batchv1.Job{}
	found, err := r.findObject(ctx, s, job, s.jobName())
	if err != nil || !found || !metav1.IsControlledBy(job, s.cluster) {
		return err
	}
	s.job = job
	var pods corev1.PodList
	err = r.Client.List(ctx, &pods, client.InNamespace(s.cluster.GetNamespace()), client.MatchingLabels{
		v1alpha1.LabelCluster: s.cluster.GetName(), v1alpha1.LabelRestore: strings.ToLower(s.kind),
	})
	s.pods = pods.Items
	return err
}

// observeSource finds the Backup that is to be recorded.
func (r *Reconciler[C, O]) observeSource(ctx context.Context, s *restoreObservation) error {
	declared := s.cluster.Common().Restore
	if declared == nil || declared.Backup == "" || s.cluster.CommonStatus().Restore != nil && s.matchesSpec() {
		return nil
	}
	b := &v1alpha1.Backup{}
	found, err := r.findObject(ctx, s, b, declared.Backup)
	if err != nil || !found {
		return err
	}
	s.backup = b
	if at := b.Status.Location; at != nil && at.ClaimName != "" {
		claim := &corev1.PersistentVolumeClaim{}
		found, err = r.findObject(ctx, s, claim, at.ClaimName)
		s.volume = found && claim.DeletionTimestamp == nil
	}
	return err
}

// observeRestoreKeys reads which version the credentials of the store have, while
// no Job uses them. Nothing but their metadata is read.
func (r *Reconciler[C, O]) observeRestoreKeys(ctx context.Context, s *restoreObservation) error {
	st := s.cluster.CommonStatus().Restore
	if st == nil || st.Location.CredentialsSecret == "" || s.job != nil && !job.HasEnded(s.job) {
		return nil
	}
	keys := &metav1.PartialObjectMetadata{}
	keys.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: s.cluster.GetNamespace(), Name: st.Location.CredentialsSecret}, keys)
	if apierrors.IsNotFound(err) {
		s.missing = st.Location.CredentialsSecret
	}
	s.keys = keys.ResourceVersion
	return client.IgnoreNotFound(err)
}

func (r *Reconciler[C, O]) findObject(ctx context.Context, s *restoreObservation, obj client.Object, name string) (bool, error) {
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.cluster.GetNamespace(), Name: name}, obj)
	return err == nil, client.IgnoreNotFound(err)
}
