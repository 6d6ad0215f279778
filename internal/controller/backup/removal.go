package backup

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

const (
	// removalPatience is how long the data of a Backup that is deleted is tried
	// to be removed: a store that is gone does not keep a Backup for ever.
	removalPatience = 24 * time.Hour
	// removalPause is the time between two Jobs that try it.
	removalPause = 10 * time.Minute
	// removalWait is how long a backup waits for the data of another one to go
	// from the volume that both are on.
	removalWait = 30 * time.Minute
)

// planRemoval settles what becomes of the data before the Backup goes.
func (s observation) planRemoval(p *plan) { //nolint:gocyclo // an ordered switch: first match wins
	b := s.backup
	at := b.Status.Location
	p.setState(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving, "what is stored is being removed")
	switch {
	case !hasFinalizer(b):
	case s.isInUse(p):
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
	case s.removal != nil && job.HasCondition(s.removal, batchv1.JobComplete):
		p.release = true
	case s.removal != nil && job.HasCondition(s.removal, batchv1.JobFailed) && s.isPastDeadline():
		s.leaveData(p)
	case s.removal == nil && s.writer != "":
		p.recheck = job.RecheckInterval
		p.setState(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving, "what is stored goes once backup %s, which writes to the same volume, is done", s.writer)
	case s.removal == nil:
		p.leaves = s.isPastDeadline()
		p.objects, p.recheck = []runtime.ApplyConfiguration{removalJob(s)}, job.RecheckInterval
	default:
		s.followRemoval(p)
	}
}

// isInUse says that nothing is removed yet, since more is written, or what there
// is is read.
func (s observation) isInUse(p *plan) bool {
	switch {
	case s.job != nil && !job.HasEnded(s.job):
		s.stopJob(p)
	case s.reader != "" && s.backup.Spec.DeletionPolicy == v1alpha1.DeletionDelete:
		p.setState(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving, "cluster %s is being restored from it, for good or on trial: what is stored goes when that is done, or that cluster is deleted", s.reader)
		p.recheck = job.RecheckInterval
		s.haltRemoval(p)
	default:
		return false
	}
	return true
}

// followRemoval waits for a Job that removes, and has another one made a while after
// it failed.
func (s observation) followRemoval(p *plan) {
	if s.follower != "" && !job.HasEnded(s.removal) {
		p.setState(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving, "cluster %s is being restored with the WAL that was to be removed, too: what is stored is removed by another Job, without it", s.follower)
		p.recheck = job.RecheckInterval
		s.haltRemoval(p)
		return
	}
	p.recheck = max(s.removalDeadline().Sub(s.now), job.RecheckInterval)
	if findArchiveTask(s.removal) != nil {
		p.recheck = job.RecheckInterval // no watch reports when a cluster follows
	}
	fault := job.DescribeFault(s.pods, s.removal)
	if fault != "" {
		p.setState(v1alpha1.ConditionReconciling, "Deleting", v1alpha1.ReasonRemoving,
			"what is stored cannot be removed yet (%s): it is tried until %s, and then left where it is; to leave it now, set spec.deletionPolicy to Retain", fault, s.removalDeadline().UTC().Format(time.RFC3339))
	}
	failed := job.EndTime(s.removal)
	switch again := failed.Add(removalPause).Sub(s.now); {
	case failed.IsZero():
	case again > 0:
		p.recheck = min(p.recheck, again)
	case s.removal.DeletionTimestamp == nil:
		p.stop, p.recheck = s.removal, job.RecheckInterval
	}
}

// haltRemoval stops the Job that removes, where it still runs.
func (s observation) haltRemoval(p *plan) {
	if s.removal != nil && !job.HasEnded(s.removal) && s.removal.DeletionTimestamp == nil {
		p.stop = s.removal
	}
}

func (s observation) removalDeadline() time.Time {
	return s.backup.DeletionTimestamp.Add(removalPatience)
}

// isPastDeadline says that the data is tried to be removed no longer.
func (s observation) isPastDeadline() bool { return !s.now.Before(s.removalDeadline()) }

// leaveData lets the Backup go without its data, and says what remains.
func (s observation) leaveData(p *plan) {
	at, fault := s.backup.Status.Location, ""
	if s.removal != nil {
		fault = job.DescribeFault(s.pods, s.removal)
	}
	p.release, p.warns = true, true
	p.event = engine.Note{Reason: v1alpha1.ReasonDataRetained, Action: "Delete", Message: fmt.Sprintf(
		"what is stored at %s, below %s, could not be removed: remove it by hand%s", at.URL, at.Prefix, job.DescribeCause(fault))}
}

// planSweep has a Job remove what a backup that failed has stored, unless it is
// whole after all: its own pods may have had no chance to. The Job stays for its
// log, like that of the copy.
func (s observation) planSweep(p *plan) {
	at := s.backup.Status.Location
	switch {
	case s.sweeping != nil && !job.HasCondition(s.sweeping, batchv1.JobFailed):
	case s.sweeping != nil:
		p.setState(v1alpha1.ConditionStalled, "Failed", v1alpha1.ReasonBackupFailed, "%s; what it stored is left at %s, below %s%s", p.status.Error, at.URL, at.Prefix, job.DescribeCause(job.DescribeFault(s.pods, s.sweeping)))
	case at == nil || p.mustRecord || s.job != nil && !job.HasEnded(s.job):
	case at.ClaimName != "" && (!s.volume || s.writer != ""):
		p.recheck = job.RecheckInterval
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
		if at := b.Status.Location; at != nil && at.ClaimName != "" && hasFinalizer(b) && b.Spec.DeletionPolicy == v1alpha1.DeletionDelete &&
			b.DeletionTimestamp != nil && now.Before(b.DeletionTimestamp.Add(removalWait)) {
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
		if other.UID == b.UID || other.IsFinished() || other.Status.Location == nil || other.Status.Location.ClaimName != at.ClaimName {
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
func (s observation) keepsAccount() bool {
	at := s.backup.Status.Location
	return s.account != nil && hasFinalizer(s.backup) && s.backup.DeletionTimestamp == nil &&
		at != nil && at.ClaimName == "" && at.CredentialsSecret == "" &&
		!slices.ContainsFunc(s.account.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.backup.UID })
}

// recordPlacement keeps where Jobs of a cluster run.
func recordPlacement(c *v1alpha1.CommonSpec) *v1alpha1.BackupPlacement {
	if len(c.NodeSelector) == 0 && len(c.Tolerations) == 0 && len(c.ImagePullSecrets) == 0 {
		return nil
	}
	c = c.DeepCopy()
	return &v1alpha1.BackupPlacement{NodeSelector: c.NodeSelector, Tolerations: c.Tolerations, ImagePullSecrets: c.ImagePullSecrets}
}

// jobPlacement is where the Jobs of a backup run that need nothing else of the cluster: as it
// says, or said when the backup was begun.
func (s observation) jobPlacement() *v1alpha1.CommonSpec {
	if s.cluster != nil {
		return s.cluster.Common()
	}
	common := &v1alpha1.CommonSpec{}
	if at := s.backup.Status.Placement; at != nil {
		common.NodeSelector, common.Tolerations, common.ImagePullSecrets = at.NodeSelector, at.Tolerations, at.ImagePullSecrets
	}
	return common
}
