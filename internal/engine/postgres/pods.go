package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// Names within a member's pod.
const (
	containerName = "postgres"
	installerName = "install"
	dataVolume    = "data"
)

// stopSeconds is how long a member may take to hand its work to disk.
const stopSeconds = 180

// statefulSet of the members. The planner chooses which pod to replace, so its
// own roll-out is off; volumes are never its to delete.
func statefulSet(c *v1alpha1.PostgresCluster, d desired) *appsv1ac.StatefulSetApplyConfiguration {
	labels := identity(c).Labels(componentDatabase)
	return appsv1ac.StatefulSet(c.Name, c.Namespace).WithLabels(labels).
		WithOwnerReferences(identity(c).Owner()).
		WithSpec(appsv1ac.StatefulSetSpec().
			WithReplicas(int32(d.count)).
			WithServiceName(c.Name + suffixMembers).
			WithPodManagementPolicy(appsv1.ParallelPodManagement).
			WithUpdateStrategy(appsv1ac.StatefulSetUpdateStrategy().WithType(appsv1.OnDeleteStatefulSetStrategyType)).
			WithPersistentVolumeClaimRetentionPolicy(appsv1ac.StatefulSetPersistentVolumeClaimRetentionPolicy().
				WithWhenDeleted(appsv1.RetainPersistentVolumeClaimRetentionPolicyType).
				WithWhenScaled(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(identity(c).Selector())).
			WithTemplate(podTemplate(c, d)).
			WithVolumeClaimTemplates(&corev1ac.PersistentVolumeClaimApplyConfiguration{
				ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(dataVolume).WithLabels(labels),
				Spec:                         claimSpec(d.template),
			}))
}

// podTemplate is one member. The label of its role is the agent's.
func podTemplate(c *v1alpha1.PostgresCluster, d desired) *corev1ac.PodTemplateSpecApplyConfiguration {
	s := c.Spec.SchedulingSpec
	spec := corev1ac.PodSpec().
		WithServiceAccountName(c.Name).WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(stopSeconds).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithRunAsNonRoot(true).WithRunAsUser(userID).WithRunAsGroup(userID).
			WithFSGroup(userID).WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithInitContainers(installer(d)).
		WithContainers(databaseSpec(c, d)).
		WithVolumes(podVolumes(c)...).
		WithNodeSelector(s.NodeSelector)
	for _, p := range c.Spec.ImagePullSecrets {
		spec.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(p.Name))
	}
	for i := range s.Tolerations {
		spec.WithTolerations(as[corev1ac.TolerationApplyConfiguration](s.Tolerations[i]))
	}
	for i := range s.TopologySpreadConstraints {
		spec.WithTopologySpreadConstraints(as[corev1ac.TopologySpreadConstraintApplyConfiguration](s.TopologySpreadConstraints[i]))
	}
	if s.PriorityClassName != "" {
		spec.WithPriorityClassName(s.PriorityClassName)
	}
	switch {
	case s.Affinity != nil:
		spec.WithAffinity(as[corev1ac.AffinityApplyConfiguration](*s.Affinity))
	case len(s.TopologySpreadConstraints) == 0:
		spec.WithAffinity(apart(c))
	}
	return corev1ac.PodTemplateSpec().
		WithLabels(s.PodLabels).WithLabels(identity(c).Labels(componentDatabase)).
		WithAnnotations(s.PodAnnotations).
		WithAnnotations(map[string]string{
			v1alpha1.AnnotationRollout:                rolloutHash(c, d.asked),
			v1alpha1.AnnotationImage:                  d.asked,
			"kubectl.kubernetes.io/default-container": containerName,
		}).
		WithSpec(spec)
}

// apart keeps members off each other's nodes where there is a choice.
func apart(c *v1alpha1.PostgresCluster) *corev1ac.AffinityApplyConfiguration {
	return corev1ac.Affinity().WithPodAntiAffinity(corev1ac.PodAntiAffinity().
		WithPreferredDuringSchedulingIgnoredDuringExecution(corev1ac.WeightedPodAffinityTerm().WithWeight(100).
			WithPodAffinityTerm(corev1ac.PodAffinityTerm().WithTopologyKey(corev1.LabelHostname).
				WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(identity(c).Selector())))))
}

// installer copies the agent's binary to where the stock image can run it.
func installer(d desired) *corev1ac.ContainerApplyConfiguration {
	return corev1ac.Container().WithName(installerName).WithImage(d.settings.AgentImage).
		WithArgs("agent", "install", memberapi.BinDir+"/holdfast").
		WithSecurityContext(locked()).
		WithVolumeMounts(mount("bin", memberapi.BinDir, false))
}

func databaseSpec(c *v1alpha1.PostgresCluster, d desired) *corev1ac.ContainerApplyConfiguration {
	probe := func(url string, period, failures int32) *corev1ac.ProbeApplyConfiguration {
		return corev1ac.Probe().WithHTTPGet(corev1ac.HTTPGetAction().WithPath(url).WithPort(intstr.FromString("metrics"))).
			WithPeriodSeconds(period).WithTimeoutSeconds(5).WithFailureThreshold(failures)
	}
	ac := corev1ac.Container().WithName(containerName).WithImage(d.image).
		WithCommand(memberapi.BinDir+"/holdfast", "agent", "postgres").
		WithEnv(environment(c)...).
		WithPorts(
			corev1ac.ContainerPort().WithName("postgres").WithContainerPort(Port).WithProtocol(corev1.ProtocolTCP),
			corev1ac.ContainerPort().WithName("agent").WithContainerPort(memberapi.StatusPort).WithProtocol(corev1.ProtocolTCP),
			corev1ac.ContainerPort().WithName("metrics").WithContainerPort(memberapi.ProbePort).WithProtocol(corev1.ProtocolTCP)).
		WithReadinessProbe(probe("/readyz", 2, 3)).
		WithLivenessProbe(probe("/healthz", 10, 6)).
		WithSecurityContext(locked()).
		WithVolumeMounts(
			mount(dataVolume, memberapi.DataDir, false),
			mount("bin", memberapi.BinDir, true),
			mount("run", memberapi.RunDir, false),
			mount("tmp", "/tmp", false),
			mount("shm", "/dev/shm", false),
			mount("config", path.Dir(memberapi.ConfigFile), true),
			mount("tls", memberapi.TLSDir, true),
			mount("credentials", memberapi.CredentialsDir, true))
	if len(c.Spec.Resources.Limits) > 0 || len(c.Spec.Resources.Requests) > 0 {
		ac.WithResources(as[corev1ac.ResourceRequirementsApplyConfiguration](c.Spec.Resources))
	}
	return ac
}

func environment(c *v1alpha1.PostgresCluster) []*corev1ac.EnvVarApplyConfiguration {
	field := func(name, source string) *corev1ac.EnvVarApplyConfiguration {
		return corev1ac.EnvVar().WithName(name).WithValueFrom(corev1ac.EnvVarSource().
			WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath(source)))
	}
	limit := func(name, kind, divisor string) *corev1ac.EnvVarApplyConfiguration {
		ref := corev1ac.ResourceFieldSelector().WithContainerName(containerName).WithResource(kind)
		if divisor != "" {
			ref.WithDivisor(resource.MustParse(divisor))
		}
		return corev1ac.EnvVar().WithName(name).WithValueFrom(corev1ac.EnvVarSource().WithResourceFieldRef(ref))
	}
	return []*corev1ac.EnvVarApplyConfiguration{
		field(memberapi.EnvPodName, "metadata.name"),
		field(memberapi.EnvPodUID, "metadata.uid"),
		field(memberapi.EnvPodIP, "status.podIP"),
		field(memberapi.EnvNamespace, "metadata.namespace"),
		field(memberapi.EnvNode, "spec.nodeName"),
		corev1ac.EnvVar().WithName(memberapi.EnvCluster).WithValue(c.Name),
		limit(memberapi.EnvMemoryLimit, "limits.memory", ""),
		limit(memberapi.EnvMemoryRequest, "requests.memory", ""),
		limit(memberapi.EnvCPULimit, "limits.cpu", "1m"),
	}
}

func podVolumes(c *v1alpha1.PostgresCluster) []*corev1ac.VolumeApplyConfiguration {
	const readable int32 = 0o440
	secret := func(volume, suffix string) *corev1ac.VolumeApplyConfiguration {
		return corev1ac.Volume().WithName(volume).WithSecret(corev1ac.SecretVolumeSource().
			WithSecretName(c.Name + suffix).WithDefaultMode(readable))
	}
	return []*corev1ac.VolumeApplyConfiguration{
		corev1ac.Volume().WithName("bin").WithEmptyDir(corev1ac.EmptyDirVolumeSource()),
		corev1ac.Volume().WithName("run").WithEmptyDir(corev1ac.EmptyDirVolumeSource()),
		corev1ac.Volume().WithName("tmp").WithEmptyDir(corev1ac.EmptyDirVolumeSource()),
		corev1ac.Volume().WithName("shm").WithEmptyDir(corev1ac.EmptyDirVolumeSource().WithMedium(corev1.StorageMediumMemory)),
		corev1ac.Volume().WithName("config").WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(c.Name + suffixConfig)),
		secret("tls", suffixTLS),
		secret("credentials", suffixInternal),
	}
}

func mount(name, dir string, readOnly bool) *corev1ac.VolumeMountApplyConfiguration {
	ac := corev1ac.VolumeMount().WithName(name).WithMountPath(dir)
	if readOnly {
		ac.WithReadOnly(true)
	}
	return ac
}

// locked is what the restricted Pod Security Standard asks of a container.
func locked() *corev1ac.SecurityContextApplyConfiguration {
	return corev1ac.SecurityContext().
		WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).
		WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))
}

// rolloutHash names what only a new pod can take up. A pod whose annotation
// differs is replaced; the operator's own parts of the template are not in it,
// so that an upgrade of the operator never restarts a database.
func rolloutHash(c *v1alpha1.PostgresCluster, image string) string {
	data, err := json.Marshal(struct {
		Image       string
		PullSecrets []corev1.LocalObjectReference
		Resources   corev1.ResourceRequirements
		Scheduling  v1alpha1.SchedulingSpec
	}{image, c.Spec.ImagePullSecrets, c.Spec.Resources, c.Spec.SchedulingSpec})
	if err != nil {
		panic(fmt.Sprintf("a pod's inputs always marshal: %v", err))
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// as turns a typed part of the spec into its apply configuration, which has
// the same JSON.
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
