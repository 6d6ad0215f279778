package backups

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
)

func TestSlots(t *testing.T) {
	cases := []struct {
		name      string
		change    func(c *v1alpha1.EtcdCluster)
		all       []*v1alpha1.Backup
		now       time.Time
		due, says string
	}{
		{"before the slot nothing is due", nil, nil, backupstest.Noon.Add(-time.Second), "", ""},
		{"at the slot one is due", nil, nil, backupstest.Noon, "orders-20260301-1200", ""},
		{"one that was missed is made up", nil, nil, backupstest.Noon.Add(59 * time.Minute), "orders-20260301-1200", ""},
		{"of many that were missed the newest is", nil, nil, backupstest.Noon.Add(5*time.Hour + time.Minute), "orders-20260301-1700", ""},
		{"while one is under way there is no other", nil, []*v1alpha1.Backup{backupstest.UnderWay(backupstest.Made("orders-20260301-1100", time.Hour, ""))}, backupstest.Noon, "", "skipped: backup orders-20260301-1100 is still under way"},
		{"one of a lost cluster does not count", nil, []*v1alpha1.Backup{backupstest.OfAnother(backupstest.UnderWay(backupstest.Made("orders-20260301-1100", time.Hour, "")))}, backupstest.Noon, "orders-20260301-1200", ""},
		{"one by hand that is under way does not count", nil, []*v1alpha1.Backup{backupstest.ByHand(backupstest.UnderWay(backupstest.Made("mine", time.Hour, "")))}, backupstest.Noon, "orders-20260301-1200", ""},
		{"one that was made already is its slot's", nil, []*v1alpha1.Backup{backupstest.UnderWay(backupstest.Made("orders-20260301-1200", 0, ""))}, backupstest.Noon, "orders-20260301-1200", ""},
		{"its name is taken", nil, []*v1alpha1.Backup{backupstest.ByHand(backupstest.Made("orders-20260301-1200", 0, ""))}, backupstest.Noon, "orders-20260301-1200", ""},
		{"suspended", func(c *v1alpha1.EtcdCluster) { c.Spec.Suspend = true }, nil, backupstest.Noon, "", "skipped: spec.suspend is true"},
		{"a database that is being filled", func(c *v1alpha1.EtcdCluster) { c.Status.Import = &v1alpha1.ImportStatus{} }, nil, backupstest.Noon, "", "skipped: the import is under way"},
		{"one that has been filled", func(c *v1alpha1.EtcdCluster) {
			c.Status.Import = &v1alpha1.ImportStatus{CompletionTime: &metav1.Time{Time: backupstest.Noon}}
		}, nil, backupstest.Noon, "orders-20260301-1200", ""},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := backupstest.Scheduled()
			if tc.change != nil {
				tc.change(c)
			}
			r := PlanSchedule(c, "EtcdCluster", tc.all, nil, tc.now)
			due := ""
			if r.Due != nil {
				due = r.Due.Name
				if ClusterUID(r.Due) != "c" {
					t.Errorf("it is of %q", ClusterUID(r.Due))
				}
				if r.Due.Spec.DeletionPolicy != v1alpha1.DeletionDelete || r.Due.Spec.ClusterRef != (v1alpha1.ClusterReference{Kind: "EtcdCluster", Name: "orders"}) {
					t.Errorf("%+v", r.Due.Spec)
				}
				if !r.Record.NextSlot.Time.Equal(backupstest.Noon) || r.Done.NextSlot.Sub(tc.now) <= 0 {
					t.Error("the slot counts as done before its backup was made")
				}
			}
			if due != tc.due || r.Record.Message != tc.says || r.Wait <= 0 {
				t.Errorf("due %q, record %+v, looks again in %s", due, r.Record, r.Wait)
			}
		})
	}
}

func TestNoSchedule(t *testing.T) {
	for name, change := range map[string]func(c *v1alpha1.EtcdCluster){
		"nothing declared": func(c *v1alpha1.EtcdCluster) { c.Spec.Backup = nil },
		"turned off":       func(c *v1alpha1.EtcdCluster) { c.Spec.Backup.Enabled = new(false) },
	} {
		c := backupstest.Scheduled()
		change(c)
		r := PlanSchedule(c, "EtcdCluster", []*v1alpha1.Backup{backupstest.Made("a", 100*24*time.Hour, ""), backupstest.Made("b", time.Hour, "")}, nil, backupstest.Noon)
		if r.Due != nil || r.Surplus != nil || r.Facts != nil || r.Verdicts.JudgeBackedUp() != nil || r.Record != nil || r.Last == nil || r.Last.Name != "b" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	c := backupstest.Scheduled()
	c.Spec.Backup.Schedule = "0 0 31 2 *"
	if r := PlanSchedule(c, "EtcdCluster", nil, nil, backupstest.Noon); r.Due != nil || r.Record == nil || !r.Record.NextSlot.Time.Equal(backupstest.Noon) || len(r.Facts) != 1 || r.Verdicts.JudgeBackedUp() != nil || r.Facts[0].Type != v1alpha1.ConditionStalled || !strings.Contains(r.Facts[0].Message, "spec.backup.schedule") {
		t.Errorf("%+v", r)
	}
}

func TestBackedUp(t *testing.T) {
	cases := []struct {
		name, reason string
		all          []*v1alpha1.Backup
		last         string
	}{
		{"none yet", "NoBackup", nil, ""},
		{"the first is under way", "NoBackup", []*v1alpha1.Backup{backupstest.UnderWay(backupstest.Made("a", 0, ""))}, ""},
		{"a good one", "BackedUp", []*v1alpha1.Backup{backupstest.Made("a", time.Hour, "")}, "a"},
		{"a good one after a failure", "BackedUp", []*v1alpha1.Backup{backupstest.Made("a", time.Hour, "full"), backupstest.Made("b", 0, "")}, "b"},
		{"a failure after a good one", "BackupFailed", []*v1alpha1.Backup{backupstest.Made("a", time.Hour, ""), backupstest.Made("b", 0, "full")}, "a"},
		{"only failures", "BackupFailed", []*v1alpha1.Backup{backupstest.Made("a", time.Hour, "full")}, ""},
		{"a good one of a lost cluster", "NoBackup", []*v1alpha1.Backup{backupstest.OfAnother(backupstest.Made("a", time.Hour, ""))}, ""},
		{"a failure of a lost cluster", "BackedUp", []*v1alpha1.Backup{backupstest.Made("a", time.Hour, ""), backupstest.OfAnother(backupstest.Made("b", 0, "full"))}, "a"},
		{"two slots have made none", "BackupOverdue", []*v1alpha1.Backup{backupstest.Made("a", 2*time.Hour+time.Minute, "")}, "a"},
		{"the last slot but one has made it", "BackedUp", []*v1alpha1.Backup{backupstest.Made("a", 2*time.Hour, "")}, "a"},
		{"a hang after a good one", "BackupOverdue", []*v1alpha1.Backup{backupstest.Made("a", 9*time.Hour, ""), backupstest.UnderWay(backupstest.Made("b", 8*time.Hour, ""))}, "a"},
		{"a good one by hand is not too old", "BackedUp", []*v1alpha1.Backup{backupstest.Made("a", 9*time.Hour, ""), backupstest.ByHand(backupstest.Made("b", 0, ""))}, "b"},
		{"a good one whose volume is gone", "BackupFailed", []*v1alpha1.Backup{backupstest.LostData(backupstest.Made("a", time.Hour, ""))}, ""},
		{"a good one by hand is no run of the schedule", "NoBackup", []*v1alpha1.Backup{backupstest.ByHand(backupstest.Made("a", 0, ""))}, "a"},
	}
	for _, tc := range cases {
		r := PlanSchedule(backupstest.Scheduled(), "EtcdCluster", tc.all, nil, backupstest.Noon.Add(-time.Minute))
		fact, last := r.Verdicts.JudgeBackedUp(), ""
		if r.Last != nil {
			last = r.Last.Name
		}
		good := fact.Status == metav1.ConditionTrue
		if diff := cmp.Diff(tc.reason, fact.Reason); diff != "" || last != tc.last || good != (tc.reason == "BackedUp") {
			t.Errorf("%s: %+v, last %q", tc.name, fact, last)
		}
		if tc.reason == "BackupFailed" && tc.name != "a good one whose volume is gone" && !strings.Contains(fact.Message, "full") {
			t.Errorf("%s: %s", tc.name, fact.Message)
		}
	}
}

// What keeps a backup from beginning is said of its cluster, too.
func TestBackedUpSaysWhatIsInTheWay(t *testing.T) {
	stuck := backupstest.UnderWay(backupstest.Made("b", 0, ""))
	stuck.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonSecretMissing, Message: "there is no Secret keys"}}
	fact := PlanSchedule(backupstest.Scheduled(), "EtcdCluster", []*v1alpha1.Backup{backupstest.Made("a", time.Hour, ""), stuck}, nil, backupstest.Noon.Add(-time.Minute)).Verdicts.JudgeBackedUp()
	if fact.Status != metav1.ConditionTrue || !strings.Contains(fact.Message, "backup b cannot go on: there is no Secret keys; the next one is due at 2026-03-01T12:00:00Z") {
		t.Errorf("%+v", fact)
	}
}

// What a backup under way tries again is said of its cluster, too.
func TestBackedUpSaysWhatIsTriedAgain(t *testing.T) {
	busy := backupstest.UnderWay(backupstest.Made("b", 0, ""))
	busy.Status.Run = &v1alpha1.BackupRun{Error: "write a: the store answered 503; it is tried until 2026-03-01T12:12:00Z"}
	fact := PlanSchedule(backupstest.Scheduled(), "EtcdCluster", []*v1alpha1.Backup{backupstest.Made("a", time.Hour, ""), busy}, nil, backupstest.Noon.Add(-time.Minute)).Verdicts.JudgeBackedUp()
	if fact.Status != metav1.ConditionTrue || !strings.Contains(fact.Message, "backup b is trying again: write a: the store answered 503; it is tried until 2026-03-01T12:12:00Z") {
		t.Errorf("%+v", fact)
	}
}
