package mysql

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"k8s.io/client-go/kubernetes/fake"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/internal/agent"
	"github.com/holdfast-db/holdfast/internal/agent/agenttest"
	"github.com/holdfast-db/holdfast/internal/agent/health"
	"github.com/holdfast-db/holdfast/internal/agent/identity"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/datavolume"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/group"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/membership"
	"github.com/holdfast-db/holdfast/internal/agent/mysql/startplan"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/mysqlgtid"
)

const (
	own    = "00000000-0000-1000-8000-00000000000a"
	second = "00000000-0000-1000-8000-00000000000b"
	third  = "00000000-0000-1000-8000-00000000000c"
)

// newTestRun is a run whose server is never asked: its group is named after its volume.
func newTestRun(t *testing.T, config agentapi.ClusterConfig) *serverRun {
	t.Helper()
	config.Namespace, config.Name, config.UID = "shop", "orders", "u"
	config.Members = []string{"orders-0", "orders-1", "orders-2"}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "orders-config", Namespace: "shop"}, Data: map[string]string{agentapi.ConfigKey: string(text)},
	})
	log := slog.New(slog.DiscardHandler)
	id := identity.Identity{Namespace: "shop", Cluster: "orders", Pod: "orders-0", PodUID: "p", Address: "10.0.0.1"}
	a := &mysqlAgent{o: Options{
		Identity: id, Client: client, Log: log, Paths: Paths{DataDir: t.TempDir(), RunDir: t.TempDir()},
		Database: func(pod string) (string, int) { return pod, 3306 },
		Resolve:  func(context.Context, string) ([]string, error) { return []string{"10.0.0.1"}, nil },
	}}
	a.Host = agent.NewHost(agent.HostOptions{Identity: id, Client: client, Log: log, OmitMoving: omitMoving, MarkDown: markDown})
	a.peers = &peers{self: "orders-0", list: a.ListMembers, status: func(context.Context, string) (agentapi.Status, error) {
		return agentapi.Status{}, errors.New("away")
	}, post: func(context.Context, string, string, any, any) error { return errors.New("away") }}
	a.store = a.newStore()
	go a.Config.Follow(t.Context(), client)
	agenttest.WaitUntil(t, func() bool { config := a.currentConfig(); return config != nil && config.Live })
	mark, err := datavolume.NameVolume(a.o.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	r := &serverRun{mysqlAgent: a, name: startplan.NameGroup("u", mark.Volume), endings: make(chan ending, 1), health: health.NewHealth("MySQL", log)}
	if r.persisted, err = membership.OpenPersisted(a.o.DataDir); err != nil {
		t.Fatal(err)
	}
	r.member = newMemberState(r)
	return r
}

func (r *serverRun) mustRecord(t *testing.T) group.Record {
	t.Helper()
	m, err := r.newStore().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m.Record
}

func detached() group.Observation { return group.Observation{UUID: own, State: group.Offline} }

// The server of the first data records itself on the Lease, and has that on its volume; one
// of a clone does not, and neither does one of a group that was started.
func TestFirstServerRecordsItself(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	g := newGroupLoop(r)
	if record, known := g.readRecord(t.Context(), detached()); !known || record.Group != "" {
		t.Errorf("without a record: %+v, %v", record, known)
	}
	if err := r.store.Write(t.Context(), group.Record{Group: r.name}); err != nil {
		t.Fatal(err)
	}
	record, known := g.readRecord(t.Context(), detached())
	if !known || !record.IsOnly(own) || !r.mustRecord(t).IsEqual(record) || !r.persisted.Record().IsEqual(record) {
		t.Errorf("%+v, %v; on the volume %+v", record, known, r.persisted.Record())
	}

	clone := newTestRun(t, agentapi.ClusterConfig{})
	clone.name = "5b8f3c1e-0000-5000-8000-000000000001"
	if _, err := clone.store.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := clone.store.Write(t.Context(), group.Record{Group: clone.name}); err != nil {
		t.Fatal(err)
	}
	if record, _ := newGroupLoop(clone).readRecord(t.Context(), detached()); len(record.Entries) > 0 {
		t.Errorf("a clone records itself: %+v", record)
	}
}

// A member reports that it is about to start the group before it claims that, and claims
// only when it has looked at the others again.
func TestClaimComesAfterItsReport(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	g := newGroupLoop(r)
	if _, err := r.store.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := group.Record{Group: r.name}.WithJoining(own, "orders-0")
	if err := r.store.Write(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	plan := group.Plan{Action: group.ClaimBoot, Record: before.WithClaim(own), Reason: "it holds all"}
	if pause := g.act(t.Context(), detached(), group.Situation{}, plan, nil); pause != 0 {
		t.Errorf("it pauses for %s", pause)
	}
	if got := readReport(r.Store.Get()).Phase; got != mysqlapi.PhaseStarting || r.mustRecord(t).Boot.Term != 0 {
		t.Errorf("phase %s, record %+v", got, r.mustRecord(t))
	}
	// Another one is about to, too: back to the beginning.
	g.act(t.Context(), detached(), group.Situation{}, group.Plan{Reason: "orders-1 is about to"}, nil)
	if got := readReport(r.Store.Get()).Phase; got != mysqlapi.PhaseDetached {
		t.Errorf("phase %s", got)
	}
	g.act(t.Context(), detached(), group.Situation{}, plan, nil)
	g.act(t.Context(), detached(), group.Situation{}, plan, nil)
	if r.mustRecord(t).Boot != (group.Boot{Term: 1, UUID: own}) || g.claimed != 1 || readReport(r.Store.Get()).Phase != mysqlapi.PhaseStarting {
		t.Errorf("claimed %d, record %+v", g.claimed, r.mustRecord(t))
	}
}

// A claim that another member's has overtaken counts for nothing.
func TestClaimThatIsOvertaken(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	g := newGroupLoop(r)
	if _, err := r.store.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := r.newStore()
	if _, err := other.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	record := group.Record{Group: r.name}.WithJoining(own, "orders-0").WithJoining(second, "orders-1")
	if err := other.Write(t.Context(), record.WithClaim(second)); err != nil {
		t.Fatal(err)
	}
	g.starting = true
	if pause := g.act(t.Context(), detached(), group.Situation{}, group.Plan{Action: group.ClaimBoot, Record: record.WithClaim(own)}, nil); pause == 0 || g.claimed != 0 {
		t.Errorf("claimed %d", g.claimed)
	}
}

// A request to start the group without others is carried out once it is on the Lease.
func TestRecoveryIsCarriedOutOnce(t *testing.T) {
	request := &mysqlapi.RecoveryRequest{ID: "go-on", Pod: "orders-0", ServerUUID: own}
	r := newTestRun(t, agentapi.ClusterConfig{ReplicationConfig: mysqlapi.ReplicationConfig{GroupReplication: &mysqlapi.GroupRequests{Recovery: request}}})
	g := newGroupLoop(r)
	self := group.Report{Pod: "orders-0", UUID: own}
	if found := g.findRecovery(self); found == nil || found.ID != "go-on" {
		t.Fatalf("%+v", found)
	}
	if found := g.findRecovery(group.Report{Pod: "orders-0", UUID: second}); found != nil {
		t.Error("it is for other data")
	}
	g.reportRefused(request, group.Plan{Action: group.Wait, Reason: "orders-1 is in a group"})
	if own := readReport(r.Store.Get()); own.Refused != "go-on" || own.RefusedReason == "" {
		t.Errorf("%+v", own)
	}
	if _, err := r.store.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	record := group.Record{Group: r.name}.WithJoining(own, "orders-0").WithJoining(second, "orders-1")
	plan := group.Plan{Action: group.ClaimBoot, Record: record.WithForcedClaim(group.Report{UUID: own, Pod: "orders-0", Group: r.name}, []string{own}, third)}
	g.act(t.Context(), detached(), group.Situation{}, plan, request)
	if r.isCarriedOut("go-on") {
		t.Error("it is carried out before the claim")
	}
	g.reportRefused(request, plan)
	g.act(t.Context(), detached(), group.Situation{}, plan, request)
	if !r.isCarriedOut("go-on") || r.Store.Get().Recovered != "go-on" || g.findRecovery(self) != nil || readReport(r.Store.Get()).Refused != "" {
		t.Errorf("%+v", r.Store.Get())
	}
	if got := r.mustRecord(t); !got.IsOnly(own) || got.Boot.Term != 1 {
		t.Errorf("%+v", got)
	}
}

// Diverged data is held; only a request for exactly this data has it replaced.
func TestDivergedDataIsHeld(t *testing.T) {
	errant, err := mysqlgtid.Parse(own + ":1")
	if err != nil {
		t.Fatal(err)
	}
	plan := group.Plan{Action: group.Hold, Errant: errant, Reason: "the data holds transactions that the group does not have"}
	for uuid, replaced := range map[string]bool{own: true, second: false} {
		r := newTestRun(t, agentapi.ClusterConfig{ReplicationConfig: mysqlapi.ReplicationConfig{GroupReplication: &mysqlapi.GroupRequests{
			CloneAgain: &mysqlapi.CloneRequest{ID: "again", Pod: "orders-0", ServerUUID: uuid},
		}}})
		g := newGroupLoop(r)
		g.act(t.Context(), detached(), group.Situation{}, plan, nil)
		s := r.Store.Get()
		if s.State != agentapi.StateHeld || s.Hold != agentapi.HoldDataDiverged || s.Serving || readReport(s).Errant != own+":1" {
			t.Errorf("%+v", s)
		}
		select {
		case e := <-r.endings:
			if !replaced || !e.inOrder || e.replace == nil || e.replace.Request != "again" {
				t.Errorf("%+v", e)
			}
		default:
			if replaced {
				t.Error("the request is ignored")
			}
		}
	}
	// Data of another group is never replaced.
	r := newTestRun(t, agentapi.ClusterConfig{ReplicationConfig: mysqlapi.ReplicationConfig{GroupReplication: &mysqlapi.GroupRequests{
		CloneAgain: &mysqlapi.CloneRequest{ID: "again", Pod: "orders-0", ServerUUID: own},
	}}})
	newGroupLoop(r).act(t.Context(), detached(), group.Situation{}, group.Plan{Action: group.Hold, Foreign: true, Reason: "another group"}, nil)
	if s := r.Store.Get(); s.Hold != agentapi.HoldSystemIdentifier || len(r.endings) > 0 {
		t.Errorf("%+v", s)
	}
}

// While the member's name leads to another pod it neither joins nor starts a group.
func TestNameMustLeadToTheMember(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	g := newGroupLoop(r)
	for name, c := range map[string]struct {
		addresses []string
		err       error
		want      bool
	}{
		"its own address":         {[]string{"10.0.0.9", "10.0.0.1"}, nil, true},
		"its address as IPv6 has": {[]string{"::ffff:10.0.0.1"}, nil, true},
		"an earlier pod's":        {[]string{"10.0.0.9"}, nil, false},
		"no address":              {nil, errors.New("no such host"), false},
	} {
		r.o.Resolve = func(context.Context, string) ([]string, error) { return c.addresses, c.err }
		if err := g.checkOwnName(t.Context()); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.o.Resolve = func(context.Context, string) ([]string, error) { return []string{"10.0.0.9"}, nil }
	g.act(t.Context(), detached(), group.Situation{}, group.Plan{Action: group.Join, Peer: "orders-1"}, nil)
	if s := r.Store.Get(); g.under != nil || s.State != agentapi.StateWaiting || s.Message == "" {
		t.Errorf("%+v", s)
	}
}

// Without a record on the Lease the volumes decide, unless a group serves: then its primary
// writes it again.
func TestLostRecord(t *testing.T) {
	persisted := group.Record{Group: "g"}.WithJoining(own, "orders-0")
	peer := group.Report{Pod: "orders-1", UUID: second, Group: "g", Phase: group.Detached, Persisted: []string{own, second}}
	s := restoreLost(group.Situation{Self: group.Report{UUID: own}, Peers: []group.Report{peer}, RecordKnown: true, Persisted: persisted})
	if len(s.Record.Entries) != 2 || !s.RecordKnown {
		t.Errorf("%+v", s.Record)
	}
	peer.Phase = group.InGroup
	if s := restoreLost(group.Situation{Peers: []group.Report{peer}, RecordKnown: true, Persisted: persisted}); s.RecordKnown {
		t.Error("a member joins without the record")
	}
}

// A server that has been well for a while is started again at once after it was expelled;
// one that fails right away is a failure.
func TestFailedServerIsEnded(t *testing.T) {
	r := newTestRun(t, agentapi.ClusterConfig{})
	r.member.observe(group.Observation{UUID: own, State: group.Online})
	r.member.online -= 2 * settledAfter
	if got := r.member.onlineFor(); got < settledAfter {
		t.Errorf("online for %s", got)
	}
	o := group.Observation{UUID: own, State: group.Failed}
	newGroupLoop(r).leaveFailed(o)
	if e := <-r.endings; e.inOrder || e.err != nil {
		t.Errorf("%+v", e)
	}
	if got := readReport(r.Store.Get()).Phase; got != mysqlapi.PhaseDown {
		t.Errorf("phase %s", got)
	}
}

func TestPeersAreAskedOnce(t *testing.T) {
	answers := map[string]*mysqlapi.MemberReport{
		"orders-1": {ServerUUID: second, Phase: mysqlapi.PhaseDetached}, "orders-2": {ServerUUID: third, Phase: "unheard-of"},
		"orders-5": {ServerUUID: "x", Phase: mysqlapi.PhaseDown},
	}
	p := &peers{self: "orders-0", list: func() []string { return []string{"orders-0", "orders-1", "orders-2", "orders-3"} }}
	p.status = func(_ context.Context, pod string) (agentapi.Status, error) {
		if answers[pod] == nil {
			return agentapi.Status{}, errors.New("away")
		}
		return agentapi.Status{Pod: pod, Engine: mysqlapi.GroupStatus{GroupReplication: answers[pod]}}, nil
	}
	record := group.Record{Group: "g"}.WithJoining("x", "orders-5").WithJoining(own, "orders-0")
	var pods []string
	for _, found := range p.askAll(t.Context(), record) {
		pods = append(pods, found.Pod)
	}
	// One that cannot be read whole counts as no answer; a recorded one that was scaled away
	// is asked.
	if !slices.Equal(pods, []string{"orders-1", "orders-5"}) {
		t.Errorf("%v", pods)
	}
}
