package controller

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	batchv1ac "k8s.io/client-go/applyconfigurations/batch/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// backupUser is whom pods run as that write backups, whatever their image says.
const backupUser = 65532

// jobTries is how often the program of a Job is begun again.
const jobTries = 3

// containerJob is the container that works.
const containerJob = "backup"

// jobSpec has a program tried again in a new pod, which begins only once the
// last one has ended, unless it says that another try is in vain.
func jobSpec(labels map[string]string, pod *corev1ac.PodSpecApplyConfiguration) *batchv1ac.JobSpecApplyConfiguration {
	return batchv1ac.JobSpec().WithBackoffLimit(jobTries).WithPodReplacementPolicy(batchv1.Failed).
		WithPodFailurePolicy(batchv1ac.PodFailurePolicy().WithRules(
			batchv1ac.PodFailurePolicyRule().WithAction(batchv1.PodFailurePolicyActionFailJob).
				WithOnExitCodes(batchv1ac.PodFailurePolicyOnExitCodesRequirement().WithContainerName(containerJob).
					WithOperator(batchv1.PodFailurePolicyOnExitCodesOpIn).WithValues(memberapi.ExitPermanent)),
			batchv1ac.PodFailurePolicyRule().WithAction(batchv1.PodFailurePolicyActionIgnore).
				WithOnPodConditions(batchv1ac.PodFailurePolicyOnPodConditionsPattern().WithType(corev1.DisruptionTarget).WithStatus(corev1.ConditionTrue)))).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(pod))
}

// jobPod is a pod under the restricted Pod Security Standard that reaches where
// backups are, without whatever only some pods need. An empty program is the
// image's own.
func jobPod(task any, user int64, at *v1alpha1.BackupLocation, image, program string, args ...string) *corev1ac.PodSpecApplyConfiguration {
	told, err := json.Marshal(task)
	if err != nil {
		panic(fmt.Sprintf("a task always marshals: %v", err))
	}
	ctr := corev1ac.Container().WithName(containerJob).WithImage(image).WithSecurityContext(lockedDown()).WithResources(modest()).WithArgs(args...).
		WithTerminationMessagePolicy(corev1.TerminationMessageFallbackToLogsOnError).
		WithEnv(
			corev1ac.EnvVar().WithName(memberapi.EnvTask).WithValue(string(told)),
			corev1ac.EnvVar().WithName(memberapi.EnvPodName).WithValueFrom(corev1ac.EnvVarSource().
				WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath("metadata.name"))),
			corev1ac.EnvVar().WithName("HOME").WithValue("/tmp")).
		WithVolumeMounts(
			corev1ac.VolumeMount().WithName("run").WithMountPath(memberapi.RunDir),
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
		pod.WithVolumes(secretVolume("store", at.CredentialsSecret))
		ctr.WithVolumeMounts(corev1ac.VolumeMount().WithName("store").WithMountPath(path.Clean(memberapi.StoreDir)).WithReadOnly(true))
	}
	return pod.WithContainers(ctr)
}

// inject puts the program of the agent's image into a pod of another image.
func inject(pod *corev1ac.PodSpecApplyConfiguration, agentImage string) {
	pod.WithInitContainers(corev1ac.Container().WithName("install").WithImage(agentImage).
		WithArgs("agent", "install", memberapi.BinDir+"/holdfast").WithSecurityContext(lockedDown()).WithResources(modest()).
		WithVolumeMounts(corev1ac.VolumeMount().WithName("bin").WithMountPath(memberapi.BinDir))).
		WithVolumes(corev1ac.Volume().WithName("bin").WithEmptyDir(corev1ac.EmptyDirVolumeSource()))
	pod.Containers[0].WithVolumeMounts(corev1ac.VolumeMount().WithName("bin").WithMountPath(memberapi.BinDir).WithReadOnly(true))
}

// settle lets a pod run where the members of a cluster may, and pull their
// image.
func settle(pod *corev1ac.PodSpecApplyConfiguration, common *v1alpha1.CommonSpec) {
	for _, p := range common.ImagePullSecrets {
		pod.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(p.Name))
	}
	for i := range common.Tolerations {
		pod.WithTolerations(as[corev1ac.TolerationApplyConfiguration](common.Tolerations[i]))
	}
	pod.WithNodeSelector(common.NodeSelector)
	if common.PriorityClassName != "" {
		pod.WithPriorityClassName(common.PriorityClassName)
	}
}

func secretVolume(name, secret string) *corev1ac.VolumeApplyConfiguration {
	const readable int32 = 0o440
	return corev1ac.Volume().WithName(name).WithSecret(corev1ac.SecretVolumeSource().WithSecretName(secret).WithDefaultMode(readable))
}

// modest is what a container of a Job needs: a few parts of a backup are in
// memory at once. A quota may ask for limits, so there are some.
func modest() *corev1ac.ResourceRequirementsApplyConfiguration {
	return corev1ac.ResourceRequirements().
		WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi")}).
		WithLimits(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")})
}

// lockedDown is what the restricted Pod Security Standard asks of a container.
func lockedDown() *corev1ac.SecurityContextApplyConfiguration {
	return corev1ac.SecurityContext().WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).
		WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))
}

// as turns a typed part of a spec into its apply configuration, which has the
// same JSON.
func as[T any](in any) *T {
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
