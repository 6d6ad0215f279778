package etcd

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/etcdapi"
	"github.com/holdfast-db/holdfast/internal/agentclient"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
)

// outcome is a plan in the words of a table: the step as "Type target", the
// facts as "Type/Reason", the count of members that the objects declare.
type outcome struct {
	Step  string
	Facts []string
	Count int
}

func judge(p engine.Plan) outcome {
	var out outcome
	if p.Step != nil {
		out.Step = p.Step.Type + " " + p.Step.Target
	}
	seen := map[string]bool{}
	for _, f := range p.Facts {
		if text := f.Type + "/" + f.Reason; !seen[text] {
			out.Facts, seen[text] = append(out.Facts, text), true
		}
	}
	for _, obj := range p.Objects {
		if s, ok := obj.(*appsv1ac.StatefulSetApplyConfiguration); ok {
			out.Count = int(*s.Spec.Replicas)
		}
	}
	return out
}

func TestPlan(t *testing.T) {
	const available, leaderless, refused = "Available/Available", "Available/NoLeader", "Available/QuotaExceeded"
	at := func(w *world) *world { w.say(); return w }
	cases := []struct {
		name  string
		world func(t *testing.T) *world
		want  outcome
	}{
		{"a new cluster first gets a CA, and no pods yet",
			func(t *testing.T) *world { return newWorld(t, 3) },
			outcome{"CreateCA config-ca", []string{"Reconciling/Creating", leaderless}, 0}},
		{"a cluster begins with its seed alone",
			func(t *testing.T) *world { w := newWorld(t, 3); w.mint(); return w },
			outcome{"", []string{"Reconciling/Creating", leaderless}, 1}},
		{"a settled cluster needs nothing",
			func(t *testing.T) *world { return settled(t, 3) },
			outcome{"", []string{available}, 3}},
		{"growing admits the next member before its pod appears",
			func(t *testing.T) *world { w := settled(t, 1); w.replicas(3); return w },
			outcome{"AddLearner config-1", []string{"Reconciling/ScalingUp", available}, 1}},
		{"the pod of an admitted member appears, and no other member is admitted",
			func(t *testing.T) *world { w := settled(t, 1); w.replicas(3); w.admit(1); return at(w) },
			outcome{"", []string{"Reconciling/ScalingUp", available}, 2}},
		{"a learner that runs gets its vote",
			func(t *testing.T) *world { w := settled(t, 1); w.replicas(3); w.learner(1); return at(w) },
			outcome{"PromoteMember config-1", []string{"Reconciling/Syncing", "Reconciling/ScalingUp", available}, 2}},
		{"a learner that was refused its vote is not asked again at once",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.replicas(3)
				w.learner(1)
				w.o.Tried["PromoteMember config-1"] = now.Add(-time.Second)
				return at(w)
			},
			outcome{"", []string{"Reconciling/Syncing", "Reconciling/ScalingUp", available}, 2}},
		{"a learner whose start is not recorded gets no vote",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.replicas(3)
				w.learner(1)
				w.say()
				readGroup(w.status(1)).Group.Self = ""
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", "Reconciling/ScalingUp", available}, 2}},
		{"no member is admitted while a member is away that will be missed",
			func(t *testing.T) *world { w := settled(t, 3); w.replicas(5); w.gone(2); return at(w) },
			outcome{"", []string{"Reconciling/ScalingUp", "Degraded/QuorumAtRisk", available}, 3}},
		{"five members of whom one is away may grow",
			func(t *testing.T) *world { w := settled(t, 5); w.replicas(7); w.gone(4); return at(w) },
			outcome{"AddLearner config-5", []string{"Reconciling/ScalingUp", available}, 5}},
		{"shrinking removes the highest ordinal from the group first",
			func(t *testing.T) *world { w := settled(t, 5); w.replicas(3); return at(w) },
			outcome{"RemoveMember config-4", []string{"Reconciling/ScalingDown", available}, 5}},
		{"and its pod goes when the group counts it no more",
			func(t *testing.T) *world { w := settled(t, 5); w.replicas(3); w.expel(4); return at(w) },
			outcome{"", []string{"Reconciling/ScalingDown", available}, 4}},
		{"the next one leaves when it is gone",
			func(t *testing.T) *world { w := settled(t, 5); w.replicas(3); w.expel(4); w.gone(4); return at(w) },
			outcome{"RemoveMember config-3", []string{"Reconciling/ScalingDown", available}, 4}},
		{"a leader that is scaled away transfers leadership first",
			func(t *testing.T) *world { w := settled(t, 3); w.replicas(1); w.leader = w.data[2]; return at(w) },
			outcome{"MoveLeader config-0", []string{"Reconciling/ScalingDown", available}, 3}},
		{"shrinking waits where it would cost the quorum",
			func(t *testing.T) *world { w := settled(t, 3); w.replicas(1); w.gone(1); return at(w) },
			outcome{"", []string{"Reconciling/ScalingUp", "Reconciling/ScalingDown", "Degraded/QuorumAtRisk", available}, 3}},
		{"a member that is away and scaled away is removed",
			func(t *testing.T) *world { w := settled(t, 3); w.replicas(1); w.gone(2); return at(w) },
			outcome{"RemoveMember config-2", []string{"Reconciling/ScalingUp", "Reconciling/ScalingDown", available}, 3}},
		{"a learner that is not needed any more is removed",
			func(t *testing.T) *world { w := settled(t, 1); w.learner(1); return at(w) },
			outcome{"RemoveMember config-1", []string{"Reconciling/Syncing", "Reconciling/ScalingDown", available}, 2}},
		{"a member whose volume was emptied is removed",
			func(t *testing.T) *world { w := settled(t, 3); w.emptied(1); return at(w) },
			outcome{"RemoveMember config-1", []string{"Degraded/MemberDown", "Reconciling/MemberDown", "Degraded/DataMissing", available}, 3}},
		{"its pod stays, and is admitted anew",
			func(t *testing.T) *world { w := settled(t, 3); w.emptied(2); delete(w.group, w.lost[2]); return at(w) },
			outcome{"AddLearner config-2", []string{"Degraded/MemberDown", "Reconciling/MemberDown", "Degraded/DataMissing", "Reconciling/ScalingUp", available}, 3}},
		{"a member that the group removed is admitted anew, and no person is called",
			func(t *testing.T) *world { w := settled(t, 3); delete(w.group, w.data[1]); return at(w) },
			outcome{"AddLearner config-1", []string{"Degraded/MemberDown", "Reconciling/MemberDown", "Degraded/DataMissing", "Reconciling/ScalingUp", available}, 3}},
		{"a member that is not heard is not removed",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.o.Members["config-1"] = agentclient.Observation{Err: "timeout"}
				return w
			},
			outcome{"", []string{"Degraded/MemberDown", "Reconciling/MemberUnreachable", available}, 3}},
		{"outdated pods are replaced from the highest ordinal",
			func(t *testing.T) *world { w := settled(t, 3); w.outdate(); return at(w) },
			outcome{"ReplaceMember config-2", []string{"Reconciling/Restarting", available}, 3}},
		{"the leader is left for the end",
			func(t *testing.T) *world { w := settled(t, 3); w.outdate(); w.leader = w.data[2]; return at(w) },
			outcome{"ReplaceMember config-1", []string{"Reconciling/Restarting", available}, 3}},
		{"the next outdated pod waits while a member is away",
			func(t *testing.T) *world { w := settled(t, 3); w.outdate(); w.gone(2); return at(w) },
			outcome{"", []string{"Reconciling/Restarting", "Reconciling/ScalingUp", available}, 3}},
		{"leadership is transferred to an up-to-date member before it is replaced",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.outdate()
				w.pod(1)
				w.pod(2)
				return at(w)
			},
			outcome{"MoveLeader config-1", []string{"Reconciling/Restarting", available}, 3}},
		{"a leader without an heir is replaced as it is",
			func(t *testing.T) *world { w := settled(t, 1); w.outdate(); return at(w) },
			outcome{"ReplaceMember config-0", []string{"Reconciling/Restarting", available}, 1}},
		{"a member restarts for the CAs that it trusts",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.status(1).PendingRestart = []string{etcdapi.PendingTrust}
				return w
			},
			outcome{"ReplaceMember config-1", []string{"Reconciling/Restarting", available}, 3}},
		{"growing waits until all members run what is declared",
			func(t *testing.T) *world { w := settled(t, 1); w.outdate(); w.replicas(3); return at(w) },
			outcome{"ReplaceMember config-0", []string{"Reconciling/Restarting", "Reconciling/ScalingUp", available}, 1}},
		{"without a leader no member is admitted or removed",
			func(t *testing.T) *world { w := settled(t, 3); w.replicas(1); w.gone(1); w.gone(2); return at(w) },
			outcome{"", []string{"Degraded/QuorumLost", "Degraded/MemberDown", "Reconciling/Syncing", "Reconciling/ScalingUp", "Reconciling/ScalingDown", "Available/QuorumLost"}, 3}},
		{"a lost majority is left to a person",
			func(t *testing.T) *world { w := settled(t, 3); w.emptied(1); w.emptied(2); return at(w) },
			outcome{"", []string{"Stalled/QuorumLost", "Degraded/MemberDown", "Stalled/DataMissing", "Reconciling/Syncing", "Reconciling/MemberDown", "Available/QuorumLost"}, 3}},
		{"of members without a leader that can agree, no user is asked to delete anything",
			func(t *testing.T) *world { w := at(settled(t, 3)); w.apart(); return w },
			outcome{"", []string{"Degraded/MemberDown", "Reconciling/Syncing", leaderless}, 3}},
		{"where nothing is left, no message says to wait for the group",
			func(t *testing.T) *world { w := settled(t, 1); w.emptied(0); return at(w) },
			outcome{"", []string{"Stalled/DataMissing", "Degraded/MemberDown", "Reconciling/MemberDown", leaderless}, 1}},
		{"a member whose log the next version cannot read is restarted as it is first",
			func(t *testing.T) *world {
				w := settled(t, 3)
				at(w)
				w.c.Spec.Version = "3.6.16"
				w.status(1).PendingRestart = []string{etcdapi.PendingLog}
				w.status(1).ConfigHash = agentapi.HashConfig(w.config())
				return w
			},
			outcome{"ReplaceMember config-1", []string{"Reconciling/Restarting", available}, 3}},
		{"a member without data of which nothing is recorded is a person's to judge",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.emptied(2)
				w.lost[2] = ""
				at(w)
				seen := w.o.Members["config-2"]
				seen.At = now.Add(time.Second)
				w.o.Members["config-2"] = seen
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", "Degraded/DataMissing", available}, 3}},
		{"a leader that is scaled away and has no heir is said to stay",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.leader = w.data[2]
				w.replicas(1)
				w.gone(0)
				return at(w)
			},
			outcome{"", []string{"Reconciling/ScalingUp", "Reconciling/ScalingDown", "Degraded/QuorumAtRisk", available}, 3}},
		{"a member that is no pod of the cluster is reported and left alone",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.group["ff"] = etcdapi.GroupMember{ID: "ff", Name: "mine", PeerURL: "https://elsewhere:2380", Learner: true}
				return at(w)
			},
			outcome{"", []string{"Degraded/UnknownMember", available}, 1}},
		{"a quota that is used up drops history first",
			func(t *testing.T) *world { return full(t, 0) },
			outcome{"Compact config-0", []string{"Degraded/QuotaExceeded", refused}, 3}},
		{"which takes a while behind the scenes",
			func(t *testing.T) *world { w := full(t, 0); w.tried("Compact", 5*time.Second); return w },
			outcome{"", []string{"Degraded/QuotaExceeded", refused}, 3}},
		{"and makes members smaller that do not say so, each once",
			func(t *testing.T) *world {
				w := full(t, 0)
				w.tried("Compact", time.Minute)
				w.tried("Defragment config-2", 10*time.Second)
				return w
			},
			outcome{"Defragment config-1", []string{"Degraded/QuotaExceeded", refused}, 3}},
		{"whichever member led when history was dropped",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.leader = w.data[1]
				w.say()
				w.fill(0)
				w.tried("Compact", time.Minute)
				w.tried("Defragment config-2", 10*time.Second)
				w.tried("Defragment config-0", 10*time.Second)
				return w
			},
			outcome{"MoveLeader config-0", []string{"Degraded/QuotaExceeded", refused}, 3}},
		{"and then gives its space back, followers first",
			func(t *testing.T) *world { return full(t, 60) },
			outcome{"Defragment config-2", []string{"Degraded/QuotaExceeded", refused}, 3}},
		{"the leader is defragmented when it leads no more",
			func(t *testing.T) *world {
				w := full(t, 60)
				w.o.Tried["Defragment config-1"], w.o.Tried["Defragment config-2"] = now, now
				return w
			},
			outcome{"MoveLeader config-1", []string{"Degraded/QuotaExceeded", refused}, 3}},
		{"and then lets writes in again",
			func(t *testing.T) *world {
				w := full(t, 0)
				for n := range 3 {
					w.changeGroup(n, func(g *etcdapi.GroupStatus) { g.DataFill = 40 })
				}
				return w
			},
			outcome{"DisarmAlarm config-0", []string{"Degraded/QuotaExceeded", refused}, 3}},
		{"a quota that is full of keys is a person's to raise",
			func(t *testing.T) *world {
				w := full(t, 0)
				w.tried("Compact", 2*time.Minute)
				for n := range 3 {
					w.tried(fmt.Sprintf("Defragment config-%d", n), 100*time.Second)
				}
				return w
			},
			outcome{"", []string{"Stalled/QuotaExceeded", refused}, 3}},
		{"and stays so while it is tried again",
			func(t *testing.T) *world {
				w := full(t, 0)
				w.tried("FirstCompact", 6*time.Minute)
				w.tried("Compact", time.Minute)
				return w
			},
			outcome{"Defragment config-2", []string{"Stalled/QuotaExceeded", refused}, 3}},
		{"unused space is given back by one member at a time",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.changeGroup(1, func(g *etcdapi.GroupStatus) { g.DataUnused = 50 })
				return w
			},
			outcome{"Defragment config-1", []string{available}, 3}},
		{"but not while a member is away",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.gone(2)
				w.say()
				w.changeGroup(1, func(g *etcdapi.GroupStatus) { g.DataUnused = 50 })
				return w
			},
			outcome{"", []string{"Reconciling/ScalingUp", available}, 3}},
		{"nor again before it has rested",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.changeGroup(1, func(g *etcdapi.GroupStatus) { g.DataUnused = 50 })
				w.o.Tried["Defragment config-1"] = now.Add(-5 * time.Minute)
				return w
			},
			outcome{"", []string{available}, 3}},
		{"nor where the spec says never",
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.Defragmentation.ThresholdPercent = new(int32(100))
				w.changeGroup(1, func(g *etcdapi.GroupStatus) { g.DataUnused = 95 })
				return w
			},
			outcome{"", []string{available}, 3}},
		{"a volume of a former member goes when the spec says Delete",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				w.left(1, v1alpha1.DeletionDelete)
				return at(w)
			},
			outcome{"DeleteVolume data-config-1", []string{"Reconciling/ScalingDown", available}, 1}},
		{"but not while no member leads",
			func(t *testing.T) *world {
				w := settled(t, 1)
				w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
				w.left(1, v1alpha1.DeletionDelete)
				w.gone(0)
				return at(w)
			},
			outcome{"", []string{"Reconciling/ScalingUp", "Reconciling/ScalingDown", leaderless}, 1}},
		{"retained volumes of a cluster that is created again start together",
			func(t *testing.T) *world {
				w := newWorld(t, 3)
				w.mint()
				for n := range 3 {
					w.volume(n, true).Annotations = map[string]string{v1alpha1.AnnotationSystemIdentifier: clusterID}
				}
				return w
			},
			outcome{"", []string{"Reconciling/Creating", leaderless}, 3}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := tc.world(t)
			if diff := cmp.Diff(tc.want, judge(w.plan())); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// learner is a member with a pod and data that has no vote yet.
func (w *world) learner(ordinal int) {
	id := w.admit(ordinal)
	m := w.group[id]
	m.Name = membersOf(w.c).PodName(ordinal)
	w.group[id] = m
	w.volume(ordinal, true)
	w.pod(ordinal)
	w.data[ordinal] = id
}

// expel removes a member from the group, and its pod stays.
func (w *world) expel(ordinal int) { delete(w.group, w.data[ordinal]) }

// outdate changes what pods are made of.
func (w *world) outdate() {
	w.c.Spec.PriorityClassName, w.c.Spec.NodeSelector = "", map[string]string{"disk": "ssd"}
}

// full is a cluster that is out of space, of which so much is not in use.
func full(t *testing.T, unused int) *world {
	w := settled(t, 3)
	w.fill(unused)
	return w
}

func (w *world) fill(unused int) {
	for n := range 3 {
		w.changeGroup(n, func(g *etcdapi.GroupStatus) {
			g.Alarms, g.DataFill, g.DataUnused = []string{"NOSPACE:a1"}, 100, unused
		})
	}
}

// Join grants admit no member that the leader does not count.
func TestJoinGrants(t *testing.T) {
	grant := func(w *world, pod string) etcdapi.JoinGrant {
		w.say()
		d, _ := w.desired()
		return joinGrants(membersOf(w.c), d, groupOf(w.c, w.o, w.view().Membership))[pod]
	}
	url := func(n int) string { return peerURL(membersOf(newWorld(t, 1).c), n) }
	t.Run("the seed's, until there is a cluster", func(t *testing.T) {
		w := newWorld(t, 3)
		want := etcdapi.JoinGrant{MemberID: "seed", State: "new", InitialCluster: map[string]string{"config-0": url(0)}}
		if diff := cmp.Diff(want, grant(w, "config-0")); diff != "" {
			t.Error(diff)
		}
		w.c.Status.SystemIdentifier = clusterID
		if got := grant(w, "config-0"); got.State != "" {
			t.Errorf("a second seed: %+v", got)
		}
	})
	t.Run("a joiner's, until it has started", func(t *testing.T) {
		w := settled(t, 1)
		id := w.admit(1)
		want := etcdapi.JoinGrant{MemberID: id, State: "existing", InitialCluster: map[string]string{"config-0": url(0), "config-1": url(1)}}
		if diff := cmp.Diff(want, grant(w, "config-1")); diff != "" {
			t.Error(diff)
		}
		m := w.group[id]
		m.Name = "config-1"
		w.group[id] = m
		if got := grant(w, "config-1"); got.State != "" {
			t.Errorf("a join grant after the start: %+v", got)
		}
	})
	t.Run("none from a view that is not the leader's", func(t *testing.T) {
		w := settled(t, 3)
		w.admit(3)
		w.gone(0)
		w.leader = ""
		if got := grant(w, "config-3"); got.State != "" {
			t.Errorf("a join grant without a leader: %+v", got)
		}
	})
}

// The quota that is not declared follows what volumes can be, and not what they
// became by themselves: etcd takes up another one only with a restart.
func TestQuota(t *testing.T) {
	gib := func(n int64) resource.Quantity { return *resource.NewQuantity(n<<30, resource.BinarySI) }
	share := func(n int64) int64 { return n << 30 / 5 * 2 }
	for _, tc := range []struct {
		name           string
		declared, made int64
		volumes        []int64
		// capacity of each volume; as large as the volume where it is 0.
		capacity int64
		autoGrow bool
		// inForce is the volume of whose share members have the quota; 0 for none.
		inForce, want int64
	}{
		{"volumes as declared", 2, 2, []int64{2, 2}, 0, false, 2, share(2)},
		{"volumes that cannot grow", 4, 2, []int64{2, 2}, 0, false, 2, share(2)},
		{"volumes that cannot shrink", 1, 2, []int64{2, 2}, 0, false, 2, share(2)},
		{"volumes that cannot shrink below what they grew to", 1, 1, []int64{2, 2}, 0, false, 2, share(2)},
		{"volumes that grew by themselves before, and may not any more", 1, 1, []int64{2, 2}, 0, false, 1, share(1)},
		{"they may not any more, and were made larger than that", 1, 2, []int64{4, 4}, 0, false, 2, share(2)},
		{"they may not any more, and the size is corrected", 2, 1, []int64{2, 2}, 0, false, 1, share(2)},
		{"they may not any more, and the quota is unknown", 1, 1, []int64{2, 2}, 0, false, 0, share(2)},
		{"they may not any more, and another client set a quota", 1, 1, []int64{2, 2}, 0, false, 4, share(2)},
		{"volumes of which one cannot grow", 4, 2, []int64{4, 2}, 0, false, 2, share(2)},
		{"volumes that are to grow, and have not", 4, 2, []int64{4, 4}, 2, false, 2, share(2)},
		{"volumes that have grown", 4, 2, []int64{4, 4}, 4, false, 2, share(4)},
		{"volumes that have not grown where an earlier operator raised the quota", 4, 2, []int64{4, 4}, 2, false, 4, share(4)},
		{"volumes that are larger than asked for", 2, 2, []int64{2, 2}, 3, false, 2, share(2)},
		{"volumes that grew by themselves", 2, 2, []int64{4, 4}, 0, true, 2, share(2)},
		{"volumes that may grow and cannot shrink", 1, 2, []int64{2, 2}, 0, true, 2, share(2)},
		{"volumes that may grow and have not", 4, 2, []int64{2, 4}, 0, true, 2, share(2)},
		{"volumes that may grow, and are to be larger", 4, 2, []int64{4, 4}, 2, true, 2, share(2)},
		{"a size that is refused, where the quota is unknown", 1, 1, []int64{4, 4}, 0, false, 0, share(4)},
		{"volumes that are to grow, and have not, where the quota is unknown", 4, 2, []int64{4, 4}, 2, false, 0, share(4)},
		{"no volume yet", 2, 2, nil, 0, false, 0, share(2)},
		{"large volumes", 100, 100, []int64{100, 100}, 0, false, 100, 2 << 30},
	} {
		c := settled(t, 1).c
		c.Spec.Quota, c.Spec.Storage = nil, v1alpha1.StorageSpec{Size: gib(tc.declared)}
		if tc.autoGrow {
			c.Spec.Storage.AutoGrow = &v1alpha1.AutoGrowSpec{MaxSize: gib(10)}
		}
		d := objects.Desired{Template: objects.Volume{Size: gib(tc.made)}, Volumes: []objects.Volume{{Size: gib(1)}}}
		for _, size := range tc.volumes {
			v := objects.Volume{Member: true, Size: gib(size), Capacity: gib(size)}
			if tc.capacity > 0 {
				v.Capacity = gib(tc.capacity)
			}
			d.Volumes = append(d.Volumes, v)
		}
		if got := dataQuota(c, d, min(2<<30, share(tc.inForce))); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
		c.Spec.Quota = new(resource.MustParse("16Mi"))
		if got := dataQuota(c, d, share(tc.inForce)); got != 16<<20 {
			t.Errorf("%s: %d, and 16Mi are declared", tc.name, got)
		}
	}
}

// Volumes that grew by themselves stay when autoGrow is removed, and a size that is less than
// theirs is refused: that changes nothing for the members. The size that the refusal asks for
// is a change, and raises their quota.
func TestRemovedAutoGrowRestartsNoMember(t *testing.T) {
	w := settled(t, 3)
	w.c.Spec.Storage.AutoGrow = &v1alpha1.AutoGrowSpec{MaxSize: resource.MustParse("4Gi")}
	grown := resource.MustParse("2Gi")
	for _, v := range w.o.Volumes {
		v.Spec.Resources.Requests[corev1.ResourceStorage] = grown
		v.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: grown}
	}
	quota := func() int64 {
		t.Helper()
		var config agentapi.ClusterConfig
		if err := json.Unmarshal(w.config(), &config); err != nil {
			t.Fatal(err)
		}
		return config.DataLimit
	}
	const before, after = 1 << 30 / 5 * 2, 2 << 30 / 5 * 2
	w.o.Quota = quota()
	w.c.Spec.Storage.AutoGrow = nil
	if got := quota(); w.o.Quota != before || got != before {
		t.Errorf("the quota is %d, without autoGrow %d, want %d", w.o.Quota, got, before)
	}
	w.c.Spec.Storage.Size = grown
	if got := quota(); got != after {
		t.Errorf("with the size that the volumes have: %d, want %d", got, after)
	}
}

// The quota that members have is read from their configuration.
func TestObserveQuota(t *testing.T) {
	c := settled(t, 1).c
	for name, tc := range map[string]struct {
		config   string
		declared bool
		want     int64
	}{
		"a configuration":                        {`{"kind": "EtcdCluster", "dataLimit": 429496729}`, false, 429496729},
		"one of a cluster that declares a quota": {`{"dataLimit": 429496729}`, true, 0},
		"one without a quota":                    {`{}`, false, 0},
		"none that can be read":                  {`dataLimit`, false, 0},
	} {
		c.Spec.Quota = nil
		if tc.declared {
			c.Spec.Quota = new(resource.MustParse("16Mi"))
		}
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name + "-config"}, Data: map[string]string{agentapi.ConfigKey: tc.config}}
		e := &Engine{MemberEngine: &memberset.MemberEngine{Reader: fake.NewClientBuilder().WithObjects(m).Build()}}
		if got, err := e.observeQuota(t.Context(), c); err != nil || got != tc.want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, tc.want)
		}
	}
	e := &Engine{MemberEngine: &memberset.MemberEngine{Reader: fake.NewClientBuilder().Build()}}
	c.Spec.Quota = nil
	if got, err := e.observeQuota(t.Context(), c); err != nil || got != 0 {
		t.Errorf("without a configuration: %d, %v", got, err)
	}
}

// Every change of the membership against every group of up to nine: the members that
// remain can always agree.
func TestRisk(t *testing.T) {
	cases := []struct {
		what            change
		voters, healthy int
		refused         bool
	}{
		{addMember, 1, 1, false}, {addMember, 3, 3, false}, {addMember, 3, 2, true}, {addMember, 5, 4, false}, {addMember, 5, 3, true},
		{removeHealthy, 1, 1, true}, {removeHealthy, 2, 2, false}, {removeHealthy, 3, 3, false}, {removeHealthy, 3, 2, true}, {removeHealthy, 5, 4, false},
		{removeLost, 3, 2, false}, {removeLost, 3, 1, true}, {removeLost, 2, 1, true},
		{removeLearner, 3, 2, false}, {removeLearner, 3, 1, true},
		{stopHealthy, 1, 1, false}, {stopHealthy, 3, 3, false}, {stopHealthy, 3, 2, true}, {stopHealthy, 5, 4, false},
	}
	for _, tc := range cases {
		if got := describeRisk(tc.what, tc.voters, tc.healthy); (got != "") != tc.refused {
			t.Errorf("change %d with %d of %d: %q", tc.what, tc.healthy, tc.voters, got)
		}
	}
	for voters := 1; voters <= 9; voters++ {
		for healthy := range voters + 1 {
			for _, what := range []change{removeHealthy, removeLost} {
				left := healthy
				if what == removeHealthy {
					left--
				}
				if describeRisk(what, voters, healthy) == "" && left < memberset.CountMajority(voters-1) {
					t.Errorf("change %d with %d of %d leaves no quorum", what, healthy, voters)
				}
			}
		}
	}
}
