//go:build soak

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agent/trends"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/sizing"
)

// usageTimeout is for an agent to measure for some minutes, and to report that.
const usageTimeout = 16 * time.Minute

// busyBurst keeps a processor busy for most of loadInterval.
var busyBurst = []string{"do $$ declare stop timestamptz := clock_timestamp() + interval '14 s'; begin while clock_timestamp() < stop loop perform sum(g) from generate_series(1, 10000) g; end loop; end $$"}

// TestSoakSizing: a member that uses more CPU than it requests has more recommended, and so has
// one that is killed for lack of memory. Four days with the load that the agent measures are
// written to the volume, since they cannot be waited for: what follows is the agent's own. The
// patches that the plugin writes are committed, and nothing is recommended any more. It takes
// half an hour: members report every ten minutes.
func TestSoakSizing(t *testing.T) {
	d := deliverCluster(t, nil, "replicas: 1", "resources: {requests: {cpu: 100m, memory: 512Mi}, limits: {memory: 768Mi}}")
	c := d.c
	c.pluginPrints(0, []string{"recommend", c.name}, "Nothing is recommended.")
	stop := c.runLoad(busyBurst)
	var cores float64
	eventually(t, usageTimeout, "the agent measures the load", func(ctx context.Context) error {
		used, err := c.readGauge(ctx, "holdfast_member_cpu_used_cores")
		if err == nil && used < 0.25 {
			err = fmt.Errorf("%.2f cores", used)
		}
		cores = used
		return err
	})
	memory, err := c.readGauge(t.Context(), "holdfast_member_memory_used_bytes")
	must(t, err, "read the memory")
	if memory < 32<<20 || memory > 768<<20 {
		t.Errorf("%.0f bytes of memory are in use", memory)
	}
	must(t, stop(), "run the load")
	c.livedThrough(4*24*time.Hour, sizing.Usage{CPU: 1000 * cores, Memory: int64(memory), Held: int64(memory)})
	c.recommends("spec.resources.requests.cpu", "in 95 % of the minutes")

	// 800 MB of text do not fit.
	c.failSQL("select length(repeat('x', 400000000) || repeat('y', 400000000))")
	c.recommends("spec.resources.limits.memory", "killed for lack of memory")
	c.waitReady()
	patch := c.pluginPrints(0, []string{"recommend", c.name, "-o", "patch", "--all"}, "resources:", "limits:", "requests:")
	d.k.waitReady(d.commitFiles("take what is recommended", map[string]string{
		"kustomization.yaml": kustomizationFile("orders.yaml", "patches:", fmt.Sprintf("- {path: sizing.yaml, target: {kind: PostgresCluster, name: %s}}", c.name)),
		"sizing.yaml":        patch,
	}))
	c.waitFor(recommendationGoes, "nothing is recommended", func(obj *v1alpha1.PostgresCluster) error {
		if list := obj.Status.Recommendations; len(list) > 0 {
			return fmt.Errorf("%+v", list)
		}
		return nil
	})
	obj := c.waitReady()
	declared := obj.Spec.Resources
	if cpu := declared.Requests[corev1.ResourceCPU]; float64(cpu.MilliValue()) < 1000*cores {
		t.Errorf("requests.cpu is %s, and %.2f cores are used", cpu.String(), cores)
	}
	if limit := declared.Limits[corev1.ResourceMemory]; limit.Cmp(resource.MustParse("868Mi")) < 0 {
		t.Errorf("limits.memory is %s after a kill with 768Mi", limit.String())
	}
}

// livedThrough has the next agent of the first member find a past on its volume, which ends now.
func (c *cluster) livedThrough(past time.Duration, use sizing.Usage) {
	c.t.Helper()
	var h sizing.History
	for at := time.Now().Add(-past); at.Before(time.Now()); at = at.Add(time.Minute) {
		h.Add(at, use)
	}
	data, err := h.MarshalBinary()
	must(c.t, err, "write a past")
	_, err = runCommand(c.t.Context(), c.namespace, c.podName(0), base64.StdEncoding.EncodeToString(data),
		"sh", "-c", "base64 -d > "+agentapi.DataDir+"/"+trends.UsageFileName)
	must(c.t, err, "write a past")
	c.killAgent(0)
}

// recommends waits until a field is recommended with its evidence, and the plugin shows it.
func (c *cluster) recommends(field, evidence string) {
	c.t.Helper()
	c.waitFor(usageTimeout, field+" is recommended", func(obj *v1alpha1.PostgresCluster) error {
		for _, r := range obj.Status.Recommendations {
			if r.Field == field && strings.Contains(r.Evidence, evidence) && r.Restart {
				c.t.Logf("%s: %s, now %s: %s", r.Field, r.Value, r.Current, r.Evidence)
				return nil
			}
		}
		return fmt.Errorf("recommended is %+v", obj.Status.Recommendations)
	})
	c.pluginPrints(0, []string{"recommend", c.name}, field, evidence)
}

// readGauge reads a metric without labels of the first member.
func (c *cluster) readGauge(ctx context.Context, name string) (float64, error) {
	data, err := env.kube.CoreV1().Pods(c.namespace).ProxyGet("http", c.podName(0), operatorPort, "metrics", nil).DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	for _, m := range families[name].GetMetric() {
		return m.GetGauge().GetValue(), nil
	}
	return 0, fmt.Errorf("%s is missing", name)
}
