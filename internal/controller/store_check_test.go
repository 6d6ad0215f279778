package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/backups/backupstest"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/job"
)

// versions of Secrets, by name.
type versions map[string]string

func (v versions) ReadVersions(context.Context, types.NamespacedName, ...string) (map[string]string, error) {
	return v, nil
}

// inBucket is a cluster that is backed up to a bucket, and what is known of
// that at noon.
func inBucket() storeObservation {
	c := backupstest.Scheduled()
	c.Spec.Backup.Destination = &v1alpha1.BackupDestination{URL: "s3://acme", CredentialsSecretRef: &v1alpha1.SecretReference{Name: "keys"}}
	return storeObservation{cluster: c, kind: "EtcdCluster", image: "etcd:v3", agentImage: "holdfast:v1", keys: "7", now: backupstest.Noon}
}

// tried is the Job of a check that ended so long ago, or runs.
func (s storeObservation) tried(ended batchv1.JobConditionType, ago time.Duration) *batchv1.Job {
	yes := true
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: s.jobName(), UID: "j", Annotations: map[string]string{v1alpha1.AnnotationGiven: s.hashInput()}, OwnerReferences: []metav1.OwnerReference{{UID: "c", Controller: &yes}}}}
	if ended != "" {
		job.Status.Conditions = []batchv1.JobCondition{{Type: ended, Status: corev1.ConditionTrue, Reason: "Ended", Message: "at last", LastTransitionTime: metav1.NewTime(backupstest.Noon.Add(-ago))}}
	}
	return job
}

func (s *storeObservation) lastSaid(words string) {
	yes := true
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "j", Controller: &yes}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: job.ContainerName, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: 42, Message: words}}}}
	s.pods = append(s.pods, pod)
}

// found is a record of a check that long ago.
func (s storeObservation) found(ago time.Duration, err string, failures int32) *v1alpha1.StoreCheck {
	check := &v1alpha1.StoreCheck{Given: s.hashInput(), Time: metav1.NewTime(backupstest.Noon.Add(-ago)), Error: err, Failures: failures}
	if err != "" {
		check.Reason = v1alpha1.ReasonStoreUnusable
	}
	return check
}

func TestStoreIsTried(t *testing.T) {
	const said = "spec.backup.destination.credentialsSecretRef: write x: denied"
	const denied = "the store cannot be used: " + said
	for _, tc := range []struct {
		name string
		seen func(s *storeObservation)
		// does is "make", "drop" and their like; check what is recorded then, as
		// its error and how many times in a row.
		does, check string
		reason      string
		recheck     time.Duration
	}{
		{"what was never tried is tried", func(*storeObservation) {}, "make", "none", "", 0},
		{"while no image is known nothing is", func(s *storeObservation) { s.image = "" }, "", "none", "", 0},
		{"what is being tried is waited for", func(s *storeObservation) { s.jobs = []batchv1.Job{*s.tried("", 0)} }, "", "none", "", 0},
		{"what can be used is never tried again", func(s *storeObservation) { s.cluster.CommonStatus().StoreCheck = s.found(1000*time.Hour, "", 0) }, "", "ok", "", 0},
		{"a good end is put on record, and its Job goes", func(s *storeObservation) { s.jobs = []batchv1.Job{*s.tried(batchv1.JobComplete, time.Minute)} }, "drop", "ok", "", 0},
		{"a bad end is put on record in the program's words", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried(batchv1.JobFailed, time.Minute)}
			s.lastSaid("holdfast: " + said + "\n")
		}, "", denied + " 1", v1alpha1.ReasonStoreUnusable, 4 * time.Minute},
		{"one that could not run is so, too", func(s *storeObservation) { s.jobs = []batchv1.Job{*s.tried(batchv1.JobFailed, time.Minute)} },
			"", "the store could not be tried: Ended: at last 1", v1alpha1.ReasonStoreUnchecked, 4 * time.Minute},
		{"one that could not run takes back nothing", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried(batchv1.JobFailed, time.Minute)}
			s.cluster.CommonStatus().StoreCheck = s.found(10*time.Minute, denied, 1)
		}, "", denied + " 2", v1alpha1.ReasonStoreUnusable, 9 * time.Minute},
		{"a bad end counts once", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried(batchv1.JobFailed, 3*time.Minute)}
			s.cluster.CommonStatus().StoreCheck = s.found(3*time.Minute, denied, 1)
		}, "", denied + " 1", v1alpha1.ReasonStoreUnusable, 2 * time.Minute},
		{"another one is counted beside it, and waits longer", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried(batchv1.JobFailed, time.Minute)}
			s.lastSaid(said)
			s.cluster.CommonStatus().StoreCheck = s.found(10*time.Minute, "before", 2)
		}, "", denied + " 3", v1alpha1.ReasonStoreUnusable, 19 * time.Minute},
		{"when it is time the old Job goes first", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried(batchv1.JobFailed, 5*time.Minute)}
			s.cluster.CommonStatus().StoreCheck = s.found(5*time.Minute, denied, 1)
		}, "drop", denied + " 1", v1alpha1.ReasonStoreUnusable, 0},
		{"then the next one is made", func(s *storeObservation) { s.cluster.CommonStatus().StoreCheck = s.found(5*time.Minute, denied, 1) },
			"make", denied + " 1", v1alpha1.ReasonStoreUnusable, 0},
		{"a Job that goes is waited for", func(s *storeObservation) {
			job, now := s.tried(batchv1.JobFailed, 5*time.Minute), metav1.Now()
			job.DeletionTimestamp = &now
			s.jobs = []batchv1.Job{*job}
			s.cluster.CommonStatus().StoreCheck = s.found(5*time.Minute, denied, 1)
		}, "", denied + " 1", v1alpha1.ReasonStoreUnusable, 0},
		{"other keys are tried at once, where those before were refused", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried(batchv1.JobFailed, time.Minute)}
			s.cluster.CommonStatus().StoreCheck = s.found(time.Minute, denied, 1)
			s.keys = "8"
		}, "drop", denied + " 1 before", v1alpha1.ReasonStoreUnusable, 0},
		{"when the old Job is gone", func(s *storeObservation) {
			s.cluster.CommonStatus().StoreCheck = s.found(time.Minute, denied, 1)
			s.keys = "8"
		}, "make", denied + " 1 before", v1alpha1.ReasonStoreUnusable, 0},
		{"but not those after them", func(s *storeObservation) {
			s.cluster.CommonStatus().StoreCheck = s.found(time.Minute, denied, 2)
			s.keys = "9"
		}, "", denied + " 2 before", v1alpha1.ReasonStoreUnusable, 4 * time.Minute},
		{"which wait no longer than the first ones", func(s *storeObservation) {
			s.cluster.CommonStatus().StoreCheck = s.found(5*time.Minute, denied, 7)
			s.keys = "9"
		}, "make", denied + " 7 before", v1alpha1.ReasonStoreUnusable, 0},
		{"a Secret that is written every minute is not tried as often", func(s *storeObservation) {
			s.cluster.CommonStatus().StoreCheck = s.found(time.Minute, "", 0)
			s.keys = "8"
		}, "", "ok before", "", 4 * time.Minute},
		{"but in its time", func(s *storeObservation) {
			s.cluster.CommonStatus().StoreCheck = s.found(5*time.Minute, "", 0)
			s.keys = "8"
		}, "make", "ok before", "", 0},
		{"and does not end what is being tried", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried("", 0)}
			s.keys = "8"
		}, "", "none", "", 0},
		{"what that finds is true of the keys that it had", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried(batchv1.JobComplete, time.Minute)}
			s.keys = "8"
		}, "drop", "ok before", "", 4 * time.Minute},
		{"the destination has changed", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried("", 0)}
			s.cluster.CommonStatus().StoreCheck = s.found(time.Second, denied, 9)
			s.cluster.Common().Backup.Destination.URL = "s3://other"
		}, "drop make", "none", "", 0},
		{"the Secret is replaced", func(s *storeObservation) {
			s.cluster.CommonStatus().StoreCheck = s.found(time.Minute, denied, 2)
			s.keys, s.missing = "", "keys"
		}, "", denied + " 2 before", v1alpha1.ReasonSecretMissing, 0},
		{"the Secret is not there", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried("", 0)}
			s.keys, s.missing = "", "keys"
		}, "drop", "none", v1alpha1.ReasonSecretMissing, 0},
		{"backups are turned off", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried("", 0)}
			s.cluster.CommonStatus().StoreCheck = s.found(time.Hour, denied, 1)
			s.cluster.Common().Backup.Enabled = new(false)
		}, "drop", "none", "", 0},
		{"a volume is never tried", func(s *storeObservation) { s.cluster.Common().Backup.Destination = nil }, "", "none", "", 0},
		{"a backup has used it since", func(s *storeObservation) {
			s.jobs = []batchv1.Job{*s.tried(batchv1.JobFailed, time.Hour)}
			s.cluster.CommonStatus().StoreCheck = s.found(time.Hour, denied, 1)
			s.good = backupstest.Made("a", time.Minute, "")
			s.good.Status.Location = &v1alpha1.BackupLocation{URL: "s3://acme"}
		}, "drop", "ok", "", 0},
		{"a backup from before says nothing", func(s *storeObservation) {
			s.cluster.CommonStatus().StoreCheck = s.found(2*time.Minute, denied, 1)
			s.good = backupstest.Made("a", time.Hour, "")
			s.good.Status.Location = &v1alpha1.BackupLocation{URL: "s3://acme"}
		}, "", denied + " 1", v1alpha1.ReasonStoreUnusable, 3 * time.Minute},
		{"somebody else's Job is left alone", func(s *storeObservation) {
			job := s.tried(batchv1.JobComplete, 0)
			job.OwnerReferences = nil
			s.jobs = []batchv1.Job{*job}
		}, "make", "none", "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := inBucket()
			tc.seen(&s)
			p := planStore(s)
			var does []string
			if len(p.remove) > 0 {
				does = append(does, "drop")
			}
			if p.create != nil {
				does = append(does, "make")
			}
			check, reason := "none", ""
			if c := p.check; c != nil {
				if check = "ok"; c.Error != "" {
					check = fmt.Sprintf("%s %d", c.Error, c.Failures)
				}
				if c.Given != s.hashInput() {
					check += " before"
				}
				if c.Time.IsZero() || placeIn(c.Given) != s.hashDestination() || (c.Error == "") != (c.Reason == "") {
					t.Errorf("on record is %+v", c)
				}
			}
			if p.fault != nil {
				reason = p.fault.Reason
			}
			got := []string{strings.Join(does, " "), check, reason, p.recheck.String()}
			if diff := cmp.Diff([]string{tc.does, tc.check, tc.reason, tc.recheck.String()}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestStoreRetries(t *testing.T) {
	var got []time.Duration
	for n := range int32(8) {
		got = append(got, pauseAfter(n))
	}
	m := time.Minute
	if diff := cmp.Diff([]time.Duration{5 * m, 5 * m, 10 * m, 20 * m, 40 * m, time.Hour, time.Hour, time.Hour}, got); diff != "" {
		t.Error(diff)
	}
	if pauseAfter(1<<31-1) != time.Hour {
		t.Error("after many failures it is never tried again")
	}
}

// Clusters of one name and of two kinds have a Job each.
func TestStoreChecksOfTwoKinds(t *testing.T) {
	s := inBucket()
	other := s
	if other.kind = "PostgresCluster"; s.jobName() == other.jobName() {
		t.Errorf("both are %s", s.jobName())
	}
	if name := s.jobName(); !strings.HasPrefix(name, "orders-check-") || len(name) > len("orders-check-")+8 {
		t.Errorf("%s is long", name)
	}
}

// A store that could not be tried says nothing against backups that work.
func TestUntriedStoreBesideBackups(t *testing.T) {
	for _, tc := range []struct{ reason, want string }{
		{v1alpha1.ReasonBackedUp, "BackedUp backups; no image"},
		{v1alpha1.ReasonBackupFailed, "BackupFailed backups; no image"},
		{v1alpha1.ReasonBackupOverdue, "BackupOverdue backups; no image"},
		{v1alpha1.ReasonNoBackup, "StoreUnchecked no image; backups"},
	} {
		v := backups.Verdicts{
			Runs:  &condition.Fact{Type: v1alpha1.ConditionBackedUp, Reason: tc.reason, Message: "backups"},
			Store: backups.NotBackedUp(v1alpha1.ReasonStoreUnchecked, "no image"),
		}
		fact := v.JudgeBackedUp()
		if got := fact.Reason + " " + fact.Message; got != tc.want {
			t.Errorf("%s: says %s", tc.reason, got)
		}
	}
}

// What is wrong with the store is said before what became of the last backup.
func TestUnusableStoreIsSaidFirst(t *testing.T) {
	fault := &condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStoreUnusable, Message: "denied"}
	v := backups.Verdicts{Runs: &condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBackedUp, Message: "backup a is complete"}}
	if fact := v.JudgeBackedUp(); fact.Reason != v1alpha1.ReasonBackedUp {
		t.Errorf("%+v", fact)
	}
	v.Store = fault
	want := &condition.Fact{Type: v1alpha1.ConditionBackedUp, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonStoreUnusable, Message: "denied; backup a is complete"}
	if diff := cmp.Diff(want, v.JudgeBackedUp()); diff != "" {
		t.Error(diff)
	}
}
