package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/fluxcd/pkg/runtime/conditions"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-db/holdfast/api/v1alpha1"
	"github.com/holdfast-db/holdfast/internal/condition"
	"github.com/holdfast-db/holdfast/internal/engine"
	"github.com/holdfast-db/holdfast/internal/memberapi"
)

// backupRecheck is how often a backup that waits looks again at what no watch
// reports.
const backupRecheck = 15 * time.Second

const (
	// noPod is how long a Job may be without a pod before that is no start any
	// more.
	noPod = time.Minute
	// idleDeadline is how long a Job may be without a program that runs before
	// its backup is given up: what keeps it from running, such as a node that
	// fits, has not come in that time, and the next slot is to have its turn.
	idleDeadline = 30 * time.Minute
)

// backupSeen is one Backup and what stands around it.
type backupSeen struct {
	backup *v1alpha1.Backup
	// cluster that it is of, and how that is copied now; nil where there is
	// none.
	cluster v1alpha1.Cluster
	copying engine.Copying
	// missing is the name of the Secret with the store's keys, where it is not
	// there.
	missing string
	// removed is the URL of the destination that backups of the cluster went to,
	// where its spec names none any more.
	removed string
	// ahead is the name of another backup of the cluster that is under way.
	ahead string
	// most is how many backups may be made at the same time, where so many are;
	// 0 where this one may begin.
	most int
	// leaving is the name of another backup whose data is about to go from the
	// volume that this one is to be on, and writer that of one whose Job writes
	// to the volume that this one is on.
	leaving, writer string
	// log is what of an archived log stays when the data goes; nil where there
	// is none that could be told.
	log *memberapi.LogTask
	// job that copies, and those that remove what is stored by it when it was
	// given up, and when the Backup goes; nil where there is none. pods are
	// those of all.
	job, sweeping, removal *batchv1.Job
	pods                   []corev1.Pod
	// uninstalled says that the kind Backup itself is being deleted.
	uninstalled bool
	// reader is a cluster that is being restored from it, and follower one that
	// goes on with the log that the Job was told to remove.
	reader, follower string
	// leftovers says that the right to report is there.
	leftovers bool
	// account of Jobs; nil where there is none.
	account *corev1.ServiceAccount
	// claim of the volume that the cluster's backups are kept on; nil where there
	// is none. volume says whether the volume that the data is on exists.
	// It goes while it is being deleted, which is to be gone.
	claim      *corev1.PersistentVolumeClaim
	volume     bool
	volumeGoes bool
	agentImage string
	now        time.Time
}

// backupPlan is what to do about one Backup in a pass, and what is true of it.
type backupPlan struct {
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
	// stop is a Job to delete.
	stop *batchv1.Job
	// keepAccount has the ServiceAccount of Jobs stay until the Backup goes.
	keepAccount bool
	// latch says that the status holds what must be on record before anything
	// else is done.
	latch  bool
	status v1alpha1.BackupStatus
	fact   condition.Fact
	// event on the Backup; none without a reason.
	event   engine.Note
	warns   bool
	recheck time.Duration
}

// planBackup is pure; first match wins. Every state is read off the world, so
// that an operator which dies anywhere goes on from there.
func planBackup(s backupSeen) backupPlan {
	b := s.backup
	p := backupPlan{status: *b.Status.DeepCopy()}
	p.status.Run = nil // the pod's own
	p.frees = s.volumeGoes
	switch {
	case b.DeletionTimestamp != nil:
		s.remove(&p)
	case b.Spec.DeletionPolicy == v1alpha1.DeletionDelete != held(b):
		// One whose data stays is held by nothing: its namespace may go without
		// an operator.
		p.finalizer, p.release = !held(b), held(b)
		p.is(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonCreating, "the backup is about to begin")
	case b.Finished():
		s.finished(&p)
	case b.Status.Run != nil && b.Status.Run.Result != nil:
		s.complete(&p)
	case s.unwanted() != "":
		s.giveUp(&p, s.unwanted())
	case s.job != nil:
		s.running(&p)
	case s.refused() != nil && s.now.Sub(s.refused().LastTransitionTime.Time) > idleDeadline:
		s.giveUp(&p, fmt.Sprintf("its Job could not be made for %s: %s", idleDeadline, s.refused().Message))
	case s.waits(&p):
		p.recheck = backupRecheck
	case b.Status.Location == nil:
		s.latch(&p)
	default:
		p.objects, p.status.Source = append(accessObjects(s), copyJob(s)), s.copying.Source()
		p.is(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "the copy of %s is starting", s.copying.Source())
		p.recheck = backupRecheck
		if refused := s.refused(); refused != nil {
			p.fact, p.recheck = condition.Fact{Type: refused.Type, Status: refused.Status, Reason: refused.Reason, Message: refused.Message}, conflictRecheck
		}
	}
	p.keepAccount = s.keepsAccount()
	p.resolve(b)
	return p
}

// refused is what stands against the Job of a backup that was begun; nil for
// nothing. It holds until the Job is there: to take it back before each try would
// be a change that begins the next one.
func (s backupSeen) refused() *metav1.Condition {
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

func held(b *v1alpha1.Backup) bool { return slices.Contains(b.Finalizers, v1alpha1.BackupFinalizer) }

// resolve makes the conditions of what is true.
func (p *backupPlan) resolve(b *v1alpha1.Backup) {
	view := &v1alpha1.Backup{ObjectMeta: b.ObjectMeta, Status: p.status}
	condition.ResolveBackup(view, p.fact)
	p.status = view.Status
	p.status.ObservedGeneration = b.Generation
}

func (p *backupPlan) is(conditionType, phase, reason, format string, args ...any) {
	p.fact = condition.Fact{Type: conditionType, Status: metav1.ConditionTrue, Reason: reason, Message: fmt.Sprintf(format, args...)}
	p.status.Phase = phase
}

// unwanted says why a backup is not made any more; empty where it is. One that
// was begun, or made for a slot, is of one cluster for good: another one of the
// same name has other data.
func (s backupSeen) unwanted() string {
	ref, of := s.backup.Spec.ClusterRef, clusterOf(s.backup)
	begun := s.job != nil || s.backup.Status.Location != nil
	switch {
	case of == "":
		return ""
	case s.cluster == nil:
		return fmt.Sprintf("%s %s, which it is of, is gone", ref.Kind, ref.Name)
	case string(s.cluster.GetUID()) != of:
		return fmt.Sprintf("%s %s, which it is of, is gone, and the one that has this name now is another", ref.Kind, ref.Name)
	case begun && !s.cluster.Common().Backup.On():
		return fmt.Sprintf("backups of %s %s were turned off while it was made", ref.Kind, ref.Name)
	}
	return ""
}

// waits says what a backup that has not begun waits for.
func (s backupSeen) waits(p *backupPlan) bool {
	ref := s.backup.Spec.ClusterRef
	switch {
	case s.cluster == nil:
		p.is(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonClusterMissing, "there is no %s %s in this namespace: create it, or delete this Backup", ref.Kind, ref.Name)
	case !s.cluster.Common().Backup.On():
		p.is(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonBackupNotConfigured, "backups of %s %s are turned off: set its spec.backup.enabled to true", ref.Kind, ref.Name)
	case s.removed != "":
		p.is(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonDestinationRemoved, "%s %s: %s", ref.Kind, ref.Name, removedMessage(s.removed))
	case s.cluster.Common().Suspend:
		p.is(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonSuspended, "%s %s is suspended: set its spec.suspend to false to go on", ref.Kind, ref.Name)
	case s.missing != "":
		p.is(v1alpha1.ConditionStalled, "Pending", v1alpha1.ReasonSecretMissing, "%s %s names the Secret %s in spec.backup.destination.credentialsSecretRef, and there is none: make it, or name another", ref.Kind, ref.Name, s.missing)
	case s.ahead != "":
		p.is(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonWaitingForTurn, "backup %s of the same cluster is under way", s.ahead)
	case s.leaving != "" && s.cluster.Common().Backup.Destination == nil:
		p.is(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonWaitingForTurn, "the data of backup %s goes from the volume first", s.leaving)
	case s.cluster.Common().Backup.Destination == nil && s.claim == nil:
		p.is(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonWaitingForTurn, "the volume %s is about to be made; where that is refused, BackedUp of %s %s says why", s.cluster.GetName()+v1alpha1.SuffixBackups, ref.Kind, ref.Name)
	case s.copying.Waits != "":
		p.is(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonWaitingForSource, "%s", s.copying.Waits)
	case s.most > 0:
		p.is(v1alpha1.ConditionReconciling, "Pending", v1alpha1.ReasonQueued, "%d backups come before it, and no more are made at the same time (--concurrent-backups of the operator)", s.most)
	default:
		return false
	}
	return true
}

// aheadOf finds the backup that another one of its cluster waits for; empty for
// none. All are the cluster's, the oldest first. They have an order, so that no
// two wait for each other: those that were begun come first, then the older
// ones. Beside that, one that has a Job is waited for.
func aheadOf(b *v1alpha1.Backup, all []*v1alpha1.Backup, runs func(*v1alpha1.Backup) (bool, error)) (string, error) {
	begun := func(b *v1alpha1.Backup) bool { return b.Status.StartTime != nil }
	older, ahead := true, ""
	for _, other := range all {
		switch first := begun(other) && !begun(b) || begun(other) == begun(b) && older; {
		case other.UID == b.UID:
			older = false
		case other.Finished():
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

// failures are how many of a cluster's backups have failed since one was good.
func failures(own []*v1alpha1.Backup) int {
	n := 0
	for _, b := range own { // the oldest first
		switch {
		case b.Succeeded():
			n = 0
		case b.Finished() && !b.Status.DataLost:
			n++
		}
	}
	return n
}

// rotated are the members to copy from, with another one first after each
// failure: what is wrong may be the first one's own data.
func rotated(sources []engine.Source, failures int) []engine.Source {
	if len(sources) == 0 {
		return nil
	}
	first := failures % len(sources)
	return slices.Concat(sources[first:], sources[:first])
}

// latch puts on record where the data goes: whatever becomes of the cluster
// from now on, it can be found there, and removed.
func (s backupSeen) latch(p *backupPlan) {
	c, b := s.cluster, s.backup
	at := &v1alpha1.BackupLocation{
		URL: onVolume, ClaimName: c.GetName() + v1alpha1.SuffixBackups,
		Prefix: fmt.Sprintf("%s/%s/%s/%s-%s/", b.Namespace, c.GetName(), c.GetUID(), b.Name, b.UID),
	}
	if s.claim != nil {
		at.ClaimUID = string(s.claim.UID)
	}
	if d := c.Common().Backup.Destination; d != nil {
		at = inStore(d, at.Prefix)
	}
	started := metav1.NewTime(s.now.Truncate(time.Second))
	p.status.Location, p.status.StartTime, p.status.ClusterUID, p.status.Source = at, &started, string(c.GetUID()), s.copying.Source()
	p.status.Placement = placement(c.Common())
	p.latch = true
	p.is(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "the copy of %s is starting", s.copying.Source())
}

// inStore is a place in a destination.
func inStore(d *v1alpha1.BackupDestination, prefix string) *v1alpha1.BackupLocation {
	at := &v1alpha1.BackupLocation{
		URL: strings.TrimRight(d.URL, "/"), Endpoint: d.Endpoint, Region: d.Region, PathStyle: d.PathStyle, Prefix: prefix,
	}
	if d.CredentialsSecretRef != nil {
		at.CredentialsSecret = d.CredentialsSecretRef.Name
	}
	return at
}

// running says how far the pod is.
func (s backupSeen) running(p *backupPlan) {
	run := s.backup.Status.Run
	fault := podFault(s.pods, s.job)
	switch {
	case jobIs(s.job, batchv1.JobFailed):
		s.fail(p, fault)
		return
	case jobIs(s.job, batchv1.JobComplete):
		s.fail(p, "the Job has ended without a result")
		return
	case s.job.DeletionTimestamp != nil:
		p.is(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "somebody has deleted the Job: once it is gone, another one begins")
		return
	case s.idle() > idleDeadline:
		s.giveUp(p, fmt.Sprintf("no program of Job %s has run for %s%s", s.job.Name, idleDeadline, because(fault)))
		return
	case fault != "":
		p.is(v1alpha1.ConditionStalled, "Copying", v1alpha1.ReasonWaitingForSource, "%s", fault)
	case run == nil && len(s.pods) == 0 && s.now.Sub(s.job.CreationTimestamp.Time) > noPod:
		p.is(v1alpha1.ConditionStalled, "Copying", v1alpha1.ReasonWaitingForSource, "Job %s gets no pod: its events say why, such as a quota or an admission policy", s.job.Name)
	case run == nil:
		p.is(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "the copy of %s is starting", s.backup.Status.Source)
	case run.Error != "":
		p.is(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "trying again: %s", run.Error)
	case run.Step == v1alpha1.BackupStepVerifying:
		p.is(v1alpha1.ConditionReconciling, "Verifying", v1alpha1.ReasonVerifying, "what is stored is read and checked")
	default:
		p.is(v1alpha1.ConditionReconciling, "Copying", v1alpha1.ReasonCopying, "%s is copied", s.backup.Status.Source)
	}
	if run == nil {
		p.recheck = backupRecheck
	}
	p.objects = accessObjects(s)
}

// idle is how long the Job has had no program that runs, or ran in the newest
// pod.
func (s backupSeen) idle() time.Duration {
	since := s.job.CreationTimestamp.Time
	for i := range s.pods {
		pod := &s.pods[i]
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != s.job.UID {
			continue
		}
		if since.Before(pod.CreationTimestamp.Time) {
			since = pod.CreationTimestamp.Time
		}
		going := pod.DeletionTimestamp != nil
		if going && since.Before(pod.DeletionTimestamp.Time) {
			since = pod.DeletionTimestamp.Time
		}
		for _, c := range pod.Status.ContainerStatuses {
			switch ended := c.State.Terminated; {
			case c.Name != containerJob:
			case c.State.Running != nil && !going:
				return 0
			case ended != nil && since.Before(ended.FinishedAt.Time):
				since = ended.FinishedAt.Time
			}
		}
	}
	return s.now.Sub(since)
}

// giveUp ends a backup that is not to go on, and its Job.
func (s backupSeen) giveUp(p *backupPlan, why string) {
	s.fail(p, "")
	p.status.Error = "it was given up: " + why
	p.is(v1alpha1.ConditionStalled, "Failed", v1alpha1.ReasonBackupFailed, "%s", p.status.Error)
	p.event.Message = p.status.Error
	s.halt(p)
}

// halt stops the Job, where it still runs.
func (s backupSeen) halt(p *backupPlan) {
	if s.job == nil || jobEnded(s.job) {
		return
	}
	p.recheck = backupRecheck
	if s.job.DeletionTimestamp == nil {
		p.stop = s.job
	}
}

func (s backupSeen) complete(p *backupPlan) {
	p.status.Result = s.backup.Status.Run.Result.DeepCopy()
	p.status.Size = humanize.IBytes(uint64(max(0, p.status.Result.Size.Value()))) //nolint:gosec // not negative
	s.end(p)
	s.finished(p)
	p.event = engine.Note{Reason: v1alpha1.ReasonBackupCompleted, Action: "Backup", Message: p.fact.Message}
}

func (s backupSeen) fail(p *backupPlan, fault string) {
	p.status.Error = fault
	if run := s.backup.Status.Run; run != nil && run.Error != "" {
		p.status.Error = run.Error
	}
	if p.status.Error == "" {
		p.status.Error = "the Job has failed: see its pods' logs"
	}
	s.end(p)
	s.finished(p)
	p.event, p.warns = engine.Note{Reason: v1alpha1.ReasonBackupFailed, Action: "Backup", Message: p.status.Error}, true
}

func (s backupSeen) end(p *backupPlan) {
	done := metav1.NewTime(s.now.Truncate(time.Second))
	p.status.CompletionTime, p.latch = &done, true
	if start := p.status.StartTime; start != nil {
		p.status.Duration = done.Sub(start.Time).Round(time.Second).String()
	}
}

// finished says how it ended. The Job of a good backup goes; that of another
// one stays, for its log.
func (s backupSeen) finished(p *backupPlan) {
	if r := p.status.Result; r != nil && s.lost() {
		p.status.DataLost = true
		p.complete = s.leftovers || s.job != nil
		p.is(v1alpha1.ConditionStalled, "DataLost", v1alpha1.ReasonDataLost, "the volume %s, which the data was on, is gone, and the data with it: delete this Backup", p.status.Location.ClaimName)
		return
	} else if r != nil {
		p.status.DataLost = false
		p.complete = s.leftovers || s.job != nil
		p.is(v1alpha1.ConditionReady, "Completed", v1alpha1.ReasonBackupCompleted, "complete and verified: %s of version %s up to %s", p.status.Size, r.Version, r.EndPosition)
		return
	}
	p.is(v1alpha1.ConditionStalled, "Failed", v1alpha1.ReasonBackupFailed, "%s", p.status.Error)
	s.halt(p)
	s.sweep(p)
}

func because(fault string) string {
	if fault == "" {
		return ""
	}
	return " (" + fault + ")"
}
