package controller

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
)

const (
	// removalPatience is how long the data of a Backup that is deleted is tried
	// to be removed: a store that is gone does not keep a Backup for ever.
	removalPatience = 24 * time.Hour
	// removalPause is the time between two Jobs that try it.
	removalPause = 10 * time.Minute
	// roomPatience is how long a backup waits for the data of another one to go
	// from the volume that both are on.
	roomPatience = 30 * time.Minute
)

// remove settles what becomes of the data before the Backup goes.
func (s backupSeen) remove(p *backupPlan) { //nolint:gocyclo // an ordered switch: first match wins
	b := s.backup
	at := b.Status.Location
	p.is(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving, "what is stored is being removed")
	switch {
	case !held(b):
	case s.inUse(p):
	case at == nil:
		p.release = true
	case b.Spec.DeletionPolicy != v1alpha1.DeletionDelete:
		p.release = true
		p.event = engine.Note{Reason: v1alpha1.ReasonDataRetained, Action: "Delete", Message: fmt.Sprintf("what is stored stays at %s, below %s, as spec.deletionPolicy says", at.URL, at.Prefix)}
	case s.uninstalled:
		p.release = true
		p.event = engine.Note{Reason: v1alpha1.ReasonDataRetained, Action: "Delete", Message: fmt.Sprintf(
			"what is stored stays at %s, below %s: all Backups go, since their kind is being deleted", at.URL, at.Prefix)}
	case at.ClaimName != "" && !s.volume:
		s.releaseLost(p)
	case s.removal != nil && jobIs(s.removal, batchv1.JobComplete):
		p.release = true
	case s.removal != nil && jobIs(s.removal, batchv1.JobFailed) && s.late():
		s.leave(p)
	case s.removal == nil && s.writer != "":
		p.recheck = backupRecheck
		p.is(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving, "what is stored goes once backup %s, which writes to the same volume, is done", s.writer)
	case s.removal == nil:
		p.leaves = s.late()
		p.objects, p.recheck = []runtime.ApplyConfiguration{removalJob(s)}, backupRecheck
	default:
		s.removing(p)
	}
}

// inUse says that nothing is removed yet, since more is written, or what there
// is is read.
func (s backupSeen) inUse(p *backupPlan) bool {
	switch {
	case s.job != nil && !jobEnded(s.job):
		s.halt(p)
	case s.reader != "" && s.backup.Spec.DeletionPolicy == v1alpha1.DeletionDelete:
		p.is(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving, "cluster %s is being restored from it, for good or on trial: what is stored goes when that is done, or that cluster is deleted", s.reader)
		p.recheck = backupRecheck
		s.haltRemoval(p)
	default:
		return false
	}
	return true
}

// removing waits for a Job that removes, and has another one made a while after
// it failed.
func (s backupSeen) removing(p *backupPlan) {
	if s.follower != "" && !jobEnded(s.removal) {
		p.is(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving, "cluster %s is being restored with the log that was to go, too: what is stored is removed by another Job, without it", s.follower)
		p.recheck = backupRecheck
		s.haltRemoval(p)
		return
	}
	p.recheck = max(s.removalDeadline().Sub(s.now), backupRecheck)
	if logIn(s.removal) != nil {
		p.recheck = backupRecheck // nothing tells when somebody follows
	}
	fault := podFault(s.pods, s.removal)
	if fault != "" {
		p.is(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving,
			"what is stored cannot be removed yet (%s): it is tried until %s, and then left where it is; to leave it now, set spec.deletionPolicy to Retain", fault, s.removalDeadline().UTC().Format(time.RFC3339))
	}
	failed := failedAt(s.removal)
	switch again := failed.Add(removalPause).Sub(s.now); {
	case failed.IsZero():
	case again > 0:
		p.recheck = min(p.recheck, again)
	case s.removal.DeletionTimestamp == nil:
		p.stop, p.recheck = s.removal, backupRecheck
	}
}

// haltRemoval stops the Job that removes, where it still runs.
func (s backupSeen) haltRemoval(p *backupPlan) {
	if s.removal != nil && !jobEnded(s.removal) && s.removal.DeletionTimestamp == nil {
		p.stop = s.removal
	}
}

// failedAt is when a Job failed; zero where it has not.
func failedAt(job *batchv1.Job) time.Time {
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func (s backupSeen) removalDeadline() time.Time {
	return s.backup.DeletionTimestamp.Add(removalPatience)
}

// late says that the data is tried to be removed no longer.
func (s backupSeen) late() bool { return !s.now.Before(s.removalDeadline()) }

// leave lets the Backup go without its data, and says what remains.
func (s backupSeen) leave(p *backupPlan) {
	at, fault := s.backup.Status.Location, ""
	if s.removal != nil {
		fault = podFault(s.pods, s.removal)
	}
	p.release, p.warns = true, true
	p.event = engine.Note{Reason: v1alpha1.ReasonDataRetained, Action: "Delete", Message: fmt.Sprintf(
		"what is stored at %s, below %s, could not be removed: remove it by hand%s", at.URL, at.Prefix, because(fault))}
}

// sweep has a Job remove what a backup that failed has stored, unless it is
// whole after all: its own pods may have had no chance to. The Job stays for its
// log, like that of the copy.
func (s backupSeen) sweep(p *backupPlan) {
	at := s.backup.Status.Location
	switch {
	case s.sweeping != nil && !jobIs(s.sweeping, batchv1.JobFailed):
	case s.sweeping != nil:
		p.is(v1alpha1.ConditionStalled, "Failed", v1alpha1.ReasonBackupFailed, "%s; what it stored is left at %s, below %s%s", p.status.Error, at.URL, at.Prefix, because(podFault(s.pods, s.sweeping)))
	case at == nil || p.latch || s.job != nil && !jobEnded(s.job):
	case at.ClaimName != "" && (!s.volume || s.writer != ""):
		p.recheck = backupRecheck
		if !s.volume {
			p.recheck = 0
		}
	default:
		p.objects = []runtime.ApplyConfiguration{sweepJob(s)}
	}
}

// leavingOf finds a backup whose data is about to go from the cluster's volume;
// empty for none. All are the cluster's.
func leavingOf(all []*v1alpha1.Backup, now time.Time) string {
	for _, b := range all {
		if at := b.Status.Location; at != nil && at.ClaimName != "" && held(b) && b.Spec.DeletionPolicy == v1alpha1.DeletionDelete &&
			b.DeletionTimestamp != nil && now.Before(b.DeletionTimestamp.Add(roomPatience)) {
			return b.Name
		}
	}
	return ""
}

// writerOf finds a backup whose Job writes to the volume that another one's data
// is on: nodes may have to share it one after the other. All are the cluster's.
func writerOf(b *v1alpha1.Backup, all []*v1alpha1.Backup, runs func(*v1alpha1.Backup) (bool, error)) (string, error) {
	at := b.Status.Location
	if at == nil || at.ClaimName == "" {
		return "", nil
	}
	for _, other := range all {
		if other.UID == b.UID || other.Finished() || other.Status.Location == nil || other.Status.Location.ClaimName != at.ClaimName {
			continue
		}
		if is, err := runs(other); is || err != nil {
			return other.Name, err
		}
	}
	return "", nil
}

// keepsAccount says whether the ServiceAccount of Jobs is to outlive the
// cluster: the Job that removes the data is known to the store by nothing else.
func (s backupSeen) keepsAccount() bool {
	at := s.backup.Status.Location
	return s.account != nil && held(s.backup) && s.backup.DeletionTimestamp == nil &&
		at != nil && at.ClaimName == "" && at.CredentialsSecret == "" &&
		!slices.ContainsFunc(s.account.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.backup.UID })
}

// placement is where Jobs of a cluster run.
func placement(c *v1alpha1.CommonSpec) *v1alpha1.BackupPlacement {
	if len(c.NodeSelector) == 0 && len(c.Tolerations) == 0 && len(c.ImagePullSecrets) == 0 {
		return nil
	}
	c = c.DeepCopy()
	return &v1alpha1.BackupPlacement{NodeSelector: c.NodeSelector, Tolerations: c.Tolerations, ImagePullSecrets: c.ImagePullSecrets}
}

// where the Jobs of a backup run that need nothing else of the cluster: as it
// says, or said when the backup was begun.
func (s backupSeen) where() *v1alpha1.CommonSpec {
	if s.cluster != nil {
		return s.cluster.Common()
	}
	common := &v1alpha1.CommonSpec{}
	if at := s.backup.Status.Placement; at != nil {
		common.NodeSelector, common.Tolerations, common.ImagePullSecrets = at.NodeSelector, at.Tolerations, at.ImagePullSecrets
	}
	return common
}
