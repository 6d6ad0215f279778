// Package backupstest makes clusters and Backups for tests.
package backupstest

import (
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// Scheduled is a cluster that is backed up every hour, and was at 11.
func Scheduled() *v1alpha1.EtcdCluster {
	c := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders", UID: "c"}}
	c.Spec.Backup = &v1alpha1.ClusterBackup{Schedule: "0 * * * *", Retention: "2d"}
	at := metav1.NewTime(Noon)
	c.Status.Schedules = []v1alpha1.ScheduleStatus{{Name: "Backup", Schedule: "0 * * * *", NextSlot: &at}}
	return c
}

// Made is a backup by schedule that ended so long ago; an error says that it
// failed.
func Made(name string, ago time.Duration, err string) *v1alpha1.Backup {
	at := metav1.NewTime(Noon.Add(-ago))
	b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at, Labels: map[string]string{v1alpha1.LabelSchedule: "x"}}}
	b.Status.StartTime, b.Status.CompletionTime, b.Status.Error, b.Status.ClusterUID = &at, &at, err, "c"
	if err == "" {
		b.Status.Result = &v1alpha1.BackupResult{}
	}
	return b
}

// OfAnother cluster, which had the same name.
func OfAnother(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Status.ClusterUID = "before"
	return b
}

// LostData makes a backup lose its volume.
func LostData(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Status.DataLost = true
	return b
}

// ByHand makes a backup one that no schedule made.
func ByHand(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Labels = nil
	return b
}

// UnderWay makes a backup one that has not ended.
func UnderWay(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Status.CompletionTime, b.Status.Result = nil, nil
	return b
}

// Names lists the names of backups.
func Names(all []*v1alpha1.Backup) string {
	var names []string
	for _, b := range all {
		names = append(names, b.Name)
	}
	return strings.Join(names, " ")
}

// Noon is the time that most tests begin at.
var Noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// At puts a backup in a store.
func At(b *v1alpha1.Backup, url string) *v1alpha1.Backup {
	b.Status.Location = &v1alpha1.BackupLocation{URL: url}
	return b
}

// Facts that plans report.
var (
	Available   = condition.Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAvailable}
	Unavailable = condition.Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPrimaryUnavailable}
	Syncing     = condition.Fact{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSyncing}
)

// Result of a good backup.
var Result = &v1alpha1.BackupResult{Size: resource.MustParse("12Mi"), Version: "17.4", EndPosition: "1:0/300100", Manifest: "m"}

// EndJob ends a Job at Noon.
func EndJob(job *batchv1.Job, how batchv1.JobConditionType) {
	job.Status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "too many", LastTransitionTime: metav1.NewTime(Noon)}}
}
