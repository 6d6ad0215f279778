package mysql

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
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

func outcomeOf(p engine.Plan) (out outcome) {
	if p.Step != nil {
		out.Step = p.Step.Type + " " + p.Step.Target
	}
	for _, f := range p.Facts {
		if text := f.Type + "/" + f.Reason; !slices.Contains(out.Facts, text) {
			out.Facts = append(out.Facts, text)
		}
	}
	for _, obj := range p.Objects {
		if set := statefulSetOf(obj); set != nil {
			out.Count = int(*set.Spec.Replicas)
		}
	}
	return out
}

const (
	available = "Available/Available"
	down      = "Available/PrimaryUnavailable"
)

// shrinking is a settled cluster of which so many members are to stay.
func shrinking(t *testing.T, from int, to int32) *world {
	w := settled(t, from)
	w.declareReplicas(to)
	return w
}

// deletes has the spec say Delete, and the members know it.
func (w *world) deletes() *world {
	w.c.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	w.takeUp()
	return w
}

// addFormerVolume is the volume of a member that was scaled away under a policy.
func (w *world) addFormerVolume(ordinal int, under v1alpha1.DeletionPolicy) {
	v := w.volume(ordinal, false)
	v.Annotations = map[string]string{v1alpha1.AnnotationScaledAway: string(under), v1alpha1.AnnotationCluster: string(w.c.UID)}
	w.o.Ended = map[int]time.Time{ordinal: now.Add(-time.Minute)}
}

func TestPlan(t *testing.T) {
	for name, tc := range map[string]struct {
		world func(t *testing.T) *world
		want  outcome
	}{
		"a new cluster first gets its credentials, and no pods yet": {
			func(t *testing.T) *world { return newWorld(t, 3) },
			outcome{"MintCredentials orders-internal", []string{"Reconciling/Creating", down}, 0}},
		"a cluster whose secrets exist gets all its members at once": {
			func(t *testing.T) *world { w := newWorld(t, 3); w.mintSecrets(); return w },
			outcome{"", []string{"Reconciling/Creating", down}, 3}},
		"a settled cluster needs nothing": {
			func(t *testing.T) *world { return settled(t, 3) },
			outcome{"", []string{available}, 3}},
		"growing starts the new members at once and goes on serving": {
			func(t *testing.T) *world { w := settled(t, 1); w.declareReplicas(3); return w },
			outcome{"", []string{"Reconciling/Configuring", "Reconciling/ScalingUp", available}, 3}},
		"a replica that the group does not count as online is syncing": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.part(0).View[2].State = mysqlapi.StateRecovering
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", available}, 3}},
		"shrinking goes one member at a time, from the highest ordinal": {
			func(t *testing.T) *world { return shrinking(t, 5, 1) },
			outcome{"", []string{"Reconciling/Configuring", "Reconciling/ScalingDown", available}, 4}},
		"shrinking waits until the member before has left": {
			func(t *testing.T) *world { w := shrinking(t, 5, 1); w.volume(4, false); return w },
			outcome{"", []string{"Reconciling/Configuring", "Reconciling/ScalingDown", available}, 4}},
		"a member that leads is kept, and another one is asked to take over": {
			func(t *testing.T) *world {
				w := shrinking(t, 3, 1)
				w.leads = 2
				for n := range 3 {
					w.member(n)
				}
				w.report(0, 1, 2)
				w.takeUp()
				return w
			},
			outcome{"", []string{"Reconciling/ScalingDown", available}, 3}},
		"shrinking waits while no member leads": {
			func(t *testing.T) *world {
				w := shrinking(t, 3, 1)
				for n := range 3 {
					w.detach(n, "1-9")
				}
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", "Reconciling/ScalingDown", down}, 3}},
		"shrinking waits while too few of the rest are online": {
			func(t *testing.T) *world {
				w := shrinking(t, 5, 3)
				w.part(0).View[1].State, w.part(0).View[2].State = mysqlapi.StateRecovering, mysqlapi.StateRecovering
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", "Reconciling/ScalingDown", "Degraded/QuorumAtRisk", available}, 5}},
		"under Delete, a member that is not online is kept": {
			func(t *testing.T) *world {
				w := shrinking(t, 5, 3)
				w.report(0, 1, 2, 3)
				return w.deletes()
			},
			outcome{"", []string{"Reconciling/Syncing", "Reconciling/ScalingDown", available}, 5}},
		"under Retain, it goes": {
			func(t *testing.T) *world { w := shrinking(t, 5, 3); w.report(0, 1, 2, 3); return w },
			outcome{"", []string{"Reconciling/Configuring", "Reconciling/ScalingDown", available}, 4}},
		"a volume of a former member is kept": {
			func(t *testing.T) *world { w := settled(t, 1); w.volume(1, false); return w },
			outcome{"", []string{available}, 1}},
		"a volume of a former member goes when the spec says Delete": {
			func(t *testing.T) *world {
				w := settled(t, 1).deletes()
				w.addFormerVolume(1, v1alpha1.DeletionDelete)
				return w
			},
			outcome{"DeleteVolume data-orders-1", []string{"Reconciling/ScalingDown", available}, 1}},
		"but not before the primary takes writes": {
			func(t *testing.T) *world {
				w := settled(t, 1).deletes()
				w.addFormerVolume(1, v1alpha1.DeletionDelete)
				w.status(0).State, w.status(0).Role = agentapi.StateCatchingUp, v1alpha1.RoleMember
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", "Reconciling/ScalingDown", down}, 1}},
		"a new primary that applies what the one before left": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.status(0).State, w.status(0).Role, w.status(0).Serving = agentapi.StateRecovering, v1alpha1.RoleMember, false
				w.c.Annotations = map[string]string{v1alpha1.AnnotationRecoverQuorum: "early"}
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", down}, 3}},
		"a replica that lags has a vote": {
			func(t *testing.T) *world {
				w := shrinking(t, 5, 3).deletes()
				for n := 3; n < 5; n++ {
					w.status(n).State, w.status(n).Role, w.status(n).Serving = agentapi.StateCatchingUp, v1alpha1.RoleMember, false
				}
				return w
			},
			outcome{"", []string{"Reconciling/Syncing", "Reconciling/ScalingDown", available}, 4}},
		"outdated pods are replaced from the highest ordinal": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.PodLabels = map[string]string{"team": "shop"}
				return w
			},
			outcome{"ReplaceMember orders-2", []string{"Reconciling/Restarting", available}, 3}},
		"the next outdated pod waits while a member is away": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.PodLabels = map[string]string{"team": "shop"}
				w.removePod(2)
				w.report(0, 1)
				return w
			},
			outcome{"", []string{"Reconciling/Restarting", "Reconciling/ScalingUp", available}, 3}},
		"the primary is replaced last": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.PodLabels = map[string]string{"team": "shop"}
				w.member(1)
				w.member(2)
				w.report(0, 1, 2)
				return w
			},
			outcome{"ReplaceMember orders-0", []string{"Reconciling/Restarting", available}, 3}},
		"a member restarts for a setting that needs it": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.status(1).PendingRestart = []string{"innodb_ft_cache_size"}
				return w
			},
			outcome{"ReplaceMember orders-1", []string{"Reconciling/Restarting", available}, 3}},
		"a suspended cluster takes no step": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.c.Spec.Suspend, w.c.Spec.PodLabels = true, map[string]string{"team": "shop"}
				return w
			},
			outcome{"", []string{"Reconciling/Restarting", available}, 3}},
		"members that wait for one that does not answer": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.detach(0, "1-9", "orders-2")
				w.detach(1, "1-9", "orders-2")
				w.removePod(2)
				return w
			},
			outcome{"", []string{"Degraded/QuorumLost", "Reconciling/Syncing", "Reconciling/ScalingUp", "Available/QuorumLost"}, 3}},
		"members that wait for one whose data is lost": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.detach(0, "1-9", "orders-2")
				w.detach(1, "1-9", "orders-2")
				w.empty(2)
				return w
			},
			outcome{"", []string{"Stalled/QuorumLost", "Reconciling/Syncing", "Available/QuorumLost"}, 3}},
		"all data is lost": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				for n := range 3 {
					w.empty(n)
				}
				return w
			},
			outcome{"", []string{"Stalled/DataMissing", "Reconciling/Syncing", down}, 3}},
		"a server that is no pod of the cluster": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.part(0).View = append(w.part(0).View, mysqlapi.ViewMember{ServerUUID: "b", Address: "elsewhere:3306", State: mysqlapi.StateOnline})
				return w
			},
			outcome{"", []string{"Degraded/UnknownMember", available}, 3}},
		"a member that is held for what the others lack": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.detach(2, "1-10")
				w.status(2).State, w.status(2).Hold, w.status(2).Message = agentapi.StateHeld, agentapi.HoldDataDiverged, "it holds more"
				w.report(0, 1)
				return w
			},
			outcome{"", []string{"Stalled/DataDiverged", "Degraded/MemberDown", "Reconciling/MemberDown", available}, 3}},
		"a lower version of another series is refused": {
			func(t *testing.T) *world { w := settled(t, 3); w.c.Spec.Version = "8.4"; return w },
			outcome{"", []string{"Stalled/DowngradeRefused", available}, 3}},
		"a patch of the series is rolled out": {
			func(t *testing.T) *world { w := settled(t, 3); w.c.Spec.Version = "9.7.3"; return w },
			outcome{"ReplaceMember orders-2", []string{"Reconciling/Upgrading", available}, 3}},
		"another first database is refused, and nothing else waits for it": {
			func(t *testing.T) *world {
				w := settled(t, 3)
				w.status(0).Details = map[string]string{mysqlapi.DetailDatabase: "app", mysqlapi.DetailOwner: "app"}
				w.c.Spec.Bootstrap.Database = "shop"
				return w
			},
			outcome{"", []string{"Stalled/BootstrapChanged", available}, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, outcomeOf(tc.world(t).plan())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Of two members that report to lead, the one with the newer view does; where that cannot
// be said, neither does.
func TestTwoReportToLead(t *testing.T) {
	for _, c := range []struct {
		view string
		want int
	}{
		{"17000000000000000:6", 1},
		{"17000000000000000:4", 0},
		{"17000000000000000:5", memberset.NoLeader},
		{"18000000000000000:6", memberset.NoLeader},
	} {
		w := settled(t, 3)
		mine := *w.part(1)
		mine.View, mine.ViewID = slices.Clone(mine.View), c.view
		mine.View[0].Primary, mine.View[1].Primary = false, true
		w.status(1).Engine = mysqlapi.GroupStatus{GroupReplication: &mine}
		w.status(1).Role, w.status(1).State = v1alpha1.RolePrimary, agentapi.StateRunning
		g := readGroup(membersOf(w.c), w.o)
		if g.leader != c.want {
			t.Errorf("%s: %d leads", c.view, g.leader)
		}
		if p := w.plan(); c.want == memberset.NoLeader && (p.Report.Primary != "" || p.Step != nil) {
			t.Errorf("%s: primary %q, step %v", c.view, p.Report.Primary, p.Step)
		}
	}
}

// A primary that sees no majority is none.
func TestIsolatedPrimaryDoesNotLead(t *testing.T) {
	w := settled(t, 3)
	w.part(0).View[1].State, w.part(0).View[2].State = mysqlapi.StateUnreachable, mysqlapi.StateUnreachable
	for n := 1; n < 3; n++ {
		w.part(n).View = slices.Clone(w.part(0).View)
	}
	if g := readGroup(membersOf(w.c), w.o); g.isLed() {
		t.Errorf("%d leads", g.leader)
	}
}

// What a person must change is named with its field and the remedy.
func TestRefusedVersions(t *testing.T) {
	for name, c := range map[string]struct {
		running, version, image string
		reason                  string
		want                    []string
	}{
		"older series":        {"9.7.4", "8.4", "", v1alpha1.ReasonDowngradeRefused, []string{"spec.version", `set spec.version to "9.7" again`}},
		"newer series":        {"8.4.6", "9.7", "", v1alpha1.ReasonMajorUpgrade, []string{"spec.version", `set spec.version to "8.4" again`, "dump"}},
		"an unknown one runs": {"9.1.0", "9.7", "", v1alpha1.ReasonUpgradePath, []string{"MySQL 9.1.0", "spec.version"}},
		"an older patch":      {"9.7.4", "9.7.2", "", "", nil},
		"a newer patch":       {"9.7.4", "9.7.5", "", "", nil},
		"an image of another series": {"8.4.6", "9.7", "registry.example/mysql:x", v1alpha1.ReasonVersionMismatch,
			[]string{"spec.image", `set spec.version to "8.4"`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 1)
			w.c.Spec.Image = c.image
			w.o.Pods[0].Annotations[v1alpha1.AnnotationImage] = c.image
			w.status(0).Version, w.c.Spec.Version = c.running, c.version
			view := w.view()
			reason, message := readVersions(w.c, view, readGroup(view.Set, view.Observed)).explainRefusal(w.c)
			if reason != c.reason {
				t.Errorf("%s: %s", reason, message)
			}
			for _, part := range c.want {
				if !strings.Contains(message, part) {
					t.Errorf("%q lacks %q", message, part)
				}
			}
		})
	}
}

// A member whose agent is of an earlier build cannot join a group with a single leader, and
// says that it is at work again and again: its pod gets the operator's agent. One that could
// join, or that the group would take in, keeps its own.
func TestMemberThatTheGroupRefusesGetsAnotherAgent(t *testing.T) {
	const before = "holdfast:before"
	for name, tc := range map[string]struct {
		change func(w *world)
		want   string // the image that new pods have agents of
		step   string
	}{
		"refused":                              {func(*world) {}, "holdfast:test", "ReplaceMember orders-2"},
		"it joins again and again":             {func(w *world) { w.part(2).Phase = mysqlapi.PhaseStarting }, "holdfast:test", "ReplaceMember orders-2"},
		"the group takes turns":                {func(w *world) { w.part(0).SingleLeader = false }, before, ""},
		"its agent can join":                   {func(w *world) { w.part(2).JoinsSingleLeader = true }, before, ""},
		"it still copies the data":             {func(w *world) { w.part(2).Phase = mysqlapi.PhaseEmpty }, before, ""},
		"its server does not run yet":          {func(w *world) { w.part(2).Phase = mysqlapi.PhaseDown }, before, ""},
		"no member is known to lead":           {func(w *world) { w.part(0).View = nil }, before, ""},
		"the group has taken in such an agent": {func(w *world) { w.o.Pods[1].Spec.InitContainers[0].Image = before }, before, ""},
		"such an agent leads":                  {func(w *world) { w.o.Pods[0].Spec.InitContainers[0].Image = before }, before, ""},
		"it may still be joining":              {func(w *world) { w.status(2).DownSince = now.Add(time.Second - joinLimit) }, before, ""},
		"it has just begun to join":            {func(w *world) { w.part(2).Phase = mysqlapi.PhaseStarting; w.status(2).DownSince = now }, before, ""},
		"its agent is the operator's":          {func(w *world) { w.o.Pods[2].Spec.InitContainers[0].Image = "holdfast:test" }, before, ""},
		"it is in the group, and serves":       {func(w *world) { w.member(2); w.report(0, 1, 2); w.part(0).SingleLeader = true; w.setAgents(before) }, before, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := settled(t, 3)
			w.report(0, 1)
			w.part(0).SingleLeader = true
			w.detach(2, "1-9")
			w.status(2).State = agentapi.StateRecovering
			w.status(2).Time, w.status(2).DownSince = now, now.Add(-joinLimit)
			w.c.Status.Agent = &v1alpha1.AgentStatus{Image: before}
			w.setAgents(before)
			for _, n := range []int{0, 1} { // of builds that know a leader
				w.o.Pods[n].Spec.InitContainers[0].Image = "holdfast:later"
			}
			tc.change(w)
			p := w.plan()
			if p.Report.Agent.Image != tc.want {
				t.Errorf("new pods have agents of %s, want %s", p.Report.Agent.Image, tc.want)
			}
			for _, obj := range p.Objects {
				if set, is := obj.(*appsv1ac.StatefulSetApplyConfiguration); is && set.Annotations[v1alpha1.AnnotationAgentImage] != tc.want {
					t.Errorf("the StatefulSet records agents of %v, want %s", set.Annotations, tc.want)
				}
			}
			w.o.StatefulSet.Spec.Template.Spec.InitContainers[0].Image = p.Report.Agent.Image
			w.o.StatefulSet.Status.UpdateRevision = "of " + p.Report.Agent.Image
			if got := outcomeOf(w.plan()).Step; got != tc.step {
				t.Errorf("step %q, want %q", got, tc.step)
			}
		})
	}
}

// After an outage of all members a group that was started with a leader takes its members in
// again: agents that do not say that they can join are not replaced for it, and what to do is
// asked again when the first of them is to be in the group.
func TestMembersThatReturnToTheirGroupKeepTheirAgents(t *testing.T) {
	const before = "holdfast:before"
	w := settled(t, 3)
	w.report(0)
	w.part(0).SingleLeader = true
	w.c.Status.Agent = &v1alpha1.AgentStatus{Image: before}
	w.setAgents(before)
	for n := 1; n < 3; n++ {
		w.detach(n, "1-9")
		w.status(n).State = agentapi.StateRecovering
		w.status(n).Time, w.status(n).DownSince = now, now.Add(-time.Hour)
	}
	p := w.plan()
	if image := p.Report.Agent.Image; image != before {
		t.Errorf("new pods have agents of %s", image)
	}
	if got := outcomeOf(p).Step; got != "" {
		t.Errorf("step %q", got)
	}
	// The one that started the group has a later agent: of the others it is not known.
	w.o.Pods[0].Spec.InitContainers[0].Image = "holdfast:later"
	for n := 1; n < 3; n++ {
		w.status(n).DownSince = now.Add(time.Duration(n)*time.Second - joinLimit)
	}
	p = w.plan()
	if image := p.Report.Agent.Image; image != before || p.Recheck <= 0 || p.Recheck > time.Second {
		t.Errorf("new pods have agents of %s, and that is checked in %s", image, p.Recheck)
	}
}

// setAgents has the StatefulSet and every pod take their agents from an image.
func (w *world) setAgents(image string) {
	w.o.StatefulSet.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: objects.InstallerName, Image: image}}
	for _, pod := range w.o.Pods {
		pod.Spec.InitContainers[0].Image = image
	}
}
