package gitops

import (
	"bytes"
	"os"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/engine/etcd"
	"github.com/holdfast-db/holdfast/internal/engine/mysql"
	"github.com/holdfast-db/holdfast/internal/engine/postgres"
)

// endpoint is a pod, as far as NetworkPolicies know it.
type endpoint struct {
	namespace string
	labels    map[string]string
}

// ways are the ports of members by kind, and whether the operator connects to them: it asks
// every agent for its status, and etcd itself for changes of its membership.
var ways = map[string]map[int32]bool{
	"postgres": {agentapi.StatusPort: true, postgres.Port: false},
	"mysql":    {agentapi.StatusPort: true, mysql.Port: false},
	"etcd":     {agentapi.StatusPort: true, etcd.Port: true, etcd.PeerPort: false},
}

// The operator reaches the ports of members that it connects to, and no others, under the
// component network-policy.
func TestOperatorReachesMembers(t *testing.T) {
	policy := convertTo[networkingv1.NetworkPolicy](t, withComponents(t, "network-policy").findObject(t, "NetworkPolicy", "holdfast"))
	for engine, ports := range ways {
		member := memberOf(t, engine)
		for port, want := range ports {
			got := slices.ContainsFunc(policy.Spec.Egress, func(rule networkingv1.NetworkPolicyEgressRule) bool {
				return includesPort(rule.Ports, port) && (len(rule.To) == 0 || includesPod(rule.To, policy.Namespace, member))
			})
			if got != want {
				t.Errorf("%s: the operator reaches port %d of members: %t, want %t", engine, port, got, want)
			}
		}
	}
}

// Members let the operator in at the ports that it connects to, and no pod of another
// namespace that has the operator's labels at the agents.
func TestMembersLetTheOperatorIn(t *testing.T) {
	operator := withComponents(t).findObject(t, "Deployment", "holdfast")
	labels := convertTo[appsv1.Deployment](t, operator).Spec.Template.Labels
	for engine, ports := range ways {
		policy := convertTo[networkingv1.NetworkPolicy](t, goldenObject(t, engine, "minimal", "NetworkPolicy"))
		admits := func(from endpoint, port int32) bool {
			return slices.ContainsFunc(policy.Spec.Ingress, func(rule networkingv1.NetworkPolicyIngressRule) bool {
				return includesPort(rule.Ports, port) && (len(rule.From) == 0 || includesPod(rule.From, policy.Namespace, from))
			})
		}
		for port, connects := range ports {
			if connects && !admits(endpoint{operator.GetNamespace(), labels}, port) {
				t.Errorf("%s: the operator is not let in at port %d", engine, port)
			}
		}
		for _, namespace := range []string{"tenant", policy.Namespace} {
			if admits(endpoint{namespace, labels}, agentapi.StatusPort) {
				t.Errorf("%s: a pod of namespace %s is let in at the agents with the operator's labels", engine, namespace)
			}
		}
	}
}

// memberOf is a member of an engine's cluster, as its golden manifest declares it.
func memberOf(t *testing.T, engine string) endpoint {
	t.Helper()
	set := convertTo[appsv1.StatefulSet](t, goldenObject(t, engine, "minimal", "StatefulSet"))
	return endpoint{set.Namespace, set.Spec.Template.Labels}
}

// goldenObject is the only object of a kind in a golden manifest of an engine.
func goldenObject(t *testing.T, engine, name, kind string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(root + "/internal/engine/" + engine + "/testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == kind {
			return o
		}
	}
	t.Fatalf("%s of %s has no %s", name, engine, kind)
	return nil
}

func convertTo[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	out := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// includesPort says whether a rule is about a port of TCP.
func includesPort(ports []networkingv1.NetworkPolicyPort, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return (p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP) && (p.Port == nil || *p.Port == intstr.FromInt32(port))
	})
}

// includesPod says whether a peer of a policy in a namespace is about a pod.
func includesPod(peers []networkingv1.NetworkPolicyPeer, policy string, pod endpoint) bool {
	return slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock != nil || peer.NamespaceSelector == nil && pod.namespace != policy {
			return false
		}
		// The API server labels each namespace with its name.
		return matches(peer.NamespaceSelector, map[string]string{corev1.LabelMetadataName: pod.namespace}) && matches(peer.PodSelector, pod.labels)
	})
}

// matches says whether a selector selects; one that is left out does.
func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(set))
}
