package plugin

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
)

func TestManualNamesFit(t *testing.T) {
	at := time.Date(2026, 3, 1, 14, 5, 6, 0, time.FixedZone("CET", 3600))
	for cluster, want := range map[string]string{
		"orders": "orders-manual-20260301-130506",
		"a123456789b123456789c123456789d123456789": "a123456789b123456789c123456789d-manual-20260301-130506",
		"a123456789b123456789c123456789-123456789": "a123456789b123456789c123456789-manual-20260301-130506",
	} {
		got := manualName(cluster, at)
		if got != want || len(got) > longestBackupName {
			t.Errorf("%s: %s with %d characters, want %s", cluster, got, len(got), want)
		}
	}
}

// TestFollowerRewrites: on a terminal there is one line, and none is left.
func TestFollowerRewrites(t *testing.T) {
	copying := func(progress string) *v1alpha1.Backup {
		return &v1alpha1.Backup{Status: v1alpha1.BackupStatus{Phase: "Copying", Run: &v1alpha1.BackupRun{Progress: progress}}}
	}
	for rewrites, want := range map[bool]string{
		false: "Copying\n",
		true:  "\r\x1b[KCopying 5%\r\x1b[KCopying 45%\r\x1b[K",
	} {
		var out strings.Builder
		f := follower{w: &out, rewrites: rewrites}
		for _, progress := range []string{"5%", "45%", "45%"} {
			f.showProgress(copying(progress))
		}
		f.clearLine()
		if out.String() != want {
			t.Errorf("rewrites %t: %q, want %q", rewrites, out.String(), want)
		}
	}
}

func TestOutcome(t *testing.T) {
	now := metav1.Now()
	with := func(finished bool, conditions ...metav1.Condition) *v1alpha1.Backup {
		b := &v1alpha1.Backup{Status: v1alpha1.BackupStatus{Conditions: conditions}}
		if finished {
			b.Status.CompletionTime = &now
		}
		return b
	}
	stalled := newCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonSecretMissing, "there is no Secret")
	failed := newCondition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonBackupFailed, "the bucket is not there")
	going := with(false)
	going.DeletionTimestamp = &now
	for name, test := range map[string]struct {
		backup *v1alpha1.Backup
		done   bool
		why    string
	}{
		"no operator observed it":  {with(false), false, ""},
		"it is copied":             {with(false, newCondition(v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonCopying, "copied")), false, ""},
		"it is good":               {with(true, newCondition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonBackupCompleted, "good")), true, ""},
		"only a person can go on":  {with(false, stalled), true, "stalled, SecretMissing: there is no Secret; it goes on"},
		"it has failed for good":   {with(true, failed), true, "BackupFailed: the bucket is not there"},
		"it is being deleted":      {going, true, "it is being deleted"},
		"it was good and is going": {func() *v1alpha1.Backup { b := with(true); b.DeletionTimestamp = &now; return b }(), true, "it is being deleted"},
	} {
		done, why := backupOutcome(test.backup)
		if done != test.done || (why == nil) != (test.why == "") || why != nil && !strings.HasPrefix(why.Error(), test.why) {
			t.Errorf("%s: %t, %v", name, done, why)
		}
		if test.backup.IsFinished() && why != nil && strings.Contains(why.Error(), "goes on") {
			t.Errorf("%s: %v", name, why)
		}
	}
}
