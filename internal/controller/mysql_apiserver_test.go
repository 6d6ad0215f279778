//go:build apiserver

package controller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/agentapi/mysqlapi"
	"github.com/holdfast-db/holdfast/internal/engine/mysql"
)

const mysqlRepository = "docker.io/library/mysql"

var mysqlKind = &kind{
	name: "MySQLCluster", repository: mysqlRepository,
	several: 3, more: 5, stride: 3,
	services: []string{"-members", "-ro", "-rw"}, entry: "-rw", port: 3306,
	setting: "sort_buffer_size", value: "524288",
	version: "9.7.4", primary: "orders-0", leads: true, copied: true,
	impossible: certificateMistakes,
	list:       func() client.ObjectList { return &v1alpha1.MySQLClusterList{} },
	cluster: func(w *world) v1alpha1.Cluster {
		return &v1alpha1.MySQLCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace},
			Spec: v1alpha1.MySQLClusterSpec{
				CommonSpec: v1alpha1.CommonSpec{Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
				Version:    "9.7.4", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
			},
		}
	},
	parameters: func(c v1alpha1.Cluster) *v1alpha1.Parameters { return &asMySQL(c).Spec.Parameters },
	storage:    func(c v1alpha1.Cluster) *v1alpha1.StorageSpec { return &asMySQL(c).Spec.Storage },
	setup: func(w *world, parts wiring) error {
		e := &mysql.Engine{MemberEngine: parts.members}
		if err := setUpDatabases(parts); err != nil {
			return err
		}
		return setUp(w, parts, e, e, func() *v1alpha1.MySQLCluster { return &v1alpha1.MySQLCluster{} })
	},
	says: func(s *simulation, pod *corev1.Pod, m *agentapi.Status) { mysqlGroupOf(s).says(s, pod, m) },
}

func asMySQL(c v1alpha1.Cluster) *v1alpha1.MySQLCluster { return c.(*v1alpha1.MySQLCluster) }

// mysqlGroups of the simulations, which outlive the operators.
var mysqlGroups sync.Map

func mysqlGroupOf(s *simulation) *mysqlGroup {
	g, _ := mysqlGroups.LoadOrStore(s, &mysqlGroup{})
	return g.(*mysqlGroup)
}

// mysqlGroup plays the group of one namespace's cluster: every pod that runs is online in
// it, and one of them leads until its pod ends or the lead is moved.
type mysqlGroup struct {
	mu sync.Mutex
	// leader is the pod that leads, and members are the pods in the view.
	leader  string
	members []string
	// view counts the changes of the view, and moves are the switchovers that were
	// carried out, by ID.
	view  int
	moves []string
}

// says completes what the agent of a pod says.
func (g *mysqlGroup) says(s *simulation, pod *corev1.Pod, m *agentapi.Status) {
	config, received := &corev1.ConfigMap{}, agentapi.ClusterConfig{}
	at := client.ObjectKey{Namespace: pod.Namespace, Name: pod.Labels[v1alpha1.LabelCluster] + "-config"}
	if s.world.Cache.Get(context.Background(), at, config) != nil || json.Unmarshal([]byte(config.Data[agentapi.ConfigKey]), &received) != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.follow(s.running(pod.Labels[v1alpha1.LabelCluster]))
	if r := received.GroupReplication; r != nil && r.Switchover != nil {
		g.switchOver(*r.Switchover)
	}
	m.Version, m.Role, m.State = "9.7.4", v1alpha1.RoleReplica, agentapi.StateStreaming
	if _, tag, found := strings.Cut(pod.Spec.Containers[0].Image, mysqlRepository+":"); found && strings.Count(tag, ".") == 2 {
		m.Version = tag
	}
	if pod.Name == g.leader {
		m.Role, m.State = v1alpha1.RolePrimary, agentapi.StateRunning
	}
	report := mysqlapi.MemberReport{
		ServerUUID: serverOf(pod.Name), Group: m.SystemIdentifier, Phase: mysqlapi.PhaseInGroup, ViewID: fmt.Sprintf("1:%d", g.view),
		Executed: "5b8f3c1e-0000-5000-8000-000000000001:1-9",
	}
	for _, name := range g.members {
		report.View = append(report.View, mysqlapi.ViewMember{
			ServerUUID: serverOf(name), State: mysqlapi.StateOnline, Primary: name == g.leader, Version: m.Version,
			Address: fmt.Sprintf("%s.%s-members.%s.svc:3306", name, pod.Labels[v1alpha1.LabelCluster], pod.Namespace),
		})
		report.Persisted = append(report.Persisted, serverOf(name))
	}
	m.Engine = mysqlapi.GroupStatus{GroupReplication: &report}
}

// follow has the group consist of the pods that run.
func (g *mysqlGroup) follow(running []string) {
	if !slices.Equal(running, g.members) {
		g.members, g.view = running, g.view+1
	}
	if !slices.Contains(running, g.leader) && len(running) > 0 {
		g.leader, g.view = running[0], g.view+1
	}
}

// switchOver moves the lead, if the request is for the server that leads.
func (g *mysqlGroup) switchOver(r mysqlapi.SwitchoverRequest) {
	target := r.Target
	if i := slices.IndexFunc(g.members, func(name string) bool { return name != g.leader }); target == "" && i >= 0 {
		target = g.members[i]
	}
	if r.From == serverOf(g.leader) && slices.Contains(g.members, target) {
		g.leader, g.view, g.moves = target, g.view+1, append(g.moves, r.ID)
	}
}

func serverOf(pod string) string { return "server-of-" + pod }

// running are the pods of a cluster's members that run, by ordinal.
func (s *simulation) running(cluster string) (names []string) {
	var pods corev1.PodList
	if err := s.world.Cache.List(context.Background(), &pods, client.InNamespace(s.world.Namespace), client.MatchingLabels{v1alpha1.LabelCluster: cluster}, client.HasLabels{"statefulset.kubernetes.io/pod-name"}); err != nil {
		return nil
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(a, b) })
	return names
}

// The primary of a MySQLCluster moves when the annotation requests it, once; and before
// its member is scaled away.
func TestMySQLSwitchover(t *testing.T) {
	t.Parallel()
	w := newWorld(t, mysqlKind)
	settled, _ := w.settled(3)
	c := asMySQL(settled)
	edit(w, c, func(c *v1alpha1.MySQLCluster) {
		c.Annotations = map[string]string{v1alpha1.AnnotationSwitchover: "first@orders-2"}
	})
	await(w, c, "orders-2 leads", func(c *v1alpha1.MySQLCluster) bool {
		return ready(c) && c.Status.Primary == "orders-2" && len(c.Status.Requests) == 1 && c.Status.Requests[0].Result == "orders-2 leads"
	})
	w.scale(c, 1)
	await(w, c, "one member is left", func(c *v1alpha1.MySQLCluster) bool {
		return ready(c) && c.Status.Primary == "orders-0" && len(c.Status.Members) == 1
	})
	g := mysqlGroupOf(w.simulation)
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.moves) != 2 || g.moves[0] != "first" {
		t.Errorf("the lead was moved by %v", g.moves)
	}
}

// Members that wait for one whose volume is lost report that, and go on when a person
// requests it, with the member that has the newest data.
func TestMySQLRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, mysqlKind)
	settled, _ := w.settled(3)
	c := asMySQL(settled)
	w.simulation.change(func(s *simulation) {
		s.also = func(m *agentapi.Status) {
			report := mysqlapi.MemberReport{ServerUUID: serverOf(m.Pod), Group: m.SystemIdentifier, Phase: mysqlapi.PhaseDetached,
				Executed: "5b8f3c1e-0000-5000-8000-000000000001:1-9", Missing: []string{"orders-0"}}
			m.Role, m.State, m.Serving = v1alpha1.RoleMember, agentapi.StateWaiting, false
			switch m.Pod {
			case "orders-0":
				report, m.SystemIdentifier = mysqlapi.MemberReport{Phase: mysqlapi.PhaseEmpty}, ""
			case "orders-2":
				report.Received = "5b8f3c1e-0000-5000-8000-000000000001:1-12"
			}
			m.Engine = mysqlapi.GroupStatus{GroupReplication: &report}
		}
	})
	await(w, c, "Stalled", func(c *v1alpha1.MySQLCluster) bool {
		return conditions.GetReason(c, v1alpha1.ConditionStalled) == v1alpha1.ReasonQuorumLost &&
			strings.Contains(conditions.GetMessage(c, v1alpha1.ConditionStalled), v1alpha1.AnnotationRecoverQuorum)
	})
	edit(w, c, func(c *v1alpha1.MySQLCluster) {
		c.Annotations = map[string]string{v1alpha1.AnnotationRecoverQuorum: "go"}
	})
	await(w, c, "orders-2 is asked to go on", func(c *v1alpha1.MySQLCluster) bool {
		r := w.memberConfig(t.Context(), c).GroupReplication
		return r != nil && r.Recovery != nil && *r.Recovery == mysqlapi.RecoveryRequest{ID: "go", Pod: "orders-2", ServerUUID: serverOf("orders-2")}
	})
	w.simulation.change(func(s *simulation) {
		s.also = func(m *agentapi.Status) {
			if m.Pod == "orders-2" {
				m.Recovered = "go"
			}
		}
	})
	await(w, c, "it went on", func(c *v1alpha1.MySQLCluster) bool {
		return ready(c) && len(c.Status.Requests) == 1 && strings.HasPrefix(c.Status.Requests[0].Result, "orders-2 went on with its data")
	})
}

// A Database of MySQL declares a MySQLCluster, and says what that says.
func TestDatabaseOfMySQL(t *testing.T) {
	t.Parallel()
	w := newWorld(t, mysqlKind)
	w.operate(0)
	d := w.database("orders", 3)
	d.Spec.Engine, d.Spec.Version, d.Spec.Bootstrap = v1alpha1.EngineMySQL, "9.7.4", v1alpha1.PostgresBootstrap{Database: "orders", Owner: "shop"}
	d.Spec.Parameters = v1alpha1.Parameters{"max_connections": "200"}
	w.create(d)
	await(w, d, "Ready", ready)
	if d.Status.Version != "9.7.4" || d.Status.Primary != "orders-0" || *d.Status.Cluster != (v1alpha1.DatabaseCluster{Kind: "MySQLCluster", Name: "orders"}) {
		t.Errorf("status %+v", d.Status)
	}
	c := &v1alpha1.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "orders"}}
	w.get(c)
	want := v1alpha1.MySQLClusterSpec{Version: "9.7.4", Parameters: d.Spec.Parameters, Bootstrap: v1alpha1.MySQLBootstrap{Database: "orders", Owner: "shop"}}
	got := v1alpha1.MySQLClusterSpec{Version: c.Spec.Version, Parameters: c.Spec.Parameters, Bootstrap: c.Spec.Bootstrap}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the cluster (-want +got):\n%s", diff)
	}
	edit(w, d, func(d *v1alpha1.Database) {
		d.Annotations = map[string]string{v1alpha1.AnnotationSwitchover: "first@orders-1"}
	})
	await(w, d, "orders-1 leads", func(d *v1alpha1.Database) bool { return ready(d) && d.Status.Primary == "orders-1" })
	before := d.DeepCopy() // the status may change meanwhile: a patch does not meet that
	d.Spec.Replicas = new(int32(2))
	if err := w.person.Patch(t.Context(), d, client.MergeFrom(before)); err == nil || !strings.Contains(err.Error(), "spec.replicas must be odd with spec.engine mysql") {
		t.Errorf("two members: %v", err)
	}
}
