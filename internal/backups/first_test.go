package backups

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
)

// What the engine wants goes first, and the first backup of a cluster whose WAL
// is archived is the engine's.
func TestFirstBackupIsTheEngines(t *testing.T) {
	c, demanded := backupstest.Scheduled(), &engine.Demand{Name: "orders-gap-1"}
	if got := FindDemand(c, engine.Plan{Facts: []condition.Fact{backupstest.Available}, Demand: demanded}, nil, true); got != demanded {
		t.Errorf("%+v", got)
	}
	archives := engine.Plan{Facts: []condition.Fact{backupstest.Available}, Report: engine.Report{Archive: &v1alpha1.ArchiveStatus{}}}
	if got := FindDemand(c, archives, nil, true); got != nil {
		t.Errorf("%+v beside the archive's own", got)
	}
}

// Names of first backups fit, and two clusters of one name have two.
func TestFirstBackupName(t *testing.T) {
	c := backupstest.Scheduled()
	c.Name = strings.Repeat("o", 40)
	one := FirstBackupName(c)
	c.UID = "another"
	if two := FirstBackupName(c); len(one) > 54 || one == two {
		t.Errorf("%s and %s", one, two)
	}
}

// A cluster that is new to its schedule is neither backed up nor failing to be.
func TestBackedUpOfANewCluster(t *testing.T) {
	stuck := backupstest.UnderWay(backupstest.Made("a", 0, ""))
	stuck.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonClusterMissing, Message: "no node fits"}}
	cases := []struct {
		name string
		all  []*v1alpha1.Backup
		slot bool
		want metav1.ConditionStatus
	}{
		{"no backup, no slot", nil, false, metav1.ConditionUnknown},
		{"the first one is under way", []*v1alpha1.Backup{backupstest.UnderWay(backupstest.Made("a", 0, ""))}, false, metav1.ConditionUnknown},
		{"the first one cannot go on", []*v1alpha1.Backup{stuck}, false, metav1.ConditionFalse},
		{"the first one has failed", []*v1alpha1.Backup{backupstest.Made("a", 0, "full")}, false, metav1.ConditionFalse},
		{"the first one is good", []*v1alpha1.Backup{backupstest.Made("a", 0, "")}, false, metav1.ConditionTrue},
		{"a slot has passed", nil, true, metav1.ConditionFalse},
	}
	for _, tc := range cases {
		c := backupstest.Scheduled()
		if tc.slot {
			c.Status.Schedules[0].LastSlot = new(metav1.NewTime(backupstest.Noon.Add(-time.Hour)))
		}
		fact := PlanSchedule(c, "EtcdCluster", tc.all, nil, backupstest.Noon.Add(-time.Minute)).Verdicts.JudgeBackedUp()
		if fact.Type != v1alpha1.ConditionBackedUp || fact.Status != tc.want {
			t.Errorf("%s: %+v, want %s", tc.name, fact, tc.want)
		}
	}
}

// Without a schedule of its own, a cluster has one that follows from its name,
// and its status says when it comes next.
func TestScheduleByDefault(t *testing.T) {
	c := backupstest.Scheduled()
	c.Spec.Backup.Schedule, c.Status.Schedules = "", nil
	r := PlanSchedule(c, "EtcdCluster", nil, nil, backupstest.Noon)
	if want := time.Date(2026, 3, 2, 2, 14, 0, 0, time.UTC); r.Record == nil || r.Record.Schedule != "14 2 * * *" || !r.Record.NextSlot.Time.Equal(want) || r.Wait != want.Sub(backupstest.Noon) {
		t.Errorf("%+v, looks again in %s", r.Record, r.Wait)
	}
	c.Spec.Backup.TimeZone = "Europe/Berlin"
	if r := PlanSchedule(c, "EtcdCluster", nil, nil, backupstest.Noon); r.Record.Schedule != "14 2 * * * Europe/Berlin" {
		t.Errorf("%+v", r.Record)
	}
}
