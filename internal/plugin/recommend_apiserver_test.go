//go:build apiserver

package plugin

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// recommendedFields are what is recommended of each kind, as the operator records it.
var recommendedFields = map[string]v1alpha1.RecommendationStatus{
	"PostgresCluster": {Field: "spec.parameters.max_wal_size", Current: "102MB", Value: "204MB", Evidence: "20 of 24 checkpoints in 60 minutes were forced"},
	"MySQLCluster":    {Field: "spec.parameters.innodb_redo_log_capacity", Current: "48M", Value: "96M", Evidence: "the redo log of 48 MiB was written over 20.0 times"},
	"EtcdCluster":     {Field: "spec.quota", Current: "160Mi", Value: "320Mi", Evidence: "140 MiB of data were in use", Restart: true},
}

// recordRecommendation records one as the operator does, beside the rest of the status: it
// keeps that until it hears of measurements.
func (w *world) recordRecommendation(c v1alpha1.Cluster, r v1alpha1.RecommendationStatus) {
	w.t.Helper()
	w.awaitApplied(c)
	status := c.CommonStatus().DeepCopy()
	status.Recommendations = []v1alpha1.RecommendationStatus{r}
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": kindOf(c).gvk.Kind,
		"metadata": map[string]any{"namespace": c.GetNamespace(), "name": c.GetName()}, "status": status,
	})
	w.mustSucceed(err)
	w.mustSucceed(w.person.Status().Patch(w.t.Context(), c, client.RawPatch(types.ApplyPatchType, body), client.FieldOwner(v1alpha1.FieldManager), client.ForceOwnership))
}

// What is recommended is shown, and the patch is one that the API takes. Once it is
// declared, the recommendation goes.
func TestRecommend(t *testing.T) {
	eachKind(t, func(t *testing.T, w *world, c v1alpha1.Cluster) {
		w.createCluster(c)
		out, _ := w.mustRun("recommend", "orders")
		mustContain(t, out, "Nothing is recommended.")
		w.mustFail(1, "nothing is recommended for "+nameOf(c), "recommend", "orders", "-o", "patch")

		r := recommendedFields[kindOf(c).gvk.Kind]
		r.Since = metav1.NewTime(time.Now().UTC().Truncate(time.Second))
		w.recordRecommendation(c, r)
		out, _ = w.mustRun("recommend", nameOf(c))
		mustContain(t, out, r.Field, r.Current, r.Value, r.Evidence)
		out, _ = w.mustRun("recommend", "orders", "-o", "json")
		var printed []v1alpha1.RecommendationStatus
		w.mustSucceed(json.Unmarshal([]byte(out), &printed))
		if len(printed) != 1 || !equality.Semantic.DeepEqual(printed[0], r) {
			t.Errorf("printed is %+v, want %+v", printed, r)
		}

		patch, _ := w.mustRun("recommend", "orders", "-o", "patch")
		mustContain(t, patch, r.Evidence)
		body, err := yaml.YAMLToJSON([]byte(patch))
		w.mustSucceed(err)
		w.mustSucceed(w.person.Patch(t.Context(), c, client.RawPatch(types.MergePatchType, body)))
		w.awaitStatus(c, "the recommendation goes", func() bool { return len(c.CommonStatus().Recommendations) == 0 })
		out, _ = w.mustRun("recommend", "orders")
		mustContain(t, out, "Nothing is recommended.")
	})
}
