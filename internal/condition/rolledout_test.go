package condition

import (
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// pass resolves one pass and takes up its generation, as the loop does.
func pass(c v1alpha1.Cluster, in Input) {
	Resolve(c, in)
	c.CommonStatus().ObservedGeneration = c.GetGeneration()
}

// A cluster that was rolled out and loses its service for whatever reason is
// repaired: no pass says that a change is under way, and no deadline of a change
// is exceeded. Only a new generation is a change again.
func TestLostServiceIsNoChange(t *testing.T) {
	starting := fact(v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingUp)
	lostData := fact(v1alpha1.ConditionStalled, v1alpha1.ReasonQuorumLost)
	long := Input{Stuck: time.Hour, Deadline: time.Minute}
	for _, engine := range []struct {
		name string
		down Fact
	}{
		{"PostgreSQL without a primary", down},
		{"etcd without a quorum", noQuorum},
		{"etcd without a leader", Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoLeader, Message: "no leader"}},
		{"an engine of another day", Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: "NoWriterYouKnow", Message: "no writer"}},
	} {
		t.Run(engine.name, func(t *testing.T) {
			c := cluster(1)
			pass(c, Input{Facts: []Fact{serving}})
			steps := []struct {
				what  string
				facts []Fact
			}{
				{"a member is away", []Fact{serving, starting}},
				{"the service is lost", []Fact{engine.down, starting}},
				{"it stays lost", []Fact{engine.down, starting}},
				{"only a person can go on", []Fact{engine.down, starting, lostData}},
				{"the person did", []Fact{engine.down, starting}},
				{"it is back", []Fact{serving, starting}},
			}
			for _, step := range steps {
				in := long
				in.Facts = step.facts
				pass(c, in)
				if conditions.Has(c, v1alpha1.ConditionReconciling) {
					t.Errorf("%s: Reconciling/%s", step.what, conditions.GetReason(c, v1alpha1.ConditionReconciling))
				}
				if reason := conditions.GetReason(c, v1alpha1.ConditionStalled); reason == v1alpha1.ReasonProgressDeadline {
					t.Errorf("%s: Stalled/%s", step.what, reason)
				}
			}
			if !conditions.IsTrue(c, v1alpha1.ConditionReady) {
				t.Errorf("Ready is %s", conditions.Get(c, v1alpha1.ConditionReady))
			}
			c.Generation++
			in := long
			in.Facts = []Fact{engine.down, starting}
			pass(c, in)
			if reason := conditions.GetReason(c, v1alpha1.ConditionStalled); reason != v1alpha1.ReasonProgressDeadline {
				t.Errorf("a change without progress is Stalled/%s", reason)
			}
		})
	}
}

// What was asked for by an annotation is a change under way, although no
// generation says so.
func TestRequestIsAChange(t *testing.T) {
	c := cluster(1)
	pass(c, Input{Facts: []Fact{serving}})
	request := fact(v1alpha1.ConditionReconciling, v1alpha1.ReasonRecovering)
	request.Requested = true
	pass(c, Input{Facts: []Fact{noQuorum, request}})
	if reason := conditions.GetReason(c, v1alpha1.ConditionReconciling); reason != v1alpha1.ReasonRecovering {
		t.Errorf("Reconciling/%s", reason)
	}
	pass(c, Input{Facts: []Fact{serving}})
	if !conditions.IsTrue(c, v1alpha1.ConditionReady) {
		t.Error("not ready when the request is done")
	}
}

// A status that an operator before this one wrote has no record of what was
// rolled out.
func TestRolledOutWithoutARecord(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    *v1alpha1.PostgresCluster
		want bool
	}{
		{"ready", cluster(2, wasReady), true},
		{"ready of the generation before", cluster(1, wasReady), false},
		{"busy", cluster(2, wasBusy, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonSyncing}), false},
		{"down, never seen ready", cluster(2, wasDown), false},
	} {
		if got := RolledOut(tc.c); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
