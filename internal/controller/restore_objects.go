package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// restoreReport is what the pods of a restore say.
type restoreReport struct {
	object              *corev1.ConfigMap
	step, progress, err string
	result              *v1alpha1.RestoreResult
}

// reportOf a restore that fills the volume of the cluster with a UID.
func reportOf(m *corev1.ConfigMap, uid string) *restoreReport {
	r := &restoreReport{object: m}
	if m.Data[memberapi.RestoreKeyClusterUID] != uid {
		return r // nothing was said yet
	}
	r.step, r.progress, r.err = m.Data[memberapi.RestoreKeyStep], m.Data[memberapi.RestoreKeyProgress], m.Data[memberapi.RestoreKeyError]
	if text := m.Data[memberapi.RestoreKeyResult]; text != "" {
		result := &v1alpha1.RestoreResult{}
		if err := json.Unmarshal([]byte(text), result); err != nil {
			r.err = fmt.Sprintf("ConfigMap %s holds a result that is none: %v", m.Name, err)
			return r
		}
		r.result = result
	}
	return r
}

// name of the Job, and of what its pod says.
func (s restoreSeen) name() string { return s.cluster.GetName() + v1alpha1.SuffixRestore }

// labels of what a restore needs: its pods are no members.
func (s restoreSeen) labels() map[string]string {
	return map[string]string{
		v1alpha1.LabelCluster: s.cluster.GetName(), v1alpha1.LabelKind: "restore", v1alpha1.LabelRestore: strings.ToLower(s.kind),
		"app.kubernetes.io/name": "holdfast-restore", "app.kubernetes.io/instance": s.cluster.GetName(),
		"app.kubernetes.io/component": "restore", v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
	}
}

func (s restoreSeen) owner() *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(s.kind).
		WithName(s.cluster.GetName()).WithUID(s.cluster.GetUID()).WithController(true).WithBlockOwnerDeletion(true)
}

// restoreAccess lets the pod say how far it is, in one ConfigMap, and nothing
// else.
func restoreAccess(s restoreSeen) []runtime.ApplyConfiguration {
	ns, name := s.cluster.GetNamespace(), s.name()+reportSuffix
	return []runtime.ApplyConfiguration{
		s.how.Account,
		rbacv1ac.Role(name, ns).WithLabels(s.labels()).WithOwnerReferences(s.owner()).
			WithRules(rbacv1ac.PolicyRule().WithAPIGroups("").WithResources("configmaps").WithResourceNames(s.name()).WithVerbs("patch")),
		rbacv1ac.RoleBinding(name, ns).WithLabels(s.labels()).WithOwnerReferences(s.owner()).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(name)).
			WithSubjects(rbacv1ac.Subject().WithKind("ServiceAccount").WithName(*s.how.Account.Name).WithNamespace(ns)),
	}
}

// restoreReportMap is what the pod fills: the right to create one could not be
// limited to its name.
func restoreReportMap(s restoreSeen) runtime.ApplyConfiguration {
	return corev1ac.ConfigMap(s.name(), s.cluster.GetNamespace()).WithLabels(s.labels()).WithOwnerReferences(s.owner())
}

// withoutOwner is a volume to create: its owners are applied, so that they can
// be taken away again when spec.deletionPolicy changes.
func withoutOwner(claim *corev1ac.PersistentVolumeClaimApplyConfiguration) runtime.ApplyConfiguration {
	bare, meta := *claim, *claim.ObjectMetaApplyConfiguration
	meta.OwnerReferences, meta.Labels = nil, maps.Clone(meta.Labels)
	bare.ObjectMetaApplyConfiguration = &meta
	return &bare
}

func (s restoreSeen) task() memberapi.RestoreTask {
	c, st := s.cluster, s.cluster.CommonStatus().Restore
	at := st.Location
	task := memberapi.RestoreTask{
		Namespace: c.GetNamespace(), Name: c.GetName(), UID: string(c.GetUID()), Kind: s.kind, Member: s.how.Member,
		Store:    memberapi.BackupStore{URL: at.URL, Endpoint: at.Endpoint, Region: at.Region, PathStyle: at.PathStyle},
		Manifest: st.Manifest, Checksum: st.Checksum, Prefix: at.Prefix, Target: st.Target, VolumeSize: s.how.Size,
		Bandwidth: c.Common().Backup.BytesPerSecond(),
	}
	if task.Manifest == "" {
		task.Backup = st.Backup
	}
	if s.how.PeerURL != "" {
		task.PeerURL, task.Token = s.how.PeerURL, string(c.GetUID())
	}
	return task
}

// restoreJob fills the first member's volume, as whom members run as.
func restoreJob(s restoreSeen) runtime.ApplyConfiguration {
	at := s.cluster.CommonStatus().Restore.Location
	pod := jobPod(s.task(), s.how.User, at, s.how.Image, memberapi.BinDir+"/holdfast", "job", "restore", s.how.Program).
		WithServiceAccountName(*s.how.Account.Name).WithAutomountServiceAccountToken(true).
		WithVolumes(corev1ac.Volume().WithName("data").WithPersistentVolumeClaim(corev1ac.PersistentVolumeClaimVolumeSource().WithClaimName(*s.how.Claim.Name)))
	pod.Containers[0].WithVolumeMounts(corev1ac.VolumeMount().WithName("data").WithMountPath(memberapi.DataDir))
	readBackups(pod, at)
	common := s.cluster.Common()
	pod.Containers[0].WithResources(asMuchAs(common.Resources))
	inject(pod, s.agentImage)
	settle(pod, common)
	if a := common.Affinity; a != nil && a.NodeAffinity != nil {
		// The volume is bound to where this pod runs, and a member follows it.
		pod.WithAffinity(corev1ac.Affinity().WithNodeAffinity(as[corev1ac.NodeAffinityApplyConfiguration](*a.NodeAffinity)))
	}
	return batchv1ac.Job(s.name(), s.cluster.GetNamespace()).WithLabels(s.labels()).WithOwnerReferences(s.owner()).
		WithAnnotations(map[string]string{v1alpha1.AnnotationGiven: s.given()}).
		WithSpec(jobSpec(s.labels(), pod))
}

// asMuchAs a member has, in whose place the database recovers, and never less
// than Jobs have. A member that says no limit has none.
func asMuchAs(member corev1.ResourceRequirements) *corev1ac.ResourceRequirementsApplyConfiguration {
	least := modest()
	if len(member.Requests)+len(member.Limits) == 0 {
		return least
	}
	requests, limits := maps.Clone(*least.Requests), corev1.ResourceList{}
	for name, limit := range member.Limits {
		limits[name] = most(limit, (*least.Limits)[name])
		requests[name] = most(limit, requests[name]) // as for members that say no request
	}
	for name, request := range member.Requests {
		requests[name] = most(request, (*least.Requests)[name])
	}
	ac := corev1ac.ResourceRequirements().WithRequests(requests)
	if len(limits) > 0 {
		ac.WithLimits(limits)
	}
	return ac
}

func most(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

// growing says whether the volume is not yet as large as was asked for.
func (s restoreSeen) growing() bool {
	v := s.how.Volume
	if v == nil || v.Status.Phase != corev1.ClaimBound {
		return false
	}
	return v.Status.Capacity.Storage().Cmp(*v.Spec.Resources.Requests.Storage()) < 0
}

// given names what a try depends on, and people can change.
func (s restoreSeen) given() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\n%s\n%s\n%s\n%t", s.cluster.GetGeneration(), requestedAt(s.cluster), s.keys, s.agentImage, s.growing()))
	return hex.EncodeToString(sum[:8])
}
