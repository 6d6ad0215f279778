package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/job"
)

// restoreReport is what the pods of a restore say.
type restoreReport struct {
	object              *corev1.ConfigMap
	step, progress, err string
	result              *v1alpha1.RestoreResult
}

// reportOf reads the report of a restore that fills the volume of the cluster with a UID.
func reportOf(m *corev1.ConfigMap, uid string) *restoreReport {
	r := &restoreReport{object: m}
	if m.Data[agentapi.RestoreKeyClusterUID] != uid {
		return r // nothing was said yet
	}
	r.step, r.progress, r.err = m.Data[agentapi.RestoreKeyStep], m.Data[agentapi.RestoreKeyProgress], m.Data[agentapi.RestoreKeyError]
	if text := m.Data[agentapi.RestoreKeyResult]; text != "" {
		result := &v1alpha1.RestoreResult{}
		if err := json.Unmarshal([]byte(text), result); err != nil {
			r.err = fmt.Sprintf("ConfigMap %s holds a result that is none: %v", m.Name, err)
			return r
		}
		r.result = result
	}
	return r
}

// jobName of the Job, and of what its pod says.
func (s restoreObservation) jobName() string { return s.cluster.GetName() + v1alpha1.SuffixRestore }

// labels of what a restore needs: its pods are no members.
func (s restoreObservation) labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: s.cluster.GetName(), v1alpha1.LabelKind: "restore", v1alpha1.LabelRestore: strings.ToLower(s.kind),
		"app.kubernetes.io/name": "holdfast-restore", "app.kubernetes.io/instance": s.cluster.GetName(),
		"app.kubernetes.io/component": "restore", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
	}
}

// restoreAccess lets the pod say how far it is, in one ConfigMap, and nothing
// else.
func restoreAccess(s restoreObservation) []runtime.ApplyConfiguration {
	ns, name := s.cluster.GetNamespace(), s.jobName()+job.ReportSuffix
	return []runtime.ApplyConfiguration{
		s.how.Account,
		rbacv1ac.Role(name, ns).WithLabels(s.labels()).WithOwnerReferences(job.OwnerReference(s.kind, s.cluster)).
			WithRules(rbacv1ac.PolicyRule().WithAPIGroups("").WithResources("configmaps").WithResourceNames(s.jobName()).WithVerbs("patch")),
		rbacv1ac.RoleBinding(name, ns).WithLabels(s.labels()).WithOwnerReferences(job.OwnerReference(s.kind, s.cluster)).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(name)).
			WithSubjects(rbacv1ac.Subject().WithKind("ServiceAccount").WithName(*s.how.Account.Name).WithNamespace(ns)),
	}
}

// restoreReportMap is what the pod fills: the right to create one could not be
// limited to its name.
func restoreReportMap(s restoreObservation) runtime.ApplyConfiguration {
	return corev1ac.ConfigMap(s.jobName(), s.cluster.GetNamespace()).WithLabels(s.labels()).WithOwnerReferences(job.OwnerReference(s.kind, s.cluster))
}

// withoutOwner is a volume to create: its owners are applied, so that they can
// be taken away again when spec.deletionPolicy changes.
func withoutOwner(claim *corev1ac.PersistentVolumeClaimApplyConfiguration) runtime.ApplyConfiguration {
	bare, meta := *claim, *claim.ObjectMetaApplyConfiguration
	meta.OwnerReferences, meta.Labels = nil, maps.Clone(meta.Labels)
	bare.ObjectMetaApplyConfiguration = &meta
	return &bare
}

func (s restoreObservation) restoreTask() agentapi.RestoreTask {
	c, st := s.cluster, s.cluster.CommonStatus().Restore
	at := st.Location
	task := agentapi.RestoreTask{
		Namespace: c.GetNamespace(), Name: c.GetName(), UID: string(c.GetUID()), Kind: s.kind, Member: s.how.Member,
		Store:    agentapi.BackupStore{URL: at.URL, Endpoint: at.Endpoint, Region: at.Region, PathStyle: at.PathStyle},
		Manifest: st.Manifest, Checksum: st.Checksum, Prefix: at.Prefix, Target: st.Target, VolumeSize: s.how.Size,
		Bandwidth: c.Common().Backup.BytesPerSecond(),
	}
	if task.Manifest == "" {
		task.Backup = st.Backup
	}
	return s.how.Complete(task, false)
}

// restoreJob fills the first member's volume, as whom members run as.
func restoreJob(s restoreObservation) runtime.ApplyConfiguration {
	at := s.cluster.CommonStatus().Restore.Location
	pod := job.BuildPod(s.restoreTask(), s.how.User, at, s.how.Image, agentapi.BinDir+"/holdfast", "job", "restore", s.how.Program).
		WithServiceAccountName(*s.how.Account.Name).WithAutomountServiceAccountToken(true).
		WithVolumes(corev1ac.Volume().WithName("data").WithPersistentVolumeClaim(corev1ac.PersistentVolumeClaimVolumeSource().WithClaimName(*s.how.Claim.Name)))
	pod.Containers[0].WithVolumeMounts(corev1ac.VolumeMount().WithName("data").WithMountPath(agentapi.DataDir))
	job.MountBackupsReadOnly(pod, at)
	common := s.cluster.Common()
	pod.Containers[0].WithResources(job.MemberResources(common.Resources))
	job.AddInstaller(pod, s.agentImage)
	job.AddScheduling(pod, common)
	// The volume is bound to where this pod runs, and a member follows it.
	job.AddNodeAffinity(pod, common)
	return batchv1ac.Job(s.jobName(), s.cluster.GetNamespace()).WithLabels(s.labels()).WithOwnerReferences(job.OwnerReference(s.kind, s.cluster)).
		WithAnnotations(map[string]string{v1alpha1.AnnotationGiven: s.hashInput()}).
		WithSpec(job.BuildSpec(s.labels(), pod))
}

// isGrowing says whether the volume is not yet as large as was asked for.
func (s restoreObservation) isGrowing() bool {
	v := s.how.Volume
	if v == nil || v.Status.Phase != corev1.ClaimBound {
		return false
	}
	return v.Status.Capacity.Storage().Cmp(*v.Spec.Resources.Requests.Storage()) < 0
}

// hashInput names what a try depends on, and people can change.
func (s restoreObservation) hashInput() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%s\n%s\n%s\n%t", s.cluster.GetGeneration(), readRequestedAt(s.cluster), s.keys, s.agentImage, s.isGrowing()))
	return hex.EncodeToString(sum[:8])
}
