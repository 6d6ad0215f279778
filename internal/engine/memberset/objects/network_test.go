package objects

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// Pods with the operator's label are let in from the operator's namespace alone, to agents
// and to databases that the operator connects to.
func TestOperatorIsLetIn(t *testing.T) {
	const anywhere = "*"
	for _, test := range []struct {
		name, namespace string
		ports           []Port
		// agents and database are the namespaces of operators that reach them; empty for
		// none.
		agents, database string
	}{
		{"a database that the operator never connects to", "holdfast-system", []Port{{Number: 5432}}, "holdfast-system", ""},
		{"a database that it connects to", "holdfast-system", []Port{{Number: 2379, Operator: true}, {Number: 2380, Peers: true}}, "holdfast-system", "holdfast-system"},
		{"one of several operators", "holdfast-shard-a", []Port{{Number: 2379, Operator: true}}, "holdfast-shard-a", "holdfast-shard-a"},
		{"an operator outside of the cluster", "", []Port{{Number: 2379, Operator: true}}, anywhere, anywhere},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"}}
			c.Spec.Network.From = []v1alpha1.NetworkPeer{{PodSelector: &v1alpha1.PeerSelector{MatchLabels: map[string]v1alpha1.PeerLabelValue{"app": "shop"}}}}
			policy := networkPolicy(Set{Kind: Kind{Ports: test.ports}, Cluster: c}, test.namespace)
			operatorAt := func(port int32) string {
				for _, rule := range policy.Spec.Ingress {
					if !slices.ContainsFunc(rule.Ports, func(p networkingv1ac.NetworkPolicyPortApplyConfiguration) bool { return p.Port.IntVal == port }) {
						continue
					}
					for _, peer := range rule.From {
						if peer.PodSelector.MatchLabels["app.kubernetes.io/name"] != "holdfast" {
							continue
						}
						if from := peer.NamespaceSelector.MatchLabels; len(from) > 0 {
							return from["kubernetes.io/metadata.name"]
						}
						return anywhere
					}
				}
				return ""
			}
			if got := operatorAt(agentapi.StatusPort); got != test.agents {
				t.Errorf("agents let the operator in from %q, want %q", got, test.agents)
			}
			for _, port := range test.ports {
				want := test.database
				if port.Peers {
					want = ""
				}
				if got := operatorAt(port.Number); got != want {
					t.Errorf("port %d lets the operator in from %q, want %q", port.Number, got, want)
				}
			}
		})
	}
}
