package backup

import (
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/fluxcd/pkg/runtime/conditions"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/agentapi"
	"github.com/holdfast-db/holdfast/internal/backups"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/controller/requeue"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/job"
)

// observation is one Backup and what stands around it. It has a method for each
// state that a Backup can be in, since what is done in one depends on all of this.
type observation struct {
	backup *v1alpha1.Backup
	// cluster that it is of, and how that is copied now; nil where there is
	// none.
	cluster v1alpha1.Cluster
	copying engine.CopyPlan
	// missing is the name of the Secret with the store's keys, where it is not
	// there.
	missing string
	// removed is the URL of the destination that backups of the cluster went to,
	// where its spec names none any more.
	removed string
	others
	backupJobs
	// log is what of an archived log stays when the data goes; nil where there
	// is none that could be found.
	log *agentapi.LogTask
	// uninstalled says that the kind Backup itself is being deleted.
	uninstalled bool
	// leftovers says that the right to report is there.
	leftovers bool
	// claim of the volume that the cluster's backups are kept on; nil where there
	// is none. volume says whether the volume that the data is on exists.
	// It goes while it is being deleted, which is to be gone.
	claim      *corev1.PersistentVolumeClaim
	volume     bool
	volumeGoes bool
	agentImage string
	now        time.Time
}

// others are the Backups and clusters that a Backup must wait for, by name; empty
// for none.
type others struct {
	// ahead is another backup of the cluster that is under way.
	ahead string
	// most is how many backups may be made at the same time, where so many are;
	// 0 where this one may begin.
	most int
	// leaving is another backup whose data is about to go from the volume that this
	// one is to be on, and writer one whose Job writes to the volume that this one
	// is on.
	leaving, writer string
	// reader is a cluster that is being restored from it, and follower one that
	// goes on with the WAL that the Job was to remove.
	reader, follower string
}

// backupJobs are the Jobs of a Backup, and what they run as.
type backupJobs struct {
	// job that copies, and those that remove what is stored by it when it was
	// abandoned, and when the Backup goes; nil where there is none. pods are
	// those of all.
	job, sweeping, removal *batchv1.Job
	pods                   []corev1.Pod
	// account of Jobs; nil where there is none.
	account *corev1.ServiceAccount
}

// plan is what to do about one Backup in a pass, and what is true of it.
type plan struct {
	// finalizer is set where it is to be added, and release where it is to go. Of
	// a Backup that stays, nothing else is done in that pass.
	finalizer, release bool
	// objects are applied; complete says that all others of the Backup go.
	objects  []runtime.ApplyConfiguration
	complete bool
	// leaves says that the Backup goes without its data where these objects are
	// refused.
	leaves bool
	// frees has the finished pods deleted that hold up the deletion of the volume.
	frees bool
	// spent are finished pods to delete: their scratch volumes go with them only.
	spent []*corev1.Pod
	// stop is a Job to delete.
	stop *batchv1.Job
	// keepAccount has the ServiceAccount of Jobs stay until the Backup goes.
	keepAccount bool
	// mustRecord says that the status holds what must be recorded before anything
	// else is done.
	mustRecord bool
	status     v1alpha1.BackupStatus
	fact       condition.Fact
	// event on the Backup; none without a reason.
	event   engine.Note
	warns   bool
	recheck time.Duration
}

// planBackup is pure; first match wins. Every state is read off the world, so
// that an operator which dies anywhere goes on from there.
func planBackup(s observation) plan {
	b := s.backup
	p := plan{status: *b.Status.DeepCopy()}
	p.status.Run = nil // the pod's own
	p.frees = s.volumeGoes
	switch {
	case b.DeletionTimestamp != nil:
		s.planRemoval(&p)
	case b.Spec.DeletionPolicy == v1alpha1.DeletionDelete != hasFinalizer(b):
		// One whose data stays is held by nothing: its namespace may go without
		// an operator.
		p.finalizer, p.release = !hasFinalizer(b), hasFinalizer(b)
		p.setState(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonCreating, "the backup is about to begin")
	case b.IsFinished():
		s.reportOutcome(&p)
	case b.Status.Run != nil && b.Status.Run.Result != nil:
		s.recordResult(&p)
	case s.describeUnwanted() != "":
		s.abandonBackup(&p, s.describeUnwanted())
	case s.job != nil:
		s.followJob(&p)
	case s.findRefusal() != nil && s.now.Sub(s.findRefusal().LastTransitionTime.Time) > job.IdleDeadline:
		s.abandonBackup(&p, fmt.Sprintf("its Job could not be made for %s: %s", job.IdleDeadline, s.findRefusal().Message))
	case s.planWaiting(&p):
		if p.recheck = job.RecheckInterval; p.fact.Reason == v1alpha1.ReasonQueued {
			p.recheck = queuedRecheck
		}
	case b.Status.Location == nil:
		s.recordLocation(&p)
	default:
		p.objects, p.status.Source = append(accessObjects(s), copyJob(s)), s.copying.FirstSource()
		p.setState(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "the copy of %s is starting", s.copying.FirstSource())
		p.recheck = job.RecheckInterval
		if refused := s.findRefusal(); refused != nil {
			p.fact, p.recheck = condition.Fact{Type: refused.Type, Status: refused.Status, Reason: refused.Reason, Message: refused.Message}, requeue.AfterConflict
		}
	}
	p.keepAccount, p.spent = s.keepsAccount(), s.listSpent()
	p.resolveConditions(b)
	return p
}

// findRefusal finds what stands against the Job of a backup that was begun; nil for
// nothing. It holds until the Job is there: to take it back before each try would
// be a change that begins the next one.
func (s observation) findRefusal() *metav1.Condition {
	stalled := conditions.Get(s.backup, v1alpha1.ConditionStalled)
	if s.backup.Status.Location == nil || stalled == nil || stalled.Status != metav1.ConditionTrue {
		return nil
	}
	switch stalled.Reason {
	case v1alpha1.ReasonNameConflict, v1alpha1.ReasonInvalidObject, v1alpha1.ReasonForbidden:
		return stalled
	}
	return nil
}

func hasFinalizer(b *v1alpha1.Backup) bool {
	return slices.Contains(b.Finalizers, v1alpha1.BackupFinalizer)
}

// resolveConditions makes the conditions of what is true.
func (p *plan) resolveConditions(b *v1alpha1.Backup) {
	view := &v1alpha1.Backup{ObjectMeta: b.ObjectMeta, Status: p.status}
	condition.ResolveBackup(view, p.fact)
	p.status = view.Status
	p.status.ObservedGeneration = b.Generation
}

func (p *plan) setState(conditionType, phase, reason, format string, args ...any) {
	p.fact = condition.Fact{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, args...)}
	p.status.Phase = phase
}

// describeUnwanted says why a backup is not made any more; empty where it is. One that
// was begun, or made for a slot, is of one cluster for good: another one of the
// same name has other data.
func (s observation) describeUnwanted() string {
	ref, of := s.backup.Spec.ClusterRef, backups.ClusterUID(s.backup)
	begun := s.job != nil || s.backup.Status.Location != nil
	switch {
	case of == "":
		return ""
	case s.cluster == nil:
		return fmt.Sprintf("%s %s, which it is of, is gone", ref.Kind, ref.Name)
	case string(s.cluster.GetUID()) != of:
		return fmt.Sprintf("%s %s, which it is of, is gone, and the one that has this name now is another", ref.Kind, ref.Name)
	case begun && !s.cluster.Common().Backup.IsEnabled():
		return fmt.Sprintf("backups of %s %s were turned off while it was made", ref.Kind, ref.Name)
	}
	return ""
}

// planWaiting says what a backup that has not begun waits for.
func (s observation) planWaiting(p *plan) bool {
	ref := s.backup.Spec.ClusterRef
	switch {
	case s.cluster == nil:
		p.setState(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonClusterMissing, "spec.clusterRef names the %s %s, and there is none in this namespace: create it, or delete this Backup and name another cluster in a new one", ref.Kind, ref.Name)
	case !s.cluster.Common().Backup.IsEnabled():
		p.setState(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonBackupNotConfigured, "backups of %s %s are turned off: set its spec.backup.enabled to true", ref.Kind, ref.Name)
	case s.removed != "":
		p.setState(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonDestinationRemoved, "%s %s: %s", ref.Kind, ref.Name, backups.DescribeRemovedDestination(s.removed))
	case s.cluster.Common().Suspend:
		p.setState(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonSuspended, "%s %s is suspended: set its spec.suspend to false to go on", ref.Kind, ref.Name)
	case s.missing != "":
		p.setState(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonSecretMissing, "%s %s, %s, or name another", ref.Kind, ref.Name, backups.DescribeMissingCredentials("spec.backup.destination.credentialsSecretRef", s.missing, s.cluster.Common().Backup.Destination.URL))
	case s.ahead != "":
		p.setState(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonWaitingForTurn, "backup %s of the same cluster is under way", s.ahead)
	case s.leaving != "" && s.cluster.Common().Backup.Destination == nil:
		p.setState(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonWaitingForTurn, "the data of backup %s goes from the volume first", s.leaving)
	case s.cluster.Common().Backup.Destination == nil && s.claim == nil:
		p.setState(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonWaitingForTurn, "the volume %s is about to be made; where that is refused, BackedUp of %s %s says why", s.cluster.GetName()+v1alpha1.SuffixBackups, ref.Kind, ref.Name)
	case s.copying.Waits != "":
		p.setState(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonWaitingForSource, "%s", s.copying.Waits)
	case s.most > 0:
		p.setState(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonQueued, "%d backups come before it, and no more are made at the same time (--concurrent-backups of the operator)", s.most)
	default:
		return false
	}
	return true
}

// findBackupAhead finds the backup that another one of its cluster waits for; empty for
// none. All are the cluster's, the oldest first. They have an order, so that no
// two wait for each other: those that were begun come first, then the older
// ones. Beside that, one that has a Job is waited for.
func findBackupAhead(b *v1alpha1.Backup, all []*v1alpha1.Backup, runs func(*v1alpha1.Backup) (bool, error)) (string, error) {
	begun := func(b *v1alpha1.Backup) bool { return b.Status.StartTime != nil }
	older, ahead := true, ""
	for _, other := range all {
		switch first := begun(other) && !begun(b) || begun(other) == begun(b) && older; {
		case other.UID == b.UID:
			older = false
		case other.IsFinished():
		case first && other.DeletionTimestamp == nil:
			ahead = other.Name
		case begun(other):
			is, err := runs(other)
			if err != nil {
				return "", err
			}
			if is {
				ahead = other.Name
			}
		}
	}
	return ahead, nil
}

// countFailures counts how many of a cluster's backups have failed since one was good.
func countFailures(own []*v1alpha1.Backup) int {
	n := 0
	for _, b := range own { // the oldest first
		switch {
		case b.HasSucceeded():
			n = 0
		case b.IsFinished() && !b.Status.DataLost:
			n++
		}
	}
	return n
}

// rotateSources lists the members to copy from, with another one first after each
// failure: what is wrong may be the first one's own data.
func rotateSources(sources []engine.Source, failures int) []engine.Source {
	if len(sources) == 0 {
		return nil
	}
	first := failures % len(sources)
	return slices.Concat(sources[first:], sources[:first])
}

// recordLocation records where the data goes: whatever becomes of the cluster
// from now on, it can be found there, and removed.
func (s observation) recordLocation(p *plan) {
	c, b := s.cluster, s.backup
	at := &v1alpha1.BackupLocation{
		URL: backups.VolumeURL, ClaimName: c.GetName() + v1alpha1.SuffixBackups,
		Prefix: fmt.Sprintf("%s/%s/%s/%s-%s/", b.Namespace, c.GetName(), c.GetUID(), b.Name, b.UID),
	}
	if s.claim != nil {
		at.ClaimUID = string(s.claim.UID)
	}
	if d := c.Common().Backup.Destination; d != nil {
		at = backups.LocateInStore(d, at.Prefix)
	}
	started := metav1.NewTime(s.now.Truncate(time.Second))
	p.status.Location, p.status.StartTime, p.status.ClusterUID, p.status.Source = at, &started, string(c.GetUID()), s.copying.FirstSource()
	p.status.Placement = recordPlacement(c.Common())
	p.mustRecord = true
	p.setState(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "the copy of %s is starting", s.copying.FirstSource())
}

// followJob says how far the pod is.
func (s observation) followJob(p *plan) {
	run := s.backup.Status.Run
	fault := job.DescribeFault(s.pods, s.job)
	switch {
	case job.HasCondition(s.job, batchv1.JobFailed):
		s.recordFailure(p, fault)
		return
	case job.HasCondition(s.job, batchv1.JobComplete):
		s.recordFailure(p, "the Job has ended without a result")
		return
	case s.job.DeletionTimestamp != nil:
		p.setState(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "the Job was deleted by another client: once it is gone, another one begins")
		return
	case job.IdleTime(s.job, s.pods, s.now) > job.IdleDeadline:
		s.abandonBackup(p, fmt.Sprintf("no program of Job %s has run for %s%s", s.job.Name, job.IdleDeadline, job.DescribeCause(fault)))
		return
	case fault != "" && !job.AwaitsScratch(s.job, s.pods, s.now):
		p.setState(v1alpha1.ConditionStalled, "Copying", v1alpha1.ReasonWaitingForSource, "%s", fault)
	case run == nil && len(s.pods) == 0 && s.now.Sub(s.job.CreationTimestamp.Time) > job.PodDeadline:
		p.setState(v1alpha1.ConditionStalled, "Copying", v1alpha1.ReasonWaitingForSource, "Job %s gets no pod: its events say why, such as a quota or an admission policy", s.job.Name)
	case run == nil:
		p.setState(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "the copy of %s is starting", s.backup.Status.Source)
	case run.Error != "":
		p.setState(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "trying again: %s", run.Error)
	case run.Step == v1alpha1.BackupStepVerifying:
		p.setState(v1alpha1.ConditionReconciling, "Verifying", v1alpha1.ReasonVerifying, "what is stored is read and checked")
	default:
		p.setState(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "%s is copied", s.backup.Status.Source)
	}
	if run == nil {
		p.recheck = job.RecheckInterval
	}
	p.objects = accessObjects(s)
}

// abandonBackup ends a backup that is not to go on, and its Job.
func (s observation) abandonBackup(p *plan, why string) {
	s.recordFailure(p, "")
	p.status.Error = "it was abandoned: " + why
	p.setState(v1alpha1.ConditionStalled, "Failed", v1alpha1.ReasonBackupFailed, "%s", p.status.Error)
	p.event.Message = p.status.Error
	s.stopJob(p)
}

// stopJob stops the Job, where it still runs.
func (s observation) stopJob(p *plan) {
	if s.job == nil || job.HasEnded(s.job) {
		return
	}
	p.recheck = job.RecheckInterval
	if s.job.DeletionTimestamp == nil {
		p.stop = s.job
	}
}

func (s observation) recordResult(p *plan) {
	p.status.Result = s.backup.Status.Run.Result.DeepCopy()
	p.status.Size = humanize.IBytes(uint64(max(0, p.status.Result.Size.Value()))) //nolint:gosec // not negative
	s.recordEnd(p)
	s.reportOutcome(p)
	p.event = engine.Note{Reason: v1alpha1.ReasonBackupCompleted, Action: "Backup", Message: p.fact.Message}
}

func (s observation) recordFailure(p *plan, fault string) {
	p.status.Error = fault
	if run := s.backup.Status.Run; run != nil && run.Error != "" {
		p.status.Error = run.Error
	}
	if p.status.Error == "" {
		p.status.Error = "the Job has failed: see its pods' logs"
	}
	s.recordEnd(p)
	s.reportOutcome(p)
	p.event, p.warns = engine.Note{Reason: v1alpha1.ReasonBackupFailed, Action: "Backup", Message: p.status.Error}, true
}

func (s observation) recordEnd(p *plan) {
	done := metav1.NewTime(s.now.Truncate(time.Second))
	p.status.CompletionTime, p.mustRecord = &done, true
	if start := p.status.StartTime; start != nil {
		p.status.Duration = done.Sub(start.Time).Round(time.Second).String()
	}
}

// reportOutcome says how it ended. The Job of a good backup goes; that of another
// one stays, for its log.
func (s observation) reportOutcome(p *plan) {
	if r := p.status.Result; r != nil && s.isDataLost() {
		p.status.DataLost = true
		p.complete = s.leftovers || s.job != nil
		p.setState(v1alpha1.ConditionStalled, "DataLost", v1alpha1.ReasonDataLost, "the volume %s, which the data was on, is gone, and the data with it: delete this Backup", p.status.Location.ClaimName)
		return
	} else if r != nil {
		p.status.DataLost = false
		p.complete = s.leftovers || s.job != nil
		p.setState(v1alpha1.ConditionReady, "Completed", v1alpha1.ReasonBackupCompleted, "complete and verified: %s of version %s up to %s", p.status.Size, r.Version, r.EndPosition)
		return
	}
	p.setState(v1alpha1.ConditionStalled, "Failed", v1alpha1.ReasonBackupFailed, "%s", p.status.Error)
	s.stopJob(p)
	s.planSweep(p)
}
