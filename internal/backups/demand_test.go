package backups

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// A backup that the engine asks for is made once, beside the schedule.
func TestDemand(t *testing.T) {
	wanted := &engine.Demand{Name: "orders-gap-1", Since: backupstest.Noon.Add(-10 * time.Minute)}
	running := func(ago time.Duration) *v1alpha1.Backup {
		b := backupstest.Made("orders-1", ago, "")
		b.Status.CompletionTime, b.Status.Result = nil, nil
		return b
	}
	quiet := backupstest.Noon.Add(-30 * time.Minute) // no slot is due
	cases := []struct {
		name   string
		at     time.Time
		change func(c *v1alpha1.EtcdCluster)
		all    []*v1alpha1.Backup
		want   string
	}{
		{"it is made", quiet, nil, nil, "orders-gap-1"},
		{"an older one does not do", quiet, nil, []*v1alpha1.Backup{backupstest.Made("orders-1", time.Hour, ""), running(20 * time.Minute)}, "orders-gap-1"},
		{"one that is under way does as well", quiet, nil, []*v1alpha1.Backup{running(5 * time.Minute)}, ""},
		{"one of the very second does as well", quiet, nil, []*v1alpha1.Backup{running(10 * time.Minute)}, ""},
		{"it was made, and failed", quiet, nil, []*v1alpha1.Backup{backupstest.Made("orders-gap-1", time.Minute, "full")}, ""},
		{"the schedule makes one", backupstest.Noon, nil, nil, "orders-20260301-1200"},
		{"that of a lost cluster has the name", quiet, nil, []*v1alpha1.Backup{backupstest.OfAnother(backupstest.Made("orders-gap-1", time.Minute, ""))}, "taken"},
		{"one of a lost cluster is under way", quiet, nil, []*v1alpha1.Backup{backupstest.OfAnother(running(5 * time.Minute))}, "orders-gap-1"},
		{"suspended", quiet, func(c *v1alpha1.EtcdCluster) { c.Spec.Suspend = true }, nil, ""},
		{"off", quiet, func(c *v1alpha1.EtcdCluster) { c.Spec.Backup.Enabled = new(false) }, nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cluster := backupstest.Scheduled()
			if c.change != nil {
				c.change(cluster)
			}
			r := PlanSchedule(cluster, "EtcdCluster", c.all, nil, c.at)
			record := r.Record
			r.AddDemand(cluster, "EtcdCluster", c.all, wanted, c.at)
			got := ""
			if r.Due != nil {
				got = r.Due.Name
			}
			if f := r.Verdicts.JudgeBackedUp(); f != nil && f.Reason == v1alpha1.ReasonNameConflict && f.Type == v1alpha1.ConditionBackedUp && f.Status == metav1.ConditionFalse {
				got = "taken"
			}
			if got != c.want {
				t.Fatalf("due %q, want %q", got, c.want)
			}
			if got == wanted.Name {
				if r.Done != record || r.Taken != record || !isScheduled(r.Due) || r.Due.Spec.DeletionPolicy != v1alpha1.DeletionDelete || r.Due.Labels[v1alpha1.LabelClusterUID] != "c" {
					t.Errorf("%+v", r.Due)
				}
				if r.Due.CreationTimestamp != (metav1.Time{}) {
					t.Error("a time that the API server gives")
				}
			}
		})
	}
	upgrade := &engine.Demand{Name: "orders-before-3-7", Before: "3.7.0"}
	r := PlanSchedule(backupstest.Scheduled(), "EtcdCluster", nil, nil, quiet)
	r.AddDemand(backupstest.Scheduled(), "EtcdCluster", []*v1alpha1.Backup{running(time.Minute)}, upgrade, quiet)
	if r.Due == nil || r.Due.Name != upgrade.Name || r.Due.Labels[v1alpha1.LabelBefore] != "3.7.0" {
		t.Errorf("no other does, and %+v is due", r.Due)
	}
	r = PlanSchedule(backupstest.Scheduled(), "EtcdCluster", nil, nil, quiet)
	if r.AddDemand(backupstest.Scheduled(), "EtcdCluster", nil, nil, quiet); r.Due != nil {
		t.Errorf("made for nobody: %s", r.Due.Name)
	}
}

// What can be restored begins with the oldest good backup that the archive
// continues, at its destination.
func TestRestorableFrom(t *testing.T) {
	inStore := func(b *v1alpha1.Backup, url, endpoint string) *v1alpha1.Backup {
		b.Status.Location = &v1alpha1.BackupLocation{URL: url, Endpoint: endpoint}
		b.Status.CompletionTime = new(metav1.NewTime(b.Status.StartTime.Add(time.Minute)))
		return b
	}
	there := func(name string, ago time.Duration) *v1alpha1.Backup {
		return inStore(backupstest.Made(name, ago, ""), "s3://acme/pg", "https://minio")
	}
	failed := there("failed", 3*time.Hour)
	failed.Status.Error, failed.Status.Result = "full", nil
	going := there("going", 3*time.Hour)
	going.DeletionTimestamp = new(metav1.NewTime(backupstest.Noon))
	all := []*v1alpha1.Backup{
		there("before", 4*time.Hour+time.Second), failed, going, backupstest.LostData(there("lost", 3*time.Hour)),
		inStore(backupstest.Made("elsewhere", 3*time.Hour, ""), "s3://acme/other", "https://minio"), inStore(backupstest.Made("endpoint", 3*time.Hour, ""), "s3://acme/pg", ""),
		backupstest.Made("volume", 3*time.Hour, ""), there("second", time.Hour), there("first", 2*time.Hour),
	}
	since := metav1.NewTime(backupstest.Noon.Add(-4 * time.Hour))
	archive := &v1alpha1.ArchiveStatus{URL: "s3://acme/pg", Endpoint: "https://minio", Since: &since}
	if got, want := FindRestorableFrom(all, archive), backupstest.Noon.Add(-2*time.Hour+time.Minute); got == nil || !got.Time.Equal(want) {
		t.Errorf("%v, want %s", got, want)
	}
	if got, want := FindRestorableFrom(append(all, there("at once", 4*time.Hour)), archive), backupstest.Noon.Add(-4*time.Hour+time.Minute); got == nil || !got.Time.Equal(want) {
		t.Errorf("%v, want %s", got, want)
	}
	if got := FindRestorableFrom(all[:len(all)-2], archive); got != nil {
		t.Errorf("%s with none that it continues", got)
	}
	archive.Since = nil
	if got := FindRestorableFrom(all, archive); got != nil {
		t.Errorf("%s before it began", got)
	}
}
