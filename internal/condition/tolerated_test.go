package condition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// A mesh adds more than a message holds: every object is named all the same.
func TestSyncedNamesEveryObjectThatAdmissionChanged(t *testing.T) {
	var mesh []string
	for n := range 40 {
		mesh = append(mesh, fmt.Sprintf(`.spec.containers[name="postgres"].env[name="MESH_%d"] (added)`, n))
	}
	c := cluster(2)
	Resolve(c, Input{Facts: []Fact{serving}, Tolerated: []Tolerated{
		{Objects: []string{"Pod/orders-0", "Pod/orders-1"}, Differences: mesh},
		{Objects: []string{"Pod/orders-2"}, Differences: mesh[:30]},
		{Objects: []string{"StatefulSet/orders"}, Differences: []string{".metadata.labels.team (added)"}},
		{Objects: []string{"Service/orders-rw"}, Differences: []string{".metadata.labels.team (added)", ".metadata.labels.cost (added)"}},
	}})
	said := conditions.GetMessage(c, v1alpha1.ConditionSynced)
	for _, word := range []string{
		`Pod/orders-0, Pod/orders-1 .spec.containers[name="postgres"].env[name="MESH_0"] (added), `, ` more; Pod/orders-2 .spec`,
		"; StatefulSet/orders .metadata.labels.team (added); Service/orders-rw .metadata.labels.team (added), .metadata.labels.cost (added)",
	} {
		if !strings.Contains(said, word) {
			t.Errorf("%q is not in %q", word, said)
		}
	}
	if len(said) > maxMessage || strings.HasSuffix(said, "…") {
		t.Errorf("it has %d bytes: %s", len(said), said)
	}
}

func TestSyncedSaysAllThatFits(t *testing.T) {
	c := cluster(2)
	Resolve(c, Input{Facts: []Fact{serving}, Tolerated: []Tolerated{
		{Objects: []string{"Pod/orders-0"}, Differences: []string{".spec.tolerations (added)", `.spec.containers[name="mesh"] (added)`}},
		{Objects: []string{"Service/orders-rw"}, Differences: []string{".metadata.labels.team (added)"}},
	}})
	const want = "every owned object is as declared; left as admission policies or other clients made it: " +
		`Pod/orders-0 .spec.tolerations (added), .spec.containers[name="mesh"] (added); Service/orders-rw .metadata.labels.team (added)`
	if said := conditions.GetMessage(c, v1alpha1.ConditionSynced); said != want {
		t.Errorf("it says %q, want %q", said, want)
	}
}
