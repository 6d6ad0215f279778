package backups

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
)

// Every reason of the ranking decides once, and what stands below it is still said.
func TestJudgeBackedUp(t *testing.T) {
	runs := func(reason string, status metav1.ConditionStatus) *condition.Fact {
		return &condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: status, Reason: reason, Message: "runs"}
	}
	good, none := runs(v1alpha1.ReasonBackedUp, metav1.ConditionTrue), runs(v1alpha1.ReasonNoBackup, metav1.ConditionUnknown)
	failed, overdue := runs(v1alpha1.ReasonBackupFailed, metav1.ConditionFalse), runs(v1alpha1.ReasonBackupOverdue, metav1.ConditionFalse)
	volume, name := NotBackedUp(v1alpha1.ReasonForbidden, "volume"), NotBackedUp(v1alpha1.ReasonNameConflict, "name")
	unusable, unchecked := NotBackedUp(v1alpha1.ReasonStoreUnusable, "store"), NotBackedUp(v1alpha1.ReasonStoreUnchecked, "unchecked")
	removed, drill := NotBackedUp(v1alpha1.ReasonDestinationRemoved, "removed"), NotBackedUp(v1alpha1.ReasonDrillFailed, "drill")
	missing := NotBackedUp(v1alpha1.ReasonSecretMissing, "no credentials")
	taken, invalid := NotBackedUp(v1alpha1.ReasonNameConflict, "taken"), NotBackedUp(v1alpha1.ReasonInvalidObject, "invalid")
	decided := map[string]bool{}
	for _, tc := range []struct {
		name           string
		v              Verdicts
		want, messages string
	}{
		{"nothing is declared", Verdicts{}, "", ""},
		{"the volume is refused, and a name is taken", Verdicts{Runs: none, Volume: volume, name: name}, "False/Forbidden", "volume; name; runs"},
		{"a name is taken, and the store cannot be used", Verdicts{Runs: good, name: name, Store: unusable}, "False/NameConflict", "name; store; runs"},
		{"a name is taken that no schedule needs", Verdicts{name: name}, "", ""},
		{"the API server refuses the volume, and a name is taken", Verdicts{Runs: none, Volume: invalid, name: name}, "False/InvalidObject", "invalid; name; runs"},
		{"the volume's name is taken, and that of a backup", Verdicts{Runs: none, Volume: taken, name: name}, "False/NameConflict", "taken; name; runs"},
		{"the store's credentials are missing, and the newest run failed", Verdicts{Runs: failed, Store: missing}, "False/SecretMissing", "no credentials; runs"},
		{"the store cannot be used, and the newest run failed", Verdicts{Runs: failed, Store: unusable}, "False/StoreUnusable", "store; runs"},
		{"the store cannot be used, and the schedule cannot be read", Verdicts{Store: unusable}, "False/StoreUnusable", "store"},
		{"the destination was removed, and the drill failed", Verdicts{Runs: good, destination: removed, Drill: drill}, "False/DestinationRemoved", "removed; drill; runs"},
		{"the newest run failed, and the drill, too", Verdicts{Runs: failed, Drill: drill}, "False/BackupFailed", "runs; drill"},
		{"the schedule is overdue, and the drill failed", Verdicts{Runs: overdue, Drill: drill}, "False/BackupOverdue", "runs; drill"},
		{"the newest run failed, and the store is unchecked", Verdicts{Runs: failed, Store: unchecked}, "False/BackupFailed", "runs; unchecked"},
		{"there is no backup, and the store is unchecked", Verdicts{Runs: none, Store: unchecked}, "False/StoreUnchecked", "unchecked; runs"},
		{"the schedule cannot be read, and the store is unchecked", Verdicts{Store: unchecked}, "False/StoreUnchecked", "unchecked"},
		{"the drill failed, and backups work", Verdicts{Runs: good, Store: unchecked, Drill: drill}, "False/DrillFailed", "drill; runs; unchecked"},
		{"the drill failed, and the store is unchecked", Verdicts{Runs: none, Store: unchecked, Drill: drill}, "False/DrillFailed", "drill; unchecked; runs"},
		{"the drill failed, and there is no backup since", Verdicts{Runs: none, Drill: drill}, "False/DrillFailed", "drill; runs"},
		{"the drill failed, and the schedule cannot be read", Verdicts{Drill: drill}, "False/DrillFailed", "drill"},
		{"there is no backup yet", Verdicts{Runs: none}, "Unknown/NoBackup", "runs"},
		{"backups work, and the store is unchecked", Verdicts{Runs: good, Store: unchecked}, "True/BackedUp", "runs; unchecked"},
	} {
		fact, got, messages := tc.v.JudgeBackedUp(), "", ""
		if fact != nil {
			got, messages = string(fact.Status)+"/"+fact.Reason, fact.Message
		}
		if got != tc.want || messages != tc.messages {
			t.Errorf("%s: %s %q, want %s %q", tc.name, got, messages, tc.want, tc.messages)
		}
		if fact != nil {
			decided[fact.Reason] = true
		}
	}
	for _, group := range condition.Ranking(v1alpha1.ConditionBackedUp) {
		for _, reason := range group.Reasons {
			if !decided[reason] {
				t.Errorf("in no case %s decides", reason)
			}
		}
	}
}
