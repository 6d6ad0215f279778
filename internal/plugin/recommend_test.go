package plugin

import (
	"bytes"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func clusterWithAdvice() *v1alpha1.PostgresCluster {
	c := clusterOfThree()
	c.Status.Recommendations = []v1alpha1.RecommendationStatus{
		{Field: "spec.parameters.max_wal_size", Current: "1GB", Value: "2GB", Evidence: "30 of 34 checkpoints in 60 minutes were forced", Since: metav1.NewTime(noon)},
		{Field: "spec.parameters.shared_buffers", Current: "256MB", Value: "512MB", Evidence: "66.7 % of block accesses", Restart: true, Since: metav1.NewTime(noon)},
	}
	return c
}

// The golden files are what kustomize is given in test/kustomization.
func TestRecommendPatch(t *testing.T) {
	for name, all := range map[string]bool{"recommend-patch.yaml": false, "recommend-patch-all.yaml": true} {
		var out bytes.Buffer
		cluster := clusterWithAdvice()
		if err := writePatch(&out, cluster, cluster, "Kustomization flux-system/apps (Flux)", all); err != nil {
			t.Fatal(err)
		}
		compareGolden(t, name, out.String())
	}
	if err := writePatch(&bytes.Buffer{}, clusterOfThree(), clusterOfThree(), "", true); err == nil {
		t.Error("a patch of nothing is written")
	}
}

// A cluster of a Database is declared by that: the patch is one of it.
func TestRecommendPatchOfADatabase(t *testing.T) {
	c := clusterWithAdvice()
	c.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Database", Name: "front", UID: "1", Controller: new(true)}}
	var out bytes.Buffer
	if err := writePatch(&out, declaringObject(c), c, "", false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "kind: Database\nmetadata:\n  name: front\n  namespace: shop\nspec:\n  parameters:\n    max_wal_size: 2GB\n") {
		t.Error(out.String())
	}
}

// Resources are nested, and what changes with them is said.
func TestRecommendResources(t *testing.T) {
	c := clusterOfThree()
	c.Status.Recommendations = []v1alpha1.RecommendationStatus{
		{Field: "spec.resources.limits.memory", Current: "1Gi", Value: "1536Mi", Evidence: "orders-1 was killed", Restart: true, Since: metav1.NewTime(noon)},
		{Field: "spec.resources.requests.memory", Current: "512Mi", Value: "1Gi", Evidence: "orders-1 needed 900 MiB", Restart: true, Computed: []string{"shared_buffers", "work_mem"}, Since: metav1.NewTime(noon)},
		{Field: "spec.resources.requests.cpu", Current: "none", Value: "500m", Evidence: "orders-0 used up to 420m", Restart: true, Since: metav1.NewTime(noon)},
		{Field: "spec.parameters.pg_stat_statements.max", Current: "1000", Value: "2000", Evidence: "dots in a name", Since: metav1.NewTime(noon)},
	}
	var out bytes.Buffer
	if err := writePatch(&out, c, c, "", true); err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "recommend-patch-resources.yaml", out.String())
	out.Reset()
	if err := writeRecommendations(&out, c); err != nil || !strings.HasSuffix(out.String(), "\nWith spec.resources.requests.memory change shared_buffers, work_mem.\n") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

func TestRecommendTable(t *testing.T) {
	var out bytes.Buffer
	want := `FIELD                           CURRENT  VALUE  TAKES    EVIDENCE
spec.parameters.max_wal_size    1GB      2GB    reload   30 of 34 checkpoints in 60 minutes were forced
spec.parameters.shared_buffers  256MB    512MB  restart  66.7 % of block accesses
`
	if err := writeRecommendations(&out, clusterWithAdvice()); err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := writeRecommendations(&out, clusterOfThree()); err != nil || out.String() != "Nothing is recommended.\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
}
