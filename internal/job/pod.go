// Package job knows how every Job of the operator is built: its identity, its
// security context, its installer and where it runs. It also reads how a Job
// ended. It decides nothing and calls no API.
package job

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// ReportSuffix of the right to report: a Backup may have the name of its cluster,
// whose Role has no suffix.
const ReportSuffix = "-report"

// BackupUser is the user of pods that write backups, whatever their image says.
const BackupUser = 65532

// maxRetries is how often the program of a Job is started again.
const maxRetries = 3

// ContainerName is the container that runs the program of a Job.
const ContainerName = "backup"

// BuildSpec retries a program in a new pod, which starts only once the last one
// has ended. A program that exits with ExitPermanent is not retried.
func BuildSpec(labels map[string]string, pod *corev1ac.PodSpecApplyConfiguration) *batchv1ac.JobSpecApplyConfiguration {
	return batchv1ac.JobSpec().WithBackoffLimit(maxRetries).WithPodReplacementPolicy(batchv1.Failed).
		WithPodFailurePolicy(batchv1ac.PodFailurePolicy().WithRules(
			batchv1ac.PodFailurePolicyRule().WithAction(batchv1.PodFailurePolicyActionFailJob).
				WithOnExitCodes(batchv1ac.PodFailurePolicyOnExitCodesRequirement().WithContainerName(ContainerName).
					WithOperator(batchv1.PodFailurePolicyOnExitCodesOpIn).WithValues(agentapi.ExitPermanent)),
			batchv1ac.PodFailurePolicyRule().WithAction(batchv1.PodFailurePolicyActionIgnore).
				WithOnPodConditions(batchv1ac.PodFailurePolicyOnPodConditionsPattern().WithType(corev1.DisruptionTarget).WithStatus(corev1.ConditionTrue)))).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(pod))
}

// BuildPod makes a pod under the restricted Pod Security Standard that reaches the
// store of backups. Callers add what only some pods need. An empty program is
// the image's own.
func BuildPod(task any, user int64, at *v1alpha1.BackupLocation, image, program string, args ...string) *corev1ac.PodSpecApplyConfiguration {
	data, err := json.Marshal(task)
	if err != nil {
		panic(fmt.Sprintf("a task always marshals: %v", err))
	}
	ctr := corev1ac.Container().WithName(ContainerName).WithImage(image).WithSecurityContext(restrictedContext()).WithResources(defaultResources()).WithArgs(args...).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithEnv(
			corev1ac.EnvVar().WithName(agentapi.EnvTask).WithValue(string(data)),
			corev1ac.EnvVar().WithName(agentapi.EnvPodName).WithValueFrom(corev1ac.EnvVarSource().
				WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("metadata.name"))),
			corev1ac.EnvVar().WithName("HOME").WithValue("/tmp")).
		WithVolumeMounts(
			corev1ac.VolumeMount().WithName("run").WithMountPath(agentapi.RunDir),
			corev1ac.VolumeMount().WithName("tmp").WithMountPath("/tmp"))
	if program != "" {
		ctr.WithCommand(program)
	}
	pod := corev1ac.PodSpec().WithRestartPolicy(corev1.RestartPolicyNever).WithEnableServiceLinks(false).
		WithSecurityContext(corev1ac.PodSecurityContext().WithRunAsNonRoot(true).
			WithRunAsUser(user).WithRunAsGroup(user).WithFSGroup(user).WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithVolumes(
			corev1ac.Volume().WithName("run").WithEmptyDir(corev1ac.EmptyDirVolumeSource()),
			corev1ac.Volume().WithName("tmp").WithEmptyDir(corev1ac.EmptyDirVolumeSource()))
	if at.ClaimName != "" {
		pod.WithVolumes(corev1ac.Volume().WithName("backups").WithPersistentVolumeClaim(corev1ac.PersistentVolumeClaimVolumeSource().WithClaimName(at.ClaimName)))
		ctr.WithVolumeMounts(corev1ac.VolumeMount().WithName("backups").WithMountPath(strings.TrimPrefix(at.URL, "file://")))
	}
	if at.CredentialsSecret != "" {
		pod.WithVolumes(SecretVolume("store", at.CredentialsSecret))
		ctr.WithVolumeMounts(corev1ac.VolumeMount().WithName("store").WithMountPath(path.Clean(agentapi.StoreDir)).WithReadOnly(true))
	}
	return pod.WithContainers(ctr)
}

// AddInstaller copies the program of the agent's image into a pod of another image.
func AddInstaller(pod *corev1ac.PodSpecApplyConfiguration, agentImage string) {
	pod.WithInitContainers(corev1ac.Container().WithName("install").WithImage(agentImage).
		WithArgs("agent", "install", agentapi.BinDir+"/holdfast").WithSecurityContext(restrictedContext()).WithResources(defaultResources()).
		WithVolumeMounts(corev1ac.VolumeMount().WithName("bin").WithMountPath(agentapi.BinDir))).
		WithVolumes(corev1ac.Volume().WithName("bin").WithEmptyDir(corev1ac.EmptyDirVolumeSource()))
	pod.Containers[0].WithVolumeMounts(corev1ac.VolumeMount().WithName("bin").WithMountPath(agentapi.BinDir).WithReadOnly(true))
}

// AddScheduling lets a pod run where the members of a cluster may run, and pull
// their image.
func AddScheduling(pod *corev1ac.PodSpecApplyConfiguration, common *v1alpha1.CommonSpec) {
	for _, p := range common.ImagePullSecrets {
		pod.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(p.Name))
	}
	for i := range common.Tolerations {
		pod.WithTolerations(ConvertTo[corev1ac.TolerationApplyConfiguration](common.Tolerations[i]))
	}
	pod.WithNodeSelector(common.NodeSelector)
	if common.PriorityClassName != "" {
		pod.WithPriorityClassName(common.PriorityClassName)
	}
}

// SecretVolume mounts a Secret that the group of the pod can read.
func SecretVolume(name, secret string) *corev1ac.VolumeApplyConfiguration {
	const readable int32 = 0o440
	return corev1ac.Volume().WithName(name).WithSecret(corev1ac.SecretVolumeSource().WithSecretName(secret).WithDefaultMode(readable))
}

// CertificateVolume mounts a certificate and its key, of one Secret, as tls.crt and
// tls.key, and beside them ca.crt of another, for whom to trust.
func CertificateVolume(name, trusted, secret, certificate, key string) *corev1ac.VolumeApplyConfiguration {
	const readable int32 = 0o440
	from := func(secret string, items ...*corev1ac.KeyToPathApplyConfiguration) *corev1ac.VolumeProjectionApplyConfiguration {
		return corev1ac.VolumeProjection().WithSecret(corev1ac.SecretProjection().WithName(secret).WithItems(items...))
	}
	item := func(key, path string) *corev1ac.KeyToPathApplyConfiguration {
		return corev1ac.KeyToPath().WithKey(key).WithPath(path)
	}
	return corev1ac.Volume().WithName(name).WithProjected(corev1ac.ProjectedVolumeSource().WithDefaultMode(readable).WithSources(
		from(trusted, item("ca.crt", "ca.crt")), from(secret, item(certificate, "tls.crt"), item(key, "tls.key"))))
}

// AddScratch mounts a volume that is made for the pod, and goes with it.
func AddScratch(pod *corev1ac.PodSpecApplyConfiguration, size resource.Quantity, class string) {
	spec := corev1ac.PersistentVolumeClaimSpec().WithAccessModes(corev1.ReadWriteOnce).
		WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: size}))
	if class != "" {
		spec.WithStorageClassName(class)
	}
	pod.WithVolumes(corev1ac.Volume().WithName(scratchVolume).WithEphemeral(corev1ac.EphemeralVolumeSource().
		WithVolumeClaimTemplate(corev1ac.PersistentVolumeClaimTemplate().WithSpec(spec))))
	pod.Containers[0].WithVolumeMounts(corev1ac.VolumeMount().WithName(scratchVolume).WithMountPath(agentapi.ScratchDir))
}

const scratchVolume = "scratch"

// HasScratch says whether pods of a Job have a volume each that goes with them.
func HasScratch(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == scratchVolume && v.Ephemeral != nil })
}

// scratchGrace is how long the volume of a new pod may take to be made: the scheduler calls a pod
// without it one that fits no node.
const scratchGrace = 10 * time.Second

// AwaitsScratch says whether a Job has a new pod whose volume may still be on its way.
func AwaitsScratch(job *batchv1.Job, pods []corev1.Pod, now time.Time) bool {
	return HasScratch(job) && slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return metav1.IsControlledBy(&pod, job) && pod.Spec.NodeName == "" && now.Sub(pod.CreationTimestamp.Time) < scratchGrace
	})
}

// restrictedContext is what the restricted Pod Security Standard asks of a container.
func restrictedContext() *corev1ac.SecurityContextApplyConfiguration {
	return corev1ac.SecurityContext().WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).
		WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))
}

// ConvertTo turns a typed part of a spec into its apply configuration, which has the
// same JSON.
func ConvertTo[T any](in any) *T {
	data, err := json.Marshal(in)
	if err != nil {
		panic(fmt.Sprintf("%T always marshals: %v", in, err))
	}
	out := new(T)
	if err := json.Unmarshal(data, out); err != nil {
		panic(fmt.Sprintf("%T always unmarshals: %v", out, err))
	}
	return out
}

// MountBackupsReadOnly lets a pod that runs as another user read a volume of
// backups, and nothing more. The claim itself is not read-only: SELinux would not
// relabel its files for the pod.
func MountBackupsReadOnly(pod *corev1ac.PodSpecApplyConfiguration, at *v1alpha1.BackupLocation) {
	if at.ClaimName == "" {
		return
	}
	pod.SecurityContext.WithSupplementalGroups(BackupUser)
	for i := range pod.Containers[0].VolumeMounts {
		if m := &pod.Containers[0].VolumeMounts[i]; *m.Name == "backups" {
			m.WithReadOnly(true)
		}
	}
}

// ConvertJob turns an apply configuration into a Job, which has the same JSON.
func ConvertJob(ac *batchv1ac.JobApplyConfiguration) (*batchv1.Job, error) {
	data, err := json.Marshal(ac)
	if err != nil {
		return nil, err
	}
	job := &batchv1.Job{}
	return job, json.Unmarshal(data, job)
}

// OwnerReference makes an object the controller's own, of a kind of this API.
func OwnerReference(kind string, owner metav1.Object) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(kind).
		WithName(owner.GetName()).WithUID(owner.GetUID()).WithController(true).WithBlockOwnerDeletion(true)
}

// AddNodeAffinity lets a pod run only on nodes that members may run on.
func AddNodeAffinity(pod *corev1ac.PodSpecApplyConfiguration, common *v1alpha1.CommonSpec) {
	if a := common.Affinity; a != nil && a.NodeAffinity != nil {
		pod.WithAffinity(corev1ac.Affinity().WithNodeAffinity(ConvertTo[corev1ac.NodeAffinityApplyConfiguration](*a.NodeAffinity)))
	}
}
