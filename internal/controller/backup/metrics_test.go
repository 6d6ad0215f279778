package backup

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
)

// The newest good backup of each cluster is reported, and whether its schedule has
// failed since.
func TestBackupMetrics(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	of := func(cluster string, b *v1alpha1.Backup) *v1alpha1.Backup {
		b.Namespace, b.Spec.ClusterRef = "shop", v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: cluster}
		if b.Status.Result != nil {
			b.Status.Result.Size = resource.MustParse("1Ki")
		}
		return b
	}
	cluster := func(name string, backup *v1alpha1.ClusterBackup, passedOver int64) *v1alpha1.EtcdCluster {
		c := backupstest.Scheduled()
		c.Name, c.Spec.Backup, c.Status.Schedules[0].Skipped = name, backup, passedOver
		return c
	}
	hourly := &v1alpha1.ClusterBackup{Schedule: "0 * * * *"}
	suspended := cluster("s", hourly, 9)
	suspended.Spec.Suspend = true
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		cluster("a", hourly, 0), of("a", backupstest.Made("a1", 2*time.Hour, "")), of("a", backupstest.Made("a2", time.Hour, "")), of("a", backupstest.UnderWay(backupstest.Made("a3", 0, ""))),
		cluster("b", hourly, 0), of("b", backupstest.Made("b1", 2*time.Hour, "")), of("b", backupstest.Made("b2", time.Hour, "full")),
		cluster("c", nil, 0), of("c", backupstest.ByHand(backupstest.Made("c1", time.Hour, ""))),
		cluster("d", hourly, 0), of("d", backupstest.Made("d1", time.Hour, "full")),
		cluster("e", hourly, 0), of("e", backupstest.OfAnother(backupstest.Made("e1", time.Hour, ""))), of("e", backupstest.UnderWay(backupstest.Made("e2", 0, ""))),
		cluster("f", hourly, 2), of("f", backupstest.UnderWay(backupstest.Made("f1", 2*time.Hour, ""))),
		suspended,
		of("lost", backupstest.Made("g1", 9*time.Hour, "")), of("lost", backupstest.Made("g2", 8*time.Hour, "full")),
	).Build()
	want := `
# HELP holdfast_backup_last_failed 1 while the newest scheduled backup of a cluster has failed, otherwise 0.
# TYPE holdfast_backup_last_failed gauge
holdfast_backup_last_failed{cluster_namespace="shop",holdfast_cluster="a",kind="EtcdCluster"} 0
holdfast_backup_last_failed{cluster_namespace="shop",holdfast_cluster="b",kind="EtcdCluster"} 1
holdfast_backup_last_failed{cluster_namespace="shop",holdfast_cluster="d",kind="EtcdCluster"} 1
# HELP holdfast_backup_overdue 1 while no good backup was made in the last two slots of a cluster's schedule, otherwise 0.
# TYPE holdfast_backup_overdue gauge
holdfast_backup_overdue{cluster_namespace="shop",holdfast_cluster="a",kind="EtcdCluster"} 0
holdfast_backup_overdue{cluster_namespace="shop",holdfast_cluster="b",kind="EtcdCluster"} 1
holdfast_backup_overdue{cluster_namespace="shop",holdfast_cluster="d",kind="EtcdCluster"} 1
holdfast_backup_overdue{cluster_namespace="shop",holdfast_cluster="e",kind="EtcdCluster"} 0
holdfast_backup_overdue{cluster_namespace="shop",holdfast_cluster="f",kind="EtcdCluster"} 1
# HELP holdfast_backup_scheduled 1 for a cluster with a backup schedule.
# TYPE holdfast_backup_scheduled gauge
holdfast_backup_scheduled{cluster_namespace="shop",holdfast_cluster="a",kind="EtcdCluster"} 1
holdfast_backup_scheduled{cluster_namespace="shop",holdfast_cluster="b",kind="EtcdCluster"} 1
holdfast_backup_scheduled{cluster_namespace="shop",holdfast_cluster="d",kind="EtcdCluster"} 1
holdfast_backup_scheduled{cluster_namespace="shop",holdfast_cluster="e",kind="EtcdCluster"} 1
holdfast_backup_scheduled{cluster_namespace="shop",holdfast_cluster="f",kind="EtcdCluster"} 1
# HELP holdfast_backup_last_success_size_bytes Stored size of a cluster's newest good backup.
# TYPE holdfast_backup_last_success_size_bytes gauge
holdfast_backup_last_success_size_bytes{cluster_namespace="shop",holdfast_cluster="a",kind="EtcdCluster"} 1024
holdfast_backup_last_success_size_bytes{cluster_namespace="shop",holdfast_cluster="b",kind="EtcdCluster"} 1024
holdfast_backup_last_success_size_bytes{cluster_namespace="shop",holdfast_cluster="c",kind="EtcdCluster"} 1024
# HELP holdfast_backup_last_success_timestamp_seconds When the newest good backup of a cluster began.
# TYPE holdfast_backup_last_success_timestamp_seconds gauge
holdfast_backup_last_success_timestamp_seconds{cluster_namespace="shop",holdfast_cluster="a",kind="EtcdCluster"} 1.7723628e+09
holdfast_backup_last_success_timestamp_seconds{cluster_namespace="shop",holdfast_cluster="b",kind="EtcdCluster"} 1.7723592e+09
holdfast_backup_last_success_timestamp_seconds{cluster_namespace="shop",holdfast_cluster="c",kind="EtcdCluster"} 1.7723628e+09
`
	collector := Collector{Reader: reader, Scheme: scheme, Kinds: []string{"EtcdCluster"}, Clock: clocktesting.NewFakePassiveClock(backupstest.Noon.Add(time.Minute))}
	err := testutil.CollectAndCompare(collector, strings.NewReader(want),
		"holdfast_backup_last_failed", "holdfast_backup_overdue", "holdfast_backup_scheduled", "holdfast_backup_last_success_size_bytes", "holdfast_backup_last_success_timestamp_seconds")
	if err != nil {
		t.Error(err)
	}
}

// The last drill is reported, and when one has passed.
func TestDrillMetrics(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster := func(name string, drill *v1alpha1.DrillStatus) *v1alpha1.EtcdCluster {
		c := backupstest.Scheduled()
		c.Name, c.Status.Drill = name, drill
		return c
	}
	passed := metav1.NewTime(backupstest.Noon)
	// hourly drills, of which the last that passed was begun so long ago, after
	// so many slots were skipped.
	hourly := func(name string, ago time.Duration, passedOver int64) *v1alpha1.EtcdCluster {
		c := cluster(name, nil)
		c.Spec.Backup.Verify = &v1alpha1.BackupVerify{Schedule: "30 * * * *"}
		c.Status.Schedules = append(c.Status.Schedules, v1alpha1.ScheduleStatus{Name: "Drill", Skipped: passedOver})
		if ago > 0 {
			c.Status.Drill = &v1alpha1.DrillStatus{LastPassedTime: new(metav1.NewTime(backupstest.Noon.Add(-ago)))}
		}
		return c
	}
	suspended := hourly("s", 0, 9)
	suspended.Spec.Suspend = true
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		suspended, cluster("a", &v1alpha1.DrillStatus{Result: v1alpha1.DrillPassed, Duration: "4m12s", LastPassedTime: &passed}),
		cluster("b", &v1alpha1.DrillStatus{Result: v1alpha1.DrillFailed, Duration: "30m0s"}),
		cluster("c", &v1alpha1.DrillStatus{NextTime: &passed}), cluster("d", nil),
		hourly("e", time.Hour, 9), hourly("f", 2*time.Hour, 1), hourly("g", 0, 1), hourly("h", 0, 2),
	).Build()
	want := `
# HELP holdfast_drill_last_duration_seconds How long the last restore drill of a cluster took.
# TYPE holdfast_drill_last_duration_seconds gauge
holdfast_drill_last_duration_seconds{cluster_namespace="shop",holdfast_cluster="a",kind="EtcdCluster"} 252
holdfast_drill_last_duration_seconds{cluster_namespace="shop",holdfast_cluster="b",kind="EtcdCluster"} 1800
# HELP holdfast_drill_last_failed 1 while the last restore drill of a cluster has failed, otherwise 0.
# TYPE holdfast_drill_last_failed gauge
holdfast_drill_last_failed{cluster_namespace="shop",holdfast_cluster="a",kind="EtcdCluster"} 0
holdfast_drill_last_failed{cluster_namespace="shop",holdfast_cluster="b",kind="EtcdCluster"} 1
# HELP holdfast_drill_overdue 1 while no drill passed in the last two slots of a cluster's drill schedule, otherwise 0.
# TYPE holdfast_drill_overdue gauge
holdfast_drill_overdue{cluster_namespace="shop",holdfast_cluster="e",kind="EtcdCluster"} 0
holdfast_drill_overdue{cluster_namespace="shop",holdfast_cluster="f",kind="EtcdCluster"} 1
holdfast_drill_overdue{cluster_namespace="shop",holdfast_cluster="g",kind="EtcdCluster"} 0
holdfast_drill_overdue{cluster_namespace="shop",holdfast_cluster="h",kind="EtcdCluster"} 1
# HELP holdfast_drill_last_success_timestamp_seconds When the last successful restore drill of a cluster began.
# TYPE holdfast_drill_last_success_timestamp_seconds gauge
holdfast_drill_last_success_timestamp_seconds{cluster_namespace="shop",holdfast_cluster="a",kind="EtcdCluster"} 1.7723664e+09
`
	collector := Collector{Reader: reader, Scheme: scheme, Kinds: []string{"EtcdCluster"}, Clock: clocktesting.NewFakePassiveClock(backupstest.Noon)}
	err := testutil.CollectAndCompare(collector, strings.NewReader(want), "holdfast_drill_last_duration_seconds", "holdfast_drill_last_failed", "holdfast_drill_overdue", "holdfast_drill_last_success_timestamp_seconds")
	if err != nil {
		t.Error(err)
	}
}
