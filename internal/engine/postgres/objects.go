package postgres

import (
	"net/url"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// clusterObjects of a cluster, in the order in which they are applied.
func clusterObjects(c *v1alpha1.PostgresCluster, d desired) []runtime.ApplyConfiguration {
	s := membersOf(c)
	return objects.ListObjects(s, d.Desired, []*corev1ac.ServiceApplyConfiguration{
		objects.ClientService(s, suffixRW, v1alpha1.RolePrimary),
		objects.ClientService(s, suffixRO, v1alpha1.RoleReplica),
	}, connectionSecret(c, d))
}

// connectionSecret is what applications connect with: parts, and the whole in
// the forms that drivers read.
func connectionSecret(c *v1alpha1.PostgresCluster, d desired) *corev1ac.SecretApplyConfiguration {
	s := membersOf(c)
	host := s.Host(suffixRW)
	password := string(d.Minted.Internal[keyAppPassword])
	database, owner := d.first.Database, d.first.Owner
	uri := url.URL{
		Scheme: "postgresql", User: url.UserPassword(owner, password),
		Host: objects.HostPort(host, Port), Path: "/" + database, RawQuery: "sslmode=require",
	}
	jdbc := url.URL{
		Scheme: "jdbc:postgresql", Host: objects.HostPort(host, Port), Path: "/" + database,
		RawQuery: url.Values{"user": {owner}, "password": {password}, "sslmode": {"require"}}.Encode(),
	}
	return objects.ConnectionSecret(s, d.Desired, "postgresql", map[string]string{
		"host": host, "port": strconv.Itoa(Port), "username": owner, "password": password,
		"dbname": database, "database": database, "uri": uri.String(), "jdbc-uri": jdbc.String(),
	})
}
