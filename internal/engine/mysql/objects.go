package mysql

import (
	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// clusterObjects of a cluster, in the order in which they are applied.
func clusterObjects(c *v1alpha1.MySQLCluster, d desired) []runtime.ApplyConfiguration {
	s := membersOf(c)
	return objects.ListObjects(s, d.Desired, []*corev1ac.ServiceApplyConfiguration{
		objects.ClientService(s, suffixRW, v1alpha1.RolePrimary),
		objects.ClientService(s, suffixRO, v1alpha1.RoleReplica),
	}, connectionSecret(c, d))
}

// connectionForm is how drivers write the address.
var connectionForm = objects.SQLForm{Scheme: "mysql", TLS: [2]string{"ssl-mode", "REQUIRED"}, JDBCTLS: [2]string{"sslMode", "REQUIRED"}}

// connectionSecret is what applications connect with.
func connectionSecret(c *v1alpha1.MySQLCluster, d desired) *corev1ac.SecretApplyConfiguration {
	s := membersOf(c)
	return objects.SQLSecret(s, d.Desired, connectionForm, objects.SQLAddress{
		Host: s.Host(suffixRW), Port: Port, Database: d.first.Database, Owner: d.first.Owner, Password: string(d.Minted.Internal[keyAppPassword]),
	})
}
