package backup

import (
	"k8s.io/apimachinery/pkg/runtime"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/job"
)

// Suffixes of the Jobs of a Backup. Each has one, so that no Job of a Backup has
// the name of another Backup's.
const (
	copySuffix    = "-copy"
	sweepSuffix   = "-sweep"
	removalSuffix = "-removal"
)

// removalSeconds is how long a Job may remove; another one goes on from there.
const removalSeconds = 60 * 60

// copySeconds is how long all tries of a copy may take together: more than any
// that gets on, and an end to one that does not and cannot tell.
const copySeconds = 24 * 60 * 60

// labels of what belongs to a Backup. They name the cluster, for the cache, and
// not its kind, so that no Service of the cluster takes a Job's pod for a
// member.
func (s observation) labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: s.backup.Spec.ClusterRef.Name, v1alpha1.LabelKind: "backup", v1alpha1.LabelBackup: s.backup.Name,
		"app.kubernetes.io/name": "holdfast-backup", "app.kubernetes.io/instance": s.backup.Spec.ClusterRef.Name,
		"app.kubernetes.io/component": "backup", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
	}
}

// accessObjects let the pod say in the status of its own Backup how far it is,
// and nothing else.
func accessObjects(s observation) []runtime.ApplyConfiguration {
	b, name := s.backup, s.backup.Name+job.ReportSuffix
	account := b.Spec.ClusterRef.Name + v1alpha1.SuffixBackup
	return []runtime.ApplyConfiguration{
		rbacv1ac.Role(name, b.Namespace).WithLabels(s.labels()).WithOwnerReferences(job.OwnerReference("Backup", s.backup)).
			WithRules(rbacv1ac.PolicyRule().WithAPIGroups(v1alpha1.GroupVersion.Group).WithResources("backups/status").WithResourceNames(b.Name).WithVerbs("patch")),
		rbacv1ac.RoleBinding(name, b.Namespace).WithLabels(s.labels()).WithOwnerReferences(job.OwnerReference("Backup", s.backup)).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(name)).
			WithSubjects(rbacv1ac.Subject().WithKind("ServiceAccount").WithName(account).WithNamespace(b.Namespace)),
	}
}

// copyTask is the task of the pod.
func (s observation) copyTask() agentapi.BackupTask {
	b := s.backup
	at := b.Status.Location
	sources := make([]agentapi.BackupSource, 0, len(s.copying.Sources))
	for _, source := range s.copying.Sources {
		sources = append(sources, agentapi.BackupSource{Name: source.Name, Address: source.Address})
	}
	return agentapi.BackupTask{
		Namespace: b.Namespace, Name: b.Name, UID: string(b.UID),
		Kind: b.Spec.ClusterRef.Kind, Cluster: b.Spec.ClusterRef.Name, ClusterUID: b.Status.ClusterUID,
		Store:  agentapi.BackupStore{URL: at.URL, Volume: at.ClaimName, Endpoint: at.Endpoint, Region: at.Region, PathStyle: at.PathStyle},
		Prefix: at.Prefix, Sources: sources, AtLeast: s.copying.AtLeast, SystemIdentifier: s.copying.SystemIdentifier, OtherNames: s.copying.OtherNames, Expected: s.copying.Expected,
	}
}

// copyJob copies the cluster: the injected program, in the image that holds the
// database's own. A pod is replaced only once it has ended, so that no two
// attempts ever write at once.
func copyJob(s observation) runtime.ApplyConfiguration {
	task := s.copyTask()
	if s.claim != nil && task.Store.Volume == s.claim.Name {
		task.Store.Size = backups.VolumeSize(s.claim)
	}
	task.Bandwidth = s.cluster.Common().Backup.BytesPerSecond()
	pod := job.BuildPod(task, job.BackupUser, s.backup.Status.Location, s.copying.Image, agentapi.BinDir+"/holdfast", "job", "backup", s.copying.Program).
		WithServiceAccountName(s.cluster.GetName() + v1alpha1.SuffixBackup).WithAutomountServiceAccountToken(true).
		WithVolumes(s.identityVolume())
	pod.Containers[0].WithVolumeMounts(corev1ac.VolumeMount().WithName("tls").WithMountPath(agentapi.TLSDir).WithReadOnly(true))
	job.RequestMemory(pod, s.copying.Memory)
	if own := s.cluster.Common().Backup.Resources; own != nil {
		pod.Containers[0].Resources = job.ConvertTo[corev1ac.ResourceRequirementsApplyConfiguration](own)
	}
	if scratch := s.copying.Scratch; scratch != nil {
		job.AddScratch(pod, scratch.Size, scratch.Class)
	}
	job.AddInstaller(pod, s.agentImage)
	job.AddScheduling(pod, s.cluster.Common())
	job := s.newJob(copySuffix, pod)
	job.Spec.WithActiveDeadlineSeconds(copySeconds)
	return job
}

// identityVolume is the certificate by which the database knows the pod.
func (s observation) identityVolume() *corev1ac.VolumeApplyConfiguration {
	keys := s.copying.Certificate
	if keys == nil {
		return job.SecretVolume("tls", s.copying.Secret)
	}
	return job.CertificateVolume("tls", s.copying.Secret, keys.Secret, keys.Certificate, keys.Key)
}

// removalJob removes what is stored.
func removalJob(s observation) runtime.ApplyConfiguration {
	return s.buildRemovalJob(removalSuffix, "remove")
}

// sweepJob removes what is stored, unless it is a whole backup.
func sweepJob(s observation) runtime.ApplyConfiguration {
	return s.buildRemovalJob(sweepSuffix, "sweep")
}

// buildRemovalJob makes a Job that needs nothing of the cluster, which may be gone, and
// nothing of the API server.
func (s observation) buildRemovalJob(suffix, verb string) runtime.ApplyConfiguration {
	task := s.copyTask()
	if task.Log = s.log; s.backup.DeletionTimestamp == nil {
		task.Log = nil
	}
	pod := job.BuildPod(task, job.BackupUser, s.backup.Status.Location, s.agentImage, "", "job", "backup", verb).WithAutomountServiceAccountToken(false)
	if s.account != nil {
		pod.WithServiceAccountName(s.account.Name)
	}
	job.AddScheduling(pod, s.jobPlacement())
	job := s.newJob(suffix, pod)
	job.Spec.WithActiveDeadlineSeconds(removalSeconds)
	return job
}

func (s observation) newJob(suffix string, pod *corev1ac.PodSpecApplyConfiguration) *batchv1ac.JobApplyConfiguration {
	return batchv1ac.Job(s.backup.Name+suffix, s.backup.Namespace).WithLabels(s.labels()).WithOwnerReferences(job.OwnerReference("Backup", s.backup)).
		WithSpec(job.BuildSpec(s.labels(), pod))
}
