package postgres

import (
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// clusterObjects of a cluster, in the order in which they are applied.
func clusterObjects(c *v1alpha1.PostgresCluster, d desired) []runtime.ApplyConfiguration {
	s := membersOf(c)
	clients := []*corev1ac.ServiceApplyConfiguration{
		objects.ClientService(s, suffixRW, v1alpha1.RolePrimary),
		objects.ClientService(s, suffixRO, v1alpha1.RoleReplica),
	}
	if isImporting(c) {
		for _, service := range clients {
			service.Spec.WithSelector(keepsOut)
		}
	}
	return objects.ListObjects(s, d.Desired, clients, connectionSecret(c, d))
}

// keepsOut in the selector of a Service leaves it without endpoints: no member has
// the label.
var keepsOut = map[string]string{v1alpha1.LabelImport: "complete"}

// connectionForm is how drivers write the address.
var connectionForm = objects.SQLForm{Scheme: "postgresql", TLS: [2]string{"sslmode", "require"}, JDBCTLS: [2]string{"sslmode", "require"}}

// connectionSecret is what applications connect with.
func connectionSecret(c *v1alpha1.PostgresCluster, d desired) *corev1ac.SecretApplyConfiguration {
	s := membersOf(c)
	return objects.SQLSecret(s, d.Desired, connectionForm, objects.SQLAddress{
		Host: s.Host(suffixRW), Port: Port, Database: d.first.Database, Owner: d.first.Owner, Password: string(d.Minted.Internal[keyAppPassword]),
	})
}
