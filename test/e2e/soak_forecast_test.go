//go:build soak

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/loginsight"
)

// forecastTimeout is for at least half an hour of samples, until as much time is left, and
// for the operator to record what came of them: two minutes, and ten more where something
// else was reported just before.
const forecastTimeout = 75 * time.Minute

// fillingBurst writes 8 MB of rows: with one in 15 seconds a volume of 2 GiB is full within
// an hour.
var fillingBurst = []string{"insert into filling select repeat(md5(g::text), 50) from generate_series(1, 4800) g"}

// TestSoakVolumeForecast: a volume that fills is forecast to be full, in status.insights and
// by the plugin. That of a cluster without load, of the same age, is not. It takes about 45
// minutes: a forecast needs half an hour of samples.
func TestSoakVolumeForecast(t *testing.T) {
	shape := func(obj *v1alpha1.PostgresCluster) {
		obj.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("2Gi"), StorageClass: "sized"}
		obj.Spec.Parameters = map[string]string{"max_wal_size": "64MB", "min_wal_size": "64MB"}
	}
	idle, c := newCluster(t, 1, shape), newCluster(t, 1, shape)
	idle.waitReady()
	c.waitReady()
	c.runSQL(leading, "create table filling (v text)")
	stop := c.runLoad(fillingBurst)
	obj := c.waitFor(forecastTimeout, "status.insights says that the volume fills", func(obj *v1alpha1.PostgresCluster) error {
		if classes := listInsights(obj); !slices.Contains(classes, loginsight.VolumeFullInADay) {
			return fmt.Errorf("it has %v", classes)
		}
		return nil
	})
	must(t, stop(), "run the load")
	t.Logf("status.insights: %+v", obj.Status.Insights)
	c.pluginPrints(0, []string{"insights", c.name}, loginsight.VolumeFullInADay, c.podName(leading)+": its volume is full in ")

	if classes := listInsights(idle.getCluster()); slices.ContainsFunc(classes, func(class string) bool { return strings.HasPrefix(class, "VolumeFull") }) {
		t.Errorf("the cluster without load has %v", classes)
	}
	if out, stderr, code := idle.runPlugin("", "insights", idle.name); code != 0 || strings.Contains(out, "its volume is full") {
		t.Errorf("of the cluster without load the plugin prints %s%s", out, stderr)
	}
}

// listInsights are the classes in status.insights.
func listInsights(obj *v1alpha1.PostgresCluster) (classes []string) {
	if obj.Status.Insights != nil {
		for _, i := range obj.Status.Insights.Classes {
			classes = append(classes, i.Class)
		}
	}
	return classes
}
