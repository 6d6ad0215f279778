package controller

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// A backup that the engine asks for is made once, beside the schedule.
func TestDemand(t *testing.T) {
	wanted := &engine.Demand{Name: "orders-gap-1", Since: noon.Add(-10 * time.Minute)}
	running := func(ago time.Duration) *v1alpha1.Backup {
		b := made("orders-1", ago, "")
		b.Status.CompletionTime, b.Status.Result = nil, nil
		return b
	}
	quiet := noon.Add(-30 * time.Minute) // no slot is due
	cases := []struct {
		name   string
		at     time.Time
		change func(c *v1alpha1.EtcdCluster)
		all    []*v1alpha1.Backup
		want   string
	}{
		{"it is made", quiet, nil, nil, "orders-gap-1"},
		{"an older one does not do", quiet, nil, []*v1alpha1.Backup{made("orders-1", time.Hour, ""), running(20 * time.Minute)}, "orders-gap-1"},
		{"one that is under way does as well", quiet, nil, []*v1alpha1.Backup{running(5 * time.Minute)}, ""},
		{"one of the very second does as well", quiet, nil, []*v1alpha1.Backup{running(10 * time.Minute)}, ""},
		{"it was made, and failed", quiet, nil, []*v1alpha1.Backup{made("orders-gap-1", time.Minute, "full")}, ""},
		{"the schedule makes one", noon, nil, nil, "orders-20260301-1200"},
		{"that of a lost cluster has the name", quiet, nil, []*v1alpha1.Backup{ofAnother(made("orders-gap-1", time.Minute, ""))}, "taken"},
		{"one of a lost cluster is under way", quiet, nil, []*v1alpha1.Backup{ofAnother(running(5 * time.Minute))}, "orders-gap-1"},
		{"suspended", quiet, func(c *v1alpha1.EtcdCluster) { c.Spec.Suspend = true }, nil, ""},
		{"off", quiet, func(c *v1alpha1.EtcdCluster) { c.Spec.Backup.Enabled = new(false) }, nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cluster := scheduled()
			if c.change != nil {
				c.change(cluster)
			}
			r := planBackups(cluster, "EtcdCluster", c.all, nil, c.at)
			record := r.record
			r.demand(cluster, "EtcdCluster", c.all, wanted, c.at)
			got := ""
			if r.due != nil {
				got = r.due.Name
			}
			for _, f := range r.facts {
				if f.Reason == v1alpha1.ReasonNameConflict && f.Type == v1alpha1.ConditionBackedUp && f.Status == metav1.ConditionFalse {
					got = "taken"
				}
			}
			if got != c.want {
				t.Fatalf("due %q, want %q", got, c.want)
			}
			if got == wanted.Name {
				if r.done != record || r.taken != record || !bySchedule(r.due) || r.due.Spec.DeletionPolicy != v1alpha1.DeletionDelete || r.due.Labels[v1alpha1.LabelClusterUID] != "c" {
					t.Errorf("%+v", r.due)
				}
				if r.due.CreationTimestamp != (metav1.Time{}) {
					t.Error("a time that the API server gives")
				}
			}
		})
	}
	upgrade := &engine.Demand{Name: "orders-before-3-7", Before: "3.7.0"}
	r := planBackups(scheduled(), "EtcdCluster", nil, nil, quiet)
	r.demand(scheduled(), "EtcdCluster", []*v1alpha1.Backup{running(time.Minute)}, upgrade, quiet)
	if r.due == nil || r.due.Name != upgrade.Name || r.due.Labels[v1alpha1.LabelBefore] != "3.7.0" {
		t.Errorf("no other does, and %+v is due", r.due)
	}
	r = planBackups(scheduled(), "EtcdCluster", nil, nil, quiet)
	if r.demand(scheduled(), "EtcdCluster", nil, nil, quiet); r.due != nil {
		t.Errorf("made for nobody: %s", r.due.Name)
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
		return inStore(made(name, ago, ""), "s3://acme/pg", "https://minio")
	}
	failed := there("failed", 3*time.Hour)
	failed.Status.Error, failed.Status.Result = "full", nil
	going := there("going", 3*time.Hour)
	going.DeletionTimestamp = new(metav1.NewTime(noon))
	all := []*v1alpha1.Backup{
		there("before", 4*time.Hour+time.Second), failed, going, lostData(there("lost", 3*time.Hour)),
		inStore(made("elsewhere", 3*time.Hour, ""), "s3://acme/other", "https://minio"), inStore(made("endpoint", 3*time.Hour, ""), "s3://acme/pg", ""),
		made("volume", 3*time.Hour, ""), there("second", time.Hour), there("first", 2*time.Hour),
	}
	since := metav1.NewTime(noon.Add(-4 * time.Hour))
	archive := &v1alpha1.ArchiveStatus{URL: "s3://acme/pg", Endpoint: "https://minio", Since: &since}
	if got, want := restorableFrom(all, archive), noon.Add(-2*time.Hour+time.Minute); got == nil || !got.Time.Equal(want) {
		t.Errorf("%v, want %s", got, want)
	}
	if got, want := restorableFrom(append(all, there("at once", 4*time.Hour)), archive), noon.Add(-4*time.Hour+time.Minute); got == nil || !got.Time.Equal(want) {
		t.Errorf("%v, want %s", got, want)
	}
	if got := restorableFrom(all[:len(all)-2], archive); got != nil {
		t.Errorf("%s with none that it continues", got)
	}
	archive.Since = nil
	if got := restorableFrom(all, archive); got != nil {
		t.Errorf("%s before it began", got)
	}
}

// A Backup of anybody else that has the name is not taken for it, and said.
func TestDemandNameTaken(t *testing.T) {
	others := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-gap-1"},
		Spec: v1alpha1.BackupSpec{ClusterRef: v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: "others"}}}
	ahead := scheduled()
	ahead.Status.Schedules[0].NextSlot = new(metav1.NewTime(noon.Add(time.Hour)))
	for name, there := range map[string][]client.Object{"": nil, "NameConflict": {others}} {
		p, _, err := keepingOf(t, ahead.DeepCopy(), &engine.Demand{Name: "orders-gap-1", Since: noon}, interceptor.Funcs{}, there...)
		got := ""
		for _, f := range p.facts {
			if f.Reason == v1alpha1.ReasonNameConflict && strings.Contains(f.Message, "orders-gap-1") {
				got = f.Reason
			}
		}
		if err != nil || got != name {
			t.Errorf("%v: %+v, want %q", err, p.facts, name)
		}
	}
}
