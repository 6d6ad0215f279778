package backups

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
)

const day = 24 * time.Hour

func beforeUpgrade(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Labels[v1alpha1.LabelBefore] = "3.7.0"
	return b
}

func TestRetention(t *testing.T) {
	failures := []*v1alpha1.Backup{
		backupstest.Made("a", 5*time.Hour, "failed"), backupstest.Made("b", 4*time.Hour, "failed"), backupstest.Made("c", 3*time.Hour, "failed"), backupstest.Made("d", 2*time.Hour, "failed"),
	}
	cases := []struct {
		name string
		most int32
		all  []*v1alpha1.Backup
		drop string
	}{
		{"nothing", 0, nil, ""},
		{"the only one stays, however old", 0, []*v1alpha1.Backup{backupstest.Made("a", 90*day, "")}, ""},
		{"older than retention", 0, []*v1alpha1.Backup{backupstest.Made("a", 4*day, ""), backupstest.Made("b", 3*day, ""), backupstest.Made("c", day, ""), backupstest.Made("d", 0, "")}, "a b"},
		{"the newest good one stays, however old", 0, []*v1alpha1.Backup{backupstest.Made("a", 8*day, ""), backupstest.Made("b", 4*day, "")}, "a"},
		{"time alone takes nothing", 0, []*v1alpha1.Backup{backupstest.Made("a", 91*day, ""), backupstest.Made("b", 90*day, "")}, ""},
		{"nothing good goes after a failure", 0, []*v1alpha1.Backup{backupstest.Made("a", 5*day, ""), backupstest.Made("b", 4*day, ""), backupstest.Made("c", 0, "failed")}, ""},
		{"failures go with their time", 0, []*v1alpha1.Backup{backupstest.Made("a", 5*day, "failed"), backupstest.Made("b", day, "failed"), backupstest.Made("c", 0, "")}, "a"},
		{"of failures the newest three stay", 0, append(failures, backupstest.Made("e", time.Hour, "")), "a"},
		{"of failures the newest three stay, while nothing succeeds", 0, append(failures, backupstest.Made("e", time.Hour, "failed")), "a b"},
		{"one whose data is lost has not failed, and stays", 0, []*v1alpha1.Backup{
			backupstest.LostData(backupstest.Made("a", 6*day, "")), backupstest.LostData(backupstest.Made("b", 5*day, "")), backupstest.LostData(backupstest.Made("c", 4*day, "")), backupstest.LostData(backupstest.Made("d", 3*day, "")), backupstest.Made("e", 0, ""),
		}, ""},
		{"by number", 2, []*v1alpha1.Backup{backupstest.Made("a", 3*time.Hour, ""), backupstest.Made("b", 2*time.Hour, ""), backupstest.Made("c", time.Hour, ""), backupstest.Made("d", 0, "")}, "a b"},
		{"failures do not count", 2, []*v1alpha1.Backup{backupstest.Made("b", 2*time.Hour, ""), backupstest.Made("c", time.Hour, "failed"), backupstest.Made("d", 0, "")}, ""},
		{"those by hand stay", 1, []*v1alpha1.Backup{backupstest.ByHand(backupstest.Made("a", 9*day, "")), backupstest.Made("d", 0, "")}, ""},
		{"one before an upgrade stays for a week", 1, []*v1alpha1.Backup{beforeUpgrade(backupstest.Made("a", 6*day, "")), backupstest.Made("b", 5*day, ""), backupstest.Made("d", 0, "")}, "b"},
		{"and then goes as the others do", 1, []*v1alpha1.Backup{beforeUpgrade(backupstest.Made("a", 8*day, "")), backupstest.Made("b", 5*day, ""), backupstest.Made("d", 0, "")}, "a b"},
		{"it does not stand for another one", 1, []*v1alpha1.Backup{backupstest.Made("a", day, ""), beforeUpgrade(backupstest.Made("b", 0, ""))}, ""},
		{"those of a lost cluster stay", 1, []*v1alpha1.Backup{backupstest.OfAnother(backupstest.Made("a", 9*day, "")), backupstest.OfAnother(backupstest.Made("b", 8*day, "")), backupstest.Made("d", 0, "")}, ""},
		{"one that is under way is not the newest", 0, []*v1alpha1.Backup{backupstest.Made("a", 8*day, ""), backupstest.Made("b", 4*day, ""), backupstest.UnderWay(backupstest.Made("c", 0, ""))}, "a"},
	}
	for _, tc := range cases {
		c := backupstest.Scheduled()
		if tc.most > 0 {
			c.Spec.Backup.MaxBackups = &tc.most
		}
		drop := PlanSchedule(c, "EtcdCluster", tc.all, nil, backupstest.Noon.Add(-time.Minute)).Surplus
		slices.SortFunc(drop, func(a, b *v1alpha1.Backup) int { return strings.Compare(a.Name, b.Name) })
		if got := backupstest.Names(drop); got != tc.drop {
			t.Errorf("%s: drops %q", tc.name, got)
		}
	}
	for text, want := range map[string]time.Duration{"12h": 12 * time.Hour, "7d": 7 * day, "4w": 28 * day, "": 7 * day, "99999w": 1<<63 - 1} {
		if got := parseRetention(text); got != want {
			t.Errorf("%q is %s", text, got)
		}
	}
}

// drillsTo has drills of a cluster, the last of which had such a result, and the
// last that passed was of such a backup.
func drillsTo(c *v1alpha1.EtcdCluster, result, passed string) *v1alpha1.EtcdCluster {
	c.Spec.Backup.Verify = &v1alpha1.BackupVerify{Schedule: "0 5 * * 0"}
	c.Status.Drill = &v1alpha1.DrillStatus{Result: result, LastPassedBackup: passed}
	return c
}

// Checksums are right of a database whose tables are broken, too: what a drill
// has restored last stays, however good those after it look.
func TestRetentionKeepsWhatIsProven(t *testing.T) {
	all := []*v1alpha1.Backup{backupstest.Made("a", 9*day, ""), backupstest.Made("b", 8*day, ""), backupstest.Made("c", 7*day, ""), backupstest.Made("d", 0, "")}
	cases := []struct {
		name string
		c    *v1alpha1.EtcdCluster
		drop string
	}{
		{"while a later drill has failed", drillsTo(backupstest.Scheduled(), v1alpha1.DrillFailed, "b"), "a c"},
		{"and before one has, since that would be too late", drillsTo(backupstest.Scheduled(), v1alpha1.DrillPassed, "b"), "a c"},
		{"until another one passes", drillsTo(backupstest.Scheduled(), v1alpha1.DrillPassed, "d"), "a b c"},
		{"none has passed", drillsTo(backupstest.Scheduled(), v1alpha1.DrillFailed, ""), "a b c"},
		{"it counts for the number, and is not what goes", with(drillsTo(backupstest.Scheduled(), v1alpha1.DrillFailed, "a"), func(c *v1alpha1.EtcdCluster) {
			c.Spec.Backup.MaxBackups, c.Spec.Backup.Retention = new(int32(2)), "4w"
		}), "b"},
		{"without drills it goes as the others do", with(drillsTo(backupstest.Scheduled(), v1alpha1.DrillFailed, "b"), func(c *v1alpha1.EtcdCluster) {
			c.Spec.Backup.Verify = nil
		}), "a b c"},
	}
	for _, tc := range cases {
		drop := PlanSchedule(tc.c, "EtcdCluster", all, nil, backupstest.Noon.Add(-time.Minute)).Surplus
		slices.SortFunc(drop, func(a, b *v1alpha1.Backup) int { return strings.Compare(a.Name, b.Name) })
		if got := backupstest.Names(drop); got != tc.drop {
			t.Errorf("%s: drops %q", tc.name, got)
		}
	}
}

func with(c *v1alpha1.EtcdCluster, change func(*v1alpha1.EtcdCluster)) *v1alpha1.EtcdCluster {
	change(c)
	return c
}

// What an operator takes for now drops nothing, however wrong its clock is.
func TestRetentionNeedsNoClock(t *testing.T) {
	all := []*v1alpha1.Backup{backupstest.Made("a", 3*day, ""), backupstest.Made("b", 2*day, ""), backupstest.Made("c", day, "")}
	for _, now := range []time.Time{backupstest.Noon, backupstest.Noon.AddDate(0, 0, 10), backupstest.Noon.AddDate(20, 0, 0)} {
		all[2].Status.StartTime = &metav1.Time{Time: now}
		if drop := PlanSchedule(backupstest.Scheduled(), "EtcdCluster", all, nil, now).Surplus; len(drop) != 0 {
			t.Errorf("at %s: drops %s", now, backupstest.Names(drop))
		}
	}
}

// Whatever there is, the newest good backup of each cluster that ever had the
// name stays, and so do those by hand.
func TestRetentionKeepsTheLastGoodOne(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var all []*v1alpha1.Backup
		for n := range random.IntN(9) {
			b := backupstest.Made(fmt.Sprint(n), time.Duration(random.IntN(200))*time.Hour, []string{"", "", "failed"}[random.IntN(3)])
			b.Status.ClusterUID = []string{"c", "c", "before"}[random.IntN(3)]
			switch random.IntN(5) {
			case 0:
				backupstest.ByHand(b)
			case 1:
				backupstest.UnderWay(b)
			}
			all = append(all, b)
		}
		c := backupstest.Scheduled()
		c.Spec.Backup.Retention = fmt.Sprintf("%dh", 1+random.IntN(100))
		if most := random.Int32N(4); most > 0 {
			c.Spec.Backup.MaxBackups = &most
		}
		kept := map[string]*v1alpha1.Backup{}
		for _, b := range all {
			if last := kept[b.Status.ClusterUID]; isScheduled(b) && b.HasSucceeded() && (last == nil || b.CreationTimestamp.After(last.CreationTimestamp.Time)) {
				kept[b.Status.ClusterUID] = b
			}
		}
		for _, b := range PlanSchedule(c, "EtcdCluster", all, nil, backupstest.Noon).Surplus {
			if !isScheduled(b) || !b.IsFinished() || b.Status.ClusterUID != "c" || b == kept["c"] {
				t.Fatalf("%+v drops %s of %s", c.Spec.Backup, b.Name, backupstest.Names(all))
			}
		}
	}
}
