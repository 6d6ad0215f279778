//go:build soak

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// TestSoakPostgresImport fills a cluster with a gibibyte, whose progress the status shows.
func TestSoakPostgresImport(t *testing.T) {
	result := importsFrom(t, 4_800_000, 1, func(c *cluster) {
		pg := c.waitFor(importTimeout, "the status counts tables and bytes", func(pg *v1alpha1.PostgresCluster) error {
			if st := pg.Status.Import; st.Step != v1alpha1.ImportStepCopying || !strings.HasSuffix(st.Progress, " MiB") {
				return fmt.Errorf("%+v", *st)
			}
			return nil
		})
		c.t.Logf("%s: %s", pg.Status.Import.Step, pg.Status.Import.Progress)
	})
	if result.Size.Value() < 1<<30 {
		t.Errorf("the dump has %s, less than a gibibyte", result.Size.String())
	}
}

// TestSoakPostgresImportFailover has the primary die while rows are copied into it: the copy
// begins again in another one, and is complete.
func TestSoakPostgresImportFailover(t *testing.T) {
	importsFrom(t, 2_000_000, 3, func(c *cluster) {
		c.waitFor(importTimeout, "rows are copied", func(pg *v1alpha1.PostgresCluster) error {
			if st := pg.Status.Import; st.Step != v1alpha1.ImportStepCopying {
				return fmt.Errorf("%+v", *st)
			}
			return nil
		})
		primary := c.primaryPod()
		must(c.t, env.client.Delete(c.t.Context(), primary, client.GracePeriodSeconds(0)), "kill the primary")
		if st := c.getCluster().Status.Import; st.Done() {
			c.t.Errorf("the import was complete before: %+v", st)
		}
		eventually(c.t, failoverTimeout, "another pod leads", func(ctx context.Context) error {
			now, _, err := c.findPrimary(ctx)
			if err == nil && now.UID == primary.UID {
				return fmt.Errorf("%s leads", now.Name)
			}
			return err
		})
	})
}
