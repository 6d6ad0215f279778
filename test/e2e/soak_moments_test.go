//go:build soak

package e2e

import (
	"fmt"
	"testing"
)

// tenMoments: of a gibibyte that is written to, ten times at random come back.
func tenMoments(t *testing.T) {
	a := newArchived(t, "12Gi", 1<<20, "storage: {size: 6Gi}")
	for n, at := range a.writer.report.chooseMoments(10) {
		c := a.restoreTo(fmt.Sprintf("at-%d", n), "time: '"+at.UTC().Format("2006-01-02T15:04:05.000000Z")+"'", "storage: {size: 6Gi}", "deletionPolicy: Delete")
		a.wantMoment(c, at, at)
		c.deleteCluster()
	}
}
