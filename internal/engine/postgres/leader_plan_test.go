package postgres

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/postgresapi"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine/memberset"
)

// outdateAll has every pod be older than what the spec declares, apart from those of
// some ordinals.
func (w *world) outdateAll(besides ...int) *world {
	w.c.Spec.PodLabels = map[string]string{"team": "shop"}
	for _, n := range besides {
		w.pod(n)
		w.member(n)
	}
	return w
}

// endLeadership has no member lead: the last holder released the Lease, and stops.
func (w *world) endLeadership() *world {
	m := w.status(w.leads)
	m.Role, m.State, m.Serving = v1alpha1.RoleMember, agentapi.StateWaiting, false
	m.Time, m.DownSince = now, now
	w.o.ServicePods[suffixRW] = map[string]bool{}
	w.lease = &postgresapi.LeaseState{HolderPod: w.lease.HolderPod, Term: w.lease.Term}
	for n := range w.o.Pods {
		w.reportLease(n, w.lease)
	}
	return w
}

// messageOf is what a plan says of a condition's reason; empty where it says nothing.
func messageOf(facts []condition.Fact, conditionType, reason string) string {
	var all []string
	for _, f := range facts {
		if f.Type == conditionType && f.Reason == reason {
			all = append(all, f.Message)
		}
	}
	return strings.Join(all, "; ")
}

// What is planned follows the member that leads, whatever its ordinal.
func TestPlanFollowsTheLeader(t *testing.T) {
	const available, down = "Available/Available", "Available/PrimaryUnavailable"
	const restarting, scalingDown = "Reconciling/Restarting", "Reconciling/ScalingDown"
	cases := []struct {
		name  string
		world func(t *testing.T) *world
		want  outcome
		// primary in status, and a part of what Available says.
		primary, says string
	}{
		{"a settled cluster needs nothing",
			func(t *testing.T) *world { return ledBy(t, 3, 2) },
			outcome{"", []string{available}, 3}, "orders-2", "3 of 3 members serve, orders-2 takes writes"},
		{"outdated pods are replaced from the highest ordinal of those that do not lead",
			func(t *testing.T) *world { return ledBy(t, 3, 2).outdateAll() },
			outcome{"ReplaceMember orders-1", []string{restarting, available}, 3}, "orders-2", ""},
		{"then the bootstrap member as any other",
			func(t *testing.T) *world { return ledBy(t, 3, 2).outdateAll(1) },
			outcome{"ReplaceMember orders-0", []string{restarting, available}, 3}, "orders-2", ""},
		{"and the leader last",
			func(t *testing.T) *world { return ledBy(t, 3, 2).outdateAll(0, 1) },
			outcome{"ReplaceMember orders-2", []string{restarting, available}, 3}, "orders-2", ""},
		{"a leader between two replicas is last, too",
			func(t *testing.T) *world { return ledBy(t, 3, 1).outdateAll(2) },
			outcome{"ReplaceMember orders-0", []string{restarting, available}, 3}, "orders-1", ""},
		{"no pod that serves is replaced while none is known to lead",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 2).outdateAll()
				w.claimPrimary(1, &postgresapi.LeaseState{HolderUID: "pod-1", HolderPod: "orders-1", Term: 1})
				return w
			},
			outcome{"", []string{"Degraded/MemberDown", restarting, "Reconciling/Syncing", down}, 3}, "", "members name different holders of the Lease in term 1"},
		{"one that is stuck is, then, too",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 2).endLeadership().outdateAll()
				w.status(0).State, w.status(0).Serving, w.status(0).Failures = agentapi.StateFailed, false, 2
				return w
			},
			outcome{"ReplaceMember orders-0", []string{"Degraded/MemberDown", "Reconciling/MemberDown", restarting, "Reconciling/Syncing", down}, 3}, "", "member orders-2 is waiting"},
		{"the member that held the Lease last is looked at while none leads",
			func(t *testing.T) *world { return ledBy(t, 3, 2).endLeadership() },
			outcome{"", []string{"Reconciling/Syncing", down}, 3}, "", "no member takes writes: member orders-2 is waiting"},
		{"a leader that hangs is not available",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 1)
				m := w.status(1)
				m.State, m.Serving, m.Role, m.Message = agentapi.StateHung, false, v1alpha1.RoleMember, "PostgreSQL accepts no new connection"
				return w
			},
			outcome{"", []string{"Degraded/MemberDown", "Reconciling/Syncing", down}, 3}, "", "member orders-1 is hung: PostgreSQL accepts no new connection"},
		{"a leader that is not behind its Service is not available",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 1)
				w.o.ServicePods[suffixRW] = map[string]bool{"orders-0": true}
				return w
			},
			outcome{"", []string{"Reconciling/UpdatingEndpoints", down}, 3}, "orders-1", "member orders-1 is not behind its Service yet"},
		{"a leader whose volume is full takes no writes",
			func(t *testing.T) *world { w := ledBy(t, 3, 2); w.status(2).DiskFull = true; return w },
			outcome{"", []string{"Stalled/VolumeFull", "Available/VolumeFull"}, 3}, "orders-2", "volume data-orders-2 has no disk space left"},
		{"a former leader that still reports to be the primary is not believed",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 0)
				was := w.lease
				w.changeLeader(2)
				w.claimPrimary(0, was)
				return w
			},
			outcome{"", []string{"Degraded/MemberDown", "Reconciling/Syncing", available}, 3}, "orders-2", "orders-2 takes writes"},
		{"the bootstrap member copies the leader's data as any other does",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 2)
				w.status(0).State, w.status(0).Serving, w.status(0).Role = agentapi.StateCloning, false, v1alpha1.RoleMember
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", available}, 3}, "orders-2", "2 of 3 members serve"},
		{"the bootstrap member's volume is lost, and its pod waits for the next one",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 2)
				w.removePod(0)
				delete(w.o.Volumes, 0)
				return w
			},
			outcome{"", []string{"Reconciling/ScalingUp", available}, 3}, "orders-2", ""},
		{"no pod is replaced while the bootstrap member's volume is being deleted",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 2).outdateAll()
				w.o.Volumes[0].DeletionTimestamp = &metav1.Time{Time: now}
				return w
			},
			outcome{"", []string{"Degraded/DataMissing", restarting, available}, 3}, "orders-2", ""},
		{"nor while the leader's is",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 2).outdateAll(0, 1)
				w.o.Volumes[2].DeletionTimestamp = &metav1.Time{Time: now}
				return w
			},
			outcome{"", []string{"Degraded/DataMissing", restarting, available}, 3}, "orders-2", ""},
		{"the leader's pod is gone with its volume: the others are kept as they are",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 2)
				w.removePod(2)
				delete(w.o.Volumes, 2)
				return w
			},
			outcome{"", []string{"Reconciling/ScalingUp", down}, 3}, "", "member orders-2 has no pod yet"},
		{"a replica beyond spec.replicas is scaled away",
			func(t *testing.T) *world { w := ledBy(t, 3, 1); w.declareReplicas(2); return w },
			outcome{"", []string{"Reconciling/Configuring", scalingDown, available}, 2}, "orders-1", ""},
		{"a leader beyond spec.replicas is kept",
			func(t *testing.T) *world { w := ledBy(t, 3, 2); w.declareReplicas(2); return w },
			outcome{"", []string{scalingDown, available}, 3}, "orders-2", ""},
		{"it is scaled away when another member leads",
			func(t *testing.T) *world {
				w := ledBy(t, 3, 2)
				w.declareReplicas(2)
				w.changeLeader(0)
				return w
			},
			outcome{"", []string{"Reconciling/Configuring", scalingDown, available}, 2}, "orders-0", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			p := tc.world(t).plan()
			if diff := cmp.Diff(tc.want, outcomeOf(p)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if p.Report.Primary != tc.primary {
				t.Errorf("status names the primary %q, want %q", p.Report.Primary, tc.primary)
			}
			says := ""
			for _, f := range p.Facts {
				if f.Type == v1alpha1.ConditionAvailable {
					says = f.Message
				}
			}
			if !strings.Contains(says, tc.says) {
				t.Errorf("Available says %q, want %q", says, tc.says)
			}
		})
	}
}

// A member is scaled away only if that very one may go.
func TestPlanScale(t *testing.T) {
	cases := []struct {
		name                       string
		replicas, leader, declared int
		change                     func(w *world)
		want                       scalePlan
	}{
		{"as declared", 3, 2, 3, nil, scalePlan{3, waitNone}},
		{"it grows at once", 2, 1, 5, nil, scalePlan{5, waitNone}},
		{"it grows without a primary", 2, 1, 5, func(w *world) { w.endLeadership() }, scalePlan{5, waitNone}},
		{"a replica goes", 3, 1, 2, nil, scalePlan{2, waitNone}},
		{"one after the other", 5, 1, 2, func(w *world) { w.volume(4, false) }, scalePlan{4, waitPodEnds}},
		{"the leader stays", 3, 2, 2, nil, scalePlan{3, waitSwitchover}},
		{"also of a single member", 3, 2, 1, nil, scalePlan{3, waitSwitchover}},
		{"those beyond it go", 5, 3, 2, nil, scalePlan{4, waitNone}},
		{"and those before it wait", 4, 3, 2, nil, scalePlan{4, waitSwitchover}},
		{"also while its database does not answer", 3, 2, 2, func(w *world) { w.status(2).Serving = false }, scalePlan{3, waitSwitchover}},
		{"also if its volume is not labelled as a member's", 3, 2, 2, func(w *world) { delete(w.o.Volumes[2].Labels, v1alpha1.LabelMember) }, scalePlan{3, waitSwitchover}},
		{"also if it was scaled away before it led", 3, 2, 2, func(w *world) { w.addFormerVolume(2, v1alpha1.DeletionDelete) }, scalePlan{3, waitSwitchover}},
		{"none goes while none leads", 3, 2, 1, func(w *world) { w.endLeadership() }, scalePlan{3, waitPrimary}},
		{"whatever its volume says: it may be the leader", 3, 2, 2, func(w *world) {
			w.addFormerVolume(2, v1alpha1.DeletionDelete)
			w.o.StatefulSet.Spec.Replicas = new(int32(3))
			w.o.Members = nil // an operator that has just started
		}, scalePlan{3, waitPrimary}},
		{"one whose pod ends already is not called back", 3, 2, 2, func(w *world) {
			w.addFormerVolume(2, v1alpha1.DeletionDelete)
			w.o.StatefulSet.Spec.Replicas = new(int32(2))
			w.o.Members = nil
		}, scalePlan{2, waitNone}},
		{"none goes while the leader does not serve", 3, 0, 1, func(w *world) { w.status(0).Serving = false }, scalePlan{3, waitPrimary}},
		{"the last holder of the Lease comes back, until another member leads", 3, 2, 2, func(w *world) {
			w.addFormerVolume(2, v1alpha1.DeletionDelete)
			w.removePod(2)
		}, scalePlan{3, waitPrimary}},
		{"which it does not with the volume of an earlier cluster", 3, 2, 2, func(w *world) {
			w.addFormerVolume(2, v1alpha1.DeletionRetain).Annotations[v1alpha1.AnnotationCluster] = "earlier"
			w.removePod(2)
		}, scalePlan{2, waitNone}},
		{"nor while its volume is being deleted", 3, 2, 2, func(w *world) {
			w.addFormerVolume(2, v1alpha1.DeletionDelete).DeletionTimestamp = &metav1.Time{Time: now}
			w.removePod(2)
		}, scalePlan{2, waitNone}},
		{"nor without its volume", 3, 2, 2, func(w *world) {
			w.removePod(2)
			delete(w.o.Volumes, 2)
		}, scalePlan{2, waitNone}},
		{"nor once another member leads", 3, 2, 2, func(w *world) {
			w.addFormerVolume(2, v1alpha1.DeletionDelete)
			w.removePod(2)
			w.changeLeader(1)
		}, scalePlan{2, waitNone}},
		{"data that the leader lacks stays", 3, 1, 2, func(w *world) {
			w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
			m := w.status(2)
			m.State, m.Hold, m.Serving = agentapi.StateHeld, agentapi.HoldDataDiverged, false
		}, scalePlan{3, waitDiverged}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, tc.replicas, tc.leader)
			w.declareReplicas(int32(tc.declared))
			if tc.change != nil {
				tc.change(w)
			}
			if got := planScale(w.c, w.view(), findLeader(membersOf(w.c), w.o)); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

// A leader beyond spec.replicas keeps its pod, its volume stays a member's under any
// policy, and a person hears what to do.
func TestLeaderBeyondReplicasIsKept(t *testing.T) {
	w := ledBy(t, 3, 2)
	w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	w.declareReplicas(2)
	p := w.plan()
	const want = "member orders-2 leads and is beyond spec.replicas 2: it is kept, with its data, until another member leads; to keep it for good, set spec.replicas to 3"
	if got := messageOf(p.Facts, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown); !strings.Contains(got, want) {
		t.Errorf("%q does not say %q", got, want)
	}
	d, _, _ := w.desired()
	for _, v := range d.Volumes {
		if !v.Member || v.Left != "" {
			t.Errorf("volume %d is no member's: %+v", v.Ordinal, v)
		}
	}
	w.changeLeader(1)
	if got := messageOf(w.plan().Facts, v1alpha1.ConditionReconciling, v1alpha1.ReasonScalingDown); strings.Contains(got, "is kept") {
		t.Errorf("a replica is kept: %s", got)
	}
}

// The evidence that a volume may be deleted is the answer of the member that leads
// now, whatever its ordinal, and no other member's.
func TestVolumeIsDeletedByTheLeadersEvidence(t *testing.T) {
	asked := func(w *world, ordinal int, at time.Time) {
		name := membersOf(w.c).PodName(ordinal)
		m := w.o.Members[name]
		m.Asked = at
		w.o.Members[name] = m
	}
	before := now.Add(-61 * time.Second)
	cases := []struct {
		name    string
		change  func(w *world)
		deleted bool
	}{
		{"the leader answered since", func(w *world) { asked(w, 0, before); asked(w, 2, before) }, true},
		{"only the bootstrap member did", func(w *world) { asked(w, 1, before); w.status(0).Flushed = true }, false},
		{"the leader did not flush", func(w *world) { w.status(1).Flushed = false; w.status(0).Flushed = true }, false},
		{"the leader starts", func(w *world) { w.status(1).State = agentapi.StateRecovering }, false},
		{"a member knows of a newer term", func(w *world) {
			w.reportLease(2, &postgresapi.LeaseState{HolderUID: "pod-0", HolderPod: "orders-0", Term: 9})
		}, false},
		{"a member knows that the Lease was released", func(w *world) {
			w.reportLease(2, &postgresapi.LeaseState{HolderPod: "orders-1", Term: w.lease.Term})
		}, false},
		{"two members report to lead", func(w *world) {
			w.claimPrimary(0, &postgresapi.LeaseState{HolderUID: "pod-0", HolderPod: "orders-0", Term: w.lease.Term})
			w.status(0).Flushed = true
		}, false},
		{"a former leader that writes still reports to lead", func(w *world) {
			was := w.lease
			w.changeLeader(2)
			w.status(2).Flushed = false
			w.claimPrimary(1, was)
			w.status(1).Flushed = true
		}, false},
		{"the volume is that of the last holder of the Lease, and none leads", func(w *world) {
			w.status(1).Role = v1alpha1.RoleReplica
			for n := range 3 {
				w.reportLease(n, &postgresapi.LeaseState{HolderUID: "pod-3", HolderPod: "orders-3", Term: 9})
			}
		}, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 1)
			w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
			w.addFormerVolume(3, v1alpha1.DeletionDelete)
			tc.change(w)
			step := w.plan().Step
			if deleted := step != nil && step.Type == memberset.StepDeleteVolume; deleted != tc.deleted {
				t.Errorf("step %q", judgeStep(step))
			}
		})
	}
}

// What status says of members is not what a member says that is not believed.
func TestRoleThatIsNotBelievedIsNotReported(t *testing.T) {
	w := ledBy(t, 3, 0)
	was := w.lease
	w.changeLeader(2)
	w.claimPrimary(0, was)
	p := w.plan()
	var roles []string
	for _, m := range p.Report.Members {
		roles = append(roles, m.Role)
	}
	if diff := cmp.Diff([]string{v1alpha1.RoleMember, v1alpha1.RoleReplica, v1alpha1.RolePrimary}, roles); diff != "" {
		t.Errorf("roles (-want +got):\n%s", diff)
	}
	const want = "member orders-0 reports that it is the primary, and the Lease names another pod orders-2 in term 2"
	if got := messageOf(p.Facts, v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown); got != want {
		t.Errorf("%q", got)
	}
}

// The running version, the first database, the archive and copies are the leader's.
func TestLeaderSpeaksForTheCluster(t *testing.T) {
	w := ledBy(t, 3, 0)
	was := w.lease
	w.changeLeader(1)
	w.claimPrimary(0, was)
	said := func(n int, version, database string, fault string) {
		m := w.status(n)
		m.Version, m.Archive = version, &agentapi.ArchiveStatus{Error: fault}
		m.Details = map[string]string{postgresapi.DetailDatabase: database, postgresapi.DetailOwner: database}
	}
	said(0, "17.2", "old", "an old fault")
	said(1, "17.5", "shop", "access denied")
	p := w.plan()
	if p.Report.Version != "17.5" {
		t.Errorf("version %s", p.Report.Version)
	}
	if d, _, _ := w.desired(); d.first.Database != "shop" {
		t.Errorf("database %s", d.first.Database)
	}
	if got := messageOf(p.Facts, v1alpha1.ConditionDegraded, v1alpha1.ReasonArchiveFailing); got != "WAL is not archived: access denied" {
		t.Errorf("archive: %q", got)
	}
	var sources []string
	for _, source := range (&Engine{}).PlanCopy(w.c, w.o).Sources {
		sources = append(sources, source.Name)
	}
	if diff := cmp.Diff([]string{"orders-2", "orders-1"}, sources); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
}

// The request to go on with older data goes to the member that is held, and has the
// newest data of those that are. It is not needed while another member leads.
func TestOlderDataNamesTheHeldMember(t *testing.T) {
	hold := func(w *world, ordinal int, position uint64) {
		m := w.status(ordinal)
		m.State, m.Hold, m.Serving, m.Role = agentapi.StateHeld, agentapi.HoldDataStale, false, v1alpha1.RoleMember
		w.changeReplication(ordinal, func(r *postgresapi.ReplicationStatus) {
			r.WALEnd = &postgresapi.WALPoint{Timeline: 2, Position: position}
		})
	}
	request := func(target, result string) []v1alpha1.RequestStatus {
		return []v1alpha1.RequestStatus{{Type: "continue-with-older-data", ID: "go", Target: target, Result: result}}
	}
	report := func(w *world, phase string) {
		w.status(1).Recovered = "go"
		w.reportElection(1, func(e *postgresapi.ElectionState) { e.Forced, e.Phase = "go", phase })
	}
	claim := func(w *world, phase string) {
		w.endLeadership()
		w.c.Status.Requests = request("orders-1", "")
		report(w, phase)
	}
	cases := []struct {
		name   string
		change func(w *world)
		want   []v1alpha1.RequestStatus
	}{
		{"the one that is held", func(w *world) { w.endLeadership(); hold(w, 1, 0x60) }, request("orders-1", "")},
		{"the newest of two", func(w *world) { w.endLeadership(); hold(w, 0, 0x60); hold(w, 1, 0x90) }, request("orders-1", "")},
		{"the first of equal ones", func(w *world) { w.endLeadership(); hold(w, 0, 0x60); hold(w, 1, 0x60) }, request("orders-0", "")},
		{"another member leads", func(w *world) { hold(w, 0, 0x60) }, request("orders-2", "not needed: orders-2 is not held for older data")},
		{"another member leads since it was recorded", func(w *world) {
			hold(w, 0, 0x60)
			w.c.Status.Requests = request("orders-0", "")
		}, request("orders-0", "not needed: orders-2 leads")},
		{"none is held, and none leads", func(w *world) { w.endLeadership() }, nil},
		{"what is recorded stays that member's", func(w *world) {
			w.endLeadership()
			hold(w, 0, 0x60)
			hold(w, 1, 0x90)
			w.c.Status.Requests = request("orders-0", "")
		}, request("orders-0", "")},
		{"which has carried it out", func(w *world) {
			w.c.Status.Requests = request("orders-1", "")
			w.changeLeader(1)
			w.status(1).Recovered = "go"
			w.changeReplication(1, func(r *postgresapi.ReplicationStatus) { r.Timeline = 3 })
		}, request("orders-1", "orders-1 went on with older data, on timeline 3")},
		{"its member claims the Lease: it has not served yet", func(w *world) { claim(w, "Promoting") }, request("orders-1", "")},
		{"its member claimed the Lease and does not lead", func(w *world) { claim(w, "Standby") },
			request("orders-1", "used up: orders-1 claimed the Lease by it and does not lead: see what its pod logs; to try again, or to have another member lead, use another ID")},
		{"its member claimed the Lease, and another one leads", func(w *world) {
			w.c.Status.Requests = request("orders-1", "")
			report(w, "Standby")
		}, request("orders-1", "not needed: orders-2 leads")},
		{"its member leads by it", func(w *world) {
			w.c.Status.Requests = request("orders-1", "")
			w.changeLeader(1)
			report(w, "Leading")
			w.changeReplication(1, func(r *postgresapi.ReplicationStatus) { r.Timeline = 3 })
		}, request("orders-1", "orders-1 went on with older data, on timeline 3")},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			w := ledBy(t, 3, 2)
			w.c.Annotations = map[string]string{v1alpha1.AnnotationContinueWithOlderData: "go"}
			tc.change(w)
			if diff := cmp.Diff(tc.want, w.plan().Report.Requests); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// No object follows an ordinal: clients find the leader by the label that agents keep.
// So another leader changes nothing that is applied.
func TestObjectsAreTheSameWhicheverMemberLeads(t *testing.T) {
	w := ledBy(t, 3, 0)
	want := w.plan().Objects
	for leader := range 3 {
		w.changeLeader(leader)
		if diff := cmp.Diff(want, w.plan().Objects); diff != "" {
			t.Errorf("led by %d (-led by 0 +got):\n%s", leader, diff)
		}
	}
}

// In synchronous mode the next pod is replaced only once the primary counts every other
// standby again: until then commits would wait.
func TestRolloutWaitsForTheQuorum(t *testing.T) {
	all := []string{"volume-of-orders-0", "volume-of-orders-1", "volume-of-orders-2"}
	for _, c := range []struct {
		name      string
		updated   []int
		quorum    []string
		streaming []string
		want      string
	}{
		{"the quorum is whole", nil, all, []string{"orders-0", "orders-1"}, "ReplaceMember orders-1"},
		{"the updated standby does not stream, by the primary", []int{1}, all, []string{"orders-0"}, ""},
		{"it streams, and is not in the quorum, as on a new volume", []int{1}, []string{all[0], all[2], "v9"}, []string{"orders-0", "orders-1"}, ""},
		{"it counts again", []int{1}, all, []string{"orders-0", "orders-1"}, "ReplaceMember orders-0"},
		{"a lost volume is in the quorum, too", []int{1}, append(slices.Clone(all), "v9"), []string{"orders-0", "orders-1"}, "ReplaceMember orders-0"},
		{"the primary waits for the last standby", []int{0, 1}, all, []string{"orders-1"}, ""},
		{"and is replaced then", []int{0, 1}, all, []string{"orders-0", "orders-1"}, "ReplaceMember orders-2"},
		{"an outdated standby that does not count goes first", nil, all, []string{"orders-1"}, "ReplaceMember orders-0"},
		{"of two that do not count, both outdated, one goes", nil, all, nil, "ReplaceMember orders-0"},
		{"the primary has no quorum yet", []int{1}, nil, []string{"orders-0"}, "ReplaceMember orders-0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ledBy(t, 3, 2)
			w.c.Spec.Synchronous = &v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousQuorum, Number: 1}
			for n := range w.o.Pods {
				w.member(n) // with the settings of the mode
			}
			w.outdateAll(c.updated...).elects().reportElection(2, func(e *postgresapi.ElectionState) { e.MayLead = all })
			w.synchronousBy(1, c.quorum, 2, c.streaming...)
			step := ""
			if s := w.plan().Step; s != nil {
				step = s.Type + " " + s.Target
			}
			if step != c.want {
				t.Errorf("step %q, want %q", step, c.want)
			}
		})
	}
}
