package postgres

import (
	"slices"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// failoverConfig is how members elect a primary, and what is requested of them. Of the
// requests for another primary, a person's comes first.
func failoverConfig(c *v1alpha1.PostgresCluster, r requests) postgresapi.FailoverConfig {
	config := postgresapi.FailoverConfig{Promotion: r.promotion.request, Switchover: r.switchover.request}
	if config.Switchover == nil {
		config.Switchover = r.scaling.request
	}
	config.Synchronous = synchronousConfig(c)
	if f := c.Spec.Failover; f != nil {
		config.LeaseDuration = leaseSeconds(f)
		if f.MaxLag != nil {
			config.MaxLag = uint64(max(0, f.MaxLag.Value()))
		}
		for _, n := range f.NoFailover {
			config.NoFailover = append(config.NoFailover, membersOf(c).PodName(int(n)))
		}
		slices.Sort(config.NoFailover)
	}
	return config
}
