package etcd

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// objects of a cluster, in the order in which they are applied.
func objects(c *v1alpha1.EtcdCluster, d memberset.Desired) []runtime.ApplyConfiguration {
	s := set(c)
	return s.Objects(d, []*corev1ac.ServiceApplyConfiguration{s.ClientService(suffixClient, v1alpha1.RoleMember)}, connectionSecret(s, d))
}

// connectionSecret is what applications connect with: where to, whom to trust,
// and the certificate to log in by.
func connectionSecret(s memberset.Set, d memberset.Desired) *corev1ac.SecretApplyConfiguration {
	host := s.Host(suffixClient)
	endpoint := "https://" + memberset.HostPort(host, Port)
	return s.ConnectionSecret(d, "etcd", map[string]string{
		"host": host, "port": strconv.Itoa(Port), "endpoints": endpoint, "uri": endpoint,
		"tls.crt": string(d.Minted.Internal[memberset.KeyAppCert]), "tls.key": string(d.Minted.Internal[memberset.KeyAppKey]),
	})
}
