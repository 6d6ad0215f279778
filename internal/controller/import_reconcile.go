package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/job"
)

// reconcileImport decides how the import goes on that a cluster begins with. What must
// be recorded is, before anything of the plan is done: the first member is made only
// once its cluster is known to begin with an import.
func (r *Reconciler[C, O]) reconcileImport(ctx context.Context, p *pass[C]) error {
	if p.plan.Import == nil && p.imported.status == nil {
		return nil
	}
	seen := importObservation{cluster: p.c, how: p.plan.Import, agentImage: r.AgentImage, now: r.Clock.Now()}
	if err := r.observeImport(ctx, &seen); err != nil {
		return fmt.Errorf("observe the import: %w", err)
	}
	p.imported = planImport(seen)
	if len(p.plan.Facts) > 0 || p.imported.mustRecord { // else the status stays as it is
		p.plan.Facts = append(p.plan.Facts, p.imported.facts...)
	}
	p.plan.Objects = append(p.plan.Objects, p.imported.objects...)
	p.plan.Recheck = findSoonest(p.plan.Recheck, p.imported.recheck)
	p.stepped = p.stepped || p.imported.mustRecord
	p.sync.Settled = p.imported.mustRecord || p.imported.holds
	return nil
}

// executeImport makes and removes what was planned. Nothing is made before all of the cluster's
// objects are applied: without its account, the Job would run with the rights of another
// owner's.
func (r *Reconciler[C, O]) executeImport(ctx context.Context, p *pass[C], applied bool) error {
	if p.c.Common().Suspend {
		return nil
	}
	if err := r.removeAll(ctx, p, p.imported.remove); err != nil || p.imported.create == nil || !applied {
		return err
	}
	return r.createOnce(ctx, p, p.imported.create)
}

// observeImport reads, and never judges.
func (r *Reconciler[C, O]) observeImport(ctx context.Context, s *importObservation) error {
	gvk, err := apiutil.GVKForObject(s.cluster, r.Client.Scheme())
	if err != nil {
		return err
	}
	s.kind = gvk.Kind
	key := types.NamespacedName{Namespace: s.cluster.GetNamespace(), Name: s.name()}
	if err := r.observeImportTry(ctx, s, key); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{}
	err = r.Client.Get(ctx, key, account)
	s.begun = err == nil && metav1.IsControlledBy(account, s.cluster)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return r.observeImportSecrets(ctx, s)
}

// observeImportTry finds the Job, what it reported, and all pods of imports into a cluster of
// this name.
func (r *Reconciler[C, O]) observeImportTry(ctx context.Context, s *importObservation, key types.NamespacedName) error {
	found, said := &batchv1.Job{}, &corev1.ConfigMap{}
	// What was made a moment ago is not in the cache: it would write into a database that
	// clients have been let into.
	reader := client.Reader(r.Client)
	if st := s.cluster.CommonStatus().Import; st != nil && !st.Done() && s.how != nil && s.how.Source == nil {
		reader = r.Live
	}
	switch err := reader.Get(ctx, key, found); {
	case err == nil && metav1.IsControlledBy(found, s.cluster):
		s.job = found
	case client.IgnoreNotFound(err) != nil:
		return err
	}
	switch err := reader.Get(ctx, key, said); {
	case err == nil && slices.ContainsFunc(said.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.cluster.GetUID() }):
		s.report = importReportOf(said, string(s.cluster.GetUID()), s.hashSource())
	case client.IgnoreNotFound(err) != nil:
		return err
	}
	var pods corev1.PodList
	err := reader.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{
		v1alpha1.LabelCluster: s.cluster.GetName(), v1alpha1.LabelImport: strings.ToLower(s.kind),
	})
	s.pods = pods.Items
	return err
}

// observeImportSecrets reads which version the Secrets have that the Job logs in with, while
// none uses them. Nothing but their metadata is read.
func (r *Reconciler[C, O]) observeImportSecrets(ctx context.Context, s *importObservation) error {
	if s.how == nil || s.how.Source == nil || s.cluster.CommonStatus().Import == nil || s.job != nil && !job.HasEnded(s.job) {
		return nil
	}
	if err := r.observeImportSecret(ctx, s, s.how.Secret, ""); err != nil {
		return err
	}
	named := s.how.Source.SecretNames()
	for _, field := range slices.Sorted(maps.Keys(named)) {
		if err := r.observeImportSecret(ctx, s, named[field], field); err != nil {
			return err
		}
	}
	return nil
}

// observeImportSecret reads the version of a Secret that a field names; that of the new
// database has no field, and comes with it.
func (r *Reconciler[C, O]) observeImportSecret(ctx context.Context, s *importObservation, name, field string) error {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: s.cluster.GetNamespace(), Name: name}, secret)
	if apierrors.IsNotFound(err) && field != "" {
		s.missing = field + " names Secret " + name
	}
	s.secrets += string(secret.UID) + "/" + secret.ResourceVersion + "\n"
	return client.IgnoreNotFound(err)
}
