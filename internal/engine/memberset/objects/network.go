package objects

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// networkPolicy lets clients reach the database and the metrics as spec.network
// says, and only members and the operator the agents. Members and the Jobs of
// backups reach the database whatever the spec says, and the operator does where it
// changes the membership through it.
func networkPolicy(s Set, operatorNamespace string) *networkingv1ac.NetworkPolicyApplyConfiguration {
	network := s.Cluster.Common().Network
	members, operator := pods(s.Selector()), operatorPods(operatorNamespace)
	own := []*networkingv1ac.NetworkPolicyPeerApplyConfiguration{pods(map[string]string{v1alpha1.LabelCluster: s.Cluster.GetName()})}
	if slices.ContainsFunc(s.Ports, func(p Port) bool { return p.Operator }) {
		own = append(own, operator)
	}
	clients, metrics := ingress(network.From, own), ingress(network.MetricsFrom, nil)
	metrics.WithPorts(networkPort(agentapi.ProbePort))
	peers := networkingv1ac.NetworkPolicyIngressRule().WithFrom(members)
	for _, p := range s.Ports {
		if p.Peers {
			peers.WithPorts(networkPort(p.Number))
		} else {
			clients.WithPorts(networkPort(p.Number))
		}
	}
	spec := networkingv1ac.NetworkPolicySpec().
		WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(s.Selector())).WithPolicyTypes("Ingress").
		WithIngress(clients, metrics,
			networkingv1ac.NetworkPolicyIngressRule().WithPorts(networkPort(agentapi.StatusPort)).WithFrom(members, operator),
		)
	if len(peers.Ports) > 0 {
		spec.WithIngress(peers)
	}
	return networkingv1ac.NetworkPolicy(s.Named(""), s.Key().Namespace).
		WithLabels(s.Labels(componentAccess)).WithOwnerReferences(s.owner()).WithSpec(spec)
}

// OperatorLabels are the labels of the operator's pods.
func OperatorLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "holdfast"}
}

// operatorPods are those of the operator. Each tenant can give a pod the operator's label, but
// not run it in the operator's namespace. The namespace is empty for an operator outside of
// the cluster: it has no pods, and one that runs inside is let in wherever it is.
func operatorPods(namespace string) *networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	from := metav1ac.LabelSelector()
	if namespace != "" {
		from.WithMatchLabels(map[string]string{corev1.LabelMetadataName: namespace})
	}
	return pods(OperatorLabels()).WithNamespaceSelector(from)
}

// ingress allows the peers of the spec, and those that are always allowed;
// everyone where the spec names none.
func ingress(declared []v1alpha1.NetworkPeer, always []*networkingv1ac.NetworkPolicyPeerApplyConfiguration) *networkingv1ac.NetworkPolicyIngressRuleApplyConfiguration {
	rule := networkingv1ac.NetworkPolicyIngressRule()
	if len(declared) == 0 {
		return rule
	}
	var peers []*networkingv1ac.NetworkPolicyPeerApplyConfiguration
	for _, peer := range declared {
		peers = append(peers, as[networkingv1ac.NetworkPolicyPeerApplyConfiguration](peer))
	}
	return rule.WithFrom(slices.Concat(peers, always)...)
}

func pods(labels map[string]string) *networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	return networkingv1ac.NetworkPolicyPeer().WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(labels))
}

func networkPort(n int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return networkingv1ac.NetworkPolicyPort().WithProtocol(corev1.ProtocolTCP).WithPort(intstr.FromInt32(n))
}
