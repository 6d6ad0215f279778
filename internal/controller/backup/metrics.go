package backup

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/controller/inventory"
	"github.com/holdfast-db/holdfast/internal/schedule"
)

// collectTimeout bounds a look into the cache.
const collectTimeout = 5 * time.Second

// backupMetrics are those of each cluster that has backups. Prometheus gives the label
// namespace to its targets, and federations set cluster: both have other names here.
var (
	backupLabels  = []string{"kind", "cluster_namespace", "holdfast_cluster"}
	backupSuccess = prometheus.NewDesc("holdfast_backup_last_success_timestamp_seconds",
		"When the newest good backup of a cluster began.", backupLabels, nil)
	backupSize = prometheus.NewDesc("holdfast_backup_last_success_size_bytes",
		"Stored size of a cluster's newest good backup.", backupLabels, nil)
	backupDuration = prometheus.NewDesc("holdfast_backup_last_success_duration_seconds",
		"How long the newest good backup of a cluster took, including verification.", backupLabels, nil)
	backupFailed = prometheus.NewDesc("holdfast_backup_last_failed",
		"1 while the newest scheduled backup of a cluster has failed, otherwise 0.", backupLabels, nil)
	backupScheduled = prometheus.NewDesc("holdfast_backup_scheduled",
		"1 for a cluster with a backup schedule.", backupLabels, nil)
	drillSuccess = prometheus.NewDesc("holdfast_drill_last_success_timestamp_seconds",
		"When the last successful restore drill of a cluster began.", backupLabels, nil)
	drillDuration = prometheus.NewDesc("holdfast_drill_last_duration_seconds",
		"How long the last restore drill of a cluster took.", backupLabels, nil)
	drillFailed = prometheus.NewDesc("holdfast_drill_last_failed",
		"1 while the last restore drill of a cluster has failed, otherwise 0.", backupLabels, nil)
	drillOverdue = prometheus.NewDesc("holdfast_drill_overdue",
		"1 while no drill passed in the last two slots of a cluster's drill schedule, otherwise 0.", backupLabels, nil)
	backupOverdue = prometheus.NewDesc("holdfast_backup_overdue",
		"1 while no good backup was made in the last two slots of a cluster's schedule, otherwise 0.", backupLabels, nil)
)

// Collector reports to Prometheus what Backups say of the clusters that there
// are. Those of a cluster that is gone say nothing.
type Collector struct {
	// Reader reads from the cache.
	Reader client.Reader
	// Scheme knows the Kinds of clusters, and a list of each.
	Scheme *runtime.Scheme
	Kinds  []string
	Clock  clock.PassiveClock
}

// Describe implements prometheus.Collector.
func (c Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{backupSuccess, backupSize, backupDuration, backupFailed, backupScheduled, backupOverdue, drillSuccess, drillDuration, drillFailed, drillOverdue} {
		to <- d
	}
}

// Collect implements prometheus.Collector. Without a cache there is nothing to
// tell.
func (c Collector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var all v1alpha1.BackupList
	if c.Reader.List(ctx, &all) != nil {
		return
	}
	type name struct{ kind, namespace, name string }
	of := map[name][]*v1alpha1.Backup{}
	for i := range all.Items {
		b := &all.Items[i]
		key := name{b.Spec.ClusterRef.Kind, b.Namespace, b.Spec.ClusterRef.Name}
		of[key] = append(of[key], b)
	}
	for _, kind := range c.Kinds {
		clusters, err := inventory.ListClusters(ctx, c.Reader, c.Scheme, kind)
		if err != nil {
			return
		}
		for _, cluster := range clusters {
			own := backups.FilterOwn(cluster, of[name{kind, cluster.GetNamespace(), cluster.GetName()}])
			c.collectCluster(to, kind, cluster, own)
		}
	}
}

func (c Collector) collectCluster(to chan<- prometheus.Metric, kind string, cluster v1alpha1.Cluster, own []*v1alpha1.Backup) {
	gauge := func(d *prometheus.Desc, value float64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, kind, cluster.GetNamespace(), cluster.GetName())
	}
	if b := backups.FindNewestGood(own); b != nil {
		gauge(backupSuccess, float64(backups.StartTime(b).Unix()))
		gauge(backupSize, b.Status.Result.Size.AsApproximateFloat64())
		gauge(backupDuration, b.Status.CompletionTime.Sub(backups.StartTime(b)).Seconds())
	}
	if ended := backups.ListEndedRuns(own); len(ended) > 0 {
		gauge(backupFailed, boolValue(!ended[0].HasSucceeded()))
	}
	c.collectDrill(gauge, cluster)
	declared := cluster.Common().Backup
	if !declared.IsEnabled() || cluster.Common().Suspend {
		return // none is expected
	}
	if parsed, err := backups.ParseSchedule(cluster); err == nil {
		gauge(backupScheduled, 1)
		gauge(backupOverdue, boolValue(backups.IsOverdue(own, parsed, c.Clock.Now()) || hasNoGoodBackup(cluster, own)))
	}
}

func (c Collector) collectDrill(gauge func(*prometheus.Desc, float64), cluster v1alpha1.Cluster) {
	if d := cluster.CommonStatus().Drill; d != nil && d.Result != "" {
		if d.LastPassedTime != nil {
			gauge(drillSuccess, float64(d.LastPassedTime.Unix()))
		}
		if took, err := time.ParseDuration(d.Duration); err == nil {
			gauge(drillDuration, took.Seconds())
		}
		gauge(drillFailed, boolValue(d.Result == v1alpha1.DrillFailed))
	}
	declared := cluster.Common().Backup
	if !declared.RunsDrills() || cluster.Common().Suspend {
		return
	}
	if parsed, err := schedule.Parse(declared.Verify.Schedule, declared.TimeZone); err == nil {
		gauge(drillOverdue, boolValue(isDrillOverdue(cluster.CommonStatus(), parsed, c.Clock.Now())))
	}
}

// isDrillOverdue says whether two slots of drills have come since the last drill that
// passed, or were skipped while none ever has: one that failed says so itself.
func isDrillOverdue(st *v1alpha1.CommonStatus, s schedule.Schedule, now time.Time) bool {
	if st.Drill != nil && st.Drill.LastPassedTime != nil {
		return st.Drill.LastPassedTime.Time.Before(backups.FindPreviousSlot(s, now))
	}
	record := backups.FindRecord(st, backups.DrillSchedule)
	return record != nil && record.Skipped > 1
}

// hasNoGoodBackup says whether a schedule that had a slot has made no good backup
// yet. The first one may be under way.
func hasNoGoodBackup(c v1alpha1.Cluster, own []*v1alpha1.Backup) bool {
	record := backups.FindScheduleRecord(c.CommonStatus())
	return backups.FindNewestGood(own) == nil && record != nil && (record.Skipped > 0 || len(backups.ListEndedRuns(own)) > 0)
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
