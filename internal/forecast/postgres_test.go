package forecast_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/engine/postgres"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func postgresEngine(c v1alpha1.Cluster) forecast.Engine {
	return forecast.Engine{
		Members: func(c v1alpha1.Cluster) objects.Set { return postgres.MembersOf(c.(*v1alpha1.PostgresCluster)) },
		Plan: func(w *forecast.World) engine.Plan {
			return (&postgres.Engine{}).Plan(w.Cluster.(*v1alpha1.PostgresCluster), *w.Observed, w.Now)
		},
		Agents: forecast.NewPostgresAgents(c),
	}
}

// classes of volumes: those of one grow.
func classes() map[string]storagev1.StorageClass {
	return map[string]storagev1.StorageClass{
		"standard": {ObjectMeta: metav1.ObjectMeta{Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}, AllowVolumeExpansion: new(true)},
		"fixed":    {ObjectMeta: metav1.ObjectMeta{Name: "fixed"}},
	}
}

func newPostgres(replicas int32, edits ...func(*v1alpha1.PostgresCluster)) *v1alpha1.PostgresCluster {
	c := &v1alpha1.PostgresCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "cluster-uid", Generation: 1},
		Spec: v1alpha1.PostgresClusterSpec{
			CommonSpec: v1alpha1.CommonSpec{Replicas: &replicas, DeletionPolicy: v1alpha1.DeletionRetain, Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
			Version:    "15", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
			Parameters: v1alpha1.Parameters{"work_mem": "8MB", "max_connections": "200"},
		},
	}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

// settle creates a cluster, and runs it until it is at rest.
func settle(t *testing.T, c *v1alpha1.PostgresCluster) *forecast.World {
	t.Helper()
	w := forecast.NewWorld(postgresEngine(c), c, objects.Settings{ImageRepository: "docker.io/library/postgres", AgentImage: "holdfast:test"}, classes(), noon)
	mustSettle(t, w)
	return w
}

func mustSettle(t *testing.T, w *forecast.World) forecast.Outcome {
	t.Helper()
	out, err := w.Settle()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// describe is an outcome in lines.
func describe(out forecast.Outcome) []string {
	var lines []string
	for _, s := range out.Steps {
		line := string(s.Kind) + " " + strings.Join(slices.Concat(s.Members, s.Volumes, s.Objects, s.Settings), ",")
		if s.To != "" {
			line += " " + s.From + ">" + s.To
		}
		if s.WritesPause {
			line += map[bool]string{true: " pause", false: " outage"}[s.Successor]
		}
		if s.Readers > 0 {
			line += fmt.Sprintf(" %d/%d", s.ReadersLeft, s.Readers)
		}
		if s.DataAtRisk {
			line += " RISK"
		}
		lines = append(lines, line)
	}
	for _, f := range out.Stalled {
		lines = append(lines, "stalled "+f.Reason)
	}
	for _, f := range out.Waiting {
		lines = append(lines, "waits "+f.Reason)
	}
	return lines
}

func TestCreation(t *testing.T) {
	c := newPostgres(3)
	w := forecast.NewWorld(postgresEngine(c), c, objects.Settings{ImageRepository: "docker.io/library/postgres", AgentImage: "holdfast:test"}, classes(), noon)
	out := mustSettle(t, w)
	var kinds []forecast.StepKind
	for _, s := range out.Steps {
		kinds = append(kinds, s.Kind)
	}
	if diff := cmp.Diff([]forecast.StepKind{forecast.VolumeCreated, forecast.MembersJoin}, kinds); diff != "" {
		t.Error(diff)
	}
	if !out.Ready || w.Cluster.CommonStatus().Primary != "orders-0" || w.Cluster.CommonStatus().ReadyReplicas != 3 {
		t.Errorf("%+v", w.Cluster.CommonStatus())
	}
}

// Each kind of edit leads to its steps, in their order.
func TestEdits(t *testing.T) {
	for _, c := range []struct {
		name     string
		replicas int32
		before   func(*v1alpha1.PostgresCluster)
		edit     func(*v1alpha1.PostgresCluster)
		want     []string
	}{
		{"nothing", 3, nil, func(*v1alpha1.PostgresCluster) {}, nil},
		{"a setting that is reloaded", 3, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["work_mem"] = "16MB" },
			[]string{"SettingsTaken work_mem"}},
		{"a setting that takes a restart", 3, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["shared_buffers"] = "256MB" },
			[]string{"SettingsTaken shared_buffers", "MemberRestarts orders-2 1/2", "MemberRestarts orders-1 1/2", "MemberRestarts orders-0 pause 1/2"}},
		{"of one member", 1, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["shared_buffers"] = "256MB" },
			[]string{"SettingsTaken shared_buffers", "MemberRestarts orders-0 outage"}},
		{"a setting that no standby may have lower", 2, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["max_connections"] = "150" },
			[]string{"SettingsTaken max_connections", "RestartInPlace orders-0,max_connections outage", "MemberRestarts orders-1 0/1"}},
		{"the same setting raised", 2, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["max_connections"] = "300" },
			[]string{"SettingsTaken max_connections", "MemberRestarts orders-1 0/1", "MemberRestarts orders-0 pause 0/1"}},
		{"a setting of an extension", 2, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["pg_stat_statements.max"] = "100" },
			[]string{"SettingsTaken pg_stat_statements.max", "MemberRestarts orders-1 0/1", "MemberRestarts orders-0 pause 0/1"}},
		{"a value that PostgreSQL refuses", 2, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Parameters["work_mem"] = "1kB" },
			[]string{"SettingsTaken work_mem", "stalled InvalidParameter"}},
		{"more members", 1, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Replicas = new(int32(3)) },
			[]string{"VolumeCreated data-orders-1,data-orders-2 >1Gi", "MembersJoin orders-1,orders-2"}},
		{"fewer members", 3, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Replicas = new(int32(1)) },
			[]string{"VolumeKept data-orders-2", "MemberLeaves orders-2 1/2", "VolumeKept data-orders-1", "MemberLeaves orders-1 0/1"}},
		{"fewer members under Delete", 2, func(c *v1alpha1.PostgresCluster) { c.Spec.DeletionPolicy = v1alpha1.DeletionDelete },
			func(c *v1alpha1.PostgresCluster) { c.Spec.Replicas = new(int32(1)) },
			[]string{"MemberLeaves orders-1 0/1", "VolumeDeleted data-orders-1 RISK"}},
		{"a patch", 2, func(c *v1alpha1.PostgresCluster) { c.Spec.Version = "15.1" }, func(c *v1alpha1.PostgresCluster) { c.Spec.Version = "15.2" },
			[]string{"MemberRestarts orders-1 0/1", "MemberRestarts orders-0 pause 0/1"}},
		{"a major version", 2, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Version = "16" }, []string{"stalled MajorUpgradeUnsupported"}},
		{"an older major version", 2, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Version = "14" }, []string{"stalled DowngradeRefused"}},
		{"an image", 2, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Image = "registry.example/postgres:15" },
			[]string{"MemberRestarts orders-1 0/1", "MemberRestarts orders-0 pause 0/1"}},
		{"a label of pods", 1, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.PodLabels = map[string]string{"team": "shop"} },
			[]string{"MemberRestarts orders-0 outage"}},
		{"larger volumes", 2, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Storage.Size = resource.MustParse("2Gi") },
			[]string{"SettingsTaken settings that follow from storage.size", "VolumesGrow data-orders-0,data-orders-1 1Gi>2Gi"}},
		{"backups on a volume", 1, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Backup.Enabled = new(true) },
			[]string{"VolumeCreated orders-backups >2Gi"}},
		{"smaller volumes", 2, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Storage.Size = resource.MustParse("512Mi") },
			[]string{"SettingsTaken settings that follow from storage.size", "stalled StorageShrinkRefused", "stalled StorageShrinkRefused"}},
		{"larger volumes of a class that cannot", 1, func(c *v1alpha1.PostgresCluster) { c.Spec.Storage.StorageClass = "fixed" },
			func(c *v1alpha1.PostgresCluster) { c.Spec.Storage.Size = resource.MustParse("2Gi") },
			[]string{"SettingsTaken settings that follow from storage.size", "stalled StorageNotExpandable"}},
		{"another class", 1, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Storage.StorageClass = "fixed" }, []string{"stalled StorageClassChanged"}},
		{"a restart and larger volumes", 2, nil, func(c *v1alpha1.PostgresCluster) {
			c.Spec.Storage.Size = resource.MustParse("2Gi")
			c.Spec.PodLabels = map[string]string{"team": "shop"}
		}, []string{"SettingsTaken settings that follow from storage.size", "VolumesGrow data-orders-0,data-orders-1 1Gi>2Gi", "MemberRestarts orders-1 0/1", "MemberRestarts orders-0 pause 0/1"}},
		{"suspended", 2, nil, func(c *v1alpha1.PostgresCluster) {
			c.Spec.Suspend, c.Spec.PodLabels = true, map[string]string{"team": "shop"}
		}, []string{"waits Restarting", "waits Restarting"}},
		{"who may connect", 1, nil, func(c *v1alpha1.PostgresCluster) { c.Spec.Network.Policy = v1alpha1.NetworkPolicyNone }, []string{"ObjectDeleted NetworkPolicy/orders"}},
		{"synchronous replication", 3, nil, func(c *v1alpha1.PostgresCluster) {
			c.Spec.Synchronous = &v1alpha1.PostgresSynchronous{Mode: v1alpha1.SynchronousQuorum, Number: 1}
		}, []string{"SettingsTaken failover and synchronous replication"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := newPostgres(c.replicas)
			if c.before != nil {
				c.before(cluster)
			}
			w := settle(t, cluster)
			after := w.Cluster.DeepCopyObject().(*v1alpha1.PostgresCluster)
			c.edit(after)
			w.Declare(after)
			out := mustSettle(t, w)
			if diff := cmp.Diff(c.want, describe(out)); diff != "" {
				t.Errorf("(-want +got)\n%s\n%+v", diff, out)
			}
		})
	}
}

// If the leader is beyond spec.replicas, another member takes over first.
func TestLeaderIsScaledAway(t *testing.T) {
	w := settle(t, newPostgres(3))
	restart := w.Cluster.DeepCopyObject().(*v1alpha1.PostgresCluster)
	restart.Spec.PodLabels = map[string]string{"rev": "1"}
	w.Declare(restart)
	mustSettle(t, w) // orders-0 led, and another member does now
	leader := w.Cluster.CommonStatus().Primary
	if leader == "orders-0" {
		t.Fatal("the primary was restarted, and leads on")
	}
	down := w.Cluster.DeepCopyObject().(*v1alpha1.PostgresCluster)
	down.Spec.Replicas = new(int32(1))
	w.Declare(down)
	got := describe(mustSettle(t, w))
	want := []string{"VolumeKept data-orders-2", "MemberLeaves orders-2 1/2", "Switchover orders-1,orders-0 pause", "VolumeKept data-orders-1", "MemberLeaves orders-1 0/1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s led (-want +got)\n%s", leader, diff)
	}
}

func TestDeletion(t *testing.T) {
	for policy, want := range map[v1alpha1.DeletionPolicy][]string{
		v1alpha1.DeletionRetain: {"ClusterDeleted orders-0,orders-1 outage", "VolumeKept data-orders-0,data-orders-1"},
		v1alpha1.DeletionDelete: {"ClusterDeleted orders-0,orders-1 outage", "VolumeDeleted data-orders-0,data-orders-1 RISK"},
	} {
		w := settle(t, newPostgres(2, func(c *v1alpha1.PostgresCluster) { c.Spec.DeletionPolicy = policy }))
		if diff := cmp.Diff(want, describe(w.Delete())); diff != "" {
			t.Errorf("%s (-want +got)\n%s", policy, diff)
		}
	}
}

func TestChangesAndTheirEffects(t *testing.T) {
	w := settle(t, newPostgres(2))
	after := w.Cluster.DeepCopyObject().(*v1alpha1.PostgresCluster)
	after.Spec.Parameters = v1alpha1.Parameters{"work_mem": "16MB", "shared_buffers": "256MB", "log_connections": "on", "auto_explain.log_min_duration": "1s"}
	after.Spec.Replicas = new(int32(3))
	after.Spec.Storage.Size = resource.MustParse("2Gi")
	after.Spec.Version = "16"
	after.Spec.PodLabels = map[string]string{"team": "shop"}
	after.Spec.Network.Policy = v1alpha1.NetworkPolicyNone
	after.Spec.Failover = &v1alpha1.PostgresFailover{NoFailover: []int32{1}}
	after.Spec.Backup = &v1alpha1.ClusterBackup{Enabled: new(false), Schedule: "@daily"}
	after.Annotations = map[string]string{v1alpha1.AnnotationSwitchover: "1@orders-1", "team": "shop"}
	got := map[string]forecast.Effect{}
	for _, c := range w.ListChanges(after) {
		got[c.Path] = c.Effect
	}
	want := map[string]forecast.Effect{
		".spec.parameters.work_mem":                                    forecast.EffectReload,
		".spec.parameters.shared_buffers":                              forecast.EffectRestart,
		".spec.parameters.log_connections":                             forecast.EffectSessions,
		".spec.parameters.max_connections":                             forecast.EffectRestart,
		".spec.parameters.auto_explain.log_min_duration":               forecast.EffectUnknown,
		".spec.replicas":                                               forecast.EffectJoin,
		".spec.storage.size":                                           forecast.EffectGrows,
		".spec.version":                                                forecast.EffectRefused,
		".spec.podLabels.team":                                         forecast.EffectRestart,
		".spec.network.policy":                                         forecast.EffectObjects,
		".spec.failover.noFailover":                                    forecast.EffectReload,
		".spec.backup.schedule":                                        forecast.EffectBackups,
		".metadata.annotations[" + v1alpha1.AnnotationSwitchover + "]": forecast.EffectRequest,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if w.Cluster.GetGeneration() != 1 {
		t.Error("the world was changed by the question")
	}
}

// Whatever is edited, the forecast comes to an end: no volume is lost under Retain, the
// leader restarts last, and one member is away at a time.
func TestForecastsEnd(t *testing.T) {
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(seed, 3))
		w := settle(t, newPostgres(int32(1+random.IntN(5))))
		for range 6 {
			after := w.Cluster.DeepCopyObject().(*v1alpha1.PostgresCluster)
			editAtRandom(random, after)
			leader := w.Cluster.CommonStatus().Primary
			w.Declare(after)
			out := mustSettle(t, w)
			if len(out.Waiting) > 0 {
				t.Fatalf("seed %d: %+v", seed, out.Waiting)
			}
			checkSteps(t, seed, leader, out)
			if len(w.Observed.Pods) != after.Spec.DesiredReplicas() {
				t.Fatalf("seed %d: %d pods of %d", seed, len(w.Observed.Pods), after.Spec.DesiredReplicas())
			}
		}
	}
}

func editAtRandom(random *rand.Rand, c *v1alpha1.PostgresCluster) {
	for range 1 + random.IntN(2) {
		switch random.IntN(5) {
		case 0:
			c.Spec.Replicas = new(int32(1 + random.IntN(5)))
		case 1:
			c.Spec.PodLabels = map[string]string{"rev": fmt.Sprint(random.IntN(1000))}
		case 2:
			c.Spec.Storage.Size = resource.MustParse(fmt.Sprintf("%dGi", 1+random.IntN(4)))
		case 3:
			c.Spec.Parameters["shared_buffers"] = fmt.Sprintf("%dMB", 64+random.IntN(100))
		case 4:
			c.Spec.Parameters["max_connections"] = fmt.Sprint(50 + random.IntN(300))
		}
	}
}

func checkSteps(t *testing.T, seed uint64, leader string, out forecast.Outcome) {
	t.Helper()
	led := false
	for _, s := range out.Steps {
		if s.Kind == forecast.VolumeDeleted {
			t.Fatalf("seed %d: %v deleted under Retain", seed, s.Volumes)
		}
		if s.Kind == forecast.MemberRestarts && led && !slices.Contains(s.Members, leader) && !s.WritesPause {
			t.Fatalf("seed %d: %v restarts after the leader %s: %v", seed, s.Members, leader, describe(out))
		}
		led = led || s.Kind == forecast.MemberRestarts && slices.Contains(s.Members, leader)
	}
}
