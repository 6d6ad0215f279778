package backup

import (
	"context"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/controller/inventory"
	"github.com/holdfast-db/holdfast/internal/job"
)

// observeBackup reads the cache, and never judges.
func (r *Reconciler) observeBackup(ctx context.Context, b *v1alpha1.Backup) (observation, error) {
	if run := b.Status.Run; run != nil && run.BackupUID != "" && run.BackupUID != string(b.UID) {
		b.Status.Run = nil // said by the pod of a Backup that had this name
	}
	s := observation{backup: b, agentImage: r.AgentImage, now: r.Clock.Now()}
	for _, look := range []func(context.Context, *observation) error{
		r.observeJobs, r.observeCluster, r.observePlace, r.observeTurn, r.observeKeys, r.observeOthers, r.observeReaders, r.observeFollowers, r.observeKind,
	} {
		if err := look(ctx, &s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// isOpen says whether a backup is still to be made.
func (s *observation) isOpen() bool {
	return !s.backup.IsFinished() && s.backup.DeletionTimestamp == nil
}

// observeCluster finds the cluster, and how it is copied where it is to be.
func (r *Reconciler) observeCluster(ctx context.Context, s *observation) error {
	copies := r.Kinds[s.backup.Spec.ClusterRef.Kind]
	if copies == nil {
		return nil
	}
	name := types.NamespacedName{Namespace: s.backup.Namespace, Name: s.backup.Spec.ClusterRef.Name}
	c, err := copies.Find(ctx, name)
	if err == nil && s.isOpen() {
		c, s.copying, err = copies.Copying(ctx, name)
	}
	if err == nil && c.GetDeletionTimestamp() == nil {
		s.cluster = c
	}
	return client.IgnoreNotFound(err)
}

// observeOthers finds which of the cluster's other backups this one waits for.
func (r *Reconciler) observeOthers(ctx context.Context, s *observation) error {
	if s.backup.HasSucceeded() && s.backup.DeletionTimestamp == nil {
		return nil
	}
	all, err := inventory.ListBackups(ctx, r.Client, s.backup.Spec.ClusterRef, s.backup.Namespace)
	if err != nil {
		return err
	}
	runs := func(other *v1alpha1.Backup) (bool, error) { return r.hasRunningJob(ctx, other) }
	if !s.isOpen() {
		s.log = backups.RetainArchive(s.backup, all)
		s.writer, err = writerOf(s.backup, all, runs)
		return err
	}
	if s.job != nil {
		return nil
	}
	if s.cluster != nil {
		s.copying.Sources = rotateSources(s.copying.Sources, countFailures(backups.FilterOwn(s.cluster, all)))
	}
	if s.cluster != nil {
		s.removed = backups.FindRemovedDestination(s.cluster, backups.FilterOwn(s.cluster, all))
	}
	s.leaving = leavingOf(all, s.now)
	s.ahead, err = findBackupAhead(s.backup, all, runs)
	return err
}

// hasRunningJob says whether a backup has a Job that is not done. The cache may not know
// it yet, so the API server is asked.
func (r *Reconciler) hasRunningJob(ctx context.Context, b *v1alpha1.Backup) (bool, error) {
	j := &batchv1.Job{}
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: b.Namespace, Name: b.Name + copySuffix}, j); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	owner := metav1.GetControllerOf(j)
	return owner != nil && owner.UID == b.UID && !job.HasEnded(j), nil
}

// observeKeys looks whether the credentials of the store are there, while there is no
// Job that waits for them. Nothing but their metadata is read.
func (r *Reconciler) observeKeys(ctx context.Context, s *observation) error {
	if !s.isOpen() || s.cluster == nil || s.job != nil || !s.cluster.Common().Backup.IsEnabled() {
		return nil
	}
	if s.most > 0 && isQueued(s.backup) {
		return nil // they were there, and are looked for again when it has its turn
	}
	d := s.cluster.Common().Backup.Destination
	if d == nil || d.CredentialsSecretRef == nil {
		return nil
	}
	keys := &metav1.PartialObjectMetadata{}
	keys.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: s.backup.Namespace, Name: d.CredentialsSecretRef.Name}, keys)
	if apierrors.IsNotFound(err) {
		s.missing = d.CredentialsSecretRef.Name
	}
	return client.IgnoreNotFound(err)
}

// observePlace finds the volume, and who the Jobs are.
func (r *Reconciler) observePlace(ctx context.Context, s *observation) error {
	find := func(obj client.Object, name string) (bool, error) {
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.backup.Namespace, Name: name}, obj)
		return err == nil, client.IgnoreNotFound(err)
	}
	account := &corev1.ServiceAccount{}
	found, err := find(account, s.backup.Spec.ClusterRef.Name+v1alpha1.SuffixBackup)
	if err != nil {
		return err
	}
	if found {
		s.account = account
	}
	claim := &corev1.PersistentVolumeClaim{}
	if found, err = find(claim, s.backup.Spec.ClusterRef.Name+v1alpha1.SuffixBackups); err != nil {
		return err
	}
	if !found {
		claim = nil
	}
	return r.observeVolume(ctx, s, claim)
}

// observeVolume finds whether the volume that the backup is on is there; claim is
// the one that the cluster's backups go to, nil for none.
func (r *Reconciler) observeVolume(ctx context.Context, s *observation, claim *corev1.PersistentVolumeClaim) error {
	at := s.backup.Status.Location
	if claim != nil && claim.DeletionTimestamp == nil && isFor(claim, s.backup.Spec.ClusterRef) {
		s.claim = claim
	}
	s.volume = claim != nil && isOn(at, claim) && claim.DeletionTimestamp == nil
	if s.volume || at == nil || at.ClaimName == "" {
		return nil
	}
	there, err := r.claimOf(ctx, s.backup.Namespace, at.ClaimName)
	if there == nil || err != nil {
		return err
	}
	s.volumeGoes = isOn(at, there) && there.DeletionTimestamp != nil
	s.volume = isOn(at, there) && !s.volumeGoes
	return nil
}

// isOn says whether a backup's data is on a volume.
func isOn(at *v1alpha1.BackupLocation, v client.Object) bool {
	return at != nil && at.ClaimName == v.GetName() && (at.ClaimUID == "" || at.ClaimUID == string(v.GetUID()))
}

// isFor says whether a volume is that of a cluster's backups, and not only called
// so: no data goes to what is another kind's, or a person's own.
func isFor(claim *corev1.PersistentVolumeClaim, cluster v1alpha1.ClusterReference) bool {
	kind := claim.Labels[v1alpha1.LabelKind]
	return claim.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy && (kind == "" || kind == strings.ToLower(cluster.Kind))
}

// observeKind finds whether the Backup goes because its kind does, before its
// data is removed for that. The API server makes no object of a kind that is
// being deleted, and refuses one that is there already otherwise; asked that
// way, the operator needs no right to read definitions.
func (r *Reconciler) observeKind(ctx context.Context, s *observation) error {
	b := s.backup
	if b.DeletionTimestamp == nil || !hasFinalizer(b) || s.removal != nil || b.Status.Location == nil || b.Spec.DeletionPolicy != v1alpha1.DeletionDelete {
		return nil
	}
	again := &v1alpha1.Backup{Spec: *b.Spec.DeepCopy()}
	again.Namespace, again.Name = b.Namespace, b.Name
	err := r.Client.Create(ctx, again, client.DryRunAll, client.FieldOwner(v1alpha1.FieldManager))
	s.uninstalled = apierrors.IsMethodNotSupported(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), "custom resource definition is terminating")
	return nil // whatever else was wrong with it
}

// observeJobs finds what the Backup owns.
func (r *Reconciler) observeJobs(ctx context.Context, s *observation) error {
	in, ours := client.InNamespace(s.backup.Namespace), client.MatchingLabels{v1alpha1.LabelBackup: s.backup.Name}
	var jobs batchv1.JobList
	var pods corev1.PodList
	var roles rbacv1.RoleList
	for _, list := range []client.ObjectList{&jobs, &pods, &roles} {
		if err := r.Client.List(ctx, list, in, ours); err != nil {
			return err
		}
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if owner := metav1.GetControllerOf(job); owner == nil || owner.UID != s.backup.UID {
			continue
		}
		switch strings.TrimPrefix(job.Name, s.backup.Name) {
		case copySuffix:
			s.job = job
		case sweepSuffix:
			s.sweeping = job
		case removalSuffix:
			s.removal = job
		}
	}
	s.pods, s.leftovers = pods.Items, len(roles.Items) > 0
	return nil
}
