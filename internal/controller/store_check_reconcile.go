package controller

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

// Keys tell which versions of Secrets there are, and wake the clusters that
// named them.
type Keys interface {
	ReadVersions(ctx context.Context, cluster types.NamespacedName, names ...string) (map[string]string, error)
}

// checkStore tries whether the destination of backups can be used, and says
// where it cannot.
func (r *Reconciler[C, O]) checkStore(ctx context.Context, p *pass[C], kind string, all []*v1alpha1.Backup) error {
	s := storeObservation{
		cluster: p.c, kind: kind, image: p.plan.Report.Image, agentImage: r.AgentImage,
		good: backups.FindNewestGood(backups.FilterOwn(p.c, all)), now: r.Clock.Now(),
	}
	if err := r.observeStore(ctx, &s); err != nil {
		p.store.check = p.c.CommonStatus().StoreCheck // it stands
		return fmt.Errorf("observe the store of backups: %w", err)
	}
	p.store = planStore(s)
	if p.c.Common().Suspend {
		p.store.recheck = 0
	} else if err := r.executeStoreCheck(ctx, p); err != nil {
		return err
	}
	p.backups.Verdicts.Store = p.store.fault
	return nil
}

// observeStore reads caches, and never judges.
func (r *Reconciler[C, O]) observeStore(ctx context.Context, s *storeObservation) error {
	key := client.ObjectKeyFromObject(s.cluster)
	var named []string
	if b := s.cluster.Common().Backup; b.IsEnabled() && b.Destination != nil && b.Destination.CredentialsSecretRef != nil {
		named = append(named, b.Destination.CredentialsSecretRef.Name)
	}
	versions, err := r.Keys.ReadVersions(ctx, key, named...)
	if err != nil {
		return err
	}
	for _, name := range named {
		if s.keys = versions[name]; s.keys == "" {
			s.missing = name
		}
	}
	var jobs batchv1.JobList
	in, ours := client.InNamespace(key.Namespace), client.MatchingLabels{v1alpha1.LabelCluster: key.Name, v1alpha1.LabelStoreCheck: strings.ToLower(s.kind)}
	if err := r.Client.List(ctx, &jobs, in, ours); err != nil || len(jobs.Items) == 0 {
		return err
	}
	var pods corev1.PodList
	err = r.Client.List(ctx, &pods, in, ours)
	s.jobs, s.pods = jobs.Items, pods.Items
	return err
}

// executeStoreCheck removes Jobs that serve nothing any more, and makes the next one.
func (r *Reconciler[C, O]) executeStoreCheck(ctx context.Context, p *pass[C]) error {
	for _, job := range p.store.remove {
		uid := job.UID
		err := r.Client.Delete(ctx, job, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("remove Job %s: %w", job.Name, err)
		}
	}
	if p.store.create == nil {
		return nil
	}
	job, err := job.ConvertJob(p.store.create)
	if err != nil {
		return err
	}
	err = r.Client.Create(ctx, job, client.FieldOwner(v1alpha1.FieldManager))
	stuck := engine.FindBlocked(err)
	switch {
	case err == nil:
		logf.FromContext(ctx).Info("the store of backups is tried", "job", job.Name)
	case apierrors.IsAlreadyExists(err):
		return r.findStoreJob(ctx, p, job)
	case stuck != nil:
		p.trace.AddBlocked(stuck.Reason)
		p.store.reportUntried(stuck.Message)
	default:
		return fmt.Errorf("make Job %s: %w", job.Name, err)
	}
	return nil
}

// findStoreJob looks whose Job has the name: the cache is behind, another client has
// taken our labels, or it is not ours.
func (r *Reconciler[C, O]) findStoreJob(ctx context.Context, p *pass[C], j *batchv1.Job) error {
	p.store.recheck = job.RecheckInterval
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(j), there)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("check whose Job %s is: %w", j.Name, err)
	case metav1.IsControlledBy(there, p.c):
		return r.restoreLabels(ctx, there, j.Labels)
	}
	p.store.reportUntried("there is a Job " + j.Name + " that is not of this cluster: it is left alone; rename or delete it")
	return nil
}
