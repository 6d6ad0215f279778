package objects

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
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Names within a member's pod.
const (
	InstallerName = "install"
	dataVolume    = "data"
)

// templateVersion of what Holdfast itself declares for pods. In version 2 the installer has
// the resources of the database.
const templateVersion = "2"

// stopSeconds is how long a member may take to hand its work to disk.
const stopSeconds = 180

// statefulSet of the members. The planner chooses which pod to replace, so its
// own roll-out is off; volumes are never its to delete.
func statefulSet(s Set, d Desired) *appsv1ac.StatefulSetApplyConfiguration {
	labels := s.Labels(componentDatabase)
	return appsv1ac.StatefulSet(s.Named(""), s.Key().Namespace).WithLabels(labels).
		WithAnnotations(setAnnotations(d)).
		WithOwnerReferences(s.owner()).
		WithSpec(appsv1ac.StatefulSetSpec().
			WithReplicas(int32(d.Count)).
			WithServiceName(s.Named(SuffixMembers)).
			WithPodManagementPolicy(appsv1.ParallelPodManagement).
			WithUpdateStrategy(appsv1ac.StatefulSetUpdateStrategy().WithType(appsv1.OnDeleteStatefulSetStrategyType)).
			WithPersistentVolumeClaimRetentionPolicy(appsv1ac.StatefulSetPersistentVolumeClaimRetentionPolicy().
				WithWhenDeleted(appsv1.RetainPersistentVolumeClaimRetentionPolicyType).
				WithWhenScaled(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())).
			WithTemplate(podTemplate(s, d)).
			WithVolumeClaimTemplates(&corev1ac.PersistentVolumeClaimApplyConfiguration{
				ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(dataVolume).WithLabels(labels),
				Spec:                         claimSpec(d.Template),
			}))
}

// setAnnotations record what of the template is Holdfast's own.
func setAnnotations(d Desired) map[string]string {
	annotations := map[string]string{v1alpha1.AnnotationAgentImage: d.AgentImage}
	if !d.EarlierTemplate {
		annotations[v1alpha1.AnnotationTemplateVersion] = templateVersion
	}
	return annotations
}

// podTemplate is one member. The label of its role is the agent's.
func podTemplate(s Set, d Desired) *corev1ac.PodTemplateSpecApplyConfiguration {
	common := s.Cluster.Common()
	where := common.SchedulingSpec
	spec := corev1ac.PodSpec().
		WithServiceAccountName(s.Named("")).WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(stopSeconds).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithRunAsNonRoot(true).WithRunAsUser(s.User).WithRunAsGroup(s.User).
			WithFSGroup(s.User).WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithInitContainers(installer(s, d)).
		WithContainers(databaseContainer(s, d)).
		WithVolumes(podVolumes(s)...).
		WithNodeSelector(where.NodeSelector)
	for _, p := range common.ImagePullSecrets {
		spec.WithImagePullSecrets(corev1ac.LocalObjectReference().WithName(p.Name))
	}
	for i := range where.Tolerations {
		spec.WithTolerations(as[corev1ac.TolerationApplyConfiguration](where.Tolerations[i]))
	}
	for i := range where.TopologySpreadConstraints {
		spec.WithTopologySpreadConstraints(as[corev1ac.TopologySpreadConstraintApplyConfiguration](where.TopologySpreadConstraints[i]))
	}
	if where.PriorityClassName != "" {
		spec.WithPriorityClassName(where.PriorityClassName)
	}
	switch {
	case where.Affinity != nil:
		spec.WithAffinity(as[corev1ac.AffinityApplyConfiguration](*where.Affinity))
	case len(where.TopologySpreadConstraints) == 0:
		spec.WithAffinity(spreadMembers(s))
	}
	return corev1ac.PodTemplateSpec().
		WithLabels(where.PodLabels).WithLabels(s.Labels(componentDatabase)).
		WithAnnotations(where.PodAnnotations).
		WithAnnotations(map[string]string{
			v1alpha1.AnnotationRollout:                s.RolloutHash(d.Asked),
			v1alpha1.AnnotationImage:                  d.Asked,
			"kubectl.kubernetes.io/default-container": s.Container,
		}).
		WithSpec(spec)
}

// spreadMembers keeps members off each other's nodes where there is a choice.
func spreadMembers(s Set) *corev1ac.AffinityApplyConfiguration {
	return corev1ac.Affinity().WithPodAntiAffinity(corev1ac.PodAntiAffinity().
		WithPreferredDuringSchedulingIgnoredDuringExecution(corev1ac.WeightedPodAffinityTerm().WithWeight(100).
			WithPodAffinityTerm(corev1ac.PodAffinityTerm().WithTopologyKey(corev1.LabelHostname).
				WithLabelSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())))))
}

// installer copies the agent's binary to where the stock image can run it. It has the
// resources of the database, which runs after it, so that costs nothing: a quota may ask
// each container for limits, and a pod is Guaranteed only if all of its containers are.
func installer(s Set, d Desired) *corev1ac.ContainerApplyConfiguration {
	ac := corev1ac.Container().WithName(InstallerName).WithImage(d.AgentImage).
		WithArgs("agent", "install", agentapi.BinDir+"/holdfast").
		WithSecurityContext(locked()).
		WithVolumeMounts(mount("bin", agentapi.BinDir, false))
	if r := s.Cluster.Common().Resources; !d.EarlierTemplate && (len(r.Limits) > 0 || len(r.Requests) > 0) {
		ac.WithResources(as[corev1ac.ResourceRequirementsApplyConfiguration](corev1.ResourceRequirements{Limits: r.Limits, Requests: r.Requests}))
	}
	return ac
}

func databaseContainer(s Set, d Desired) *corev1ac.ContainerApplyConfiguration {
	probe := func(url string, period, failures int32) *corev1ac.ProbeApplyConfiguration {
		return corev1ac.Probe().WithHTTPGet(corev1ac.HTTPGetAction().WithPath(url).WithPort(intstr.FromString("metrics"))).
			WithPeriodSeconds(period).WithTimeoutSeconds(5).WithFailureThreshold(failures)
	}
	ac := corev1ac.Container().WithName(s.Container).WithImage(d.Image).
		WithCommand(agentapi.BinDir+"/holdfast", "agent", s.Container).
		WithEnv(containerEnvironment(s)...).
		WithPorts(containerPorts(s)...).
		WithReadinessProbe(probe("/readyz", 2, 3)).
		WithLivenessProbe(probe("/healthz", 10, 6)).
		WithSecurityContext(locked()).
		WithVolumeMounts(volumeMounts(s)...)
	if r := s.Cluster.Common().Resources; len(r.Limits) > 0 || len(r.Requests) > 0 {
		ac.WithResources(as[corev1ac.ResourceRequirementsApplyConfiguration](r))
	}
	return ac
}

func containerEnvironment(s Set) []*corev1ac.EnvVarApplyConfiguration {
	field := func(name, source string) *corev1ac.EnvVarApplyConfiguration {
		return corev1ac.EnvVar().WithName(name).WithValueFrom(corev1ac.EnvVarSource().
			WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath(source)))
	}
	limit := func(name, kind, divisor string) *corev1ac.EnvVarApplyConfiguration {
		ref := corev1ac.ResourceFieldSelector().WithContainerName(s.Container).WithResource(kind)
		if divisor != "" {
			ref.WithDivisor(resource.MustParse(divisor))
		}
		return corev1ac.EnvVar().WithName(name).WithValueFrom(corev1ac.EnvVarSource().WithResourceFieldRef(ref))
	}
	return []*corev1ac.EnvVarApplyConfiguration{
		field(agentapi.EnvPodName, "metadata.name"),
		field(agentapi.EnvPodUID, "metadata.uid"),
		field(agentapi.EnvPodIP, "status.podIP"),
		field(agentapi.EnvNamespace, "metadata.namespace"),
		field(agentapi.EnvNode, "spec.nodeName"),
		corev1ac.EnvVar().WithName(agentapi.EnvCluster).WithValue(s.Named("")),
		limit(agentapi.EnvMemoryLimit, "limits.memory", ""),
		limit(agentapi.EnvMemoryRequest, "requests.memory", ""),
		limit(agentapi.EnvCPULimit, "limits.cpu", "1m"),
	}
}

func podVolumes(s Set) []*corev1ac.VolumeApplyConfiguration {
	const readable int32 = 0o440
	secret := func(volume, suffix string) *corev1ac.VolumeApplyConfiguration {
		return corev1ac.Volume().WithName(volume).WithSecret(corev1ac.SecretVolumeSource().
			WithSecretName(s.Named(suffix)).WithDefaultMode(readable))
	}
	volumes := []*corev1ac.VolumeApplyConfiguration{
		corev1ac.Volume().WithName("bin").WithEmptyDir(corev1ac.EmptyDirVolumeSource()),
		corev1ac.Volume().WithName("run").WithEmptyDir(corev1ac.EmptyDirVolumeSource()),
		corev1ac.Volume().WithName("tmp").WithEmptyDir(corev1ac.EmptyDirVolumeSource()),
	}
	if s.SharedMemory {
		volumes = append(volumes, corev1ac.Volume().WithName("shm").WithEmptyDir(corev1ac.EmptyDirVolumeSource().WithMedium(corev1.StorageMediumMemory)))
	}
	volumes = append(volumes,
		corev1ac.Volume().WithName("config").WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(s.Named(SuffixConfig))),
		secret("tls", SuffixTLS))
	if len(s.Passwords) > 0 {
		volumes = append(volumes, secret("credentials", SuffixInternal))
	}
	if keys := s.storeSecret(); keys != "" {
		// Optional: no database waits for the keys of an archive.
		volumes = append(volumes, corev1ac.Volume().WithName("store").WithSecret(corev1ac.SecretVolumeSource().
			WithSecretName(keys).WithDefaultMode(readable).WithOptional(true)))
	}
	return volumes
}

func volumeMounts(s Set) []*corev1ac.VolumeMountApplyConfiguration {
	mounts := []*corev1ac.VolumeMountApplyConfiguration{
		mount(dataVolume, agentapi.DataDir, false),
		mount("bin", agentapi.BinDir, true),
		mount("run", agentapi.RunDir, false),
		mount("tmp", "/tmp", false),
	}
	if s.SharedMemory {
		mounts = append(mounts, mount("shm", "/dev/shm", false))
	}
	mounts = append(mounts,
		mount("config", path.Dir(agentapi.ConfigFile), true),
		mount("tls", agentapi.TLSDir, true))
	if len(s.Passwords) > 0 {
		mounts = append(mounts, mount("credentials", agentapi.CredentialsDir, true))
	}
	if s.storeSecret() != "" {
		mounts = append(mounts, mount("store", agentapi.StoreDir, true))
	}
	return mounts
}

func containerPorts(s Set) []*corev1ac.ContainerPortApplyConfiguration {
	var ports []*corev1ac.ContainerPortApplyConfiguration
	for _, p := range allPorts(s) {
		ports = append(ports, corev1ac.ContainerPort().WithName(p.Name).WithContainerPort(p.Number).WithProtocol(corev1.ProtocolTCP))
	}
	return ports
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

// RolloutHash names what only a new pod can take up. A pod whose annotation
// differs is replaced; the operator's own parts of the template are not in it,
// so that an upgrade of the operator never restarts a database.
func (s Set) RolloutHash(image string) string {
	common := s.Cluster.Common()
	data, err := json.Marshal(struct {
		Image       string
		PullSecrets []corev1.LocalObjectReference
		Resources   corev1.ResourceRequirements
		Scheduling  v1alpha1.SchedulingSpec
		StoreSecret string            `json:",omitempty"`
		Identity    map[string]string `json:",omitempty"`
	}{image, common.ImagePullSecrets, common.Resources, common.SchedulingSpec, s.storeSecret(), s.storeIdentity()})
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
