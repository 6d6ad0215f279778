package plugin

import (
	"bytes"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func clusterWithAdvice() *v1alpha1.PostgresCluster {
	c := clusterOfThree()
	c.Status.Recommendations = []v1alpha1.RecommendationStatus{
		{Field: "spec.parameters.shared_buffers", State: "RolledBack", Evidence: "it is left alone until 2026-12-01", Restart: true, Since: metav1.NewTime(noon)},
		{Field: "spec.parameters.max_wal_size", State: "Open", Current: "1024MB", Value: "2048MB", Evidence: "30 of 34 checkpoints in 1h0m0s were forced", Since: metav1.NewTime(noon)},
		{Field: "spec.parameters.work_mem", State: "Open", Current: "4MB", Value: "8MB", Evidence: "100 temporary files", Since: metav1.NewTime(noon)},
	}
	return c
}

func TestRecommendPatch(t *testing.T) {
	for name, c := range map[string]struct {
		all  bool
		want string
	}{
		"the most urgent": {false, `# The cluster is declared by Kustomization flux-system/apps (Flux): commit this to its source.
# spec.parameters.max_wal_size: 2048MB, now 1024MB: 30 of 34 checkpoints in 1h0m0s were forced
apiVersion: holdfast.dev/v1alpha1
kind: PostgresCluster
metadata:
  name: orders
  namespace: shop
spec:
  parameters:
    max_wal_size: 2048MB
`},
		"all": {true, `# The cluster is declared by Kustomization flux-system/apps (Flux): commit this to its source.
# spec.parameters.max_wal_size: 2048MB, now 1024MB: 30 of 34 checkpoints in 1h0m0s were forced
# spec.parameters.work_mem: 8MB, now 4MB: 100 temporary files
apiVersion: holdfast.dev/v1alpha1
kind: PostgresCluster
metadata:
  name: orders
  namespace: shop
spec:
  parameters:
    max_wal_size: 2048MB
    work_mem: 8MB
`},
	} {
		var out bytes.Buffer
		cluster := clusterWithAdvice()
		if err := writePatch(&out, cluster, cluster, "Kustomization flux-system/apps (Flux)", c.all); err != nil || out.String() != c.want {
			t.Errorf("%s: %v\n%s", name, err, out.String())
		}
	}
	if err := writePatch(&bytes.Buffer{}, clusterOfThree(), clusterOfThree(), "", true); err == nil {
		t.Error("a patch of nothing is written")
	}
}

func TestRecommendTable(t *testing.T) {
	var out bytes.Buffer
	want := `FIELD                           STATE       CURRENT  VALUE   TAKES    EVIDENCE
spec.parameters.shared_buffers  RolledBack  -        -       restart  it is left alone until 2026-12-01
spec.parameters.max_wal_size    Open        1024MB   2048MB  reload   30 of 34 checkpoints in 1h0m0s were forced
spec.parameters.work_mem        Open        4MB      8MB     reload   100 temporary files
`
	if err := writeRecommendations(&out, clusterWithAdvice()); err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := writeRecommendations(&out, clusterOfThree()); err != nil || out.String() != "Nothing is recommended.\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
}
