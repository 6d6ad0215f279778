package backups

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
)

// sized is a good backup of so much on the cluster's volume.
func sized(size string, b *v1alpha1.Backup) *v1alpha1.Backup {
	if b.Status.Result != nil {
		b.Status.Result.Size = resource.MustParse(size)
	}
	b.Status.Location = &v1alpha1.BackupLocation{ClaimName: "orders-backups", ClaimUID: "v"}
	return b
}

// Before a backup that has no room the oldest go, where they would go after it
// anyway: otherwise a volume that is once full stays so.
func TestRoom(t *testing.T) {
	cases := []struct {
		name   string
		keep   string
		most   int32
		size   string
		all    []*v1alpha1.Backup
		drop   string
		hinted bool
	}{
		{"nothing is known", "2d", 0, "1Gi", nil, "", false},
		{"there is room", "2d", 0, "1Gi", []*v1alpha1.Backup{sized("200Mi", backupstest.Made("a", 3*day, "")), sized("200Mi", backupstest.Made("b", 2*day, ""))}, "", false},
		{"the oldest goes", "2d", 0, "1Gi", []*v1alpha1.Backup{sized("240Mi", backupstest.Made("a", 4*day, "")), sized("240Mi", backupstest.Made("b", 3*day, "")), sized("240Mi", backupstest.Made("c", 2*day, ""))}, "a", true},
		{"as many as it takes go", "2d", 0, "1Gi", []*v1alpha1.Backup{sized("200Mi", backupstest.Made("a", 5*day, "")), sized("200Mi", backupstest.Made("b", 4*day, "")), sized("400Mi", backupstest.Made("c", 2*day, ""))}, "b a", true},
		{"a clock that is ahead makes nothing old", "2d", 0, "1Gi", []*v1alpha1.Backup{sized("400Mi", backupstest.Made("a", 11*day, "")), sized("400Mi", backupstest.Made("b", 10*day, ""))}, "", true},
		{"the newest good one never goes", "2d", 0, "1Gi", []*v1alpha1.Backup{sized("900Mi", backupstest.Made("a", 90*day, ""))}, "", true},
		{"nothing goes in vain", "2d", 0, "1Gi", []*v1alpha1.Backup{sized("100Mi", backupstest.Made("a", 4*day, "")), sized("800Mi", backupstest.Made("b", 3*day, ""))}, "", true},
		{"what is declared is kept to", "2d", 0, "1Gi", []*v1alpha1.Backup{sized("240Mi", backupstest.Made("a", 30*time.Hour, "")), sized("240Mi", backupstest.Made("b", day, "")), sized("240Mi", backupstest.Made("c", time.Hour, ""))}, "", true},
		{"so is a number", "", 3, "1Gi", []*v1alpha1.Backup{sized("300Mi", backupstest.Made("a", day, "")), sized("300Mi", backupstest.Made("b", time.Hour, ""))}, "", true},
		{"of what nobody declared the newest two stay", "", 0, "1Gi", []*v1alpha1.Backup{sized("400Mi", backupstest.Made("a", day, "")), sized("400Mi", backupstest.Made("b", time.Hour, ""))}, "", true},
		{"and what is older goes early", "", 0, "1Gi", []*v1alpha1.Backup{sized("240Mi", backupstest.Made("a", 30*time.Hour, "")), sized("240Mi", backupstest.Made("b", day, "")), sized("240Mi", backupstest.Made("c", time.Hour, ""))}, "a", true},
		{"but not in vain", "", 0, "1Gi", []*v1alpha1.Backup{sized("100Mi", backupstest.Made("a", 30*time.Hour, "")), sized("400Mi", backupstest.Made("b", day, "")), sized("400Mi", backupstest.Made("c", time.Hour, ""))}, "", true},
		{"and none before an upgrade", "", 0, "1Gi", []*v1alpha1.Backup{beforeUpgrade(sized("240Mi", backupstest.Made("a", 30*time.Hour, ""))), sized("240Mi", backupstest.Made("b", day, "")), sized("240Mi", backupstest.Made("c", time.Hour, ""))}, "", true},
		{"but for the number that it keeps", "2d", 2, "1Gi", []*v1alpha1.Backup{sized("400Mi", backupstest.Made("a", day, "")), sized("400Mi", backupstest.Made("b", time.Hour, ""))}, "a", true},
		{"those by hand stay, and take room", "2d", 0, "1Gi", []*v1alpha1.Backup{backupstest.ByHand(sized("800Mi", backupstest.Made("a", 4*day, ""))), sized("300Mi", backupstest.Made("b", 3*day, ""))}, "", true},
		{"those of a lost cluster stay, and take room", "2d", 0, "1Gi", []*v1alpha1.Backup{backupstest.OfAnother(sized("800Mi", backupstest.Made("a", 4*day, ""))), sized("300Mi", backupstest.Made("b", 3*day, ""))}, "", true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "orders-backups", UID: "v"}}
			claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(tc.size)}
			c := backupstest.Scheduled()
			c.Spec.Backup.Retention = tc.keep
			if tc.most > 0 {
				c.Spec.Backup.MaxBackups = &tc.most
			}
			all := append([]*v1alpha1.Backup{}, tc.all...)
			all = append(all, sized("", backupstest.Made("z", time.Minute, "full"))) // the newest has failed: retention rests
			r := PlanSchedule(c, "EtcdCluster", all, claim, backupstest.Noon)
			var got []string
			for i := len(r.Surplus) - 1; i >= 0; i-- {
				got = append(got, r.Surplus[i].Name)
			}
			if text := strings.Join(got, " "); text != tc.drop || r.Due == nil {
				t.Errorf("drops %q", text)
			}
			if early := strings.Contains(tc.name, "early"); len(r.Surplus) > 0 && r.Early[r.Surplus[0].Name] != early {
				t.Errorf("%v go early", r.Early)
			}
			if hinted := strings.Contains(r.Verdicts.JudgeBackedUp().Message, "raise spec.backup.volume.size"); hinted != tc.hinted {
				t.Errorf("says %q", r.Verdicts.JudgeBackedUp().Message)
			}
			if r := PlanSchedule(c, "EtcdCluster", all, claim, backupstest.Noon.Add(-time.Minute)); len(r.Surplus) != 0 {
				t.Error("room is made while no backup is due")
			}
			c.Spec.Backup.Destination = &v1alpha1.BackupDestination{URL: "s3://acme"}
			if r := PlanSchedule(c, "EtcdCluster", all, claim, backupstest.Noon); len(r.Surplus) != 0 {
				t.Error("room is made for what goes elsewhere")
			}
		})
	}
}

// However the next one is to find room, none goes early that a drill has passed
// last.
func TestNothingProvenGoesEarly(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "orders-backups", UID: "v"}}
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	all := []*v1alpha1.Backup{
		sized("180Mi", backupstest.Made("a", 40*time.Hour, "")), sized("180Mi", backupstest.Made("b", 30*time.Hour, "")), sized("180Mi", backupstest.Made("c", day, "")), sized("250Mi", backupstest.Made("d", time.Hour, "")),
	}
	c := backupstest.Scheduled()
	c.Spec.Backup.Retention = ""
	for passed, drop := range map[string]string{"": "a", "a": "b", "b": "a"} {
		if r := PlanSchedule(drillsTo(c, v1alpha1.DrillPassed, passed), "EtcdCluster", all, claim, backupstest.Noon); backupstest.Names(r.Surplus) != drop || !r.Early[drop] {
			t.Errorf("the last that passed is %q: drops %q, early %v", passed, backupstest.Names(r.Surplus), r.Early)
		}
	}
}

// While drills fail, the last backup that passed one makes room for none that
// no cluster has restored.
func TestRoomIsNotMadeOfWhatIsProven(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "orders-backups", UID: "v"}}
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	all := []*v1alpha1.Backup{sized("240Mi", backupstest.Made("a", 5*day, "")), sized("240Mi", backupstest.Made("b", 4*day, "")), sized("240Mi", backupstest.Made("c", 2*day, "")), sized("", backupstest.Made("z", time.Minute, "full"))}
	for _, tc := range []struct{ result, passed, drop string }{
		{v1alpha1.DrillFailed, "a", "b"}, {v1alpha1.DrillFailed, "c", "a"}, {v1alpha1.DrillPassed, "a", "a"},
	} {
		if r := PlanSchedule(drillsTo(backupstest.Scheduled(), tc.result, tc.passed), "EtcdCluster", all, claim, backupstest.Noon); backupstest.Names(r.Surplus) != tc.drop {
			t.Errorf("%s, the last that passed is %s: drops %q", tc.result, tc.passed, backupstest.Names(r.Surplus))
		}
	}
}
