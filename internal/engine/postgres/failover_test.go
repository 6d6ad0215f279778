package postgres

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
)

// Members get what spec.failover says, by the names of pods.
func TestFailoverConfig(t *testing.T) {
	w := ledBy(t, 3, 2)
	if diff := cmp.Diff(postgresapi.FailoverConfig{}, w.config().FailoverConfig); diff != "" {
		t.Errorf("without spec.failover (-want +got):\n%s", diff)
	}
	lag := resource.MustParse("16Mi")
	w.c.Spec.Failover = &v1alpha1.PostgresFailover{MaxLag: &lag, NoFailover: []int32{2, 0}}
	want := postgresapi.FailoverConfig{MaxLag: 16 << 20, NoFailover: []string{"orders-0", "orders-2"}}
	if diff := cmp.Diff(want, w.config().FailoverConfig); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Another spec.failover replaces no pod.
func TestFailoverConfigReplacesNoPod(t *testing.T) {
	w := ledBy(t, 3, 2)
	before := membersOf(w.c).RolloutHash("image")
	lag := resource.MustParse("16Mi")
	w.c.Spec.Failover = &v1alpha1.PostgresFailover{MaxLag: &lag, NoFailover: []int32{2}}
	if after := membersOf(w.c).RolloutHash("image"); after != before {
		t.Error("the hash of what only a new pod can take up is another one")
	}
	if step := w.plan().Step; step != nil {
		t.Errorf("%v", *step)
	}
}
