package forecast_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/engine/mysql"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

func settleMySQL(t *testing.T, replicas int32) *forecast.World {
	t.Helper()
	c := &v1alpha1.MySQLCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "orders", Namespace: "shop", UID: "cluster-uid", Generation: 1},
		Spec: v1alpha1.MySQLClusterSpec{
			CommonSpec: v1alpha1.CommonSpec{Replicas: &replicas, DeletionPolicy: v1alpha1.DeletionRetain, Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
			Version:    "9.7.4", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
	w := forecast.NewWorld(forecast.Engine{
		Members: func(c v1alpha1.Cluster) objects.Set { return mysql.MembersOf(c.(*v1alpha1.MySQLCluster)) },
		Plan: func(w *forecast.World) engine.Plan {
			return (&mysql.Engine{}).Plan(w.Cluster.(*v1alpha1.MySQLCluster), *w.Observed, w.Now)
		},
		Agents: forecast.NewMySQLAgents(c),
	}, c, objects.Settings{ImageRepository: "docker.io/library/mysql", AgentImage: "holdfast:test"}, classes(), noon)
	if out := mustSettle(t, w); !out.Ready {
		t.Fatalf("the cluster is not created: %v", describe(out))
	}
	return w
}

func TestEditsOfMySQL(t *testing.T) {
	restarts := []string{"MemberRestarts orders-2 1/2", "MemberRestarts orders-1 1/2", "MemberRestarts orders-0 pause 1/2"}
	for _, c := range []struct {
		name     string
		replicas int32
		edit     func(*v1alpha1.MySQLCluster)
		want     []string
	}{
		{"nothing", 3, func(*v1alpha1.MySQLCluster) {}, nil},
		{"a parameter that a running server takes", 3, func(c *v1alpha1.MySQLCluster) { c.Spec.Parameters = v1alpha1.Parameters{"max_connections": "300"} },
			[]string{"SettingsTaken max_connections"}},
		{"a parameter that takes a restart", 3, func(c *v1alpha1.MySQLCluster) { c.Spec.Parameters = v1alpha1.Parameters{"thread_stack": "2M"} },
			append([]string{"SettingsTaken thread_stack"}, restarts...)},
		{"a parameter that no catalogue has", 3, func(c *v1alpha1.MySQLCluster) { c.Spec.Parameters = v1alpha1.Parameters{"of_a_plugin": "1"} },
			append([]string{"SettingsTaken of_a_plugin"}, restarts...)},
		{"a patch", 3, func(c *v1alpha1.MySQLCluster) { c.Spec.Version = "9.7.5" }, restarts},
		{"an older series", 3, func(c *v1alpha1.MySQLCluster) { c.Spec.Version = "8.4.9" }, []string{"stalled DowngradeRefused"}},
		{"more members", 1, func(c *v1alpha1.MySQLCluster) { c.Spec.Replicas = new(int32(3)) },
			[]string{"VolumeCreated data-orders-1,data-orders-2 >1Gi", "MembersJoin orders-1,orders-2"}},
		{"fewer members", 3, func(c *v1alpha1.MySQLCluster) { c.Spec.Replicas = new(int32(1)) },
			[]string{"VolumeKept data-orders-2", "MemberLeaves orders-2 1/2", "VolumeKept data-orders-1", "MemberLeaves orders-1 0/1"}},
		{"larger volumes", 3, func(c *v1alpha1.MySQLCluster) { c.Spec.Storage.Size = resource.MustParse("2Gi") },
			[]string{"SettingsTaken settings that follow from storage.size", "VolumesGrow data-orders-0,data-orders-1,data-orders-2 1Gi>2Gi"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := settleMySQL(t, c.replicas)
			after := w.Cluster.DeepCopyObject().(*v1alpha1.MySQLCluster)
			c.edit(after)
			w.Declare(after)
			out := mustSettle(t, w)
			if diff := cmp.Diff(c.want, describe(out)); diff != "" {
				t.Errorf("(-want +got)\n%s\n%+v", diff, out.Stalled)
			}
		})
	}
}

// If the primary is beyond spec.replicas, another member takes over first.
func TestPrimaryOfMySQLIsScaledAway(t *testing.T) {
	w := settleMySQL(t, 3)
	restart := w.Cluster.DeepCopyObject().(*v1alpha1.MySQLCluster)
	restart.Spec.PodLabels = map[string]string{"rev": "1"}
	w.Declare(restart)
	mustSettle(t, w)
	if leader := w.Cluster.CommonStatus().Primary; leader != "orders-1" {
		t.Fatalf("%s leads", leader)
	}
	down := w.Cluster.DeepCopyObject().(*v1alpha1.MySQLCluster)
	down.Spec.Replicas = new(int32(1))
	w.Declare(down)
	want := []string{"VolumeKept data-orders-2", "MemberLeaves orders-2 1/2", "Switchover orders-1,orders-0 pause", "VolumeKept data-orders-1", "MemberLeaves orders-1 0/1"}
	if diff := cmp.Diff(want, describe(mustSettle(t, w))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
