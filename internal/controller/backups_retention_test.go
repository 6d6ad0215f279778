package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

const day = 24 * time.Hour

func beforeUpgrade(b *v1alpha1.Backup) *v1alpha1.Backup {
	b.Labels[v1alpha1.LabelBefore] = "3.7.0"
	return b
}

func TestRetention(t *testing.T) {
	failures := []*v1alpha1.Backup{
		made("a", 5*time.Hour, "failed"), made("b", 4*time.Hour, "failed"), made("c", 3*time.Hour, "failed"), made("d", 2*time.Hour, "failed"),
	}
	cases := []struct {
		name string
		most int32
		all  []*v1alpha1.Backup
		drop string
	}{
		{"nothing", 0, nil, ""},
		{"the only one stays, however old", 0, []*v1alpha1.Backup{made("a", 90*day, "")}, ""},
		{"older than retention", 0, []*v1alpha1.Backup{made("a", 4*day, ""), made("b", 3*day, ""), made("c", day, ""), made("d", 0, "")}, "a b"},
		{"the newest good one stays, however old", 0, []*v1alpha1.Backup{made("a", 8*day, ""), made("b", 4*day, "")}, "a"},
		{"time alone takes nothing", 0, []*v1alpha1.Backup{made("a", 91*day, ""), made("b", 90*day, "")}, ""},
		{"nothing good goes after a failure", 0, []*v1alpha1.Backup{made("a", 5*day, ""), made("b", 4*day, ""), made("c", 0, "failed")}, ""},
		{"failures go with their time", 0, []*v1alpha1.Backup{made("a", 5*day, "failed"), made("b", day, "failed"), made("c", 0, "")}, "a"},
		{"of failures the newest three stay", 0, append(failures, made("e", time.Hour, "")), "a"},
		{"of failures the newest three stay, while nothing succeeds", 0, append(failures, made("e", time.Hour, "failed")), "a b"},
		{"one whose data is lost has not failed, and stays", 0, []*v1alpha1.Backup{
			lostData(made("a", 6*day, "")), lostData(made("b", 5*day, "")), lostData(made("c", 4*day, "")), lostData(made("d", 3*day, "")), made("e", 0, ""),
		}, ""},
		{"by number", 2, []*v1alpha1.Backup{made("a", 3*time.Hour, ""), made("b", 2*time.Hour, ""), made("c", time.Hour, ""), made("d", 0, "")}, "a b"},
		{"failures do not count", 2, []*v1alpha1.Backup{made("b", 2*time.Hour, ""), made("c", time.Hour, "failed"), made("d", 0, "")}, ""},
		{"those by hand stay", 1, []*v1alpha1.Backup{byHand(made("a", 9*day, "")), made("d", 0, "")}, ""},
		{"one before an upgrade stays for a week", 1, []*v1alpha1.Backup{beforeUpgrade(made("a", 6*day, "")), made("b", 5*day, ""), made("d", 0, "")}, "b"},
		{"and then goes as the others do", 1, []*v1alpha1.Backup{beforeUpgrade(made("a", 8*day, "")), made("b", 5*day, ""), made("d", 0, "")}, "a b"},
		{"it does not stand for another one", 1, []*v1alpha1.Backup{made("a", day, ""), beforeUpgrade(made("b", 0, ""))}, ""},
		{"those of a lost cluster stay", 1, []*v1alpha1.Backup{ofAnother(made("a", 9*day, "")), ofAnother(made("b", 8*day, "")), made("d", 0, "")}, ""},
		{"one that is under way is not the newest", 0, []*v1alpha1.Backup{made("a", 8*day, ""), made("b", 4*day, ""), underWay(made("c", 0, ""))}, "a"},
	}
	for _, tc := range cases {
		c := scheduled()
		if tc.most > 0 {
			c.Spec.Backup.MaxBackups = &tc.most
		}
		drop := planBackups(c, "EtcdCluster", tc.all, nil, noon.Add(-time.Minute)).surplus
		slices.SortFunc(drop, func(a, b *v1alpha1.Backup) int { return strings.Compare(a.Name, b.Name) })
		if got := names(drop); got != tc.drop {
			t.Errorf("%s: drops %q", tc.name, got)
		}
	}
	for text, want := range map[string]time.Duration{"12h": 12 * time.Hour, "7d": 7 * day, "4w": 28 * day, "": 7 * day, "99999w": 1<<63 - 1} {
		if got := retention(text); got != want {
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
	all := []*v1alpha1.Backup{made("a", 9*day, ""), made("b", 8*day, ""), made("c", 7*day, ""), made("d", 0, "")}
	cases := []struct {
		name string
		c    *v1alpha1.EtcdCluster
		drop string
	}{
		{"while a later drill has failed", drillsTo(scheduled(), v1alpha1.DrillFailed, "b"), "a c"},
		{"and before one has, since that would be too late", drillsTo(scheduled(), v1alpha1.DrillPassed, "b"), "a c"},
		{"until another one passes", drillsTo(scheduled(), v1alpha1.DrillPassed, "d"), "a b c"},
		{"none has passed", drillsTo(scheduled(), v1alpha1.DrillFailed, ""), "a b c"},
		{"it counts for the number, and is not what goes", with(drillsTo(scheduled(), v1alpha1.DrillFailed, "a"), func(c *v1alpha1.EtcdCluster) {
			c.Spec.Backup.MaxBackups, c.Spec.Backup.Retention = new(int32(2)), "4w"
		}), "b"},
		{"without drills it goes as the others do", with(drillsTo(scheduled(), v1alpha1.DrillFailed, "b"), func(c *v1alpha1.EtcdCluster) {
			c.Spec.Backup.Verify = nil
		}), "a b c"},
	}
	for _, tc := range cases {
		drop := planBackups(tc.c, "EtcdCluster", all, nil, noon.Add(-time.Minute)).surplus
		slices.SortFunc(drop, func(a, b *v1alpha1.Backup) int { return strings.Compare(a.Name, b.Name) })
		if got := names(drop); got != tc.drop {
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
	all := []*v1alpha1.Backup{made("a", 3*day, ""), made("b", 2*day, ""), made("c", day, "")}
	for _, now := range []time.Time{noon, noon.AddDate(0, 0, 10), noon.AddDate(20, 0, 0)} {
		all[2].Status.StartTime = &metav1.Time{Time: now}
		if drop := planBackups(scheduled(), "EtcdCluster", all, nil, now).surplus; len(drop) != 0 {
			t.Errorf("at %s: drops %s", now, names(drop))
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
			b := made(fmt.Sprint(n), time.Duration(random.IntN(200))*time.Hour, []string{"", "", "failed"}[random.IntN(3)])
			b.Status.ClusterUID = []string{"c", "c", "before"}[random.IntN(3)]
			switch random.IntN(5) {
			case 0:
				byHand(b)
			case 1:
				underWay(b)
			}
			all = append(all, b)
		}
		c := scheduled()
		c.Spec.Backup.Retention = fmt.Sprintf("%dh", 1+random.IntN(100))
		if most := random.Int32N(4); most > 0 {
			c.Spec.Backup.MaxBackups = &most
		}
		kept := map[string]*v1alpha1.Backup{}
		for _, b := range all {
			if last := kept[b.Status.ClusterUID]; bySchedule(b) && b.Succeeded() && (last == nil || b.CreationTimestamp.After(last.CreationTimestamp.Time)) {
				kept[b.Status.ClusterUID] = b
			}
		}
		for _, b := range planBackups(c, "EtcdCluster", all, nil, noon).surplus {
			if !bySchedule(b) || !b.Finished() || b.Status.ClusterUID != "c" || b == kept["c"] {
				t.Fatalf("%+v drops %s of %s", c.Spec.Backup, b.Name, names(all))
			}
		}
	}
}
