package controller

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
)

var (
	available   = condition.Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAvailable}
	unavailable = condition.Fact{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPrimaryUnavailable}
	syncing     = condition.Fact{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSyncing}
)

// The first backup of a cluster is made as soon as it serves, once, and where
// nothing is known against the place that it goes to.
func TestFirstBackup(t *testing.T) {
	toStore := func(c *v1alpha1.EtcdCluster) {
		c.Spec.Backup.Destination = &v1alpha1.BackupDestination{URL: "s3://acme"}
	}
	usable := storePlan{check: &v1alpha1.StoreCheck{}}
	says := func(reason string) storePlan {
		return storePlan{check: &v1alpha1.StoreCheck{Reason: reason}, fault: &condition.Fact{Reason: reason}}
	}
	const first = "orders-first-2e7d2c"
	cases := []struct {
		name   string
		facts  []condition.Fact
		change func(c *v1alpha1.EtcdCluster)
		all    []*v1alpha1.Backup
		store  storePlan
		want   string
	}{
		{"it serves", []condition.Fact{available}, nil, nil, storePlan{}, first},
		{"it does not serve yet", []condition.Fact{unavailable}, nil, nil, storePlan{}, ""},
		{"nothing is known of it", nil, nil, nil, storePlan{}, ""},
		{"members still join", []condition.Fact{available, syncing}, nil, nil, storePlan{}, ""},
		{"members that join make no progress", []condition.Fact{available, syncing}, func(c *v1alpha1.EtcdCluster) {
			c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue}}
		}, nil, storePlan{}, first},
		{"it was made", []condition.Fact{available}, nil, []*v1alpha1.Backup{made(first, time.Hour, "")}, storePlan{}, ""},
		{"it has failed, and the schedule makes the next", []condition.Fact{available}, nil, []*v1alpha1.Backup{made(first, time.Hour, "full")}, storePlan{}, ""},
		{"one by hand is none by schedule", []condition.Fact{available}, nil, []*v1alpha1.Backup{byHand(made("mine", time.Hour, ""))}, storePlan{}, first},
		{"one of a cluster that had the name does not count", []condition.Fact{available}, nil, []*v1alpha1.Backup{ofAnother(made("old", time.Hour, ""))}, storePlan{}, first},
		{"suspended", []condition.Fact{available}, func(c *v1alpha1.EtcdCluster) { c.Spec.Suspend = true }, nil, storePlan{}, ""},
		{"turned off", []condition.Fact{available}, func(c *v1alpha1.EtcdCluster) { c.Spec.Backup.Enabled = new(false) }, nil, storePlan{}, ""},
		{"the store was not tried yet", []condition.Fact{available}, toStore, nil, storePlan{}, ""},
		{"the store can be used", []condition.Fact{available}, toStore, nil, usable, first},
		{"the store cannot be used", []condition.Fact{available}, toStore, nil, says(v1alpha1.ReasonStoreUnusable), ""},
		{"its Secret is missing", []condition.Fact{available}, toStore, nil, says(v1alpha1.ReasonSecretMissing), ""},
		{"the store cannot be tried", []condition.Fact{available}, toStore, nil, says(v1alpha1.ReasonStoreUntried), first},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := scheduled()
			if tc.change != nil {
				tc.change(c)
			}
			now := noon.Add(-time.Minute) // no slot is due
			r := planBackups(c, "EtcdCluster", tc.all, nil, now)
			r.demand(c, "EtcdCluster", tc.all, wantedBackup(c, engine.Plan{Facts: tc.facts}, ownBackups(c, tc.all), tc.store), now)
			got := ""
			if r.due != nil {
				got = r.due.Name
			}
			if got != tc.want {
				t.Errorf("due %q, want %q", got, tc.want)
			}
		})
	}
}

// What the engine wants goes first, and the first backup of a cluster whose WAL
// is archived is the engine's.
func TestFirstBackupIsTheEngines(t *testing.T) {
	c, demanded := scheduled(), &engine.Demand{Name: "orders-gap-1"}
	if got := wantedBackup(c, engine.Plan{Facts: []condition.Fact{available}, Demand: demanded}, nil, storePlan{}); got != demanded {
		t.Errorf("%+v", got)
	}
	archives := engine.Plan{Facts: []condition.Fact{available}, Report: engine.Report{Archive: &v1alpha1.ArchiveStatus{}}}
	if got := wantedBackup(c, archives, nil, storePlan{}); got != nil {
		t.Errorf("%+v beside the archive's own", got)
	}
}

// Names of first backups fit, and two clusters of one name have two.
func TestFirstBackupName(t *testing.T) {
	c := scheduled()
	c.Name = strings.Repeat("o", 40)
	one := firstBackupName(c)
	c.UID = "another"
	if two := firstBackupName(c); len(one) > 54 || one == two {
		t.Errorf("%s and %s", one, two)
	}
}

// A pass over a cluster that serves and has no backup makes the first one.
func TestFirstBackupIsMade(t *testing.T) {
	c := scheduled()
	c.Status.Schedules[0].NextSlot = new(metav1.NewTime(noon.Add(time.Hour)))
	p, err := passOver(t, c, engine.Plan{Facts: []condition.Fact{available}}, interceptor.Funcs{})
	if err != nil || p.backups.due == nil || p.backups.due.Name != firstBackupName(c) {
		t.Errorf("%v: %+v", err, p.backups.due)
	}
}

// A cluster that is new to its schedule is neither backed up nor failing to be.
func TestBackedUpOfANewCluster(t *testing.T) {
	stuck := underWay(made("a", 0, ""))
	stuck.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonClusterMissing, Message: "no node fits"}}
	cases := []struct {
		name string
		all  []*v1alpha1.Backup
		slot bool
		want metav1.ConditionStatus
	}{
		{"no backup, no slot", nil, false, metav1.ConditionUnknown},
		{"the first one is under way", []*v1alpha1.Backup{underWay(made("a", 0, ""))}, false, metav1.ConditionUnknown},
		{"the first one cannot go on", []*v1alpha1.Backup{stuck}, false, metav1.ConditionFalse},
		{"the first one has failed", []*v1alpha1.Backup{made("a", 0, "full")}, false, metav1.ConditionFalse},
		{"the first one is good", []*v1alpha1.Backup{made("a", 0, "")}, false, metav1.ConditionTrue},
		{"a slot has passed", nil, true, metav1.ConditionFalse},
	}
	for _, tc := range cases {
		c := scheduled()
		if tc.slot {
			c.Status.Schedules[0].LastSlot = new(metav1.NewTime(noon.Add(-time.Hour)))
		}
		fact := planBackups(c, "EtcdCluster", tc.all, nil, noon.Add(-time.Minute)).facts[0]
		if fact.Type != v1alpha1.ConditionBackedUp || fact.Status != tc.want {
			t.Errorf("%s: %+v, want %s", tc.name, fact, tc.want)
		}
	}
}

// Without a schedule of its own, a cluster has one that follows from its name,
// and its status says when it comes next.
func TestScheduleByDefault(t *testing.T) {
	c := scheduled()
	c.Spec.Backup.Schedule, c.Status.Schedules = "", nil
	r := planBackups(c, "EtcdCluster", nil, nil, noon)
	if want := time.Date(2026, 3, 2, 2, 14, 0, 0, time.UTC); r.record == nil || r.record.Schedule != "14 2 * * *" || !r.record.NextSlot.Time.Equal(want) || r.wait != want.Sub(noon) {
		t.Errorf("%+v, looks again in %s", r.record, r.wait)
	}
	c.Spec.Backup.TimeZone = "Europe/Berlin"
	if r := planBackups(c, "EtcdCluster", nil, nil, noon); r.record.Schedule != "14 2 * * * Europe/Berlin" {
		t.Errorf("%+v", r.record)
	}
}
