package backups

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

// maxFailed runs by schedule that are kept, for their logs.
const maxFailed = 3

// isScheduled says whether a backup was made by the schedule.
func isScheduled(b *v1alpha1.Backup) bool { return b.Labels[v1alpha1.LabelSchedule] != "" }

// ClusterUID is the UID of the cluster that a backup is of.
func ClusterUID(b *v1alpha1.Backup) string { return b.SourceClusterUID() }

// precaution is how long a backup stays at least that was made before an
// upgrade.
const precaution = 7 * 24 * time.Hour

// isPrecaution says whether a backup was made before an upgrade, and that is not
// so long ago that it could go, by its distance to the newest run.
func isPrecaution(b *v1alpha1.Backup, newest time.Time) bool {
	return b.Labels[v1alpha1.LabelBefore] != "" && newest.Sub(b.CreationTimestamp.Time) < precaution
}

// FilterOwn lists the backups of this cluster, and not of another one that had its
// name: what is kept of a lost cluster is neither counted nor dropped.
func FilterOwn(c v1alpha1.Cluster, all []*v1alpha1.Backup) []*v1alpha1.Backup {
	var own []*v1alpha1.Backup
	for _, b := range all {
		if of := ClusterUID(b); of == string(c.GetUID()) || of == "" && !b.IsFinished() {
			own = append(own, b)
		}
	}
	return own
}

// StartTime is when a backup was begun.
func StartTime(b *v1alpha1.Backup) time.Time {
	if b.Status.StartTime != nil {
		return b.Status.StartTime.Time
	}
	return b.CreationTimestamp.Time
}

// FindNewestGood finds the newest backup that succeeded; nil for none.
func FindNewestGood(all []*v1alpha1.Backup) *v1alpha1.Backup {
	var last *v1alpha1.Backup
	for _, b := range all {
		if b.HasSucceeded() && b.DeletionTimestamp == nil && isLater(b, last) {
			last = b
		}
	}
	return last
}

// isLater says whether a backup was begun after another one; nil for none.
func isLater(b, than *v1alpha1.Backup) bool {
	return than == nil || StartTime(b).After(StartTime(than))
}

// describeNewestGood is the newest backup that succeeded, as the status of its
// cluster reports it.
func describeNewestGood(all []*v1alpha1.Backup) *v1alpha1.LastBackup {
	b := FindNewestGood(all)
	if b == nil {
		return nil
	}
	return &v1alpha1.LastBackup{Name: b.Name, Time: metav1.NewTime(StartTime(b))}
}

// ListEndedRuns lists the runs of the schedule that have ended and stand, the newest
// first. Their order, and their age for retention, is by when they were
// created: the API server's clock says so, and no operator's whose clock is
// wrong.
func ListEndedRuns(all []*v1alpha1.Backup) []*v1alpha1.Backup {
	var ended []*v1alpha1.Backup
	for _, b := range all {
		if isScheduled(b) && b.IsFinished() && b.DeletionTimestamp == nil {
			ended = append(ended, b)
		}
	}
	slices.SortStableFunc(ended, func(a, b *v1alpha1.Backup) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	return ended
}

// findProven names the last backup that a drill has restored; empty for none. A
// drill that fails comes too late to keep it: it stays until another one passes.
func findProven(c v1alpha1.Cluster) string {
	if d := c.CommonStatus().Drill; d != nil && c.Common().Backup.RunsDrills() {
		return d.LastPassedBackup
	}
	return ""
}

// listSurplus are the cluster's own backups by schedule that are kept no longer. A
// good one goes only when the newest run is good, by its distance to that: time
// that passes without a success takes nothing. The newest good one never goes,
// nor does the one that is proven. Of those that failed, the newest few stay.
// One whose data is lost stays, to say so, until a person deletes it.
func listSurplus(own []*v1alpha1.Backup, declared *v1alpha1.ClusterBackup, proven string) []*v1alpha1.Backup {
	ended := ListEndedRuns(own)
	if len(ended) == 0 {
		return nil
	}
	succeeded := ended[0].HasSucceeded()
	oldest := ended[0].CreationTimestamp.Add(-parseRetention(declared.Retention))
	var drop []*v1alpha1.Backup
	good, failed := 0, 0
	for _, b := range ended {
		over := succeeded && b.CreationTimestamp.Time.Before(oldest)
		switch {
		case b.HasSucceeded() && isPrecaution(b, ended[0].CreationTimestamp.Time):
			over = false
		case b.Status.DataLost: // it did not fail
			over = false
		case b.HasSucceeded():
			good++
			over = (over || succeeded && exceedsCount(good, declared)) && b.Name != proven
		default:
			failed++
			over = over || failed > maxFailed
		}
		if over {
			drop = append(drop, b)
		}
	}
	return drop
}

// exceedsCount says whether more good backups are kept than maxBackups allows.
func exceedsCount(good int, declared *v1alpha1.ClusterBackup) bool {
	return declared.MaxBackups != nil && good > int(*declared.MaxBackups)
}

// parseRetention reads 12h, 7d or 4w, which the schema has checked.
func parseRetention(text string) time.Duration {
	retention, err := model.ParseDuration(cmp.Or(text, "7d"))
	if err != nil {
		return math.MaxInt64 // what is not understood, or centuries
	}
	return time.Duration(retention)
}
