package postgres

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// addFormerVolume is the volume of a member that was scaled away under a policy, whose pod
// has been gone for a while.
func (w *world) addFormerVolume(ordinal int, under v1alpha1.DeletionPolicy) *corev1.PersistentVolumeClaim {
	v := w.volume(ordinal, false)
	v.Annotations = map[string]string{v1alpha1.AnnotationScaledAway: string(under), v1alpha1.AnnotationCluster: string(w.c.UID)}
	if w.o.Ended == nil {
		w.o.Ended = map[int]time.Time{}
	}
	w.o.Ended[ordinal] = now.Add(-time.Minute)
	return v
}

// The volume of a member that was scaled away is deleted by what the primary
// answered after the pod's end, and by no older answer.
func TestVolumeIsDeletedByFreshEvidence(t *testing.T) {
	asked := func(w *world, at time.Time) {
		m := w.o.Members["orders-0"]
		m.Asked = at
		w.o.Members["orders-0"] = m
	}
	cases := []struct {
		name   string
		change func(w *world)
		want   string
	}{
		{"the primary answered since", func(w *world) {}, "DeleteVolume data-orders-2"},
		{"the long poll was out before the pod ended", func(w *world) { asked(w, now.Add(-61*time.Second)) }, ""},
		{"its agent may not have noticed yet that the database hangs", func(w *world) { asked(w, now.Add(-58*time.Second)) }, ""},
		{"it is unknown when the pod ended", func(w *world) { w.o.Ended = nil }, ""},
		{"the primary does not serve", func(w *world) { w.status(0).Serving = false }, ""},
		{"the primary could not read its position", func(w *world) {
			w.changeReplication(0, func(r *postgresapi.ReplicationStatus) { r.PositionOld = true })
		}, ""},
		{"the primary did not flush since", func(w *world) { w.status(0).Flushed = false }, ""},
		{"the primary starts", func(w *world) { w.status(0).State = agentapi.StateRecovering }, ""},
		{"a replica answers in its place", func(w *world) { w.status(0).Role = v1alpha1.RoleReplica }, ""},
		{"another pod answered", func(w *world) { w.o.Pods[0].UID = "another" }, ""},
		{"the primary stops", func(w *world) { w.o.Pods[0].DeletionTimestamp = &metav1.Time{Time: now} }, ""},
		{"it was kept when its member left", func(w *world) { w.addFormerVolume(2, v1alpha1.DeletionRetain) }, ""},
		{"it says nothing of how its member left", func(w *world) { delete(w.o.Volumes[2].Annotations, v1alpha1.AnnotationScaledAway) }, ""},
		{"an earlier cluster scaled it away", func(w *world) { w.o.Volumes[2].Annotations[v1alpha1.AnnotationCluster] = "earlier" }, ""},
		{"it is unknown whose it is", func(w *world) { delete(w.o.Volumes[2].Annotations, v1alpha1.AnnotationCluster) }, ""},
		{"its data is ahead", func(w *world) { w.o.Volumes[2].Annotations[v1alpha1.AnnotationDiverged] = "true" }, ""},
		{"the policy says Retain by now", func(w *world) { w.c.Spec.DeletionPolicy = v1alpha1.DeletionRetain }, ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := settled(t, 2)
			w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
			w.addFormerVolume(2, v1alpha1.DeletionDelete)
			w.status(0).ConfigHash, w.status(1).ConfigHash = hashNow(w), hashNow(w)
			tc.change(w)
			p := w.plan()
			if got := judgeStep(p.Step); got != tc.want {
				t.Errorf("step %q, want %q", got, tc.want)
			}
			if tc.want == "" && w.o.Volumes[2].Annotations[v1alpha1.AnnotationScaledAway] == "Delete" && w.c.Spec.DeletionPolicy == v1alpha1.DeletionDelete &&
				w.o.Volumes[2].Annotations[v1alpha1.AnnotationCluster] == string(w.c.UID) && w.o.Volumes[2].Annotations[v1alpha1.AnnotationDiverged] == "" &&
				(p.Recheck == 0 || p.Recheck > time.Minute) {
				t.Errorf("it is checked again after %s", p.Recheck)
			}
		})
	}
}

// How a volume's member left is said once, as the policy was then.
func TestPolicyOfTheScaleDownStays(t *testing.T) {
	w := settled(t, 2)
	for n := range 2 {
		w.o.Volumes[n].Annotations = map[string]string{v1alpha1.AnnotationCluster: string(w.c.UID)}
	}
	obey := func() {
		t.Helper()
		d, _, _ := w.desired()
		for _, v := range d.Volumes {
			ac, live := objects.VolumeClaim(membersOf(w.c), d.Desired, v), w.o.Volumes[v.Ordinal]
			if live == nil {
				live = w.volume(v.Ordinal, true)
			}
			live.Labels, live.Annotations, live.OwnerReferences = ac.Labels, ac.Annotations, nil
			if len(ac.OwnerReferences) > 0 {
				w.setOwner(live)
			}
		}
	}
	check := func(when, says string, owned bool) {
		t.Helper()
		obey()
		v := w.o.Volumes[1]
		if got := v.Annotations[v1alpha1.AnnotationScaledAway]; got != says || len(v.OwnerReferences) > 0 != owned {
			t.Errorf("%s: the volume says %q and is owned by %v", when, got, v.OwnerReferences)
		}
		if !memberset.PolicyHolds(membersOf(w.c), &v.ObjectMeta) {
			t.Errorf("%s: the policy does not hold of what is planned", when)
		}
	}
	check("a member under Retain", "", false)
	w.declareReplicas(1)
	check("scaled away under Retain", "Retain", false)
	w.removePod(1)
	w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	check("Delete comes later", "Retain", false)
	w.o.Volumes[1].Labels[v1alpha1.LabelMember] = "1"
	if got := memberset.ReadMembership(membersOf(w.c), w.o).Count; got != 1 {
		t.Errorf("a label makes a former member's volume one of %d members'", got)
	}
	check("another client labelled it as a member's", "Retain", false)
	w.declareReplicas(2)
	check("a member again", "", true)
	w.member(1)
	w.declareReplicas(1)
	check("scaled away under Delete", "Delete", true)
	check("in the next pass", "Delete", true)
	w.c.Spec.DeletionPolicy = v1alpha1.DeletionRetain
	check("Retain before it was deleted", "Retain", false)
	w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	check("and Delete again", "Retain", false)
	w.c.UID = "next"
	w.c.Status.SystemIdentifier = "7300000000000000001"
	check("of the next cluster of the name", "Retain", false)
	if got := w.o.Volumes[1].Annotations[v1alpha1.AnnotationCluster]; got != "cluster-uid" {
		t.Errorf("it says that it is of cluster %q", got)
	}
}

// A person hears which volumes stay, and how to delete them: when they are kept,
// and when the policy begins to say Delete.
func TestKeptVolumesAreReported(t *testing.T) {
	w := settled(t, 2)
	w.o.Volumes[1].Labels[v1alpha1.LabelMember] = "1"
	w.declareReplicas(1)
	notes := w.plan().Notes
	if len(notes) != 1 || notes[0].Name != "data-orders-1" ||
		notes[0].Message != "volume data-orders-1 stays, also when the cluster is deleted: its member is scaled away while spec.deletionPolicy is Retain. To delete the data: kubectl delete pvc -n shop data-orders-1" {
		t.Errorf("notes %+v", notes)
	}
	w.removePod(1)
	w.addFormerVolume(1, v1alpha1.DeletionRetain)
	w.addFormerVolume(3, v1alpha1.DeletionRetain)
	if notes := w.plan().Notes; len(notes) != 0 {
		t.Errorf("notes %+v of what is kept already", notes)
	}
	w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	notes = w.plan().Notes
	if len(notes) != 1 || notes[0].Name != "data-orders-0" ||
		notes[0].Message != "volumes data-orders-1, data-orders-3 stay, also when the cluster is deleted: spec.deletionPolicy became Delete after their members had been scaled away. To delete the data: kubectl delete pvc -n shop data-orders-1 data-orders-3" {
		t.Errorf("notes %+v", notes)
	}
	w.setOwner(w.o.Volumes[0])
	if notes := w.plan().Notes; len(notes) != 0 {
		t.Errorf("notes %+v once the policy is in force", notes)
	}
}

// waitForQuorum is a cluster of three that orders-0 leads, with commits that one standby
// flushes, of which orders-1 does not answer and orders-2 is beyond spec.replicas.
func waitForQuorum(t *testing.T) *world {
	w := ledBy(t, 3, 0).elects()
	w.c.Spec.Synchronous = &v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousQuorum, Number: 1}
	w.reportQuorum(2, "volume-of-orders-0", "volume-of-orders-1", "volume-of-orders-2")
	w.c.Status.Election = w.plan().Report.Election
	w.silence(1, time.Minute)
	w.declareReplicas(2)
	return w
}

// reportQuorum has orders-0 report the quorum that the Lease records.
func (w *world) reportQuorum(write int, volumes ...string) {
	w.reportElection(0, func(e *postgresapi.ElectionState) { e.MayLead, e.Quorum, e.Write = volumes, volumes, write })
}

// No member is scaled away without which too few of the synchronous quorum are left:
// every commit that it acknowledged may be missing on the others that answer.
func TestScaleDownKeepsTheQuorum(t *testing.T) {
	all := []string{"volume-of-orders-0", "volume-of-orders-1", "volume-of-orders-2"}
	cases := []struct {
		name   string
		change func(w *world)
		want   scalePlan
	}{
		{"the only other member of the quorum that streams", nil, scalePlan{3, waitQuorum}},
		{"the others stream", func(w *world) { w.member(1); w.elects(); w.reportQuorum(2, all...) }, scalePlan{2, waitNone}},
		{"the other one waits for the primary", func(w *world) {
			w.member(1)
			w.elects()
			w.reportQuorum(2, all...)
			w.status(1).State = agentapi.StateDisconnected
		}, scalePlan{3, waitQuorum}},
		{"the last one does not answer either", func(w *world) { w.silence(2, time.Minute) }, scalePlan{3, waitQuorum}},
		{"the last one is not in the quorum", func(w *world) { w.reportQuorum(2, all[:2]...) }, scalePlan{2, waitNone}},
		{"the quorum has degraded", func(w *world) { w.reportQuorum(1, all[0]) }, scalePlan{2, waitNone}},
		{"a quorum without the other one", func(w *world) { w.reportQuorum(2, all[0], all[2]) }, scalePlan{3, waitQuorum}},
		{"the votes of the others are too few", func(w *world) { w.reportQuorum(1, all...) }, scalePlan{3, waitQuorum}},
		{"asynchronous replication", func(w *world) { w.reportQuorum(0) }, scalePlan{2, waitNone}},
	}
	for _, policy := range []v1alpha1.DeletionPolicy{v1alpha1.DeletionRetain, v1alpha1.DeletionDelete} {
		for _, tc := range cases {
			t.Run(tc.name+" under "+string(policy), func(t *testing.T) {
				w := waitForQuorum(t)
				w.c.Spec.DeletionPolicy = policy
				if tc.change != nil {
					tc.change(w)
				}
				if got := planScale(w.c, w.view(), findLeader(membersOf(w.c), w.o)); got != tc.want {
					t.Errorf("%+v, want %+v", got, tc.want)
				}
			})
		}
	}
	t.Run("it is reported", func(t *testing.T) {
		w := waitForQuorum(t)
		const want = "member orders-2 is kept beyond spec.replicas 2: without it 1 of the 3 members of the synchronous quorum are left, and 2 are needed; bring orders-1 back, or set spec.replicas to 3"
		if got := messageOf(w.plan().Facts, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown); !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	})
}

// The volume of a member that was scaled away has the only other copy of commits that it
// acknowledged, until the quorum on the Lease is without it: then others have flushed them.
func TestVolumeInTheQuorumIsKept(t *testing.T) {
	begin := func(t *testing.T) *world {
		w := waitForQuorum(t)
		w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		w.removePod(2)
		w.addFormerVolume(2, v1alpha1.DeletionDelete)
		w.status(0).Flushed = true
		return w
	}
	deletes := func(w *world) bool {
		p := w.plan()
		if p.Recheck == 0 || p.Recheck > time.Minute {
			t.Errorf("it is checked again after %s", p.Recheck)
		}
		return p.Step != nil && p.Step.Type == memberset.StepDeleteVolume
	}
	for name, test := range map[string]struct {
		change func(w *world)
		want   bool
	}{
		"its pod went, and then the other one failed": {func(*world) {}, false},
		"the other one streams, and the quorum is as before": {func(w *world) {
			w.member(1)
			w.elects()
			w.reportQuorum(2, "volume-of-orders-0", "volume-of-orders-1", "volume-of-orders-2")
		}, false},
		"the quorum is without it": {func(w *world) {
			w.member(1)
			w.elects()
			w.reportQuorum(2, "volume-of-orders-0", "volume-of-orders-1")
		}, true},
		"the quorum has a volume that no member reports": {func(w *world) { w.reportQuorum(2, "volume-of-orders-0", "volume-of-orders-1") }, false},
		"the quorum has degraded":                        {func(w *world) { w.reportQuorum(1, "volume-of-orders-0") }, true},
		"asynchronous replication":                       {func(w *world) { w.reportQuorum(0) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t)
			test.change(w)
			w.status(0).ConfigHash = hashNow(w)
			if w.o.Member(1) != nil {
				w.status(1).ConfigHash = hashNow(w)
			}
			if got := deletes(w); got != test.want {
				t.Errorf("deleted: %v, want %v; step %v", got, test.want, w.plan().Step)
			}
		})
	}
}
