package controller

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/job"
)

// drillSeconds is how long all tries of a drill may take together.
const drillSeconds = 24 * 60 * 60

// kindDrill is what the label for the kind says of what drills need.
const kindDrill = "drill"

// labels of what a drill needs: its pods are no members.
func (s drillObservation) labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: s.cluster.GetName(), v1alpha1.LabelKind: kindDrill, v1alpha1.LabelDrill: strings.ToLower(s.kind),
		"app.kubernetes.io/name": "holdfast-drill", "app.kubernetes.io/instance": s.cluster.GetName(),
		"app.kubernetes.io/component": "drill", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
	}
}

// drillClaim is a volume as the members have it, and larger where the backup
// needs that. It goes when the Job has ended: one that went with a pod would
// stay as long as its log does, one for each try.
func drillClaim(s drillObservation, b *v1alpha1.Backup, name string) runtime.ApplyConfiguration {
	spec := *s.how.Claim.Spec
	size := *resource.NewQuantity(drillSize(s, b), resource.BinarySI)
	spec.Resources = corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: size})
	return corev1ac.PersistentVolumeClaim(name, s.cluster.GetNamespace()).WithLabels(s.labels()).
		WithOwnerReferences(job.OwnerReference(s.kind, s.cluster)).WithSpec(&spec)
}

// drillSize is what the volume must have, in bytes: a file system takes its
// share, and the database some on top.
func drillSize(s drillObservation, b *v1alpha1.Backup) int64 {
	const spare, unit = 512 << 20, 1 << 20
	data := int64(0)
	if r := b.Status.Result; r != nil {
		data = r.DataSize.Value() * max(s.how.Copies, 1)
	}
	need := data + data/5 + spare
	return max(s.how.Size, (need+unit-1)/unit*unit)
}

// drillTask has a cluster restored that belongs to no cluster: no member ever takes what
// comes of it for its own.
func drillTask(s drillObservation, b *v1alpha1.Backup, name string) agentapi.RestoreTask {
	at := b.Status.Location
	uid := string(s.cluster.GetUID()) + "/" + name
	task := agentapi.RestoreTask{
		Namespace: s.cluster.GetNamespace(), Name: s.cluster.GetName(), UID: uid, Kind: s.kind, Member: name,
		Store:    agentapi.BackupStore{URL: at.URL, Endpoint: at.Endpoint, Region: at.Region, PathStyle: at.PathStyle},
		Manifest: b.Status.Result.Manifest, Checksum: b.Status.Result.Checksum, Prefix: at.Prefix, VolumeSize: drillSize(s, b), Bandwidth: s.cluster.Common().Backup.BytesPerSecond(),
	}
	return s.how.Complete(task, true)
}

// drillJob restores on trial. Its pod has no right to anything in Kubernetes.
func drillJob(s drillObservation, b *v1alpha1.Backup, name string) runtime.ApplyConfiguration {
	at, common := b.Status.Location, s.cluster.Common()
	pod := job.BuildPod(drillTask(s, b, name), s.how.User, at, s.how.Image, agentapi.BinDir+"/holdfast", "job", "drill", s.how.Program).
		WithServiceAccountName(*s.how.Account.Name).WithAutomountServiceAccountToken(false).
		WithVolumes(corev1ac.Volume().WithName("data").WithPersistentVolumeClaim(corev1ac.PersistentVolumeClaimVolumeSource().WithClaimName(name)))
	ctr := &pod.Containers[0]
	ctr.WithVolumeMounts(corev1ac.VolumeMount().WithName("data").WithMountPath(agentapi.DataDir))
	job.MountBackupsReadOnly(pod, at)
	if at.ClaimName != "" {
		// Another group than who writes there would have every file given to it,
		// and back at the next backup. The volume that is restored to belongs to no cluster.
		pod.SecurityContext.WithFSGroup(job.BackupUser)
	}
	switch own, copies := common.Backup.Verify.Resources, common.Backup.Resources; {
	case own != nil:
		ctr.Resources = job.ConvertTo[corev1ac.ResourceRequirementsApplyConfiguration](own)
	case copies != nil:
		ctr.Resources = job.ConvertTo[corev1ac.ResourceRequirementsApplyConfiguration](copies)
	default:
		ctr.WithResources(job.MemberResources(common.Resources))
	}
	job.AddInstaller(pod, s.agentImage)
	job.AddScheduling(pod, common)
	job.AddNodeAffinity(pod, common)
	job := batchv1ac.Job(name, s.cluster.GetNamespace()).WithLabels(s.labels()).
		WithOwnerReferences(job.OwnerReference(s.kind, s.cluster)).WithSpec(job.BuildSpec(s.labels(), pod))
	job.Spec.WithActiveDeadlineSeconds(drillSeconds)
	return job
}
