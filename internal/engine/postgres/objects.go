package postgres

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"sort"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// mostMembers is the schema's limit of spec.replicas.
const mostMembers = 9

// desired is what the objects are made from: the spec, where it can be
// followed, and what is there, where it cannot.
type desired struct {
	// asked is the image that the spec maps to, and image the one to declare:
	// its latched build once that is known.
	asked, image string
	// count of members.
	count int
	// size and class by ordinal of the volumes to apply, former members' too.
	volumes []desiredVolume
	// template is the volume of the StatefulSet's claim template, which cannot
	// change.
	template desiredVolume
	// systemIdentifier is the birth latch; empty before birth.
	systemIdentifier string
	// fresh says that nothing is there from before the cluster's object.
	fresh bool
	// first is the first database and its owner.
	first    firstDatabase
	minted   Minted
	settings Settings
}

type desiredVolume struct {
	ordinal int
	// member says whether it holds a current member.
	member bool
	size   resource.Quantity
	class  string
	// waits says that it grows when the rest of it is as desired.
	waits bool
	// ahead says that its data holds what the primary's does not.
	ahead bool
}

// objects of a cluster, in the order in which they are applied: what a pod
// needs comes before the pod.
func objects(c *v1alpha1.PostgresCluster, d desired) []runtime.ApplyConfiguration {
	out := []runtime.ApplyConfiguration{
		serviceAccount(c), role(c), roleBinding(c), networkPolicy(c), disruptionBudget(c),
		service(c, suffixMembers).WithSpec(membersService(c)),
		service(c, suffixRW).WithSpec(clientService(c, v1alpha1.RolePrimary)),
		service(c, suffixRO).WithSpec(clientService(c, v1alpha1.RoleReplica)),
		configMap(c, d),
	}
	if d.minted.CA != nil {
		out = append(out, dataSecret(c, suffixCA, componentCA, d.minted.CA))
	}
	if d.minted.Internal != nil {
		out = append(out, dataSecret(c, suffixInternal, componentInternal, d.minted.Internal))
	}
	if d.minted.TLS != nil {
		out = append(out, corev1ac.Secret(c.Name+suffixTLS, c.Namespace).WithLabels(identity(c).Labels(componentTLS)).
			WithOwnerReferences(identity(c).Owner()).WithType(corev1.SecretTypeOpaque).WithData(d.minted.TLS))
	}
	if !d.minted.complete() {
		return out
	}
	out = append(out, connectionSecret(c, d))
	for _, v := range d.volumes {
		out = append(out, volume(c, d, v))
	}
	return append(out, statefulSet(c, d))
}

// complete says whether everything that pods mount was made.
func (m Minted) complete() bool {
	return m.CA != nil && m.TLS != nil && len(m.Internal[keyAppPassword]) > 0
}

func serviceAccount(c *v1alpha1.PostgresCluster) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(c.Name, c.Namespace).
		WithLabels(identity(c).Labels(componentAccess)).WithOwnerReferences(identity(c).Owner())
}

// role is what the members' agents may do: keep the Lease, label the members'
// pods, read their configuration. Only creating cannot be limited by name.
func role(c *v1alpha1.PostgresCluster) *rbacv1ac.RoleApplyConfiguration {
	pods := make([]string, 0, mostMembers)
	for i := range mostMembers {
		pods = append(pods, podName(c, i))
	}
	rule := func(group, resource string, names []string, verbs ...string) *rbacv1ac.PolicyRuleApplyConfiguration {
		return rbacv1ac.PolicyRule().WithAPIGroups(group).WithResources(resource).WithResourceNames(names...).WithVerbs(verbs...)
	}
	return rbacv1ac.Role(c.Name, c.Namespace).
		WithLabels(identity(c).Labels(componentAccess)).WithOwnerReferences(identity(c).Owner()).
		WithRules(
			rule("coordination.k8s.io", "leases", nil, "create"),
			rule("coordination.k8s.io", "leases", []string{c.Name + suffixPrimary}, "get", "update", "patch"),
			rule("", "pods", pods, "get", "list", "watch", "patch"),
			rule("", "configmaps", []string{c.Name + suffixConfig}, "get", "list", "watch"),
		)
}

func roleBinding(c *v1alpha1.PostgresCluster) *rbacv1ac.RoleBindingApplyConfiguration {
	return rbacv1ac.RoleBinding(c.Name, c.Namespace).
		WithLabels(identity(c).Labels(componentAccess)).WithOwnerReferences(identity(c).Owner()).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("Role").WithName(c.Name)).
		WithSubjects(rbacv1ac.Subject().WithKind("ServiceAccount").WithName(c.Name).WithNamespace(c.Namespace))
}

// networkPolicy lets clients reach the database and the probes, and only
// members and the operator the agents.
func networkPolicy(c *v1alpha1.PostgresCluster) *networkingv1ac.NetworkPolicyApplyConfiguration {
	port := func(n int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
		return networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(n))
	}
	members := metav1ac.LabelSelector().WithMatchLabels(identity(c).Selector())
	operator := metav1ac.LabelSelector().WithMatchLabels(map[string]string{"app.kubernetes.io/name": "holdfast"})
	return networkingv1ac.NetworkPolicy(c.Name, c.Namespace).
		WithLabels(identity(c).Labels(componentAccess)).WithOwnerReferences(identity(c).Owner()).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(members).WithPolicyTypes("Ingress").
			WithIngress(
				networkingv1ac.NetworkPolicyIngressRule().WithPorts(port(Port), port(memberapi.ProbePort)),
				networkingv1ac.NetworkPolicyIngressRule().WithPorts(port(memberapi.StatusPort)).WithFrom(
					networkingv1ac.NetworkPolicyPeer().WithPodSelector(members),
					networkingv1ac.NetworkPolicyPeer().WithPodSelector(operator).WithNamespaceSelector(metav1ac.LabelSelector()),
				),
			))
}

func disruptionBudget(c *v1alpha1.PostgresCluster) *policyv1ac.PodDisruptionBudgetApplyConfiguration {
	return policyv1ac.PodDisruptionBudget(c.Name, c.Namespace).
		WithLabels(identity(c).Labels(componentDatabase)).WithOwnerReferences(identity(c).Owner()).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(identity(c).Selector())))
}

func service(c *v1alpha1.PostgresCluster, suffix string) *corev1ac.ServiceApplyConfiguration {
	return corev1ac.Service(c.Name+suffix, c.Namespace).
		WithLabels(identity(c).Labels(componentDatabase)).WithOwnerReferences(identity(c).Owner())
}

// membersService gives members their names, before they are ready too.
func membersService(c *v1alpha1.PostgresCluster) *corev1ac.ServiceSpecApplyConfiguration {
	return corev1ac.ServiceSpec().WithClusterIP("None").WithPublishNotReadyAddresses(true).
		WithSelector(identity(c).Selector()).
		WithPorts(servicePort("postgres", Port), servicePort("agent", memberapi.StatusPort), servicePort("metrics", memberapi.ProbePort))
}

// clientService sends clients to the ready members in a role.
func clientService(c *v1alpha1.PostgresCluster, role string) *corev1ac.ServiceSpecApplyConfiguration {
	return corev1ac.ServiceSpec().WithType(corev1.ServiceTypeClusterIP).
		WithSelector(identity(c).RoleSelector(role)).
		WithPorts(servicePort("postgres", Port))
}

func servicePort(name string, port int32) *corev1ac.ServicePortApplyConfiguration {
	return corev1ac.ServicePort().WithName(name).WithPort(port).WithProtocol(corev1.ProtocolTCP).WithTargetPort(intstr.FromInt32(port))
}

// configMap tells the members what they belong to.
func configMap(c *v1alpha1.PostgresCluster, d desired) *corev1ac.ConfigMapApplyConfiguration {
	return corev1ac.ConfigMap(c.Name+suffixConfig, c.Namespace).
		WithLabels(identity(c).Labels(componentConfig)).WithOwnerReferences(identity(c).Owner()).
		WithData(map[string]string{memberapi.ConfigKey: string(clusterConfig(c, d))})
}

// clusterConfig is deterministic: maps are marshalled with sorted keys.
func clusterConfig(c *v1alpha1.PostgresCluster, d desired) []byte {
	config := memberapi.ClusterConfig{
		APIVersion: identity(c).GVK.GroupVersion().String(), Kind: identity(c).GVK.Kind,
		DeletionPolicy: string(c.Spec.DeletionPolicy), Namespace: c.Namespace, Name: c.Name, UID: string(c.UID),
		Parameters: c.Spec.Parameters, SystemIdentifier: d.systemIdentifier, Fresh: d.fresh,
		Database: d.first.database, Owner: d.first.owner, VolumeSize: c.Spec.Storage.Size.Value(),
	}
	for i := range d.count {
		config.Members = append(config.Members, podName(c, i))
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("a ClusterConfig always marshals: %v", err))
	}
	return append(data, '\n')
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

// dataSecret holds what a cluster that is created again needs to come back:
// it outlives the cluster unless the deletion policy says otherwise.
func dataSecret(c *v1alpha1.PostgresCluster, suffix, component string, data map[string][]byte) *corev1ac.SecretApplyConfiguration {
	return corev1ac.Secret(c.Name+suffix, c.Namespace).WithLabels(identity(c).Labels(component)).
		WithOwnerReferences(identity(c).DataOwners()...).WithType(corev1.SecretTypeOpaque).WithData(data)
}

// connectionSecret is what applications connect with. Its keys follow the
// Service Binding convention, with the ones that drivers read as a whole.
func connectionSecret(c *v1alpha1.PostgresCluster, d desired) *corev1ac.SecretApplyConfiguration {
	host := readWriteHost(c)
	password := string(d.minted.Internal[keyAppPassword])
	database, owner := d.first.database, d.first.owner
	uri := url.URL{
		Scheme: "postgresql", User: url.UserPassword(owner, password),
		Host: hostPort(host, Port), Path: "/" + database, RawQuery: "sslmode=require",
	}
	jdbc := url.URL{
		Scheme: "jdbc:postgresql", Host: hostPort(host, Port), Path: "/" + database,
		RawQuery: url.Values{"user": {owner}, "password": {password}, "sslmode": {"require"}}.Encode(),
	}
	data := map[string]string{
		"type": "postgresql", "provider": "holdfast",
		"host": host, "port": strconv.Itoa(Port), "username": owner, "password": password,
		"dbname": database, "database": database, "uri": uri.String(), "jdbc-uri": jdbc.String(),
		"ca.crt": string(d.minted.TLS["ca.crt"]),
	}
	bytes := make(map[string][]byte, len(data))
	for k, v := range data {
		bytes[k] = []byte(v)
	}
	return corev1ac.Secret(c.Name+suffixApp, c.Namespace).WithLabels(identity(c).Labels(componentApp)).
		WithOwnerReferences(identity(c).Owner()).WithType("servicebinding.io/postgresql").WithData(bytes)
}

// volume is a member's claim, or that of a former member, which is kept.
func volume(c *v1alpha1.PostgresCluster, d desired, v desiredVolume) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	labels := identity(c).Labels(componentDatabase)
	if v.member {
		labels[v1alpha1.LabelMember] = strconv.Itoa(v.ordinal)
	}
	ac := corev1ac.PersistentVolumeClaim(volumeName(c, v.ordinal), c.Namespace).WithLabels(labels).
		WithOwnerReferences(identity(c).DataOwners()...).WithSpec(claimSpec(v))
	if v.ahead {
		ac.WithAnnotations(map[string]string{v1alpha1.AnnotationDataAhead: "true"})
	}
	return ac.WithAnnotations(dataAnnotations(d))
}

// dataAnnotations are what a volume says of its data, for a cluster that is
// created again over it.
func dataAnnotations(d desired) map[string]string {
	annotations := map[string]string{}
	if d.systemIdentifier != "" {
		annotations[v1alpha1.AnnotationSystemIdentifier] = d.systemIdentifier
		if d.first.recorded {
			annotations[v1alpha1.AnnotationDatabase] = d.first.database
			annotations[v1alpha1.AnnotationOwner] = d.first.owner
		}
	}
	return annotations
}

func claimSpec(v desiredVolume) *corev1ac.PersistentVolumeClaimSpecApplyConfiguration {
	spec := corev1ac.PersistentVolumeClaimSpec().WithAccessModes(corev1.ReadWriteOnce).
		WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: v.size}))
	if v.class != "" {
		spec.WithStorageClassName(v.class)
	}
	return spec
}

func readWriteHost(c *v1alpha1.PostgresCluster) string {
	return c.Name + suffixRW + "." + c.Namespace + ".svc"
}

func readOnlyHost(c *v1alpha1.PostgresCluster) string {
	return c.Name + suffixRO + "." + c.Namespace + ".svc"
}

func hostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// sortedKeys of a map, for a stable order.
func sortedKeys[K int | string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool { return keys[i] < keys[j] })
	return keys
}
