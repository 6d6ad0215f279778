package etcd

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// clusterObjects of a cluster, in the order in which they are applied.
func clusterObjects(c *v1alpha1.EtcdCluster, d objects.Desired) []runtime.ApplyConfiguration {
	s := membersOf(c)
	return objects.ListObjects(s, d, []*corev1ac.ServiceApplyConfiguration{objects.ClientService(s, suffixClient, v1alpha1.RoleMember)}, connectionSecret(s, d))
}

// connectionSecret is what applications connect with: where to, whom to trust,
// and the certificate to log in by.
func connectionSecret(s objects.Set, d objects.Desired) *corev1ac.SecretApplyConfiguration {
	host := s.Host(suffixClient)
	endpoint := "https://" + objects.HostPort(host, Port)
	return objects.ConnectionSecret(s, d, "etcd", map[string]string{
		"host": host, "port": strconv.Itoa(Port), "endpoints": endpoint, "uri": endpoint,
		"tls.crt": string(d.Minted.Internal[memberset.KeyAppCert]), "tls.key": string(d.Minted.Internal[memberset.KeyAppKey]),
	})
}
