package toyengine

import (
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// clusterObjects of a cluster, in the order in which they are applied.
func clusterObjects(c *ToyCluster, d objects.Desired) []runtime.ApplyConfiguration {
	s := membersOf(c)
	host := s.Host(suffixClient)
	connection := objects.ConnectionSecret(s, d, "toy", map[string]string{
		"host": host, "port": strconv.Itoa(Port), "uri": "toy://" + objects.HostPort(host, Port),
	})
	services := []*corev1ac.ServiceApplyConfiguration{objects.ClientService(s, suffixClient, v1alpha1.RoleMember)}
	return objects.ListObjects(s, d, services, connection)
}
