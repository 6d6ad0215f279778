package condition

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func fact(conditionType, reason string) Fact {
	return Fact{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: "message of " + reason}
}

var (
	serving   = fact(v1alpha1.ConditionAvailable, v1alpha1.ReasonAvailable)
	down      = Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPrimaryUnavailable, Message: "no primary"}
	noQuorum  = Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonQuorumLost, Message: "the majority does not answer"}
	syncing   = fact(v1alpha1.ConditionReconciling, v1alpha1.ReasonSyncing)
	shrinking = fact(v1alpha1.ConditionStalled, v1alpha1.ReasonStorageShrink)
)

// cluster at generation 2, whose status speaks of observed.
func cluster(observed int64, was ...metav1.Condition) *v1alpha1.PostgresCluster {
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	c.Status.ObservedGeneration = observed
	for _, cond := range was {
		cond.ObservedGeneration = observed
		c.Status.Conditions = append(c.Status.Conditions, cond)
	}
	return c
}

// rolledOut is a cluster whose present generation was rolled out once.
func rolledOut(c *v1alpha1.PostgresCluster) *v1alpha1.PostgresCluster {
	c.Status.RolledOut = &v1alpha1.RolledOutStatus{Generation: c.Generation, Replicas: 1}
	return c
}

var (
	wasReady = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}
	wasDown  = metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPrimaryUnavailable}
	wasBusy  = metav1.Condition{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSyncing}
)

func TestResolve(t *testing.T) {
	cases := []struct {
		name string
		c    *v1alpha1.PostgresCluster
		in   Input
		// want maps the type to "Status/Reason".
		want map[string]string
	}{
		{"a new generation that is done and serves is ready", cluster(1, wasReady), Input{Facts: []Fact{serving}},
			map[string]string{"Ready": "True/Ready", "Available": "True/Available", "Synced": "True/Synced"}},
		{"what was just written is not called rolled out", cluster(1, wasReady), Input{Facts: []Fact{serving}, Rewritten: true},
			map[string]string{"Ready": "False/Applying", "Reconciling": "True/Applying", "Available": "True/Available", "Synced": "True/Synced"}},
		{"a cache that is behind is not called rolled out", cluster(2, wasBusy), Input{Facts: []Fact{serving}, Unsettled: true},
			map[string]string{"Ready": "False/Applying", "Reconciling": "True/Applying", "Available": "True/Available", "Synced": "True/Synced"}},
		{"a change under way names its step", cluster(1, wasReady), Input{Facts: []Fact{serving, syncing}},
			map[string]string{"Ready": "False/Syncing", "Reconciling": "True/Syncing", "Available": "True/Available", "Synced": "True/Synced"}},
		{"a member lost after the roll-out is degraded, and ready", cluster(2, wasReady), Input{Facts: []Fact{serving, syncing}},
			map[string]string{"Ready": "True/Ready", "Degraded": "True/Syncing", "Available": "True/Available", "Synced": "True/Synced"}},
		{"a primary lost after the roll-out is not ready, and not reconciling", cluster(2, wasReady), Input{Facts: []Fact{down, syncing}},
			map[string]string{"Ready": "False/PrimaryUnavailable", "Degraded": "True/Syncing", "Available": "False/PrimaryUnavailable", "Synced": "True/Synced"}},
		{"its return needs no new roll-out", rolledOut(cluster(2, wasDown)), Input{Facts: []Fact{serving}, Rewritten: true},
			map[string]string{"Ready": "True/Ready", "Available": "True/Available", "Synced": "True/Synced"}},
		{"stalled is never together with reconciling", cluster(1, wasReady), Input{Facts: []Fact{serving, syncing, shrinking}},
			map[string]string{"Ready": "False/StorageShrinkRefused", "Stalled": "True/StorageShrinkRefused", "Available": "True/Available", "Synced": "True/Synced"}},
		{"no progress past the deadline stalls", cluster(2, wasBusy), Input{Facts: []Fact{down, syncing}, Stuck: time.Minute + 1, Deadline: time.Minute},
			map[string]string{"Ready": "False/ProgressDeadlineExceeded", "Stalled": "True/ProgressDeadlineExceeded", "Available": "False/PrimaryUnavailable", "Synced": "True/Synced"}},
		{"no progress before the deadline does not", cluster(2, wasBusy), Input{Facts: []Fact{down, syncing}, Stuck: time.Minute, Deadline: time.Minute},
			map[string]string{"Ready": "False/Syncing", "Reconciling": "True/Syncing", "Available": "False/PrimaryUnavailable", "Synced": "True/Synced"}},
		{"an error while rolling out keeps reconciling", cluster(1, wasReady), Input{Facts: []Fact{serving}, Error: errors.New("boom")},
			map[string]string{"Ready": "False/Progressing", "Reconciling": "True/Progressing", "Available": "True/Available", "Synced": "True/Synced"}},
		{"suspension before the roll-out is not ready", cluster(1, wasReady), Input{Facts: []Fact{serving, syncing}, Suspended: true},
			map[string]string{"Ready": "False/Suspended", "Available": "True/Available", "Synced": "True/Synced"}},
		{"suspension of what is rolled out stays ready", cluster(1, wasReady), Input{Facts: []Fact{serving}, Suspended: true},
			map[string]string{"Ready": "True/Suspended", "Available": "True/Available", "Synced": "True/Synced"}},
		{"drift that stands does not feed Ready", cluster(2, wasReady), Input{Facts: []Fact{serving}, Standing: []string{"Service/x .spec"}},
			map[string]string{"Ready": "True/Ready", "Available": "True/Available", "Synced": "False/Drifted"}},
		{"contest goes before drift", cluster(2, wasReady), Input{Facts: []Fact{serving}, Standing: []string{"a"}, Contested: []string{"b"}},
			map[string]string{"Ready": "True/Ready", "Available": "True/Available", "Synced": "False/Contested"}},
		{"deletion is said, whatever else is true", cluster(2, wasReady), Input{Deleting: true},
			map[string]string{"Ready": "False/Deleting", "Synced": "True/Synced"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			Resolve(tc.c, tc.in)
			got := map[string]string{}
			for _, cond := range tc.c.Status.Conditions {
				got[cond.Type] = string(cond.Status) + "/" + cond.Reason
				if cond.ObservedGeneration != 2 {
					t.Errorf("%s speaks of generation %d", cond.Type, cond.ObservedGeneration)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the facts and whatever came before: Reconciling and Stalled are
// never together and never anything but True, Ready is never True beside
// either, and there is one condition of a type.
func TestResolveInvariants(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all := []Fact{serving, down, syncing, shrinking, fact(v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown)}
	c := cluster(1)
	for range 5000 {
		var in Input
		for _, f := range all {
			if random.IntN(2) == 0 {
				in.Facts = append(in.Facts, f)
			}
		}
		in.Rewritten, in.Unsettled = random.IntN(2) == 0, random.IntN(2) == 0
		in.Suspended, in.Deleting = random.IntN(4) == 0, random.IntN(8) == 0
		if random.IntN(4) == 0 {
			in.Error = errors.New("boom")
		}
		in.Stuck = time.Duration(random.IntN(3)) * time.Second
		in.Deadline = time.Second
		c.Generation += int64(random.IntN(2))
		Resolve(c, in)
		c.Status.ObservedGeneration = c.Generation

		reconciling, stalled := conditions.Get(c, v1alpha1.ConditionReconciling), conditions.Get(c, v1alpha1.ConditionStalled)
		seen := map[string]bool{}
		for _, cond := range c.Status.Conditions {
			if seen[cond.Type] {
				t.Fatalf("two conditions of type %s", cond.Type)
			}
			seen[cond.Type] = true
		}
		switch {
		case reconciling != nil && stalled != nil:
			t.Fatalf("Reconciling and Stalled together after %+v", in)
		case reconciling != nil && reconciling.Status != metav1.ConditionTrue, stalled != nil && stalled.Status != metav1.ConditionTrue:
			t.Fatalf("an abnormal condition that is not True after %+v", in)
		case conditions.IsTrue(c, v1alpha1.ConditionReady) && (reconciling != nil || stalled != nil):
			t.Fatalf("Ready beside Reconciling or Stalled after %+v", in)
		}
	}
}

func TestMessagesAreCut(t *testing.T) {
	c := cluster(1)
	long := Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAvailable, Message: strings.Repeat("é", 2000)}
	Resolve(c, Input{Facts: []Fact{long}})
	if n := len(conditions.GetMessage(c, v1alpha1.ConditionReady)); n > maxMessage+4 {
		t.Errorf("message of %d bytes", n)
	}
}
