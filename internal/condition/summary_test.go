package condition

import (
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// What lists of clusters show is one clause, however many members have something
// to say; the rest stands in the condition of its own.
func TestSummaryIsOneClause(t *testing.T) {
	say := func(kind, message string) Fact {
		return Fact{Type: kind, Status: metav1.ConditionTrue, Reason: "Because", Message: message}
	}
	serves := say(v1alpha1.ConditionAvailable, "2 of 3 members serve, orders-0 takes writes")
	const away, pull = "member orders-1 has no pod yet", "pod orders-2: image x: ImagePullBackOff"
	for _, tc := range []struct {
		name        string
		c           *v1alpha1.PostgresCluster
		facts       []Fact
		want, other string
	}{
		{"as declared", cluster(1), []Fact{serves}, serves.Message, ""},
		{"members are changed", cluster(1),
			[]Fact{serves, say(v1alpha1.ConditionReconciling, away), say(v1alpha1.ConditionReconciling, pull)},
			serves.Message + "; " + away + " (and 1 more: see Reconciling)", v1alpha1.ConditionReconciling},
		{"members are made", cluster(1),
			[]Fact{down, say(v1alpha1.ConditionReconciling, away), say(v1alpha1.ConditionReconciling, away)}, away, ""},
		{"a member is broken", cluster(2, wasReady),
			[]Fact{serves, say(v1alpha1.ConditionDegraded, pull+"; see its events"), say(v1alpha1.ConditionReconciling, pull)},
			serves.Message + "; " + pull, ""},
		{"only a person can go on", cluster(1),
			[]Fact{serves, say(v1alpha1.ConditionStalled, pull), say(v1alpha1.ConditionStalled, "another")},
			pull + " (and 1 more: see Stalled)", v1alpha1.ConditionStalled},
	} {
		Resolve(tc.c, Input{Facts: tc.facts})
		if got := conditions.GetMessage(tc.c, v1alpha1.ConditionReady); got != tc.want {
			t.Errorf("%s: the summary is %q, want %q", tc.name, got, tc.want)
		}
		if tc.other == "" {
			continue
		}
		for _, f := range tc.facts {
			if all := conditions.GetMessage(tc.c, tc.other); f.Type == tc.other && !strings.Contains(all, f.Message) {
				t.Errorf("%s: %s does not say %q: %q", tc.name, tc.other, f.Message, all)
			}
		}
	}
}

// A Database says as much of its cluster as that says itself in lists, and what is its own
// before it.
func TestSummaryOfADatabase(t *testing.T) {
	say := func(kind, message string) Fact {
		return Fact{Type: kind, Status: metav1.ConditionTrue, Reason: "Because", Message: message}
	}
	const prefix, own = "PostgresCluster orders: ", "spec.engine cannot change"
	for kind, first := range map[string]string{
		v1alpha1.ConditionStalled: "ServiceAccount/orders exists", v1alpha1.ConditionReconciling: "member orders-1 has no pod yet",
	} {
		c := cluster(1)
		Resolve(c, Input{Facts: []Fact{down, say(kind, first), say(kind, "another")}})
		below := Mirror(c, prefix, true)
		for _, tc := range []struct {
			facts []Fact
			want  string
		}{
			{below, prefix + first + " (and 1 more: see " + kind + ")"},
			{append([]Fact{say(v1alpha1.ConditionStalled, own)}, below...), own},
		} {
			d := &v1alpha1.Database{}
			ResolveDatabase(d, Input{Facts: tc.facts})
			if got := conditions.GetMessage(d, v1alpha1.ConditionReady); !strings.HasPrefix(got, tc.want) || strings.Contains(got, "another") {
				t.Errorf("%s: the summary is %q, want %q", kind, got, tc.want)
			}
			if all := conditions.GetMessage(d, kind); !strings.Contains(all, "another") && kind == v1alpha1.ConditionStalled {
				t.Errorf("%s does not say everything: %q", kind, all)
			}
		}
	}
}
