package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// Keys tell which versions of Secrets there are, and wake the clusters that
// named them.
type Keys interface {
	Versions(ctx context.Context, cluster types.NamespacedName, names ...string) (map[string]string, error)
}

// checkStore tries whether the destination of backups can be used, and says
// where it cannot.
func (r *Reconciler[C, O]) checkStore(ctx context.Context, p *pass[C], kind string, all []*v1alpha1.Backup) error {
	s := storeSeen{
		cluster: p.c, kind: kind, image: p.plan.Report.Image, agentImage: r.AgentImage,
		good: newestGood(ownBackups(p.c, all)), now: r.Clock.Now(),
	}
	if err := r.observeStore(ctx, &s); err != nil {
		p.store.check = p.c.CommonStatus().StoreCheck // it stands
		return fmt.Errorf("observe the store of backups: %w", err)
	}
	p.store = planStore(s)
	if p.c.Common().Suspend {
		p.store.recheck = 0
	} else if err := r.tryStore(ctx, p); err != nil {
		return err
	}
	p.backups.unusable(p.store.fault)
	return nil
}

// observeStore reads caches, and never judges.
func (r *Reconciler[C, O]) observeStore(ctx context.Context, s *storeSeen) error {
	key := client.ObjectKeyFromObject(s.cluster)
	var named []string
	if b := s.cluster.Common().Backup; b.On() && b.Destination != nil && b.Destination.CredentialsSecretRef != nil {
		named = append(named, b.Destination.CredentialsSecretRef.Name)
	}
	versions, err := r.Keys.Versions(ctx, key, named...)
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

// tryStore removes Jobs that serve nothing any more, and makes the next one.
func (r *Reconciler[C, O]) tryStore(ctx context.Context, p *pass[C]) error {
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
	job, err := jobOf(p.store.create)
	if err != nil {
		return err
	}
	err = r.Client.Create(ctx, job, client.FieldOwner(v1alpha1.FieldManager))
	switch {
	case err == nil:
		logf.FromContext(ctx).Info("the store of backups is tried", "job", job.Name)
	case apierrors.IsAlreadyExists(err):
		return r.findStoreJob(ctx, p, job)
	case blocked(err) != nil:
		p.store.untried(blocked(err).Message)
	default:
		return fmt.Errorf("make Job %s: %w", job.Name, err)
	}
	return nil
}

// findStoreJob looks whose Job has the name: the cache is behind, somebody has
// taken our labels, or it is not ours.
func (r *Reconciler[C, O]) findStoreJob(ctx context.Context, p *pass[C], job *batchv1.Job) error {
	p.store.recheck = backupRecheck
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(job), there)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look whose Job %s is: %w", job.Name, err)
	case metav1.IsControlledBy(there, p.c):
		return r.label(ctx, there, job.Labels)
	}
	p.store.untried("there is a Job " + job.Name + " that is not of this cluster: it is left alone; rename or delete it")
	return nil
}

// jobOf an apply configuration, which has the same JSON.
func jobOf(ac *batchv1ac.JobApplyConfiguration) (*batchv1.Job, error) {
	data, err := json.Marshal(ac)
	if err != nil {
		return nil, err
	}
	job := &batchv1.Job{}
	return job, json.Unmarshal(data, job)
}
