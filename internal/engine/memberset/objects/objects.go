package objects

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/pki"
)

// ListObjects of a cluster, in the order in which they are applied: what a pod
// needs comes before the pod. The engine adds the Services for its clients, and
// what they connect with.
func ListObjects(s Set, d Desired, services []*corev1ac.ServiceApplyConfiguration, connection *corev1ac.SecretApplyConfiguration) []runtime.ApplyConfiguration {
	out := []runtime.ApplyConfiguration{
		serviceAccount(s), memberRole(s), roleBinding(s),
	}
	if s.Cluster.Common().Network.Policy != v1alpha1.NetworkPolicyNone {
		out = append(out, networkPolicy(s, d.Settings.OperatorNamespace))
	}
	out = append(out, disruptionBudget(s), membersService(s))
	for _, service := range services {
		out = append(out, service)
	}
	out = append(out, configMap(s, d))
	if d.Minted.CA != nil {
		out = append(out, dataSecret(s, SuffixCA, componentCA, d.Minted.CA))
	}
	if d.Minted.Internal != nil {
		out = append(out, dataSecret(s, SuffixInternal, componentInternal, d.Minted.Internal))
	}
	if d.Minted.TLS != nil {
		out = append(out, newSecret(s, SuffixTLS, componentTLS, d.Minted.TLS).WithOwnerReferences(s.owner()))
	}
	if !d.Minted.Complete {
		return out
	}
	out = append(out, connection)
	for _, v := range d.Volumes {
		out = append(out, VolumeClaim(s, d, v))
	}
	return append(append(out, statefulSet(s, d)), backupObjects(s, d)...)
}

func serviceAccount(s Set) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(s.Named(""), s.Key().Namespace).
		WithLabels(s.Labels(componentAccess)).WithOwnerReferences(s.owner()).
		WithAnnotations(s.Cluster.Common().ServiceAccount.Annotations)
}

// memberRole is what the members' agents may do: keep the Lease, label the members'
// pods, read their configuration. Only creating cannot be limited by name.
func memberRole(s Set) *rbacv1ac.RoleApplyConfiguration {
	pods := make([]string, 0, MostMembers)
	for i := range MostMembers {
		pods = append(pods, s.PodName(i))
	}
	rule := func(group, resource string, names []string, verbs ...string) *rbacv1ac.PolicyRuleApplyConfiguration {
		return rbacv1ac.PolicyRule().WithAPIGroups(group).WithResources(resource).WithResourceNames(names...).WithVerbs(verbs...)
	}
	return rbacv1ac.Role(s.Named(""), s.Key().Namespace).
		WithLabels(s.Labels(componentAccess)).WithOwnerReferences(s.owner()).
		WithRules(
			rule("coordination.k8s.io", "leases", nil, "create"),
			rule("coordination.k8s.io", "leases", []string{s.Named(s.Lease)}, "get", "update", "patch"),
			rule("", "pods", pods, "get", "list", "watch", "patch"),
			rule("", "configmaps", []string{s.Named(SuffixConfig)}, "get", "list", "watch"),
		)
}

func roleBinding(s Set) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(s.Named(""), s.Key().Namespace).
		WithLabels(s.Labels(componentAccess)).WithOwnerReferences(s.owner()).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(s.Named(""))).
		WithSubjects(rbacv1ac.Subject().WithKind("ServiceAccount").WithName(s.Named("")).WithNamespace(s.Key().Namespace))
}

func disruptionBudget(s Set) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	return policyv1ac.PodDisruptionBudget(s.Named(""), s.Key().Namespace).
		WithLabels(s.Labels(componentDatabase)).WithOwnerReferences(s.owner()).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())))
}

func newService(s Set, suffix string) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(s.Named(suffix), s.Key().Namespace).
		WithLabels(s.Labels(componentDatabase)).WithOwnerReferences(s.owner())
}

// membersService gives members their names, before they are ready too.
func membersService(s Set) *corev1ac.ServiceApplyConfiguration {
	spec := corev1ac.ServiceSpec().WithClusterIP("None").WithPublishNotReadyAddresses(true).WithSelector(s.Selector())
	for _, p := range allPorts(s) {
		spec.WithPorts(servicePort(p.Name, p.Number))
	}
	return newService(s, SuffixMembers).WithSpec(spec)
}

// ClientService sends clients to the ready members in a role.
func ClientService(s Set, suffix, role string) *corev1ac.ServiceApplyConfiguration {
	spec := corev1ac.ServiceSpec().WithType(corev1.ServiceTypeClusterIP).WithSelector(s.RoleSelector(role))
	for _, p := range s.Ports {
		if !p.Peers {
			spec.WithPorts(servicePort(p.Name, p.Number))
		}
	}
	return newService(s, suffix).WithSpec(spec)
}

// allPorts of a member's container: the database's and the agent's.
func allPorts(s Set) []Port {
	return append(slices.Clone(s.Ports), Port{Name: "agent", Number: agentapi.StatusPort}, Port{Name: "metrics", Number: agentapi.ProbePort})
}

func servicePort(name string, port int32) *corev1ac.ServicePortApplyConfiguration {
	return corev1ac.ServicePort().WithName(name).WithPort(port).WithProtocol(corev1.ProtocolTCP).WithTargetPort(intstr.FromInt32(port))
}

// configMap says to the members what they belong to.
func configMap(s Set, d Desired) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(s.Named(SuffixConfig), s.Key().Namespace).
		WithLabels(s.Labels(componentConfig)).WithOwnerReferences(s.owner()).
		WithData(map[string]string{agentapi.ConfigKey: string(d.Config)})
}

// newSecret of the cluster, whose owner is still to be said.
func newSecret(s Set, suffix, component string, data map[string][]byte) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(s.Named(suffix), s.Key().Namespace).WithLabels(s.Labels(component)).
		WithType(corev1.SecretTypeOpaque).WithData(data)
}

// dataSecret holds what a cluster that is created again needs to come back:
// it outlives the cluster unless the deletion policy says otherwise.
func dataSecret(s Set, suffix, component string, data map[string][]byte) *corev1ac.SecretApplyConfiguration {
	return newSecret(s, suffix, component, data).WithOwnerReferences(s.DataOwners()...)
}

// ConnectionSecret is what applications connect with. Its keys follow the
// Service Binding convention, with what the engine's drivers want beside.
func ConnectionSecret(s Set, d Desired, kind string, more map[string]string) *corev1ac.SecretApplyConfiguration {
	data := map[string][]byte{"type": []byte(kind), "provider": []byte(v1alpha1.ManagedBy), "ca.crt": pki.ClientRoots(d.Minted.TLS)}
	for k, v := range more {
		data[k] = []byte(v)
	}
	return newSecret(s, SuffixApp, componentApp, data).WithOwnerReferences(s.owner()).WithType(corev1.SecretType("servicebinding.io/" + kind))
}

// VolumeClaim is a member's claim, or that of a former member, which is kept.
func VolumeClaim(s Set, d Desired, v Volume) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	labels := s.Labels(componentDatabase)
	if v.Member {
		labels[v1alpha1.LabelMember] = strconv.Itoa(v.Ordinal)
	}
	ac := corev1ac.PersistentVolumeClaim(s.VolumeName(v.Ordinal), s.Key().Namespace).WithLabels(labels).
		WithSpec(claimSpec(v))
	if v.Left != v1alpha1.DeletionRetain {
		ac.WithOwnerReferences(s.DataOwners()...)
	}
	if v.Diverged {
		ac.WithAnnotations(map[string]string{v1alpha1.AnnotationDiverged: "true"})
	}
	cluster := v.Cluster
	if v.Left != "" {
		ac.WithAnnotations(map[string]string{v1alpha1.AnnotationScaledAway: string(v.Left)})
	} else if now := d.Data[v1alpha1.AnnotationCluster]; now != "" {
		cluster = now // of a former member's volume, it stays said whose it was
	}
	ac.WithAnnotations(d.Data)
	delete(ac.Annotations, v1alpha1.AnnotationCluster)
	if cluster != "" {
		ac.WithAnnotations(map[string]string{v1alpha1.AnnotationCluster: cluster})
	}
	return ac
}

func claimSpec(v Volume) *corev1ac.PersistentVolumeClaimSpecApplyConfiguration {
	spec := corev1ac.PersistentVolumeClaimSpec().WithAccessModes(corev1.ReadWriteOnce).
		WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: v.Size}))
	if v.Class != "" {
		spec.WithStorageClassName(v.Class)
	}
	return spec
}
