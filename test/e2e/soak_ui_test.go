//go:build soak

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/test/ui"
)

// TestSoakUIInChromium opens every page of kubectl holdfast ui in Chromium, with the rights
// of a viewer: of a real cluster that has drift, insights, recommendations, a backup, a drill
// that passed, and declarations to plan. No page has an error, a refusal of its
// Content-Security-Policy, a request to another host or a finding of axe-core's, and each
// control works without a mouse. It takes a quarter of an hour: members report what they
// measured every ten minutes.
func TestSoakUIInChromium(t *testing.T) {
	needKind(t, postgres)
	s := newStore(t, "", "4Gi")
	namespace := newNamespace(t, "")
	s.giveKeys(namespace)
	c := &cluster{createSubject(t, postgres, namespace, orders, 2,
		`parameters: {max_wal_size: 64MB, min_wal_size: 32MB, work_mem: 1MB, log_temp_files: "0", checkpoint_warning: 300s}`,
		"resources: {limits: {memory: 512Mi}}",
		"backup: {schedule: '*/5 * * * *', verify: {schedule: '*/10 * * * *'}, destination: "+s.destinationLine(bucket, "pages")+"}")}
	c.waitReady()
	c.runSQL(leading, "create table wal_load (v text); create table spill_load as select md5(g::text) as v from generate_series(1, 60000) g")
	stop := c.runLoad(tuningBurst)
	var service corev1.Service
	c.readObject(&service, c.name+"-rw")
	must(t, mergePatch(`{"metadata":{"labels":{"app.kubernetes.io/name":"elsewhere"}}}`)(t.Context(), &service, "kubectl-edit"), "change an owned object")
	obj := c.waitFor(recommendationTimeout, "the status has what the pages show", func(obj *v1alpha1.PostgresCluster) error {
		return errors.Join(
			lacksUnless(obj.Status.Drift != nil && len(obj.Status.Drift.Last) > 0, "drift"),
			lacksUnless(obj.Status.Insights != nil && len(obj.Status.Insights.Classes) > 0, "insights"),
			lacksUnless(len(obj.Status.Recommendations) > 0, "recommendations"),
			lacksUnless(obj.Status.LastBackup != nil, "a backup"),
			lacksUnless(obj.Status.Drill != nil && obj.Status.Drill.Result == v1alpha1.DrillPassed, "a drill that passed"),
		)
	})

	c.allowViewer()
	b := ui.OpenBrowser(t, c.runUI("-f", c.declareLarger(obj)))
	name := namespace + "/" + c.name
	for _, page := range []ui.Page{
		{Name: "fleet", Fragment: "#/fleet", Shows: []string{"1 of 1 clusters in namespace " + namespace, "pg/" + c.name, obj.Status.Primary}},
		{Name: "cluster", Fragment: "#/cluster/PostgresCluster/" + name, Shows: []string{
			c.podName(0), c.podName(1), "pods/proxy", "kubectl-edit", obj.Status.Insights.Classes[0].Class, obj.Status.Recommendations[0].Field,
		}},
		{Name: "drift", Fragment: "#/drift", Shows: []string{"by kubectl-edit", "Service/" + c.name + "-rw", "Reverted"}},
		{Name: "backups", Fragment: "#/backups", Shows: []string{obj.Status.LastBackup.Name, "Passed", "Completed"}},
		{Name: "insights", Fragment: "#/insights", Shows: []string{obj.Status.Insights.Classes[0].Class, c.name}},
		{Name: "recommendations", Fragment: "#/recommendations", Shows: []string{obj.Status.Recommendations[0].Field, "kubectl holdfast recommend pg/" + c.name + " -n " + namespace + " -o patch"}},
		{Name: "plan", Fragment: "#/plan", Shows: []string{"PostgresCluster " + name, ".spec.storage.size", "volumes never shrink"}},
	} {
		for _, scheme := range ui.Schemes {
			b.CheckPage(page, scheme)
		}
		b.CheckKeyboard(page)
	}
	must(t, stop(), "run the load")
}

func lacksUnless(there bool, what string) error {
	if there {
		return nil
	}
	return fmt.Errorf("the status lacks %s", what)
}

// declareLarger writes a file that declares the cluster with more storage.
func (c *cluster) declareLarger(obj *v1alpha1.PostgresCluster) string {
	c.t.Helper()
	spec := obj.Spec.DeepCopy()
	spec.Storage.Size.Add(resource.MustParse("1Gi"))
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PostgresCluster",
		"metadata": map[string]any{"name": obj.Name, "namespace": obj.Namespace}, "spec": spec,
	})
	must(c.t, err, "write the declaration")
	path := filepath.Join(c.t.TempDir(), "orders.yaml")
	must(c.t, os.WriteFile(path, text, 0o600), "write the declaration")
	return path
}
