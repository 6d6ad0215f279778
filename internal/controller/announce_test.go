package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/reference"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// series are the events that Kubernetes keeps: those that differ in nothing but
// their text are one, which shows the first of the texts.
type series struct {
	scheme *runtime.Scheme
	seen   map[string]bool
	// events as "Reason: first text", in order.
	events []string
	sent   int
}

func (s *series) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	s.sent++
	key := kind + reason + action
	for _, obj := range []runtime.Object{regarding, related} {
		if obj == nil {
			continue
		}
		ref, err := reference.GetReference(s.scheme, obj)
		if err != nil {
			panic(err)
		}
		key += fmt.Sprintf("%+v", *ref)
	}
	if !s.seen[key] {
		s.seen[key] = true
		s.events = append(s.events, reason+": "+fmt.Sprintf(note, args...))
	}
}

// announced plays statuses one after the other, each with one more version.
func announced(t *testing.T, statuses ...[]metav1.Condition) *series {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &series{scheme: scheme, seen: map[string]bool{}}
	r := &Reconciler[*v1alpha1.EtcdCluster, struct{}]{Recorder: s}
	c := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "config", UID: "a"}}
	for i, list := range statuses {
		before := c.CommonStatus().DeepCopy()
		c.ResourceVersion = strconv.Itoa(i)
		c.Status.Conditions = nil
		for n := range list {
			conditions.Set(c, &list[n])
		}
		c.Status.Phase = describePhase(c, false)
		r.announceStatus(c, before)
	}
	return s
}

func trueBecause(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// A failure that comes and goes with other figures each time is one event, whose
// reason is the condition's; another failure is another, of the same reason, too.
func TestEventsOfACause(t *testing.T) {
	full := func(i int) []metav1.Condition {
		return []metav1.Condition{trueBecause(v1alpha1.ConditionStalled, v1alpha1.ReasonVolumeFull, fmt.Sprintf("volume data-config-0 is full: %d MiB of 1024 MiB (%d%%)", i, i/10))}
	}
	var statuses [][]metav1.Condition
	for i := range 60 {
		statuses = append(statuses, full(900+i), nil)
	}
	statuses = append(statuses,
		[]metav1.Condition{trueBecause(v1alpha1.ConditionStalled, v1alpha1.ReasonVolumeFull, "volume data-config-1 is full")},
		[]metav1.Condition{trueBecause(v1alpha1.ConditionStalled, v1alpha1.ReasonSecretMissing, "there is no Secret store")},
		[]metav1.Condition{trueBecause(v1alpha1.ConditionDegraded, v1alpha1.ReasonMemberDown, "pod config-2: cannot be scheduled")},
	)
	got := announced(t, statuses...)
	want := []string{
		"VolumeFull: volume data-config-0 is full: 900 MiB of 1024 MiB (90%)",
		"VolumeFull: volume data-config-1 is full",
		"SecretMissing: there is no Secret store",
		"MemberDown: pod config-2: cannot be scheduled",
	}
	if diff := cmp.Diff(want, got.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got.sent < 60 {
		t.Errorf("only %d of 63 are counted", got.sent)
	}
}

// A status that says the same with other figures makes no event at all.
func TestFiguresAreNoEvent(t *testing.T) {
	var statuses [][]metav1.Condition
	for i := range 20 {
		statuses = append(statuses, []metav1.Condition{trueBecause(v1alpha1.ConditionDegraded, v1alpha1.ReasonArchiveFailing, fmt.Sprintf("WAL of %d MiB waits since 1:0/%d000000", i, i))})
	}
	if got := announced(t, statuses...); got.sent != 1 {
		t.Errorf("%d events: %q", got.sent, got.events)
	}
}

// A change from the first step to Ready, and a service that is lost and back.
func TestEventsOfAChange(t *testing.T) {
	is := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "of " + reason}
	}
	serves, ready := is(v1alpha1.ConditionAvailable, metav1.ConditionTrue, "Available"), is(v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready")
	got := announced(t,
		[]metav1.Condition{is(v1alpha1.ConditionReconciling, metav1.ConditionTrue, "Applying")},
		[]metav1.Condition{is(v1alpha1.ConditionReconciling, metav1.ConditionTrue, "Creating")},
		[]metav1.Condition{is(v1alpha1.ConditionReconciling, metav1.ConditionTrue, "Applying")},
		[]metav1.Condition{is(v1alpha1.ConditionReconciling, metav1.ConditionTrue, "Creating")},
		[]metav1.Condition{serves, ready},
		[]metav1.Condition{is(v1alpha1.ConditionAvailable, metav1.ConditionFalse, "QuorumLost"), is(v1alpha1.ConditionReady, metav1.ConditionFalse, "QuorumLost")},
		[]metav1.Condition{serves, ready},
	)
	want := []string{"Creating: of Creating", "Ready: of Ready", "QuorumLost: of QuorumLost"}
	if diff := cmp.Diff(want, got.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Members that go through many states make one event of each.
func TestEventsOfMembers(t *testing.T) {
	s := &series{scheme: runtime.NewScheme(), seen: map[string]bool{}}
	if err := v1alpha1.AddToScheme(s.scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler[*v1alpha1.EtcdCluster, struct{}]{Recorder: s}
	c := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "config", UID: "a"}}
	for i, state := range []string{"Starting", "Running", "Stopping", "Starting", "Running", "Running"} {
		before := c.CommonStatus().DeepCopy()
		c.ResourceVersion = strconv.Itoa(i)
		c.Status.Members = []v1alpha1.MemberStatus{{Name: "config-0", State: state, Role: v1alpha1.RoleMember}}
		r.announceStatus(c, before)
	}
	if want := []string{"MemberState: config-0 is Starting (member)", "MemberState: config-0 is Running (member)", "MemberState: config-0 is Stopping (member)"}; !slices.Equal(s.events, want) {
		t.Errorf("the events are %q", s.events)
	}
}

// A request says what takes it up, if that is one member.
func TestEventsOfRequests(t *testing.T) {
	s := &series{scheme: runtime.NewScheme(), seen: map[string]bool{}}
	if err := v1alpha1.AddToScheme(s.scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Recorder: s}
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a"}}
	for _, request := range []v1alpha1.RequestStatus{
		{Type: "switchover", ID: "go"},
		{Type: "switchover", ID: "go", Result: "orders-1 leads since term 2"},
		{Type: "promote", ID: "go", Target: "orders-1"},
		{Type: v1alpha1.RequestScaleDown, ID: "generation-2-term-3", Target: "orders-0"},
	} {
		before := c.CommonStatus().DeepCopy()
		c.Status.Requests = []v1alpha1.RequestStatus{request}
		r.announceStatus(c, before)
	}
	want := []string{
		"RequestAccepted: holdfast.dev/switchover=go is taken up",
		"RequestCompleted: holdfast.dev/switchover=go: orders-1 leads since term 2",
		"RequestAccepted: holdfast.dev/promote=go is taken up by orders-1",
		"RequestAccepted: the switchover that spec.replicas needs (generation-2-term-3) is taken up by orders-0",
	}
	if diff := cmp.Diff(want, s.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// An operator says once that members have other agents, and says it again of its next image.
func TestEventsOfAgents(t *testing.T) {
	s := &series{scheme: runtime.NewScheme(), seen: map[string]bool{}}
	if err := v1alpha1.AddToScheme(s.scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Recorder: s}
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a"}}
	for _, agent := range []*v1alpha1.AgentStatus{
		{Image: "v1"},
		{Image: "v1", Available: "v2", Outdated: []string{"orders-0", "orders-1"}},
		{Image: "v2", Available: "v2", Outdated: []string{"orders-0"}},
		{Image: "v2"},
		{Image: "v2", Available: "v3", Outdated: []string{"orders-0", "orders-1"}},
		{Image: "v2", Available: "v4"},
		nil,
	} {
		before := c.CommonStatus().DeepCopy()
		c.Status.Agent = agent
		r.announceStatus(c, before)
	}
	want := []string{"of v2, and the agents of orders-0, orders-1 are not", "of v3, and the agents of orders-0, orders-1 are not"}
	if s.sent != len(want) {
		t.Errorf("%d events: %q", s.sent, s.events)
	}
	for i, text := range want {
		if i >= len(s.events) || !strings.HasPrefix(s.events[i], "AgentsOutdated: ") || !strings.Contains(s.events[i], text) {
			t.Errorf("%q has no %q", s.events, text)
		}
	}
}

// A member whose data becomes another's says why.
func TestEventsOfReplacedData(t *testing.T) {
	for state, want := range map[string]string{
		"Rewinding": "MemberState: orders-0 is Rewinding (member): for a reason", "Cloning": "MemberState: orders-0 is Cloning (member): for a reason",
		"Recovering": "MemberState: orders-0 is Recovering (member)",
	} {
		s := &series{scheme: runtime.NewScheme(), seen: map[string]bool{}}
		if err := v1alpha1.AddToScheme(s.scheme); err != nil {
			t.Fatal(err)
		}
		r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Recorder: s}
		c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a"}}
		before := c.CommonStatus().DeepCopy()
		c.Status.Members = []v1alpha1.MemberStatus{{Name: "orders-0", State: state, Role: v1alpha1.RoleMember, Message: "for a reason"}}
		r.announceStatus(c, before)
		if !slices.Equal(s.events, []string{want}) {
			t.Errorf("the events are %q", s.events)
		}
	}
}

// Each term makes one event, and so does each fence.
func TestEventsOfTheElection(t *testing.T) {
	s := &series{scheme: runtime.NewScheme(), seen: map[string]bool{}}
	if err := v1alpha1.AddToScheme(s.scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Recorder: s}
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a"}}
	for _, step := range []struct {
		leader       string
		term, fences int64
	}{{"orders-0", 1, 0}, {"orders-0", 1, 0}, {"orders-0", 1, 1}, {"orders-1", 2, 1}, {"orders-1", 3, 1}, {"orders-0", 4, 0}} {
		before := c.CommonStatus().DeepCopy()
		c.Status.Election = &v1alpha1.ElectionStatus{Leader: step.leader, Term: step.term}
		c.Status.Members = []v1alpha1.MemberStatus{{Name: "orders-0", State: "Running", Role: v1alpha1.RolePrimary, Fences: step.fences}}
		r.announceStatus(c, before)
	}
	want := []string{
		"PrimaryChanged: orders-0 leads since term 1",
		"MemberState: orders-0 is Running (primary)",
		"Fenced: orders-0 was fenced: its term ended before its database had shut down, so the database was stopped by force. The Lease was not renewed in time or has another holder, or the database or its volume failed: the log of the pod says which",
		"PrimaryChanged: orders-1 leads since term 2; before: orders-0",
		"PrimaryChanged: orders-1 leads since term 3; before: orders-1",
		"PrimaryChanged: orders-0 leads since term 4; before: orders-1",
	}
	if diff := cmp.Diff(want, s.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A member that follows the leader again makes one event in a term, and so does each
// reason for which a member is held.
func TestEventsOfRejoining(t *testing.T) {
	s := &series{scheme: runtime.NewScheme(), seen: map[string]bool{}}
	if err := v1alpha1.AddToScheme(s.scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Recorder: s}
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a"}}
	for _, step := range []struct {
		term           int64
		unconfirmed    []string
		state, message string
	}{
		{1, nil, "Streaming", ""},
		{2, []string{"orders-0"}, "Starting", ""},
		{2, []string{"orders-0"}, "Held", "its WAL goes further"},
		{2, []string{"orders-0"}, "Held", "its WAL goes further"},
		{2, []string{"orders-0"}, "Starting", ""},
		{2, []string{"orders-0"}, "Held", "its WAL goes further"},
		{2, []string{"orders-0"}, "Cloning", ""},
		{2, nil, "Streaming", ""},
		{2, nil, "Streaming", ""},
		{3, []string{"orders-0"}, "Streaming", ""},
		{4, nil, "Streaming", ""},
		{5, []string{"orders-0"}, "Starting", ""},
		{5, nil, "Starting", ""}, // its volume was given up
	} {
		before := c.CommonStatus().DeepCopy()
		c.Status.Election = &v1alpha1.ElectionStatus{Leader: "orders-1", Term: step.term, Unconfirmed: step.unconfirmed}
		c.Status.Members = []v1alpha1.MemberStatus{{Name: "orders-0", State: step.state, Role: v1alpha1.RoleMember, Message: step.message}}
		r.announceStatus(c, before)
	}
	want := []string{
		"MemberHeld: orders-0 is held, and its data is left as it is: its WAL goes further",
		"Rejoined: orders-0 follows orders-1, which leads since term 2",
		"Rejoined: orders-0 follows orders-1, which leads since term 4",
	}
	got := slices.DeleteFunc(s.events, func(e string) bool { return !strings.HasPrefix(e, "Rejoined") && !strings.HasPrefix(e, "MemberHeld") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// An anomaly is an event of its member once, and what else members found is none.
func TestEventsOfAnomalies(t *testing.T) {
	s := &series{scheme: runtime.NewScheme(), seen: map[string]bool{}}
	if err := v1alpha1.AddToScheme(s.scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler[*v1alpha1.PostgresCluster, struct{}]{Recorder: s}
	c := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "a"}}
	found := func(class string, count int64, minute int) v1alpha1.InsightStatus {
		return v1alpha1.InsightStatus{Class: class, Count: count, Member: "orders-1", Last: metav1.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC)}
	}
	for _, classes := range [][]v1alpha1.InsightStatus{
		{found("Deadlock", 1, 0)},
		{found("UnusualLoad", 1, 0), found("Deadlock", 2, 20)},
		{found("UnusualLoad", 1, 0), found("Deadlock", 2, 40)},
		{found("UnusualLoad", 2, 40)},
		nil,
	} {
		before := c.CommonStatus().DeepCopy()
		c.Status.Insights = nil
		if classes != nil {
			c.Status.Insights = &v1alpha1.InsightsStatus{Classes: classes}
		}
		r.announceStatus(c, before)
	}
	if len(c.Status.Conditions) != 0 {
		t.Errorf("conditions: %+v", c.Status.Conditions)
	}
	if s.sent != 2 || !strings.HasPrefix(s.events[0], "MemberUnusual: orders-1: The database does far more") {
		t.Errorf("%d events: %q", s.sent, s.events)
	}
}
