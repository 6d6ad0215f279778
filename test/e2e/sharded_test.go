//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shard is one operator of the overlay, and the namespace that it lists.
type shard struct {
	operator *operator
	role     string
	listed   string
}

// unattended is how long an edit is watched that no operator is there to put back.
const unattended = 10 * time.Second

// shardedOperators: two operators share the clusters by namespace. Each has rights in its
// own namespaces alone and reverts what is edited there, whether the other one runs or not.
func shardedOperators(t *testing.T) {
	needKind(t, postgres)
	image := env.operatorImage
	a := shard{&operator{"holdfast-shard-a", "holdfast-a"}, "holdfast-manager-a", "databases-a"}
	b := shard{&operator{"holdfast-shard-b", "holdfast-b"}, "holdfast-manager-b", "databases-b"}
	uninstallOperator(t)
	for _, s := range []shard{a, b} {
		listed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.listed, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
		takeAway(t, listed)
		t.Cleanup(func() {
			if t.Failed() {
				dumpNamespace(t, s.listed)
				dumpNamespace(t, s.operator.namespace)
			}
			takeAway(t, listed)
		})
		must(t, env.client.Create(t.Context(), listed), "create a listed namespace")
	}
	applyOverlay(t, "sharded", image, "CustomResourceDefinition")
	for _, s := range []shard{a, b} {
		eventually(t, operatorTimeout, s.operator.name+" serves", s.operator.serves)
	}

	inA, inB := createCluster(t, a.listed, orders, 1), createCluster(t, b.listed, orders, 1)
	inA.waitReady()
	inB.waitReady()
	inA.revertsBudget()
	inB.revertsBudget()
	testRights(t, a.operator, a.role, a.listed, b.listed)
	testRights(t, b.operator, b.role, b.listed, a.listed)

	a.operator.scaleTo(t, 0)
	inA.editBudget()
	inB.revertsBudget()
	time.Sleep(unattended) // the observation itself
	if left := inA.readBudget(); *left.Spec.MaxUnavailable != editedBudget {
		t.Errorf("the budget of %s was put back while its operator did not run", a.listed)
	}
	a.operator.scaleTo(t, 1)
	inA.awaitBudget()
	for _, s := range []shard{a, b} {
		for name, text := range readLogs(t.Context(), t, s.operator.namespace) {
			if strings.Contains(text, "forbidden") {
				t.Errorf("%s asks for what it has no right to:\n%s", name, text)
			}
		}
	}
}
