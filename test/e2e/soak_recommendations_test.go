//go:build soak

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

const (
	// recommendationTimeout is for members to measure for ten minutes, and to report that.
	recommendationTimeout = 16 * time.Minute
	// recommendationGoes is for a pass of the operator: less than until a member reports.
	recommendationGoes = 20 * time.Second
	// loadInterval is between two bursts of a load.
	loadInterval = 15 * time.Second
)

// tuningBurst forces checkpoints where max_wal_size is 64MB, and writes temporary files where
// work_mem is 1MB.
var tuningBurst = []string{
	"insert into wal_load select repeat(md5(g::text), 20) from generate_series(1, 40000) g",
	"truncate wal_load",
	"select count(*) from (select v from spill_load order by v offset 1) s",
}

// TestSoakPostgresRecommendations: a cluster whose max_wal_size and work_mem are too small for
// its load gets both recommended, with the evidence. The patches that the plugin writes are
// committed, Flux applies them, and each recommendation goes. It takes a quarter of an hour:
// members report what they measured every ten minutes.
func TestSoakPostgresRecommendations(t *testing.T) {
	d := deliverCluster(t, nil, "replicas: 2", "parameters: {max_wal_size: 64MB, min_wal_size: 32MB, work_mem: 1MB}", "resources: {limits: {memory: 512Mi}}")
	c := d.c
	c.pluginPrints(0, []string{"recommend", c.name}, "Nothing is recommended.")
	c.runSQL(leading, "create table wal_load (v text); create table spill_load as select md5(g::text) as v from generate_series(1, 60000) g")
	stop := c.runLoad(tuningBurst)
	want := map[string]string{"spec.parameters.max_wal_size": "checkpoints", "spec.parameters.work_mem": "temporary files"}
	obj := c.waitFor(recommendationTimeout, "both settings are recommended", func(obj *v1alpha1.PostgresCluster) error {
		if n := len(obj.Status.Recommendations); n != len(want) {
			return fmt.Errorf("%d recommendations: %+v", n, obj.Status.Recommendations)
		}
		return nil
	})
	must(t, stop(), "run the load")
	for i, r := range obj.Status.Recommendations {
		t.Logf("%s: %s, now %s: %s", r.Field, r.Value, r.Current, r.Evidence)
		if evidence := want[r.Field]; evidence == "" || !strings.Contains(r.Evidence, evidence) {
			t.Errorf("recommended is %+v", r)
		}
		c.pluginPrints(0, []string{"recommend", c.name}, r.Field, r.Current, r.Value, r.Evidence)
		d.commitRecommendation(i, r)
	}
	c.pluginPrints(0, []string{"recommend", c.name}, "Nothing is recommended.")
}

// commitRecommendation commits the patch that the plugin writes for the most urgent setting,
// as the guide says, and waits until Flux has applied it, the database has the value, and the
// recommendation is gone: at once, before a member measures anything with it.
func (d *delivery) commitRecommendation(n int, r v1alpha1.RecommendationStatus) {
	d.t.Helper()
	lines := []string{"patches:"}
	for i := range n + 1 {
		lines = append(lines, fmt.Sprintf("- {path: tuning-%d.yaml, target: {kind: PostgresCluster, name: %s}}", i, d.c.name))
	}
	d.k.waitReady(d.commitFiles("take a recommendation", map[string]string{
		"kustomization.yaml":             kustomizationFile("orders.yaml", lines...),
		fmt.Sprintf("tuning-%d.yaml", n): d.c.pluginPrints(0, []string{"recommend", d.c.name, "-o", "patch"}, r.Evidence),
	}))
	d.c.waitFor(recommendationGoes, r.Field+" is recommended no longer", func(obj *v1alpha1.PostgresCluster) error {
		for _, now := range obj.Status.Recommendations {
			if now.Field == r.Field {
				return fmt.Errorf("%+v", now)
			}
		}
		return nil
	})
	name := strings.TrimPrefix(r.Field, "spec.parameters.")
	eventually(d.t, readyTimeout, name+" is in force", func(context.Context) error {
		if got := d.c.runSQL(leading, "show "+name); got != r.Value {
			return fmt.Errorf("%s is %s, want %s", name, got, r.Value)
		}
		return nil
	})
}

// runLoad runs statements on the primary again and again until what it returns is called,
// which says what failed.
func (c *cluster) runLoad(statements []string) (stop func() error) {
	ctx, cancel := context.WithCancel(c.t.Context())
	pod, ended := c.podName(leading), make(chan error, 1)
	go func() {
		for {
			for _, statement := range statements {
				if _, err := runLocalQuery(ctx, c.namespace, pod, "app", statement); err != nil && ctx.Err() == nil {
					ended <- errors.Join(errors.New(statement), err)
					return
				}
			}
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-time.After(loadInterval):
			}
		}
	}()
	return func() error { cancel(); return <-ended }
}
