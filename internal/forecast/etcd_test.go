package forecast_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/engine/etcd"
	"github.com/holdfast-db/holdfast/internal/engine/memberset/objects"
	"github.com/holdfast-db/holdfast/internal/forecast"
)

func settleEtcd(t *testing.T, replicas int32, edit func(*v1alpha1.EtcdCluster)) *forecast.World {
	t.Helper()
	c := &v1alpha1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "config", Namespace: "shop", UID: "cluster-uid", Generation: 1},
		Spec: v1alpha1.EtcdClusterSpec{
			CommonSpec: v1alpha1.CommonSpec{Replicas: &replicas, DeletionPolicy: v1alpha1.DeletionRetain, Backup: &v1alpha1.ClusterBackup{Enabled: new(false)}},
			Version:    "3.5.26", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("1Gi")},
		},
	}
	if edit != nil {
		edit(c)
	}
	w := forecast.NewWorld(forecast.Engine{
		Members: func(c v1alpha1.Cluster) objects.Set { return etcd.MembersOf(c.(*v1alpha1.EtcdCluster)) },
		Plan: func(w *forecast.World) engine.Plan {
			o := etcd.Observation{Observation: *w.Observed, Tried: map[string]time.Time{}, Precaution: w.Precaution, Quota: w.ReadConfig().DataLimit}
			return (&etcd.Engine{}).Plan(w.Cluster.(*v1alpha1.EtcdCluster), o, w.Now)
		},
		Agents: forecast.NewEtcdAgents(c),
	}, c, objects.Settings{ImageRepository: "quay.io/coreos/etcd", AgentImage: "holdfast:test"}, classes(), noon)
	if out := mustSettle(t, w); !out.Ready {
		t.Fatalf("the cluster is not created: %v", describe(out))
	}
	return w
}

func TestEditsOfEtcd(t *testing.T) {
	restarts := []string{"MemberRestarts config-2 2/3", "MemberRestarts config-1 2/3", "Switchover config-0,config-1 pause", "MemberRestarts config-0 2/3"}
	for _, c := range []struct {
		name     string
		replicas int32
		before   func(*v1alpha1.EtcdCluster)
		edit     func(*v1alpha1.EtcdCluster)
		want     []string
	}{
		{"nothing", 3, nil, func(*v1alpha1.EtcdCluster) {}, nil},
		{"a parameter", 3, nil, func(c *v1alpha1.EtcdCluster) { c.Spec.Parameters = v1alpha1.Parameters{"snapshot-count": "5000"} },
			append([]string{"SettingsTaken snapshot-count"}, restarts...)},
		{"the quota", 3, nil, func(c *v1alpha1.EtcdCluster) { c.Spec.Quota = new(resource.MustParse("128Mi")) },
			append([]string{"SettingsTaken quota"}, restarts...)},
		{"a patch", 3, nil, func(c *v1alpha1.EtcdCluster) { c.Spec.Version = "3.5.27" }, restarts},
		{"the next minor version", 3, nil, func(c *v1alpha1.EtcdCluster) { c.Spec.Version = "3.6.16" }, restarts},
		{"the next minor version, with backups", 3, func(c *v1alpha1.EtcdCluster) { c.Spec.Backup = &v1alpha1.ClusterBackup{Enabled: new(true)} },
			func(c *v1alpha1.EtcdCluster) { c.Spec.Version = "3.6.16" }, append([]string{"BackupMade Backup/config-before-3-6"}, restarts...)},
		{"a version after the next", 3, nil, func(c *v1alpha1.EtcdCluster) { c.Spec.Version = "3.7.0" }, []string{"stalled UpgradePathRefused"}},
		{"an older minor version", 3, func(c *v1alpha1.EtcdCluster) { c.Spec.Version = "3.6.16" }, func(c *v1alpha1.EtcdCluster) { c.Spec.Version = "3.5.27" },
			[]string{"stalled DowngradeRefused"}},
		{"more members", 1, nil, func(c *v1alpha1.EtcdCluster) { c.Spec.Replicas = new(int32(3)) }, []string{
			"GroupChange config-1", "VolumeCreated data-config-1 >1Gi", "MembersJoin config-1", "GroupChange config-1",
			"GroupChange config-2", "VolumeCreated data-config-2 >1Gi", "MembersJoin config-2", "GroupChange config-2"}},
		{"fewer members", 3, nil, func(c *v1alpha1.EtcdCluster) { c.Spec.Replicas = new(int32(1)) }, []string{
			"GroupChange config-2", "VolumeKept data-config-2", "MemberLeaves config-2 2/2", "GroupChange config-1", "VolumeKept data-config-1", "MemberLeaves config-1 1/1"}},
		{"larger volumes, from which a larger quota follows", 3, nil, func(c *v1alpha1.EtcdCluster) { c.Spec.Storage.Size = resource.MustParse("10Gi") },
			append([]string{"VolumesGrow data-config-0,data-config-1,data-config-2 1Gi>10Gi", "SettingsTaken quota"}, restarts...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := settleEtcd(t, c.replicas, c.before)
			after := w.Cluster.DeepCopyObject().(*v1alpha1.EtcdCluster)
			c.edit(after)
			w.Declare(after)
			out := mustSettle(t, w)
			if diff := cmp.Diff(c.want, describe(out)); diff != "" {
				t.Errorf("(-want +got)\n%s\n%+v", diff, out.Stalled)
			}
		})
	}
}
