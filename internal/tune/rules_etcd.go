package tune

import (
	"fmt"

	"github.com/holdfast-db/holdfast/internal/agentapi"
)

// mostQuota is what etcd's documentation advises at most.
const mostQuota = 8 * gibibyte

// quotaFull is the share of the quota from which it counts as full.
const quotaFull = 0.7

var etcdRules = []rule{{
	name: "quota", field: "spec.quota", unit: mebibyte, units: quantityUnits, restart: true,
	most: func(s Spec) float64 {
		// A defragmentation writes the data once more beside the old copy. Data that is
		// mapped counts against the limit of memory.
		most := min(mostQuota, float64(s.Volume)/2)
		if s.Memory > 0 {
			most = min(most, MemoryShare*float64(s.Memory))
		}
		return most
	},
	judge: func(o observed, now float64) string {
		used := o.peaks[agentapi.TuningDataSize]
		if used < quotaFull*now {
			return ""
		}
		return fmt.Sprintf("%s of data were in use, %.0f %% of the quota of %s", describeBytes(used), 100*used/now, describeBytes(now))
	},
}}
